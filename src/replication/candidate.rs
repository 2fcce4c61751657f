//! Campaigning, leading and resigning.
//!
//! One task owns all of it. Being primary *is* being inside [`Candidate::lead`]: every way out of that function publishes
//! that the tenure is over before anything is given back. Others send an order through a [`CandidateHandle`] and read a
//! [`RoleWatch`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::belief::Holder;
use super::follower::Observer;
use super::tenure::{Kept, Tenure};
use super::{Counters, Role, RoleWatch, Timing};
use crate::clock;
use crate::node::Node;
use crate::store::{Attempt, Epoch, Lease, Lock};

/// How long running work gets to end after it was cut off, before the lock is given back all the same.
pub(super) const CUT_GRACE: Duration = Duration::from_millis(250);

/// What a resigning primary waits for before it gives the lock back.
#[async_trait]
pub trait Drain: Send + Sync {
    /// Returns when nothing runs under `epoch` any more. [`Role::SteppingDown`] is published before the call, so that
    /// nothing new begins. The candidate bounds the wait.
    ///
    /// # Cancel safety
    /// Must be cancel safe.
    async fn drained(&self, epoch: Epoch);
}

/// Takes part in an election: campaigns for the lock, leads while it holds it, and campaigns again after any loss.
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use bellwether::{node::Node, replication::{Candidate, Role, Timing}, store::Memory};
/// use tokio_util::sync::CancellationToken;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Memory::new(1);
/// let timing = Timing::new(Duration::from_secs(3))?;
/// let node = Node::new("10.0.0.1:4000".parse()?);
/// let (candidate, handle, roles) = Candidate::new(store.lock(&node, timing.ttl()), node, timing);
///
/// let stop = CancellationToken::new();
/// let mut tasks = tokio::task::JoinSet::new();
/// tasks.spawn(candidate.run(stop.clone()));
///
/// let primary = roles.wait_until(|role| matches!(role, Role::Primary { .. })).await;
/// let resigned = handle.resign().await?;
/// assert_eq!(Some(resigned), primary.tenure());
/// assert_eq!(roles.current(), Role::Electing);
/// stop.cancel();
/// # tasks.join_all().await; Ok(()) }
/// ```
pub struct Candidate {
    observer: Observer,
    node: Node,
    orders: mpsc::Receiver<Order>,
    drain: Option<Arc<dyn Drain>>,
    drain_timeout: Duration,
}

/// Sends orders to a running [`Candidate`]. Cheap to clone.
#[derive(Clone, Debug)]
pub struct CandidateHandle {
    orders: mpsc::Sender<Order>,
}

#[derive(Debug)]
enum Order {
    Resign(oneshot::Sender<Result<Epoch, ResignError>>),
    Retire(oneshot::Sender<Option<Epoch>>),
}

/// Why a candidate did not resign.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ResignError {
    /// There is nothing to resign from.
    #[error("this node is not primary")]
    NotPrimary,
    /// The lock was lost while running work was being drained.
    #[error("the lock was lost before it could be given back")]
    LostMeanwhile,
    /// The candidate runs no longer.
    #[error("this node takes part in no election any more")]
    Stopped,
}

impl CandidateHandle {
    /// Makes a primary step down: hold what comes, drain what runs, give the lock back. It then stands aside for one TTL.
    /// Returns the epoch of the tenure that ended.
    ///
    /// # Errors
    /// [`ResignError`] when this node is not primary, or is no longer by the time its turn comes.
    ///
    /// # Cancel safety
    /// The order stands, also when the future is dropped.
    pub async fn resign(&self) -> Result<Epoch, ResignError> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order::Resign(answer)).await.map_err(|_| ResignError::Stopped)?;
        answered.await.map_err(|_| ResignError::Stopped)?
    }

    /// Makes a candidate step down, or leave the queue, and never campaign again; it goes on observing. Returns the epoch
    /// of the tenure that ended by it, if there was one.
    ///
    /// # Cancel safety
    /// The order stands, also when the future is dropped.
    pub async fn retire(&self) -> Option<Epoch> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(Order::Retire(answer)).await.ok()?;
        answered.await.ok().flatten()
    }
}

/// What a candidate does next.
enum Phase {
    Campaign,
    /// The store granted a tenure in answer to a call sent at this instant.
    Lead(Box<dyn Lease>, Instant),
    /// Observe only; campaign again at this instant, or never.
    Aside(Option<Instant>),
}

impl Candidate {
    /// A candidate for `lock` in the name of `node`; its handle; and where it publishes its role.
    pub fn new(lock: Arc<dyn Lock>, node: Node, timing: Timing) -> (Self, CandidateHandle, RoleWatch) {
        let (observer, roles) = Observer::new(lock, Some(node.clone()), timing);
        let (sender, orders) = mpsc::channel(8);
        let candidate = Self { observer, node, orders, drain: None, drain_timeout: Duration::ZERO };
        (candidate, CandidateHandle { orders: sender }, roles)
    }

    /// Waits for `drain`, for `timeout` at most, between stepping down and giving the lock back.
    #[must_use]
    pub fn with_drain(self, drain: Arc<dyn Drain>, timeout: Duration) -> Self {
        Self { drain: Some(drain), drain_timeout: timeout, ..self }
    }

    /// What this candidate counts.
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.observer.calls.counters())
    }

    /// Takes part until `stop` is cancelled. A store outage of any length heals by itself.
    ///
    /// Stopping is abrupt: the lock is left to its TTL. [`CandidateHandle::retire`] first gives it back.
    pub async fn run(mut self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.take_part() => {}
        }
        self.observer.publish(Role::Electing);
    }

    async fn take_part(&mut self) {
        let mut phase = Phase::Campaign;
        loop {
            phase = match phase {
                Phase::Campaign => self.campaign().await,
                Phase::Lead(lease, sent) => self.lead(lease, sent).await,
                Phase::Aside(until) => self.stand_aside(until).await,
            };
        }
    }

    async fn campaign(&mut self) -> Phase {
        loop {
            let sent = clock::now();
            let answer = match self.observer.calls.acquire().await {
                Ok(Attempt::Held(lease)) => return Phase::Lead(lease, sent),
                Ok(Attempt::Taken(leader)) => Ok(leader),
                Err(error) => Err(error),
            };
            let pause = self.observer.take(answer);
            tokio::select! {
                biased;
                order = next(&mut self.orders) => {
                    if let Some(phase) = self.obey(order).await {
                        return phase;
                    }
                }
                () = self.observer.wait(pause) => {}
            }
        }
    }

    /// Carries out an order given to a candidate that is not primary.
    async fn obey(&mut self, order: Order) -> Option<Phase> {
        match order {
            Order::Resign(answer) => {
                answer.send(Err(ResignError::NotPrimary)).ok();
                None
            }
            Order::Retire(answer) => {
                self.leave_queue().await;
                answer.send(None).ok();
                Some(Phase::Aside(None))
            }
        }
    }

    async fn leave_queue(&self) {
        if let Err(error) = self.observer.calls.withdraw().await {
            debug!(%error, "could not leave the queue, it forgets this node after a TTL");
        }
    }

    async fn lead(&mut self, lease: Box<dyn Lease>, sent: Instant) -> Phase {
        let mut tenure = Tenure::new(lease, self.node.address.clone(), sent);
        let epoch = tenure.epoch();
        if tenure.timing().ttl() > self.observer.timing.ttl() {
            warn!(asked = ?self.observer.timing.ttl(), granted = ?tenure.timing().ttl(), "store granted a longer TTL than asked, using it");
        }
        self.observer.calls.counters().tenure_began(tenure.timing().ttl());
        // A store that lost its data counts anew: whoever leads under an epoch as great gets a TTL to notice.
        let mut serve_from = self.observer.belief.doubts(epoch, &Holder::This).then(|| sent + tenure.timing().ttl());
        let why = loop {
            if tenure.is_over() {
                break "no renewal was confirmed in time";
            }
            if serve_from.is_none() {
                self.observer.belief.accept(epoch, Holder::This);
                if self.observer.publish(Role::Primary { epoch, deadline: tenure.deadline() }) {
                    info!(%epoch, ttl = ?tenure.timing().ttl(), "Cluster leadership acquired");
                }
            }
            tokio::select! {
                biased;
                order = next(&mut self.orders) => return self.step_down(tenure, order).await,
                () = sleep_until(serve_from.unwrap_or(sent)), if serve_from.is_some() => serve_from = None,
                kept = tenure.keep(&self.observer.calls) => {
                    if let Kept::Over(why) = kept {
                        break why;
                    }
                }
            }
        };
        self.lost(tenure, why).await
    }

    /// The lock is somebody else's or nobody's: say so first, then let go of whatever the store still keeps of this tenure.
    /// Not by leaving the queue: such a call could arrive late, and end the next tenure instead.
    async fn lost(&mut self, tenure: Tenure, why: &'static str) -> Phase {
        self.observer.publish(Role::Electing);
        warn!(epoch = %tenure.epoch(), why, "Cluster leadership lost");
        tenure.let_go(&self.observer.calls).await;
        Phase::Campaign
    }

    async fn step_down(&mut self, mut tenure: Tenure, order: Order) -> Phase {
        let epoch = tenure.epoch();
        info!(%epoch, "stepping down");
        if let Some(why) = self.drain(&mut tenure).await {
            match order {
                Order::Resign(answer) => {
                    answer.send(Err(ResignError::LostMeanwhile)).ok();
                    return self.lost(tenure, why).await;
                }
                Order::Retire(answer) => {
                    self.lost(tenure, why).await;
                    answer.send(None).ok();
                    return Phase::Aside(None);
                }
            }
        }
        let aside = clock::now() + tenure.timing().stand_aside();
        if tenure.release(&self.observer.calls).await {
            info!(%epoch, why = "resigned", "Cluster leadership lost");
        } else {
            warn!(%epoch, why = "resigned, but the store did not take the lock back: it runs out by itself", "Cluster leadership lost");
        }
        match order {
            Order::Resign(answer) => {
                answer.send(Ok(epoch)).ok();
                Phase::Aside(Some(aside))
            }
            Order::Retire(answer) => {
                answer.send(Some(epoch)).ok();
                Phase::Aside(None)
            }
        }
    }

    /// Holds what comes and waits for what runs, renewing meanwhile. Ends with [`Role::Electing`] published and, unless
    /// the tenure was lost on the way (and why), with nothing running.
    async fn drain(&mut self, tenure: &mut Tenure) -> Option<&'static str> {
        let epoch = tenure.epoch();
        let drain = self.drain.clone();
        let drained = async {
            if let Some(drain) = &drain {
                drain.drained(epoch).await;
            }
        };
        let mut drained = std::pin::pin!(timeout(self.drain_timeout, drained));
        self.observer.publish(Role::SteppingDown { epoch, deadline: tenure.deadline() });
        let in_time = loop {
            tokio::select! {
                biased;
                ended = &mut drained => break ended.is_ok(),
                kept = tenure.keep(&self.observer.calls) => match kept {
                    Kept::Extended => drop(self.observer.publish(Role::SteppingDown { epoch, deadline: tenure.deadline() })),
                    Kept::Unanswered => {}
                    Kept::Over(why) => return Some(why),
                },
            }
        };
        self.observer.publish(Role::Electing);
        if let (false, Some(drain)) = (in_time, &self.drain) {
            warn!(%epoch, timeout = ?self.drain_timeout, "running requests did not end in time, cutting them off");
            drop(timeout(CUT_GRACE, drain.drained(epoch)).await);
        }
        None
    }

    /// Leaves the lock to the others, and follows whom they elect.
    async fn stand_aside(&mut self, mut until: Option<Instant>) -> Phase {
        loop {
            tokio::select! {
                biased;
                order = next(&mut self.orders) => match order {
                    Order::Resign(answer) => drop(answer.send(Err(ResignError::NotPrimary))),
                    Order::Retire(answer) => {
                        until = None;
                        answer.send(None).ok();
                    }
                },
                () = sleep_until(until.unwrap_or_else(clock::now)), if until.is_some() => return Phase::Campaign,
                () = self.observer.step() => {}
            }
        }
    }
}

/// The next order; waits for ever once nobody is left to give one.
async fn next(orders: &mut mpsc::Receiver<Order>) -> Order {
    match orders.recv().await {
        Some(order) => order,
        None => std::future::pending().await,
    }
}
