//! What the election tells about itself: numbers for metrics, and how the store is doing.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::clock;
use crate::store::StoreError;

/// Which call to the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Operation {
    Acquire,
    Renew,
    Release,
    Withdraw,
    Leader,
    Watch,
}

impl Operation {
    const NAMES: [&'static str; 6] = ["acquire", "renew", "release", "withdraw", "leader", "watch"];

    pub(super) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

const RESULTS: [&str; 4] = ["ok", "unavailable", "denied", "foreign"];

/// The election's numbers, written by one candidate or follower and read by anybody.
#[derive(Debug)]
pub struct Counters {
    role_changes: AtomicU64,
    /// Milliseconds; `u64::MAX` outside a tenure.
    lease_margin: AtomicU64,
    /// Milliseconds; 0 before the first tenure.
    granted_ttl: AtomicU64,
    calls: [[AtomicU64; RESULTS.len()]; Operation::NAMES.len()],
    contact: Mutex<Contact>,
}

#[derive(Debug)]
struct Contact {
    started: Instant,
    last: Option<Instant>,
    failing: Option<String>,
}

/// Whether the store answers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreHealth {
    /// How long ago the store last answered anything; since the start where it never did.
    pub silent_for: Duration,
    /// Whether it has answered at all.
    pub ever_answered: bool,
    /// What the latest call failed with; `None` after a success.
    pub failing: Option<String>,
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            role_changes: AtomicU64::new(0),
            lease_margin: AtomicU64::new(u64::MAX),
            granted_ttl: AtomicU64::new(0),
            calls: Default::default(),
            contact: Mutex::new(Contact { started: clock::now(), last: None, failing: None }),
        }
    }

    /// How often the role has changed since the start.
    pub fn role_changes(&self) -> u64 {
        self.role_changes.load(Ordering::Relaxed)
    }

    /// The least time that was left of the lease when a renewal was confirmed, in the present tenure.
    pub fn lease_margin(&self) -> Option<Duration> {
        match self.lease_margin.load(Ordering::Relaxed) {
            u64::MAX => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    /// The TTL that the store granted for the latest tenure of this node, which may differ from what was asked.
    pub fn granted_ttl(&self) -> Option<Duration> {
        match self.granted_ttl.load(Ordering::Relaxed) {
            0 => None,
            millis => Some(Duration::from_millis(millis)),
        }
    }

    /// Calls to the store so far: operation, result, how many.
    pub fn store_calls(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        Operation::NAMES.into_iter().zip(&self.calls).flat_map(|(operation, results)| {
            RESULTS.into_iter().zip(results).map(move |(result, count)| (operation, result, count.load(Ordering::Relaxed)))
        })
    }

    /// Whether the store answers.
    pub fn store(&self) -> StoreHealth {
        let contact = self.contact();
        StoreHealth {
            silent_for: clock::now().saturating_duration_since(contact.last.unwrap_or(contact.started)),
            ever_answered: contact.last.is_some(),
            failing: contact.failing.clone(),
        }
    }

    pub(super) fn role_changed(&self) {
        self.role_changes.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn tenure_began(&self, ttl: Duration) {
        self.lease_margin.store(u64::MAX, Ordering::Relaxed);
        self.granted_ttl.store(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    pub(super) fn renewed_with(&self, left: Duration) {
        let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX - 1);
        self.lease_margin.fetch_min(millis, Ordering::Relaxed);
    }

    /// Counts one call, and returns whether its outcome is news: the first failure of its kind, or the end of them.
    pub(super) fn called<T>(&self, operation: Operation, outcome: &Result<T, StoreError>) -> bool {
        let result = match outcome {
            Ok(_) => 0,
            Err(StoreError::Unavailable { .. }) => 1,
            Err(StoreError::Denied { .. }) => 2,
            Err(StoreError::Foreign { .. }) => 3,
        };
        self.calls[operation as usize][result].fetch_add(1, Ordering::Relaxed);
        let mut contact = self.contact();
        // Whoever stands in no queue leaves it without a call: that says nothing about the store.
        if let (Operation::Withdraw, Ok(_)) = (operation, outcome) {
            return false;
        }
        if result != 1 {
            contact.last = Some(clock::now());
        }
        let before = std::mem::replace(&mut contact.failing, outcome.as_ref().err().map(StoreError::to_string));
        match (before, outcome) {
            (None, Err(_)) | (Some(_), Ok(_)) => true,
            (Some(_), Err(StoreError::Unavailable { .. })) | (None, Ok(_)) => false,
            (Some(before), Err(error)) => before != error.to_string(),
        }
    }

    fn contact(&self) -> std::sync::MutexGuard<'_, Contact> {
        self.contact.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaving_no_queue_says_nothing_about_the_store() {
        let counters = Counters::new();
        assert!(counters.called::<()>(Operation::Acquire, &Err(StoreError::unavailable("acquire", "refused"))));
        assert!(!counters.called(Operation::Withdraw, &Ok(())), "no news");
        let health = counters.store();
        assert!(!health.ever_answered && health.failing.is_some(), "{health:?}");
    }
}
