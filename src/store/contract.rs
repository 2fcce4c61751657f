//! What the election needs of a store, and nothing of how a store does it.
//!
//! Every store can create or compare-and-set one record, put a time limit on it, and number its changes. They differ in
//! who enforces the limit and in how one hears of a change; a driver asks for the first and hides the second. Policy —
//! when to call, how long to wait, what to believe — is the `replication` room's.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use crate::node::Address;

/// Orders tenures: each tenure of a lock has a greater epoch than every one before it, also after the record was
/// deleted, also when the same node leads again. It is the fencing token that the app sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// Whom the store names, and the number of that tenure.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leader {
    /// Where the leader is reached.
    pub address: Address,
    /// Its fencing token.
    pub epoch: Epoch,
}

/// One named lock, seen from one node.
///
/// Whatever the store decided is `Ok`; `Err` means that it gave no decision, and then the call may still have taken
/// effect. A driver has no loop, no retry and no timer beyond what one round trip needs: the caller bounds each call
/// and owns the deadline.
///
/// # Cancel safety
/// Every call may be dropped at any point without wedging the lock: a later [`acquire`](Lock::acquire) adopts whatever
/// was written.
#[async_trait]
pub trait Lock: Send + Sync + fmt::Debug {
    /// Tries once to start a tenure, joining the queue where the store keeps one. A record that this process wrote
    /// earlier is adopted and renewed. Called at least every third of the TTL while waiting.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision.
    async fn acquire(&self) -> Result<Attempt, StoreError>;

    /// Leaves the queue and gives back whatever this process still holds of the lock. Harmless when it holds nothing. For
    /// whoever will not acquire again: a call that arrives late may end any tenure of this process.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision.
    async fn withdraw(&self) -> Result<(), StoreError>;

    /// Takes away what the store keeps of an election between its tenures, such as a row that remembers the last epoch,
    /// unless another process leads in it. Only for scratch elections that nobody will use again: the next epoch may be less.
    ///
    /// Does nothing by itself: a driver whose store keeps anything must say how it goes.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision.
    async fn erase(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Whom the store names now.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision.
    async fn leader(&self) -> Result<Option<Leader>, StoreError>;

    /// Returns when the holder may differ from `seen`. A hint: it may be early or spurious, and the caller bounds how
    /// long it waits.
    ///
    /// # Errors
    /// [`StoreError`] when the store can no longer tell.
    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError>;
}

/// What came of an [`acquire`](Lock::acquire).
#[derive(Debug)]
pub enum Attempt {
    /// The tenure is ours, counted from when the call was sent.
    Held(Box<dyn Lease>),
    /// Somebody else's; whose, where the store says.
    Taken(Option<Leader>),
}

/// A tenure in progress. Dropping it gives nothing back.
#[async_trait]
pub trait Lease: Send + Sync + fmt::Debug {
    /// The fencing token of this tenure.
    fn epoch(&self) -> Epoch;

    /// The time limit as granted, which may differ from what was asked.
    fn ttl(&self) -> Duration;

    /// Extends the tenure, after checking that the record still names it.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision; the tenure then lasts until its deadline.
    async fn renew(&mut self) -> Result<Renewal, StoreError>;

    /// Ends the tenure at once, so that the next candidate need not wait. Harmless on a lost tenure.
    ///
    /// # Errors
    /// [`StoreError`] when the store gave no decision; the call may be made again.
    async fn release(&mut self) -> Result<(), StoreError>;
}

/// What came of a [`renew`](Lease::renew).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Renewal {
    /// The tenure goes on, counted from when the call was sent.
    Held,
    /// The record names this tenure no longer.
    Lost,
}

/// Anything that a driver's client reports.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Why a store gave no decision; named by what the candidate does next.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store did not answer, or not in time: try again.
    #[error("{operation}: store unavailable: {source}")]
    Unavailable {
        /// Which call, for people.
        operation: &'static str,
        /// What the client reported.
        source: Cause,
    },
    /// The store refused us: a person must change something; keep trying, slowly.
    #[error("{operation}: refused by the store: {source}")]
    Denied {
        /// Which call, for people.
        operation: &'static str,
        /// What the client reported.
        source: Cause,
    },
    /// Something that is no election record of ours lies in its place: never overwrite it.
    #[error("{place} holds `{found}`, which is no election record: remove it, or use another prefix or service")]
    Foreign {
        /// Where, in the store's own terms.
        place: String,
        /// What was found, shortened.
        found: String,
    },
}

impl StoreError {
    /// An [`Unavailable`](StoreError::Unavailable) for `operation`.
    pub fn unavailable(operation: &'static str, source: impl Into<Cause>) -> Self {
        Self::Unavailable { operation, source: source.into() }
    }

    /// A [`Denied`](StoreError::Denied) for `operation`.
    pub fn denied(operation: &'static str, source: impl Into<Cause>) -> Self {
        Self::Denied { operation, source: source.into() }
    }

    /// A [`Foreign`](StoreError::Foreign) at `place`, showing at most 64 characters of what was found.
    pub fn foreign(place: impl Into<String>, found: &[u8]) -> Self {
        let found = String::from_utf8_lossy(found).chars().take(64).collect::<String>();
        Self::Foreign { place: place.into(), found: found.escape_debug().to_string() }
    }
}
