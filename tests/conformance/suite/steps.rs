//! The steps that promises are told in. Each one waits for a state, within a limit, and says what it waited for.

use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::store::{Attempt, Leader, Lease, Lock, Renewal, StoreError};
use tokio::time::{self, Instant};

use crate::harness::Harness;
use crate::rig::node;
use crate::wait::wait_for;

/// How long anything that needs no TTL to run out may take on a busy machine.
pub(crate) const PROMPT: Duration = Duration::from_secs(30);

/// A client for a node of its own, whose leases outlive any test, however slow the machine.
pub(crate) fn client<S: Harness>(store: &S, port: u16) -> (Node, Arc<dyn Lock>) {
    client_with(store, port, Duration::from_secs(60))
}

/// A client whose leases a test may wait to see expire.
pub(crate) fn brief_client<S: Harness>(store: &S, port: u16) -> (Node, Arc<dyn Lock>) {
    client_with(store, port, store.ttl())
}

fn client_with<S: Harness>(store: &S, port: u16, ttl: Duration) -> (Node, Arc<dyn Lock>) {
    let node = node(port);
    let lock = store.lock(&node, ttl);
    (node, lock)
}

/// Repeats a call until the store gives a decision, as the candidate does.
async fn decided<T>(what: &str, mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    wait_for(what, PROMPT, async || match call().await {
        Err(error @ StoreError::Unavailable { .. }) => Err(error),
        Err(error) => panic!("{what}: {error}"),
        Ok(decision) => Ok(decision),
    })
    .await
}

pub(crate) async fn acquire(lock: &dyn Lock) -> Attempt {
    decided("acquire", || lock.acquire()).await
}

pub(crate) async fn withdraw(lock: &dyn Lock) {
    decided("withdraw", || lock.withdraw()).await;
}

pub(crate) async fn erase(lock: &dyn Lock) {
    decided("erase", || lock.erase()).await;
}

pub(crate) async fn leader(lock: &dyn Lock) -> Option<Leader> {
    decided("leader", || lock.leader()).await
}

pub(crate) async fn renew(lease: &mut dyn Lease) -> Renewal {
    decided("renew", async || lease.renew().await).await
}

pub(crate) async fn release(lease: &mut dyn Lease) {
    decided("release", async || lease.release().await).await;
}

/// Acquires a lock that must be free.
pub(crate) async fn win(lock: &dyn Lock, why: &str) -> Box<dyn Lease> {
    match acquire(lock).await {
        Attempt::Held(lease) => lease,
        Attempt::Taken(by) => panic!("{why}, but the lock is taken by {by:?}"),
    }
}

/// Tries to acquire a lock that must not be given.
pub(crate) async fn lose(lock: &dyn Lock, why: &str) -> Option<Leader> {
    match acquire(lock).await {
        Attempt::Held(lease) => panic!("{why}, but the lock was given under epoch {}", lease.epoch()),
        Attempt::Taken(by) => by,
    }
}

/// Campaigns as the candidate does: tries, waits for a change, tries again.
pub(crate) async fn campaign(lock: &dyn Lock, within: Duration, why: &str) -> Box<dyn Lease> {
    let until = Instant::now() + within;
    loop {
        match acquire(lock).await {
            Attempt::Held(lease) => return lease,
            Attempt::Taken(by) => {
                assert!(Instant::now() < until, "{why}, but the lock is still taken by {by:?} after {within:?}");
                let recheck = until.min(Instant::now() + Duration::from_millis(200));
                drop(time::timeout_at(recheck, lock.changed(by.as_ref())).await);
            }
        }
    }
}

/// Waits until the lock names whom `wanted` accepts, led there by `changed` alone: without its hints, time runs out.
pub(crate) async fn hear(lock: &dyn Lock, within: Duration, why: &str, wanted: impl Fn(Option<&Leader>) -> bool) {
    let mut seen = leader(lock).await;
    let heard = time::timeout(within, async {
        while !wanted(seen.as_ref()) {
            decided("changed", || lock.changed(seen.as_ref())).await;
            seen = leader(lock).await;
        }
    });
    assert!(heard.await.is_ok(), "{why}, but nothing was heard of it within {within:?}");
}
