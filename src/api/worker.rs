//! The threads of the data plane.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::api::ledger::Ledger;
use crate::api::listener::Listener;
use crate::api::{Config, Shared};
use crate::replication::Drain;
use crate::store::Epoch;

/// The running data plane.
#[derive(Debug)]
pub struct Plane {
    ledger: Arc<Ledger>,
}

impl Plane {
    pub(super) fn start(_config: Arc<Config>, _sockets: Vec<Vec<Listener>>, ledger: Arc<Ledger>, _shared: Shared) -> io::Result<Self> {
        Ok(Self { ledger })
    }

    /// The counters.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// From now on every answer tells its client to connect elsewhere next time (`Connection: close`).
    pub fn closing(&self) {}

    /// How many requests wait for a primary.
    pub fn held(&self) -> u64 {
        self.ledger.totals().held
    }

    /// Stops accepting, ends each connection as it becomes idle, and cuts what is left after `timeout`. Ends every worker.
    pub async fn close(&self, _timeout: Duration) {}

    /// Returns when a worker ended that nobody told to, with what is known about it.
    pub async fn failed(&self) -> String {
        std::future::pending().await
    }
}

#[async_trait]
impl Drain for Plane {
    async fn drained(&self, _epoch: Epoch) {
        self.ledger.quiet().await;
    }
}
