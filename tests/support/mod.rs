//! What the tests of whole daemons share: real processes, a real store, a toy app, clients, and eyes on all of them.
//!
//! Everything is started on free loopback ports with its data in a temporary folder, and ended by its process id when its
//! value is dropped. Tests wait for states, each with a reason and a limit, and never for time.

pub(crate) mod access;
pub(crate) mod account;
pub(crate) mod adapter;
pub(crate) mod app;
pub(crate) mod browser;
pub(crate) mod bulk;
pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod consul;
pub(crate) mod crowd;
pub(crate) mod daemon;
pub(crate) mod database;
pub(crate) mod docker;
pub(crate) mod etcd;
pub(crate) mod frames;
pub(crate) mod http;
pub(crate) mod interop;
pub(crate) mod kazoo;
pub(crate) mod kubernetes;
pub(crate) mod ledger;
pub(crate) mod load;
pub(crate) mod mariadb;
pub(crate) mod metrics;
pub(crate) mod names;
pub(crate) mod one;
pub(crate) mod pair;
pub(crate) mod place;
pub(crate) mod places;
pub(crate) mod port;
pub(crate) mod postgres;
pub(crate) mod raw;
pub(crate) mod secure;
pub(crate) mod spoken;
pub(crate) mod store;
pub(crate) mod streams;
mod wait;
pub(crate) mod wire;
pub(crate) mod zookeeper;

use std::time::Duration;

use tokio::time::Instant;

pub(crate) use wait::wait_for;

/// Returns what `future` gives.
///
/// # Panics
/// After `limit`, with `reason`.
pub(crate) async fn within<R>(reason: &str, limit: Duration, future: impl Future<Output = R>) -> R {
    match tokio::time::timeout(limit, future).await {
        Ok(result) => result,
        Err(_) => panic!("{reason} took longer than {limit:?}"),
    }
}

/// How long `act` takes when it is quickest, of five times: a busy machine makes some slow, whoever waits makes all slow.
pub(crate) async fn quickest(mut act: impl AsyncFnMut()) -> Duration {
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        act().await;
        quickest = quickest.min(begun.elapsed());
    }
    quickest
}
