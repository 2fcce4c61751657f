//! What `plan` and `store check` say, against what happens.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use crate::support::cluster::Cluster;
use crate::support::store::{Kind, Store};
use crate::support::within;

const TTL: Duration = Duration::from_secs(3);
/// What a busy machine may add to anything.
const BUSY: Duration = Duration::from_secs(5);
/// How long a node may take to come back.
const LIMIT: Duration = Duration::from_secs(20);
/// How often the primary is killed.
const CRASHES: usize = 3;

#[tokio::test]
async fn a_failover_on_etcd_costs_what_was_planned() {
    as_planned(Kind::Etcd).await;
}

#[tokio::test]
async fn a_failover_on_postgres_costs_what_was_planned() {
    as_planned(Kind::Postgres).await;
}

#[tokio::test]
async fn a_failover_on_mysql_costs_what_was_planned() {
    as_planned(Kind::Mysql).await;
}

#[tokio::test]
async fn a_failover_on_sqlite_costs_what_was_planned() {
    as_planned(Kind::Sqlite).await;
}

#[tokio::test]
async fn an_etcd_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(Kind::Etcd, folder.path()).await;
    let Store::Etcd(etcd) = &store else { panic!("it was etcd that was started") };
    let found = json(&["store", "check", &store.url(), "--replication-ttl", "3s"]).await;
    assert_eq!(found["safe"], true, "{found:#}");
    let promises = found["promises"].as_array().expect("promises");
    assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] == "kept"), "{found:#}");
    assert_eq!(etcd.values("bellwether/").await, Vec::<String>::new());
}

#[tokio::test]
async fn databases_that_keep_their_promises_are_found_to_and_left_as_they_were() {
    for kind in [Kind::Mysql, Kind::Postgres] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(kind, folder.path()).await;
        let found = json(&["store", "check", &store.url(), "--replication-ttl", "3s"]).await;
        assert_eq!(found["safe"], true, "{found:#}");
        let promises = found["promises"].as_array().expect("promises");
        assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] == "kept"), "{found:#}");
        assert_eq!(store.rows().await, 0, "{kind:?}");
    }
}

/// The numbers of a plan hold with three nodes whose primary is killed, and stopped.
async fn as_planned(kind: Kind) {
    let mut cluster = Cluster::start(kind, TTL).await;
    let plan = json(&["plan", &cluster.store.url(), "--replication-ttl", "3s"]).await;
    let millis = |event: &str, which: &str| Duration::from_millis(plan[event][which].as_u64().expect("a duration"));
    assert_eq!(plan["ttl"]["kept_ms"], 3_000, "{plan:#}");
    // etcd was asked; with SQLite there is nothing to ask.
    assert_eq!(plan["ttl"]["granted"], kind == Kind::Etcd, "{plan:#}");

    let mut crashes = Vec::new();
    for _ in 0..CRASHES {
        let primary = cluster.settled(3, LIMIT).await;
        let epoch = cluster.epoch_at(primary).await;
        cluster.nodes[primary].kill().await;
        let killed = Instant::now();
        cluster.led_after(epoch, LIMIT).await;
        crashes.push(killed.elapsed());
        cluster.restart(primary);
    }
    crashes.sort_unstable();
    let (typical, worst) = (millis("crash", "typical_ms"), millis("crash", "worst_ms"));
    // Between two renewals it is a third of the TTL more or less; the rest is the machine's.
    let (earliest, median) = (typical - TTL / 3, crashes[CRASHES / 2]);
    assert!(earliest < median && median < worst + BUSY / 2, "{crashes:?} were planned as {typical:?}, at worst {worst:?}");
    assert!(crashes.iter().all(|crash| *crash < worst + BUSY), "{crashes:?} were planned as {worst:?} at worst");

    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    cluster.nodes[primary].signal(Signal::TERM);
    let stopped = Instant::now();
    cluster.led_after(epoch, LIMIT).await;
    let planned = stopped.elapsed();
    // Nothing runs that would have to be waited for.
    let typical = millis("planned", "typical_ms");
    assert!(planned < typical + BUSY / 2, "a stop took {planned:?} and was planned as {typical:?}");
}

/// What a command says in JSON.
async fn json(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.args(arguments).args(["--output", "json"]).stdin(Stdio::null()).kill_on_drop(true);
    let output = within("a command that asks the store", Duration::from_secs(60), command.output()).await.expect("run it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
