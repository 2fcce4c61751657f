//! Three nodes, each in front of its own copy of the app, and the store that decides between them.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use super::app::App;
use super::daemon::{Daemon, Info, Manage};
use super::http::{Broken, Method};
use super::ledger::Ledger;
use super::load::{End, Load, Outcome};
use super::one::One;
use super::place::Place;
use super::store::{Kind, Store};
use super::wait_for;
use super::wire::Wire;

const NODES: usize = 3;
/// How long something may take on a busy machine that should take no time.
const LIMIT: Duration = Duration::from_secs(20);

/// A cluster under test. Its nodes end before its store, and both before their folder goes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Daemon>,
    _apps: Vec<App>,
    pub(crate) ledger: Ledger,
    pub(crate) store: Store,
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
        let urls = [store.url(), store.url(), store.url()];
        Self::launch(store, folder, urls, ttl, arguments).await
    }

    /// The same, where each node reaches the store's server over a wire of its own.
    pub(crate) async fn start_wired(kind: Kind, ttl: Duration, arguments: &[&str]) -> (Self, [Wire; NODES]) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(kind, folder.path()).await;
        let server = store.server();
        let wires = [Wire::to(server).await, Wire::to(server).await, Wire::to(server).await];
        let urls = wires.each_ref().map(|wire| store.url_by(wire.address()));
        (Self::launch(store, folder, urls, ttl, arguments).await, wires)
    }

    /// The same on a store that runs already, where each node is started in a way of its own.
    pub(crate) async fn start_on(store: Store, ttl: Duration, own: [&dyn Fn(Manage) -> Manage; NODES]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let urls = [store.url(), store.url(), store.url()];
        Self::launch_each(store, folder, urls, ttl, own).await
    }

    async fn launch(store: Store, folder: TempDir, urls: [String; NODES], ttl: Duration, arguments: &[&str]) -> Self {
        let own = |manage: Manage| manage.with(arguments.iter().copied());
        Self::launch_each(store, folder, urls, ttl, [&own, &own, &own]).await
    }

    async fn launch_each(
        store: Store,
        folder: TempDir,
        urls: [String; NODES],
        ttl: Duration,
        own: [&dyn Fn(Manage) -> Manage; NODES],
    ) -> Self {
        let ledger = Ledger::default();
        let (mut nodes, mut apps) = (Vec::new(), Vec::new());
        for ((name, url), own) in ["a", "b", "c"].into_iter().zip(urls).zip(own) {
            let app = App::start(name, &ledger).await;
            nodes.push(own(Manage::new(name, folder.path()).replicated(&url, ttl).upstream(app.address())).spawn());
            apps.push(app);
        }
        let cluster = Self { nodes, _apps: apps, ledger, store, _folder: folder };
        cluster.settled(NODES, ttl * 3 + LIMIT).await;
        cluster
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.nodes.iter().map(Daemon::address).collect()
    }

    /// Where clients reach the nodes, and how they speak to them.
    pub(crate) fn places(&self) -> Vec<Place> {
        self.nodes.iter().map(Daemon::place).collect()
    }

    /// Watches all nodes for a second primary.
    pub(crate) fn watch(&self) -> One {
        One::watch(self.places())
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

    /// Waits until a node says that it is primary under an epoch later than `epoch`. Returns which.
    pub(crate) async fn led_after(&self, epoch: u64, limit: Duration) -> usize {
        wait_for(&format!("a primary after epoch {epoch}"), limit, async || {
            let mut states = Vec::new();
            for node in &self.nodes {
                states.push(node.look().await);
            }
            let leads = |state: &Result<Info, Broken>| state.as_ref().is_ok_and(|info| info.role == "primary" && info.epoch > epoch);
            states.iter().position(leads).ok_or(states)
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

    /// # Panics
    /// When what the clients were told differs from what the apps did: an answered POST that was not executed exactly
    /// once, or one that is said not to have been sent and was executed.
    pub(crate) fn assert_told_the_truth(&self, outcomes: &[Outcome]) {
        for outcome in outcomes.iter().filter(|outcome| outcome.method == Method::POST) {
            let executed = self.ledger.count(&outcome.id);
            match &outcome.end {
                End::Answered { .. } => assert_eq!(executed, 1, "answered: {outcome:?}"),
                End::Failed { verdict, .. } if verdict == "not-sent" => assert_eq!(executed, 0, "not sent: {outcome:?}"),
                End::Broken(Broken::Refused) => assert_eq!(executed, 0, "refused: {outcome:?}"),
                End::Failed { .. } | End::Broken(_) => assert!(executed <= 1, "executed {executed} times: {outcome:?}"),
            }
        }
    }

    /// Ends `load`.
    ///
    /// # Panics
    /// When a request came to harm, was not told the truth or was executed out of order, or when the books do not balance.
    pub(crate) async fn assert_unharmed(&self, load: Load) {
        let outcomes = load.stop().await;
        for outcome in &outcomes {
            outcome.assert_survived();
        }
        self.assert_told_the_truth(&outcomes);
        self.ledger.assert_in_order();
        self.balances().await;
    }

    /// Waits until the books of all nodes that are up balance: every request is answered, failed, left, held or running.
    pub(crate) async fn balances(&self) {
        for node in &self.nodes {
            if node.look().await.is_ok() {
                wait_for(&format!("the books of {} to balance", node.name()), LIMIT, async || {
                    let metrics = node.metrics().await;
                    let at_rest = metrics.value("held_requests") == 0.0 && metrics.unaccounted() == 0.0;
                    if at_rest { Ok(()) } else { Err(metrics) }
                })
                .await;
            }
        }
    }

    /// Starts a node again that has ended, at its old address.
    pub(crate) fn restart(&mut self, node: usize) {
        self.nodes[node] = self.nodes[node].manage().spawn();
    }
}
