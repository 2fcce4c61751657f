//! The store goes away, comes back with or without its data, or loses the leader's record.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::support::cluster::Cluster;
use crate::support::daemon::Daemon;
use crate::support::http::get;
use crate::support::load::{Load, Outcome};
use crate::support::store::{Kind, Store};
use crate::support::{quickest, wait_for};

const TTL: Duration = Duration::from_secs(2);
const LONG_TTL: Duration = Duration::from_secs(9);
/// How long a candidate may wait before it tries a store again, and how long a busy machine may take on top.
const RETRY: Duration = Duration::from_secs(20);
const WORK: u64 = 10;
/// Requests wait through all of an outage in these tests, also one in which a database is made anew on a busy machine.
const HOLD: &[&str] = &["--hold-timeout", "60s"];

/// What the store knows when it is back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    Kept,
    Lost,
}

#[tokio::test]
async fn a_long_outage_of_etcd_heals_by_itself() {
    outage(Kind::Etcd, Memory::Kept).await;
}

#[tokio::test]
async fn a_long_outage_of_etcd_that_comes_back_empty_heals_by_itself() {
    outage(Kind::Etcd, Memory::Lost).await;
}

#[tokio::test]
async fn a_long_lock_on_the_sqlite_file_heals_by_itself() {
    outage(Kind::Sqlite, Memory::Kept).await;
}

#[tokio::test]
async fn an_sqlite_file_that_was_removed_during_a_long_lock_is_made_anew() {
    outage(Kind::Sqlite, Memory::Lost).await;
}

#[tokio::test]
async fn a_long_outage_of_postgres_heals_by_itself() {
    outage(Kind::Postgres, Memory::Kept).await;
}

#[tokio::test]
async fn a_long_outage_of_postgres_that_comes_back_empty_heals_by_itself() {
    outage(Kind::Postgres, Memory::Lost).await;
}

#[tokio::test]
async fn a_long_outage_of_mysql_heals_by_itself() {
    outage(Kind::Mysql, Memory::Kept).await;
}

#[tokio::test]
async fn a_long_outage_of_mysql_that_comes_back_empty_heals_by_itself() {
    outage(Kind::Mysql, Memory::Lost).await;
}

/// B01, B73, B122: four TTLs without a store. Requests wait, local routes answer, and nothing is restarted.
pub(crate) async fn outage(kind: Kind, memory: Memory) {
    let mut cluster = Cluster::start_with(kind, TTL, HOLD).await;
    let one = cluster.watch();
    let primary = cluster.settled(3, RETRY).await;
    let epoch = cluster.epoch_at(primary).await;
    let load = Load::gentle(cluster.addresses(), WORK);
    load.answers(60).await;

    cluster.store.fail().await;
    let failed = Instant::now();
    for node in &cluster.nodes {
        knows_of_no_primary(node, RETRY).await;
    }
    // The length of the outage is the scenario itself.
    sleep((TTL * 4).saturating_sub(failed.elapsed())).await;
    for node in &cluster.nodes {
        knows_of_no_primary(node, RETRY).await;
    }
    match memory {
        Memory::Kept => cluster.store.recover().await,
        Memory::Lost => {
            if kind.counts_anew() {
                cluster.ledger.start_over();
            }
            cluster.store.recover_empty().await;
        }
    }
    let above = if memory == Memory::Lost && kind.counts_anew() { 0 } else { epoch };
    cluster.settled_after(above, 3, kind.lasts(TTL) + RETRY).await;
    load.answers(60).await;

    cluster.assert_unharmed(load).await;
    assert_eq!(one.longest_overlap(), Duration::ZERO, "two primaries at once: {:#?}", one.tenures());
}

/// A node whose store is silent says so, names nobody, and still answers at once.
async fn knows_of_no_primary(node: &Daemon, limit: Duration) {
    let awaited = format!("{} to know of no primary", node.name());
    let known = wait_for(&awaited, limit, async || match node.info().await {
        info if info.primary.is_empty() => Ok(info),
        info => Err(info),
    });
    let info = known.await;
    // A primary has stopped by its own clock. A replica follows on, for its leader may lead for all that it knows.
    assert_ne!(info.role, "primary");
    assert_eq!(info.epoch, 0, "{}", info.all);
    let took = quickest(async || {
        for path in ["/_ping", "/info", "/_bellwether/status", "/_bellwether/metrics", "/_bellwether/live"] {
            assert_eq!(get(node.address(), path).await.status, 200, "{path}");
        }
    });
    let took = took.await;
    // The store is asked for up to three eighths of the TTL at a time; five routes that waited for it would take longer.
    assert!(took < TTL / 2, "five local routes took {took:?}");
    assert_eq!(get(node.address(), "/_bellwether/primary").await.status, 503);
}

#[tokio::test]
async fn a_single_node_that_lost_its_lock_leads_again() {
    single(Kind::Etcd).await;
}

/// B02: a single node that lost its lock to a frozen store is primary again.
pub(crate) async fn single(kind: Kind) {
    let mut cluster = Cluster::start_with(kind, TTL, HOLD).await;
    let primary = cluster.settled(3, RETRY).await;
    for other in cluster.others(primary) {
        cluster.nodes[other].signal(Signal::TERM);
        assert!(cluster.nodes[other].ended(RETRY).await.success());
    }
    for _ in 0..2 {
        let epoch = cluster.epoch_at(primary).await;
        cluster.store.signal(Signal::STOP);
        cluster.nodes[primary].becomes("electing", RETRY).await;
        sleep(TTL).await;
        cluster.store.signal(Signal::CONT);
        cluster.settled_after(epoch, 1, kind.lasts(TTL) + RETRY).await;
        assert_eq!(get(cluster.nodes[primary].address(), "/who").await.text(), cluster.nodes[primary].name());
    }
}

/// etcd tells everybody at once that the leader's key is gone, and who held it has stopped before the next one begins.
#[tokio::test]
async fn a_deleted_key_ends_the_tenure_on_etcd() {
    let overlap = deleted(Kind::Etcd).await;
    assert_eq!(overlap, Duration::ZERO, "two primaries at once");
}

/// A database tells nobody: the next renewal finds out, a third of the TTL later at most. The app's fence covers that time.
#[tokio::test]
async fn a_deleted_row_ends_the_tenure_on_sqlite() {
    deleted_row(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_deleted_row_ends_the_tenure_on_postgres() {
    deleted_row(Kind::Postgres).await;
}

#[tokio::test]
async fn a_deleted_row_ends_the_tenure_on_mysql() {
    deleted_row(Kind::Mysql).await;
}

async fn deleted_row(kind: Kind) {
    let overlap = deleted(kind).await;
    // The second third is for a busy machine; without that renewal it would be all of them.
    assert!(overlap <= LONG_TTL * 2 / 3, "two primaries for {overlap:?}");
}

/// An operator deletes the leader's record: there is a new tenure, and the app executes nothing under the old one after it.
/// Returns for how long two nodes were primary.
pub(crate) async fn deleted(kind: Kind) -> Duration {
    meddled(kind, async |store| store.delete_leader().await).await
}

/// The same with whatever an operator does to end a tenure.
pub(crate) async fn meddled(kind: Kind, meddle: impl AsyncFnOnce(&Store)) -> Duration {
    let cluster = Cluster::start_with(kind, LONG_TTL, HOLD).await;
    let one = cluster.watch();
    let load = Load::gentle(cluster.addresses(), WORK);
    load.answers(60).await;
    let primary = cluster.settled(3, RETRY).await;
    let epoch = cluster.epoch_at(primary).await;

    meddle(&cluster.store).await;
    cluster.settled_after(epoch, 3, kind.lasts(LONG_TTL) + RETRY).await;
    load.answers(60).await;

    let outcomes = load.stop().await;
    for outcome in outcomes.iter().filter(|outcome| !was_fenced(outcome)) {
        outcome.assert_survived();
    }
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_executed_once();
    let tenures = one.tenures();
    assert!(tenures.is_sorted_by_key(|tenure| tenure.epoch), "an epoch fell: {tenures:#?}");
    cluster.balances().await;
    one.longest_overlap()
}

/// The app itself refused it, because it came under an epoch that was over.
fn was_fenced(outcome: &Outcome) -> bool {
    matches!(&outcome.end, crate::support::load::End::Failed { status, .. } if status.as_u16() == 409)
}
