//! Stores that answer, and take their time.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::support::cluster::Cluster;
use crate::support::store::Kind;
use crate::support::wire::{Mode, Wire};

const TTL: Duration = Duration::from_secs(3);
/// Every piece of every answer takes up to this long, by another time each.
const SLOWEST: Duration = Duration::from_millis(900);
/// Eight renewals, and as many looks of the others.
const PERIOD: Duration = Duration::from_secs(24);
const LIMIT: Duration = Duration::from_secs(60);
/// A busy machine adds to what answers take. So much of it is borne: an answer may take 1.125 s.
const LATE: Duration = Duration::from_millis(75);
const TRIES: usize = 4;

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

    /// How often each node has changed its role.
    async fn changes(&self) -> Vec<u64> {
        join_all(self.cluster.nodes.iter().map(|node| async { node.metrics().await.value("role_changes_total") as u64 })).await
    }

    /// How much longer than it was meant to an answer has taken.
    fn was_late(&self) -> Duration {
        self.wires.iter().map(Wire::was_late).max().unwrap_or_default()
    }

    /// Whether nothing has changed in a slow period.
    async fn loses_nothing(&self) -> Result<(), String> {
        let (tenure, changes) = (self.tenure().await, self.changes().await);
        self.was_late();
        self.slow_down();
        // The length of the trouble is the scenario itself.
        sleep(PERIOD).await;
        let now = (self.tenure().await, self.changes().await);
        self.wires.iter().for_each(|wire| wire.set(Mode::Pass));
        if now == (tenure, changes.clone()) {
            return Ok(());
        }
        Err(format!("{:?}: {tenure:?} {changes:?} became {now:?}: {}", self.kind, self.cluster.nodes[tenure.0].log()))
    }
}

/// B21: 0 to 900 ms for an answer, at random, cost no tenure of 3 s, in any store that keeps such a TTL. All of them at once, for
/// it is the waiting that takes the time.
#[tokio::test]
async fn a_slow_store_costs_no_tenure() {
    let mut running = Running::on_all_stores().await;
    for _ in 0..TRIES {
        let lost = join_all(running.iter().map(Running::loses_nothing)).await;
        let mut again = Vec::new();
        for (running, lost) in running.into_iter().zip(lost) {
            let late = running.was_late();
            match lost {
                Ok(()) => {}
                // It was not the store that was slow, and answers took longer than they were meant to.
                Err(_) if late > LATE => again.push(running),
                Err(how) => panic!("answers were {late:?} late at most, and {how}"),
            }
        }
        running = again;
        if running.is_empty() {
            return;
        }
    }
    panic!("this machine is too busy to be slow in time");
}

/// Nor does it keep a service without a primary: somebody is elected over such a network after a crash.
#[tokio::test]
async fn a_primary_is_elected_in_a_slow_store() {
    let running = Running::on_all_stores().await;
    let changes = running.into_iter().map(|mut running| async move {
        let (primary, epoch) = running.tenure().await;
        running.slow_down();
        running.cluster.nodes[primary].kill().await;
        running.cluster.restart(primary);
        running.cluster.settled_after(epoch, 3, LIMIT).await;
        running
    });
    join_all(changes).await;
}
