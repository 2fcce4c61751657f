//! Three nodes, each in front of its own copy of the app, and the store that decides between them.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use super::app::{App, Ledger};
use super::daemon::{Daemon, Info, Manage};
use super::http::Broken;
use super::one::One;
use super::store::{Kind, Store};
use super::wait_for;

const NODES: usize = 3;

/// A cluster under test. Its nodes end before its store, and both before their folder goes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Daemon>,
    pub(crate) apps: Vec<App>,
    pub(crate) ledger: Ledger,
    pub(crate) store: Store,
    pub(crate) ttl: Duration,
    _folder: TempDir,
}

impl Cluster {
    /// Starts everything and waits until one node is primary and the others follow it.
    pub(crate) async fn start(kind: Kind, ttl: Duration) -> Self {
        Self::start_with(kind, ttl, &[]).await
    }

    /// The same, with more arguments for every node.
    pub(crate) async fn start_with(kind: Kind, ttl: Duration, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(kind, folder.path()).await;
        let ledger = Ledger::default();
        let (mut nodes, mut apps) = (Vec::new(), Vec::new());
        for name in ["a", "b", "c"] {
            let app = App::start(name, &ledger).await;
            let manage = Manage::new(name, folder.path()).replicated(&store.url(), ttl).upstream(app.address());
            nodes.push(manage.with(arguments.iter().copied()).spawn());
            apps.push(app);
        }
        let cluster = Self { nodes, apps, ledger, store, ttl, _folder: folder };
        cluster.settled(NODES, ttl * 3 + Duration::from_secs(10)).await;
        cluster
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Daemon::address).collect()
    }

    /// Watches all nodes for a second primary.
    pub(crate) fn watch(&self) -> One {
        One::watch(self.addresses())
    }

    /// Waits until exactly `up` nodes answer, one of them as primary and the others following it. Returns which it is.
    pub(crate) async fn settled(&self, up: usize, limit: Duration) -> usize {
        self.settled_after(0, up, limit).await
    }

    /// The same, under an epoch later than `epoch`.
    pub(crate) async fn settled_after(&self, epoch: u64, up: usize, limit: Duration) -> usize {
        let awaited = format!("one primary after epoch {epoch} and {} replicas of it", up - 1);
        wait_for(&awaited, limit, async || {
            let mut states = Vec::new();
            for node in &self.nodes {
                states.push(node.look().await);
            }
            self.primary_among(&states, up).filter(|(_, served)| *served > epoch).map(|(at, _)| at).ok_or(states)
        })
        .await
    }

    fn primary_among(&self, states: &[Result<Info, Broken>], up: usize) -> Option<(usize, u64)> {
        let primary = states.iter().position(|state| state.as_ref().is_ok_and(|info| info.role == "primary"))?;
        let (address, epoch) = (self.nodes[primary].address().to_string(), states[primary].as_ref().ok()?.epoch);
        let follows = |info: &Info| info.role == "replica" && info.primary == address && info.epoch == epoch;
        let following = states.iter().flatten().filter(|info| follows(info)).count();
        (following + 1 == up && states.iter().flatten().count() == up).then_some((primary, epoch))
    }

    /// The epoch that the primary serves, or a replica follows.
    pub(crate) async fn epoch_at(&self, node: usize) -> u64 {
        self.nodes[node].info().await.epoch
    }

    /// The nodes other than `node`.
    pub(crate) fn others(&self, node: usize) -> [usize; NODES - 1] {
        [(node + 1) % NODES, (node + 2) % NODES]
    }

    /// Starts a node again that has ended, at its old address.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node] = self.nodes[node].manage().spawn();
    }
}
