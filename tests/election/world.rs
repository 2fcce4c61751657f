//! Several candidates, the store between them, and a judge that looks at every instant.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bellwether::clock;
use bellwether::node::Node;
use bellwether::replication::{Candidate, CandidateHandle, Counters, Role, RoleWatch, Timing};
use bellwether::store::{Epoch, Faults, Memory};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// One candidate with everything a test does to it.
pub(crate) struct Peer {
    pub(crate) node: Node,
    pub(crate) handle: CandidateHandle,
    pub(crate) roles: RoleWatch,
    pub(crate) counters: Arc<Counters>,
    pub(crate) faults: Faults,
    stall: Stall,
    stop: CancellationToken,
}

impl Peer {
    pub(crate) fn is_primary(&self) -> bool {
        matches!(self.roles.current(), Role::Primary { .. })
    }

    /// Stops the candidate's task from running, as a frozen process would be; readers of its role go on.
    pub(crate) fn freeze(&self) {
        self.stall.set(true);
    }

    pub(crate) fn thaw(&self) {
        self.stall.set(false);
    }
}

/// The candidates of one election, all in this task's runtime.
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) timing: Timing,
    pub(crate) peers: Vec<Peer>,
    judge: Judge,
    tasks: JoinSet<()>,
}

impl World {
    /// `count` candidates, started at once.
    pub(crate) fn new(seed: u64, ttl: Duration, count: usize) -> Self {
        let timing = Timing::new(ttl).expect("a usable TTL");
        let mut world = Self { memory: Memory::new(seed), timing, peers: Vec::new(), judge: Judge::default(), tasks: JoinSet::new() };
        for index in 0..count {
            let peer = world.start(Node::new(format!("10.0.0.{}:4000", index + 1).parse().expect("an address")));
            world.peers.push(peer);
        }
        world
    }

    fn start(&mut self, node: Node) -> Peer {
        let lock = self.memory.lock(&node, self.timing.ttl());
        let (candidate, handle, roles) = Candidate::new(lock, node.clone(), self.timing);
        let (stall, stop) = (Stall::default(), CancellationToken::new());
        let counters = candidate.counters();
        self.tasks.spawn(stall.over(candidate.run(stop.clone())));
        Peer { faults: self.memory.faults(&node), node, handle, roles, counters, stall, stop }
    }

    /// Ends a candidate without a word and starts another run of the same node.
    pub(crate) fn crash(&mut self, index: usize) {
        self.peers[index].thaw();
        self.peers[index].stop.cancel();
        let node = Node::new(self.peers[index].node.address.clone());
        self.peers[index] = self.start(node);
    }

    /// Lets `duration` pass and looks at every role every few milliseconds of it. False where the judge has seen a breach.
    pub(crate) async fn pass(&mut self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(3).min(end - Instant::now())).await;
            self.judge.look(&self.memory, &self.peers);
        }
    }

    /// Passes time until `wanted` holds; panics after `limit`.
    pub(crate) async fn until(&mut self, reason: &str, limit: Duration, wanted: impl Fn(&[Peer]) -> bool) -> Duration {
        let start = clock::now();
        while !wanted(&self.peers) {
            let roles: Vec<_> = self.peers.iter().map(|peer| peer.roles.current()).collect();
            assert!(clock::now() - start <= limit, "waited {limit:?} for {reason}; roles are {roles:?}, store: {:?}", self.memory);
            self.pass(Duration::from_millis(3)).await;
        }
        clock::now() - start
    }

    /// Passes time until one candidate leads and every other one follows it.
    pub(crate) async fn until_agreed(&mut self, limit: Duration) -> usize {
        self.until("one primary that all others follow", limit, |peers| agreed(peers).is_some()).await;
        agreed(&self.peers).expect("it was so a moment ago")
    }

    /// The data was lost or a record deleted: its numbers and its holder are no measure any more, but one primary is.
    pub(crate) fn store_forgot(&mut self) {
        self.judge.trusts_store = false;
    }
}

/// Which candidate leads, if there is one and all others follow it.
pub(crate) fn agreed(peers: &[Peer]) -> Option<usize> {
    let leads = peers.iter().position(Peer::is_primary)?;
    let (address, epoch) = (&peers[leads].node.address, peers[leads].roles.current().tenure());
    let follows =
        |peer: &Peer| peer.roles.current().leader().is_some_and(|leader| leader.address == *address && Some(leader.epoch) == epoch);
    peers.iter().enumerate().all(|(index, peer)| index == leads || follows(peer)).then_some(leads)
}

/// Checks what must hold at every instant.
struct Judge {
    highest: Option<Epoch>,
    trusts_store: bool,
}

impl Default for Judge {
    fn default() -> Self {
        Self { highest: None, trusts_store: true }
    }
}

impl Judge {
    fn look(&mut self, memory: &Memory, peers: &[Peer]) {
        let primaries: Vec<_> = peers
            .iter()
            .filter_map(|peer| match peer.roles.current() {
                Role::Primary { epoch, .. } => Some((peer.node.clone(), epoch)),
                Role::Electing | Role::Replica(_) | Role::SteppingDown { .. } => None,
            })
            .collect();
        assert!(primaries.len() <= 1, "two primaries: {primaries:?}");
        let Some((node, epoch)) = primaries.into_iter().next() else { return };
        if !self.trusts_store {
            return;
        }
        assert!(self.highest <= Some(epoch), "{node:?} serves under {epoch}, after {:?}", self.highest);
        self.highest = Some(epoch);
        let holder = memory.holder();
        let names_it = holder.as_ref().is_some_and(|holder| holder.node == node && holder.epoch >= epoch);
        assert!(names_it, "{node:?} serves under {epoch}, but the store's holder is {holder:?}");
    }
}

/// A switch that keeps a future from being polled.
#[derive(Clone, Default)]
struct Stall {
    state: Arc<Mutex<(bool, Option<Waker>)>>,
}

impl Stall {
    fn set(&self, frozen: bool) {
        let mut state = self.state.lock().expect("nobody panics with it");
        state.0 = frozen;
        if !frozen && let Some(waker) = state.1.take() {
            waker.wake();
        }
    }

    fn over(&self, inner: impl Future<Output = ()> + Send + 'static) -> Stalled {
        Stalled { stall: self.clone(), inner: Box::pin(inner) }
    }
}

struct Stalled {
    stall: Stall,
    inner: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Future for Stalled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        {
            let mut state = self.stall.state.lock().expect("nobody panics with it");
            if state.0 {
                state.1 = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        self.inner.as_mut().poll(context)
    }
}
