//! The election's way to the store: every call bounded by [`Timing`], counted, and its failures logged once.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, error, info, warn};

use super::Timing;
use super::counters::{Counters, Operation};
use crate::duration::words;
use crate::store::{Attempt, Leader, Lease, Lock, Renewal, StoreError};

pub(super) struct Calls {
    lock: Arc<dyn Lock>,
    timing: Timing,
    counters: Arc<Counters>,
}

impl Calls {
    pub(super) fn new(lock: Arc<dyn Lock>, timing: Timing) -> Self {
        Self { lock, timing, counters: Arc::new(Counters::new()) }
    }

    pub(super) fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    pub(super) async fn acquire(&self) -> Result<Attempt, StoreError> {
        self.bounded(Operation::Acquire, self.lock.acquire()).await
    }

    pub(super) async fn withdraw(&self) -> Result<(), StoreError> {
        self.within(self.timing.leave_timeout(), Operation::Withdraw, self.lock.withdraw()).await
    }

    pub(super) async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        self.bounded(Operation::Leader, self.lock.leader()).await
    }

    pub(super) async fn renew(&self, lease: &mut dyn Lease) -> Result<Renewal, StoreError> {
        self.bounded(Operation::Renew, lease.renew()).await
    }

    pub(super) async fn release(&self, lease: &mut dyn Lease) -> Result<(), StoreError> {
        self.bounded(Operation::Release, lease.release()).await
    }

    /// Waits for a hint that the holder may differ from `seen`. Not bounded: whoever waits also watches a clock.
    pub(super) async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        let outcome = self.lock.changed(seen).await;
        self.note(Operation::Watch, &outcome);
        outcome
    }

    async fn bounded<T>(&self, operation: Operation, call: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.within(self.timing.call_timeout(), operation, call).await
    }

    async fn within<T>(
        &self,
        limit: Duration,
        operation: Operation,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let outcome = match tokio::time::timeout(limit, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::unavailable(operation.name(), format!("no answer within {}", words(limit)))),
        };
        self.note(operation, &outcome);
        outcome
    }

    /// Logs the first failure of a kind and the recovery; what repeats is only counted.
    fn note<T>(&self, operation: Operation, outcome: &Result<T, StoreError>) {
        let news = self.counters.called(operation, outcome);
        match outcome {
            Ok(_) if news => info!("store answers again"),
            Ok(_) => {}
            Err(error) if !news => debug!(%error, "store call failed again"),
            Err(error @ StoreError::Unavailable { .. }) => warn!(%error, "store call failed, trying again"),
            Err(error @ (StoreError::Denied { .. } | StoreError::Foreign { .. })) => error!(%error, "election cannot go on"),
        }
    }
}
