//! A store in this process: what `memory:` opens, and the liar that the election is tested against.
//!
//! It keeps the promises of a real store with a time limit on its record, on tokio's clock, so also in paused time. Its
//! network can be made to lie, for each client apart: see [`Faults`]. Nothing runs in the background. What would have
//! happened since the last look — a request that arrived late, a record that expired — is made good at the next one, in
//! the order in which it was due, so that one seed gives one history.

mod faults;
mod lock;
mod table;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::contract::{Epoch, Lock};
use super::election::Election;
use crate::node::{BootId, Node};

pub use faults::Faults;

use faults::Link;
use lock::MemoryLock;
use table::Table;

/// A store with one election's record. Clones are the same store.
///
/// ```
/// use std::time::Duration;
/// use bellwether::node::Node;
/// use bellwether::store::{Attempt, Memory};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let memory = Memory::new(42);
/// let (a, b) = (Node::new("a:1".parse()?), Node::new("b:1".parse()?));
/// let ttl = Duration::from_secs(10);
/// assert!(matches!(memory.lock(&a, ttl).acquire().await?, Attempt::Held(_)));
/// assert!(matches!(memory.lock(&b, ttl).acquire().await?, Attempt::Taken(Some(leader)) if leader.address == a.address));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Memory {
    server: Arc<Server>,
}

/// Who holds the record, as only the store itself can know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The holder.
    pub node: Node,
    /// Its tenure.
    pub epoch: Epoch,
    /// When the record expires unless it is renewed.
    pub expires: Instant,
}

impl Memory {
    /// An empty store; `seed` decides all that its faults leave to chance.
    pub fn new(seed: u64) -> Self {
        let state = State {
            table: Table::default(),
            running: true,
            links: HashMap::new(),
            requests: Vec::new(),
            rng: fastrand::Rng::with_seed(seed),
        };
        Self { server: Arc::new(Server { state: Mutex::new(state), touched: Notify::new() }) }
    }

    /// The store that all of this process share under one URL and election.
    pub(super) fn shared(url: &str, election: &Election) -> Self {
        static STORES: OnceLock<Mutex<HashMap<(String, Election), Memory>>> = OnceLock::new();
        let mut stores = STORES.get_or_init(Mutex::default).lock().expect("nothing panics with this locked");
        stores.entry((url.to_owned(), election.clone())).or_insert_with(|| Self::new(0)).clone()
    }

    /// The lock as `node` sees it.
    pub fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        Arc::new(MemoryLock::new(Arc::clone(&self.server), node.clone(), ttl))
    }

    /// What lies between `node` and the store.
    pub fn faults(&self, node: &Node) -> Faults {
        Faults::new(Arc::clone(&self.server), node.boot)
    }

    /// Who holds the lock in truth, whatever anybody believes.
    pub fn holder(&self) -> Option<Holder> {
        self.server.state().table.holder(Instant::now())
    }

    /// Ends the store: every call is refused until [`start`](Self::start). The record goes on ageing.
    pub fn stop(&self) {
        self.server.change(|state| state.running = false);
    }

    /// Starts the store again with what it had.
    pub fn start(&self) {
        self.server.change(|state| state.running = true);
    }

    /// Loses all data, the numbering of epochs included.
    pub fn wipe(&self) {
        self.server.change(|state| state.table = Table::default());
    }

    /// Deletes the record as an operator would; the numbering goes on.
    pub fn delete_record(&self) {
        self.server.change(|state| state.table.delete());
    }

    /// Puts something into the record's place that is no election record.
    pub fn write_foreign(&self, found: &[u8]) {
        self.server.change(|state| state.table.write_foreign(found));
    }

    /// What lies in the record's place as bytes: the leader's address, or what [`write_foreign`](Self::write_foreign) put there.
    pub fn value(&self) -> Option<Vec<u8>> {
        self.server.state().table.value(Instant::now())
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Memory").field("holder", &self.holder()).finish()
    }
}

/// The store and the wires to it.
struct Server {
    state: Mutex<State>,
    /// Notified after anything that a waiting client might see.
    touched: Notify,
}

struct State {
    table: Table,
    running: bool,
    links: HashMap<BootId, Link>,
    requests: Vec<Request>,
    rng: fastrand::Rng,
}

/// Something sent that has not arrived: it will, also when its sender has stopped waiting.
struct Request {
    due: Instant,
    arrive: Effect,
}

type Effect = Box<dyn FnOnce(&mut Table, Instant) + Send>;

impl Server {
    /// The state after all that was due until now.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().expect("nothing panics with this locked");
        if state.settle(Instant::now()) {
            self.touched.notify_waiters();
        }
        state
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.touched.notify_waiters();
    }
}

impl State {
    /// Lets everything arrive that was due; says whether anything was.
    fn settle(&mut self, now: Instant) -> bool {
        let mut due: Vec<Request> = self.requests.extract_if(.., |request| request.due <= now).collect();
        // Stable, so what was due at once arrives in the order of sending.
        due.sort_by_key(|request| request.due);
        let any = !due.is_empty();
        for request in due {
            // A request to a store that is down is lost; dropping it tells the sender.
            if self.running {
                (request.arrive)(&mut self.table, request.due);
            }
        }
        any
    }

    /// When there may next be something to see without anybody calling.
    fn next_event(&self) -> Option<Instant> {
        self.requests.iter().map(|request| request.due).chain(self.table.expires()).min()
    }

    fn link(&self, client: BootId) -> Link {
        self.links.get(&client).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
