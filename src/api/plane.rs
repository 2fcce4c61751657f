//! The data plane as the rest of the process sees it: started, told to close, and heard of when a part of it ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::api::gate::Gate;
use crate::api::hold::Space;
use crate::api::ledger::Ledger;
use crate::api::listener::{Listener, SocketFile};
use crate::api::mux::Seats;
use crate::api::worker::Seed;
use crate::api::{Config, Shared};
use crate::node::BootId;
use crate::replication::Drain;
use crate::store::Epoch;

/// The running data plane.
#[derive(Debug)]
pub struct Plane {
    ledger: Arc<Ledger>,
    stage: watch::Sender<Stage>,
    running: watch::Receiver<Running>,
    /// Go with the plane.
    _files: Vec<SocketFile>,
}

/// How far the end of the plane has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Serving,
    /// Clients are asked to connect elsewhere.
    Closing,
    /// Nothing new is accepted, and everything is over at the instant.
    Ending(Instant),
}

/// What is known of the workers' threads.
#[derive(Clone, Debug, Default)]
struct Running {
    workers: usize,
    failure: Option<String>,
}

impl Plane {
    pub(super) fn start(
        config: &Arc<Config>,
        sockets: Vec<Vec<Listener>>,
        files: Vec<SocketFile>,
        ledger: Arc<Ledger>,
        shared: &Arc<Shared>,
    ) -> io::Result<Self> {
        let (stage, staged) = watch::channel(Stage::Serving);
        let (alive, running) = watch::channel(Running::default());
        let space = Space::new(config.hold_requests, config.hold_bytes);
        let seats = Seats::new(sockets.len());
        let gate = Gate::new(config.max_connections);
        let boot = shared.node.as_ref().map_or_else(BootId::random, |node| node.boot);
        for (index, listeners) in sockets.into_iter().enumerate() {
            let seed = Seed {
                config: Arc::clone(config),
                shared: Arc::clone(shared),
                sheet: ledger.sheet(index),
                space: Arc::clone(&space),
                boot,
                index,
                seats: Arc::clone(&seats),
                gate: Arc::clone(&gate),
                listeners,
                stage: staged.clone(),
            };
            let alive = Alive::new(alive.clone(), index);
            let name = format!("bellwether-{index}");
            std::thread::Builder::new().name(name).spawn(move || alive.watch(|| seed.grow()))?;
        }
        Ok(Self { ledger, stage, running, _files: files })
    }

    /// The counters.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// From now on every answer tells its client to connect elsewhere next time (`Connection: close`).
    pub fn closing(&self) {
        self.stage.send_if_modified(|stage| {
            let first = *stage == Stage::Serving;
            *stage = if first { Stage::Closing } else { *stage };
            first
        });
    }

    /// How many requests wait for a primary.
    pub fn held(&self) -> u64 {
        self.ledger.totals().held
    }

    /// Stops accepting, ends each connection as it becomes idle, and cuts what is left after `timeout`. Returns when
    /// every worker has ended.
    pub async fn close(&self, timeout: Duration) {
        self.stage.send_replace(Stage::Ending(Instant::now() + timeout));
        let mut running = self.running.clone();
        running.wait_for(|running| running.workers == 0).await.ok();
    }

    /// Returns when a worker has ended that nobody told to, with what is known about it.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn failed(&self) -> String {
        let mut running = self.running.clone();
        match running.wait_for(|running| running.failure.is_some()).await {
            Ok(running) => running.failure.clone().unwrap_or_default(),
            // Every worker ended as it was told.
            Err(_) => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Drain for Plane {
    async fn drained(&self, _epoch: Epoch) {
        // What ran under an earlier tenure was cut with it, and the role lets nothing new begin.
        self.ledger.quiet().await;
    }
}

/// Reports the end of a worker's thread, also by a panic.
struct Alive {
    running: watch::Sender<Running>,
    index: usize,
    failure: Option<String>,
}

impl Alive {
    fn new(running: watch::Sender<Running>, index: usize) -> Self {
        running.send_modify(|running| running.workers += 1);
        Self { running, index, failure: Some("it panicked".to_owned()) }
    }

    fn watch(mut self, work: impl FnOnce() -> io::Result<()>) {
        self.failure = work().err().map(|error| error.to_string());
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.running.send_modify(|running| {
            running.workers -= 1;
            if let Some(failure) = self.failure.take() {
                running.failure = Some(format!("data-plane worker {} ended: {failure}", self.index));
            }
        });
    }
}
