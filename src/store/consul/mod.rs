//! The lock in Consul: the key `PREFIX/SERVICE/leader`, locked by a session, with the leader's address and nothing else in
//! it.
//!
//! Every candidate has a session of its own, with a TTL and without any check of a node's health. Whoever's session holds
//! the key leads, and the index at which it took the key is the epoch: Consul's index grows with every write, also past a
//! deletion. A key that is given back holds nothing; one whose holder went without a word keeps its address, unlocked.
//!
//! What Consul does not promise is handled here: a key may be deleted or freed while its owner lives ([`rival`]), Consul
//! keeps a key back for a while after a session ended ([`delay`]), an agent may be silent, without a cluster, or no agent
//! at all ([`agents`], [`answer`]), and a renewal alone says nothing about the key ([`tenure`]).
//!
//! At rest every call needs one round trip. A request that was sent is seen to its end although the call was dropped, so
//! that over a slow way each call finds its connection open, or what the one before it has written.

mod access;
mod agents;
mod answer;
mod ask;
mod delay;
mod failure;
mod join;
mod key;
mod rival;
mod session;
mod tenure;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;

use self::access::Access;
use self::agents::Agents;
use self::delay::Delay;
use self::failure::Failure;
use self::join::Outcome;
use self::key::Place;
use self::rival::Rival;
use self::session::Session;
use self::tenure::Tenure;
use super::{Attempt, Epoch, Leader, Lock, LockConfig, OpenError, StoreError, StoreOptions};
use crate::node::Address;

/// The lock of one node at the Consul of these `agents`. Nothing is sent before its first call.
///
/// # Errors
/// [`OpenError`] when the token or a certificate cannot be used.
pub(super) fn open(agents: &[Address], options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let access = Access::new(options)?;
    Ok(Arc::new(Candidacy::new(access, agents, options, config)))
}

/// One node's view of the key, and its own session.
#[derive(Clone)]
struct Candidacy {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    address: Address,
    ttl: Duration,
    agents: Agents,
    session: Session,
    rival: Mutex<Rival>,
    delay: Mutex<Delay>,
}

impl Candidacy {
    fn new(access: Access, agents: &[Address], options: &StoreOptions, config: LockConfig) -> Self {
        let name = format!("{}{} {}", rival::MARK, config.election, config.node.address);
        let shared = Shared {
            place: Place::new(config.election.key()),
            agents: Agents::new(access, agents, config.call_timeout),
            session: Session::new(&name, config.ttl, options.lock_delay()),
            address: config.node.address,
            ttl: config.ttl,
            rival: Mutex::default(),
            delay: Mutex::new(Delay::new(options.lock_delay(), config.ttl)),
        };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Lock for Candidacy {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let outcome = self.shared.join().await.map_err(|failure| self.shared.report("acquire", failure))?;
        Ok(match outcome {
            Outcome::Leads { session, index } => Attempt::Held(Box::new(Tenure::new(self.clone(), session, index))),
            Outcome::Waits(leader) => Attempt::Taken(leader),
        })
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        self.shared.session.spend(None);
        self.shared.settle().await.map_err(|failure| self.shared.report("withdraw", failure))
    }

    async fn erase(&self) -> Result<(), StoreError> {
        self.shared.erase().await.map_err(|failure| self.shared.report("erase", failure))
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        self.shared.look().await.map(|(_, leader)| leader).map_err(|failure| self.shared.report("read the leader", failure))
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        self.shared.changed(seen).await.map_err(|failure| self.shared.report("watch the election", failure))
    }
}

impl fmt::Debug for Candidacy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &*self.shared;
        out.debug_struct("Candidacy").field("place", &shared.place.as_str()).field("agents", &shared.agents).finish_non_exhaustive()
    }
}

impl Shared {
    /// What the candidate is told.
    fn report(&self, operation: &'static str, failure: Failure) -> StoreError {
        failure.into_store_error(operation, self.place.as_str(), self.ttl)
    }
}

/// The epoch of a tenure that took the key at this index.
fn epoch(index: u64) -> Epoch {
    Epoch(index)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock can panic")
}
