//! Calls that are made again until the store gives a decision: a hiccup is no broken promise.

use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::duration::words;
use crate::store::{Attempt, Leader, Lease, Lock, Renewal, StoreError};

/// How long one decision may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// From a failed call to the next.
const PAUSE: Duration = Duration::from_millis(50);

type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + 'a>>;

pub(super) async fn acquire(lock: &dyn Lock) -> Result<Attempt, StoreError> {
    decided(lock, "acquire", |lock| Box::pin(lock.acquire())).await
}

pub(super) async fn withdraw(lock: &dyn Lock) -> Result<(), StoreError> {
    decided(lock, "withdraw", |lock| Box::pin(lock.withdraw())).await
}

pub(super) async fn erase(lock: &dyn Lock) -> Result<(), StoreError> {
    decided(lock, "erase", |lock| Box::pin(lock.erase())).await
}

pub(super) async fn leader(lock: &dyn Lock) -> Result<Option<Leader>, StoreError> {
    decided(lock, "leader", |lock| Box::pin(lock.leader())).await
}

pub(super) async fn renew(lease: &mut dyn Lease) -> Result<Renewal, StoreError> {
    decided(lease, "renew", |lease| Box::pin(lease.renew())).await
}

pub(super) async fn release(lease: &mut dyn Lease) -> Result<(), StoreError> {
    decided(lease, "release", |lease| Box::pin(lease.release())).await
}

async fn decided<O, T>(mut object: O, operation: &'static str, call: impl Fn(&mut O) -> Call<'_, T>) -> Result<T, StoreError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let outcome = timeout_at(until, call(&mut object)).await;
        match outcome.unwrap_or_else(|_| Err(StoreError::unavailable(operation, format!("no answer within {}", words(PATIENCE))))) {
            Err(StoreError::Unavailable { .. }) if Instant::now() + PAUSE < until => sleep(PAUSE).await,
            decision => return decision,
        }
    }
}
