//! Stores that answer, and take their time.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::support::cluster::Cluster;
use crate::support::load::{Load, Outcome};
use crate::support::store::Kind;
use crate::support::wire::{Mode, Wire};

const TTL: Duration = Duration::from_secs(3);
/// Every piece of every answer takes up to this long, by another time each.
const SLOWEST: Duration = Duration::from_millis(900);
/// Eight renewals, and as many looks of the others.
const PERIOD: Duration = Duration::from_secs(24);
const LIMIT: Duration = Duration::from_secs(60);
const WORK: u64 = 10;

/// What is asked over the network; a file takes as long as its locks do.
const STORES: [Kind; 6] = [Kind::Consul, Kind::Etcd, Kind::Kubernetes, Kind::Mysql, Kind::Postgres, Kind::ZooKeeper];

/// A cluster on one kind of store, each node by a wire of its own.
struct Running {
    kind: Kind,
    cluster: Cluster,
    wires: [Wire; 3],
}

impl Running {
    /// All servers first: what it takes to make a database would be trouble of its own for whoever runs already.
    async fn on_all_stores() -> Vec<Self> {
        let mut running = Vec::new();
        for kind in STORES {
            let (cluster, wires) = Cluster::start_wired(kind, TTL, &[]).await;
            running.push(Self { kind, cluster, wires });
        }
        running
    }

    fn slow_down(&self) {
        self.wires.iter().for_each(|wire| wire.set(Mode::SlowAnswers(SLOWEST)));
    }

    /// Who leads, and since which epoch.
    async fn tenure(&self) -> (usize, u64) {
        let primary = self.cluster.settled(3, LIMIT).await;
        (primary, self.cluster.epoch_at(primary).await)
    }
}

/// B21: 0 to 900 ms for an answer, at random, cost no tenure of 3 s, in any store that keeps such a TTL. All of them at once, for
/// it is the waiting that takes the time.
#[tokio::test]
async fn a_slow_store_costs_no_tenure() {
    let running = Running::on_all_stores().await;
    let before = join_all(running.iter().map(Running::tenure)).await;
    let watched = running.iter().map(|running| {
        running.slow_down();
        (running.cluster.watch(), Load::gentle(running.cluster.addresses(), WORK))
    });
    let watched = watched.collect::<Vec<_>>();
    // The length of the trouble is the scenario itself.
    sleep(PERIOD).await;
    let after = join_all(running.iter().map(Running::tenure)).await;
    for ((running, (one, load)), (before, after)) in running.iter().zip(watched).zip(before.into_iter().zip(after)) {
        let kind = running.kind;
        assert_eq!(before, after, "{kind:?}: {}", running.cluster.nodes[before.0].log());
        let tenures = one.tenures();
        assert!(tenures.iter().all(|tenure| tenure.epoch == before.1), "{kind:?}: {tenures:#?}");
        let outcomes = load.stop().await;
        assert!(!outcomes.is_empty());
        outcomes.iter().for_each(Outcome::assert_answered);
    }
}

/// Nor does it keep a service without a primary: somebody is elected over such a network after a crash.
#[tokio::test]
async fn a_primary_is_elected_in_a_slow_store() {
    let running = Running::on_all_stores().await;
    let changes = running.into_iter().map(|mut running| async move {
        let (primary, epoch) = running.tenure().await;
        let one = running.cluster.watch();
        running.slow_down();
        running.cluster.nodes[primary].kill().await;
        running.cluster.restart(primary);
        running.cluster.settled_after(epoch, 3, LIMIT).await;
        one.assert_never_two();
        running
    });
    join_all(changes).await;
}
