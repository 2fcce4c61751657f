//! Observing who leads, without ever wanting to.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::belief::Belief;
use super::calls::Calls;
use super::role::RolePublisher;
use super::{Counters, Role, RoleWatch, Timing};
use crate::backoff::Backoff;
use crate::clock;
use crate::node::Node;
use crate::store::{Epoch, Leader, Lock, StoreError};

/// Observes an election and publishes whom it elected: [`Role::Replica`] or, while nobody leads, [`Role::Electing`].
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use bellwether::{node::Node, replication::{Candidate, Follower, Role, Timing}, store::Memory};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Memory::new(1);
/// let timing = Timing::new(Duration::from_secs(3))?;
/// let node = Node::new("10.0.0.1:4000".parse()?);
/// let (candidate, _handle, _) = Candidate::new(store.lock(&node, timing.ttl()), node.clone(), timing);
/// let (follower, roles) = Follower::new(store.lock(&Node::new("10.0.0.2:4000".parse()?), timing.ttl()), None, timing);
///
/// let stop = CancellationToken::new();
/// let mut tasks = tokio::task::JoinSet::new();
/// tasks.spawn(candidate.run(stop.clone()));
/// tasks.spawn(follower.run(stop.clone()));
///
/// let role = roles.wait_until(|role| role.leader().is_some()).await;
/// assert_eq!(role.leader().map(|leader| leader.address.as_str()), Some("10.0.0.1:4000"));
/// stop.cancel();
/// # tasks.join_all().await; Ok(()) }
/// ```
pub struct Follower {
    observer: Observer,
}

impl Follower {
    /// A follower of `lock`, and where it publishes. A record that names `node` itself is nobody to follow.
    pub fn new(lock: Arc<dyn Lock>, node: Option<&Node>, timing: Timing) -> (Self, RoleWatch) {
        let (observer, roles) = Observer::new(lock, node.cloned(), timing);
        (Self { observer }, roles)
    }

    /// What this follower counts.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.observer.calls.counters())
    }

    /// Observes until `stop` is cancelled. A store outage of any length heals by itself; meanwhile the role stands.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn run(mut self, stop: CancellationToken) {
        let observing = async {
            loop {
                self.observer.step().await;
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = observing => {}
        }
    }
}

/// What followers and candidates share: reading the store, judging what it says, and publishing it.
pub(super) struct Observer {
    pub(super) calls: Calls,
    pub(super) belief: Belief,
    pub(super) timing: Timing,
    node: Option<Node>,
    publisher: RolePublisher,
    backoff: Backoff,
    last_look: Option<Instant>,
    warned_of: Option<Epoch>,
}

/// How long to wait before the store is asked again.
pub(super) enum Pause {
    /// Until the holder may differ from this one; a third of the TTL at most.
    UntilChanged(Option<Leader>),
    /// This long, after a failure.
    For(Duration),
}

impl Observer {
    pub(super) fn new(lock: Arc<dyn Lock>, node: Option<Node>, timing: Timing) -> (Self, RoleWatch) {
        let (publisher, roles) = RolePublisher::new();
        let observer = Self {
            calls: Calls::new(lock, timing),
            belief: Belief::default(),
            timing,
            node,
            publisher,
            backoff: Backoff::new(timing.retry_after(), timing.renew_every()),
            last_look: None,
            warned_of: None,
        };
        (observer, roles)
    }

    /// Asks the store once who leads, publishes the answer, and waits until asking again makes sense.
    pub(super) async fn step(&mut self) {
        let answer = self.calls.leader().await;
        let pause = self.take(answer);
        self.wait(pause).await;
    }

    /// Publishes what the store answered; a failure changes no role.
    pub(super) fn take(&mut self, answer: Result<Option<Leader>, StoreError>) -> Pause {
        self.last_look = Some(clock::now());
        match answer {
            Ok(leader) => {
                self.backoff.reset();
                self.see(leader.clone());
                Pause::UntilChanged(leader)
            }
            Err(_) => Pause::For(self.backoff.next_pause()),
        }
    }

    /// Waits as long as `pause` says, and never so short that a store with spurious hints is stormed.
    pub(super) async fn wait(&self, pause: Pause) {
        match pause {
            Pause::For(duration) => tokio::time::sleep(duration).await,
            Pause::UntilChanged(seen) => {
                let hint = async {
                    if self.calls.changed(seen.as_ref()).await.is_err() {
                        tokio::time::sleep(self.timing.retry_after()).await;
                    }
                };
                drop(tokio::time::timeout(self.timing.renew_every(), hint).await);
                if let Some(last_look) = self.last_look {
                    tokio::time::sleep_until(last_look + self.timing.ttl() / 500).await;
                }
            }
        }
    }

    fn see(&mut self, leader: Option<Leader>) {
        let leader = leader.filter(|leader| !self.is_me(leader));
        match self.belief.judge(leader, clock::now(), self.timing.ttl()) {
            Some(leader) => {
                let (address, epoch) = (leader.address.clone(), leader.epoch);
                if self.publish(Role::Replica(leader)) {
                    info!(%epoch, "New leader elected: {address}");
                }
            }
            None => drop(self.publish(Role::Electing)),
        }
    }

    /// A record with this node's own address that is not this node's tenure: an earlier run's, or a twin's. Following it
    /// would mean forwarding to ourselves.
    fn is_me(&mut self, leader: &Leader) -> bool {
        let mine = self.node.as_ref().is_some_and(|node| node.address == leader.address);
        if mine && self.warned_of.replace(leader.epoch) != Some(leader.epoch) {
            warn!(address = %leader.address, epoch = %leader.epoch, "leader record points at this node but is not its tenure: waiting for it to end");
        }
        mine
    }

    /// Publishes `role`; true where it differs from what was published before.
    pub(super) fn publish(&self, role: Role) -> bool {
        let differs = self.publisher.publish(role);
        if differs {
            self.calls.counters().role_changed();
        }
        differs
    }
}
