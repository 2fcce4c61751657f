//! What a node is, and how every request learns of it.
//!
//! One writer, the candidate or follower, publishes; any number of threads read. Reading costs a request no lock: the
//! role is an atomically swapped value. A primary's role carries its deadline and is compared with the clock on every
//! read, so that neither a stalled candidate nor a resumed process leaves a zombie primary behind.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::clock;
use crate::node::Address;
use crate::store::{Epoch, Leader};

/// What a node is at one instant; which handler serves a request follows from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Role {
    /// No primary is known: requests wait.
    Electing,
    /// Requests go to this leader.
    Replica(Leader),
    /// This node serves, until the deadline at the latest.
    Primary {
        /// The fencing token of the tenure.
        epoch: Epoch,
        /// When the tenure must be assumed over.
        deadline: Instant,
    },
    /// This node finishes what it is serving and takes on nothing new.
    SteppingDown {
        /// The fencing token of the tenure.
        epoch: Epoch,
        /// When the tenure must be assumed over.
        deadline: Instant,
    },
}

impl Role {
    /// The role's name as `/info`, logs and metrics show it.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Electing => "electing",
            Self::Replica(_) => "replica",
            Self::Primary { .. } => "primary",
            Self::SteppingDown { .. } => "stepping-down",
        }
    }

    /// Every role's name, for metrics that show all of them.
    pub const NAMES: [&'static str; 4] = ["electing", "replica", "primary", "stepping-down"];

    /// The tenure this node itself is in, also while it steps down.
    pub fn tenure(&self) -> Option<Epoch> {
        match self {
            Self::Primary { epoch, .. } | Self::SteppingDown { epoch, .. } => Some(*epoch),
            Self::Electing | Self::Replica(_) => None,
        }
    }

    /// Whom a replica follows.
    pub fn leader(&self) -> Option<&Leader> {
        match self {
            Self::Replica(leader) => Some(leader),
            Self::Electing | Self::Primary { .. } | Self::SteppingDown { .. } => None,
        }
    }

    /// The primary and its epoch as a node in this role, which is reached at `own`, knows them; the epoch is 0 while none is known.
    pub fn primary<'a>(&'a self, own: Option<&'a Address>) -> (Option<&'a Address>, Epoch) {
        match self {
            Self::Electing => (None, Epoch(0)),
            Self::Replica(leader) => (Some(&leader.address), leader.epoch),
            Self::Primary { epoch, .. } | Self::SteppingDown { epoch, .. } => (own, *epoch),
        }
    }

    fn deadline(&self) -> Option<Instant> {
        match self {
            Self::Primary { deadline, .. } | Self::SteppingDown { deadline, .. } => Some(*deadline),
            Self::Electing | Self::Replica(_) => None,
        }
    }

    /// Whether two readings mean the same to a request: a renewal, which only moves the deadline, changes nothing.
    fn same_as(&self, other: &Self) -> bool {
        self.name() == other.name() && self.tenure() == other.tenure() && self.leader() == other.leader()
    }
}

struct Cell {
    role: ArcSwap<Role>,
    published: Notify,
}

/// The writing side; there is one for each [`RoleWatch`] family.
pub(crate) struct RolePublisher {
    cell: Arc<Cell>,
}

impl RolePublisher {
    /// A fresh cell, in which the role is [`Role::Electing`].
    pub(crate) fn new() -> (Self, RoleWatch) {
        let cell = Arc::new(Cell { role: ArcSwap::from_pointee(Role::Electing), published: Notify::new() });
        (Self { cell: Arc::clone(&cell) }, RoleWatch { cell })
    }

    /// Replaces the role and wakes whoever waits for a change. True where the change means something to a request.
    pub(crate) fn publish(&self, role: Role) -> bool {
        let before = self.cell.role.swap(Arc::new(role));
        let differs = !before.same_as(&self.cell.role.load());
        // Renewals are announced too: whoever waits for a deadline must learn that it moved.
        self.cell.published.notify_waiters();
        differs
    }
}

/// The reading side: cheap to clone, to share between threads, and to ask on every request.
#[derive(Clone)]
pub struct RoleWatch {
    cell: Arc<Cell>,
}

impl RoleWatch {
    /// The watch of a node that takes part in no election: primary for ever, under epoch 1.
    pub fn lone() -> Self {
        let (publisher, watch) = RolePublisher::new();
        let a_century = std::time::Duration::from_secs(100 * 365 * 24 * 60 * 60);
        publisher.publish(Role::Primary { epoch: Epoch(1), deadline: clock::now() + a_century });
        watch
    }

    /// The role now. A tenure whose deadline has passed reads as [`Role::Electing`], whatever was published.
    pub fn current(&self) -> Role {
        let role = self.cell.role.load();
        match role.deadline() {
            Some(deadline) if clock::now() >= deadline => Role::Electing,
            _ => Role::clone(&role),
        }
    }

    /// Returns the role once it differs from `seen` by more than a renewed deadline; at once if it does already.
    ///
    /// # Cancel safety
    /// May be dropped at any time; no change is missed by calling it again with the same `seen`.
    pub async fn changed(&self, seen: &Role) -> Role {
        self.wait_until(|role| !role.same_as(seen)).await
    }

    /// Returns the first role that `wanted` accepts; at once if the present one is.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn wait_until(&self, mut wanted: impl FnMut(&Role) -> bool) -> Role {
        loop {
            let mut published = std::pin::pin!(self.cell.published.notified());
            // Registered before the role is read, so that no publication falls between the two.
            published.as_mut().enable();
            let role = self.current();
            if wanted(&role) {
                return role;
            }
            match role.deadline() {
                Some(deadline) => drop(tokio::time::timeout_at(deadline, published).await),
                None => published.await,
            }
        }
    }
}

impl fmt::Debug for RoleWatch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("RoleWatch").field(&self.current()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn primary(epoch: u64, seconds: u64) -> Role {
        Role::Primary { epoch: Epoch(epoch), deadline: clock::now() + Duration::from_secs(seconds) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenure_reads_as_over_once_its_deadline_passes() {
        let (publisher, watch) = RolePublisher::new();
        publisher.publish(primary(1, 3));
        tokio::time::advance(Duration::from_millis(2_900)).await;
        assert_eq!(watch.current().name(), "primary");
        tokio::time::advance(Duration::from_millis(101)).await;
        assert_eq!(watch.current(), Role::Electing);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_hears_of_a_deadline_that_nobody_announces() {
        let (publisher, watch) = RolePublisher::new();
        let serving = primary(1, 3);
        publisher.publish(serving.clone());
        let started = clock::now();
        assert_eq!(watch.changed(&serving).await, Role::Electing);
        assert!(clock::now() - started < Duration::from_millis(3_100));
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_is_no_change_but_moves_the_deadline() {
        let (publisher, watch) = RolePublisher::new();
        let serving = primary(1, 3);
        publisher.publish(serving.clone());
        assert!(!publisher.publish(primary(1, 9)));
        let waited = tokio::time::timeout(Duration::from_secs(8), watch.changed(&serving)).await;
        assert!(waited.is_err(), "the renewed tenure lasts nine seconds");
    }
}
