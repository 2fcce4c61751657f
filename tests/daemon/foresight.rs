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
/// What a busy machine may add to the quickest.
const BUSY: Duration = Duration::from_secs(1);
/// How long a node may take to come back.
const LIMIT: Duration = Duration::from_secs(20);
/// How often the primary is killed, and stopped.
const ROUNDS: usize = 3;

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
    promises(&store.url()).await;
    assert_eq!(etcd.values("bellwether/").await, Vec::<String>::new());
}

#[tokio::test]
async fn databases_that_keep_their_promises_are_found_to_and_left_as_they_were() {
    for kind in [Kind::Mysql, Kind::Postgres] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(kind, folder.path()).await;
        promises(&store.url()).await;
        assert_eq!(store.rows().await, 0, "{kind:?}");
    }
}

/// What `store check` says of the promises of `store`, where it is safe to elect in.
pub(crate) async fn promises(store: &str) -> Vec<Value> {
    let found = json(&["store", "check", store, "--replication-ttl", "3s"]).await;
    assert_eq!(found["safe"], true, "{found:#}");
    let promises = found["promises"].as_array().expect("promises").clone();
    assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] != "broken"), "{found:#}");
    promises
}

/// The same, where none of them is odd either.
pub(crate) async fn kept_promises(store: &str) {
    let promises = promises(store).await;
    assert!(promises.iter().all(|one| one["verdict"] == "kept"), "{promises:#?}");
}

/// The numbers of a plan hold with three nodes whose primary is killed, and stopped.
pub(crate) async fn as_planned(kind: Kind) {
    let mut cluster = Cluster::start(kind, TTL).await;
    let plan = json(&["plan", &cluster.store.url(), "--replication-ttl", "3s"]).await;
    let millis = |event: &str, which: &str| Duration::from_millis(plan[event][which].as_u64().expect("a duration"));
    assert_eq!(plan["ttl"]["kept_ms"], 3_000, "{plan:#}");
    // Asked where the server decides; a database keeps any.
    let decides = matches!(kind, Kind::Consul | Kind::Etcd | Kind::ZooKeeper);
    assert_eq!(plan["ttl"]["granted"], decides, "{plan:#}");

    let (mut crashes, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (costs, signal) in [(&mut crashes, Signal::KILL), (&mut stops, Signal::TERM)] {
            let primary = cluster.settled(3, LIMIT).await;
            let epoch = cluster.epoch_at(primary).await;
            let asked = Instant::now();
            cluster.nodes[primary].signal(signal);
            cluster.led_after(epoch, LIMIT).await;
            costs.push(asked.elapsed());
            cluster.nodes[primary].ended(LIMIT).await;
            cluster.restart(primary);
        }
    }
    // A busy machine makes some slow; what has to wait makes all slow.
    let quickest = |costs: &[Duration]| *costs.iter().min().expect("one for each round");
    let (typical, worst) = (millis("crash", "typical_ms"), millis("crash", "worst_ms"));
    assert!(quickest(&crashes) < worst + BUSY, "{crashes:?} were planned as {worst:?} at worst");
    // A third of the TTL lies between two renewals, and a crash between them.
    let longest = *crashes.iter().max().expect("one for each round");
    assert!(longest > typical - TTL / 3, "{crashes:?} were planned as {typical:?}");
    // Nothing runs that would have to be waited for.
    let typical = millis("planned", "typical_ms");
    assert!(quickest(&stops) < typical + BUSY, "{stops:?} were planned as {typical:?}");
}

/// What a command says in JSON. Arguments that have spaces in them are several.
pub(crate) async fn json(arguments: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command
        .args(arguments.iter().flat_map(|argument| argument.split(' ')))
        .args(["--output", "json"])
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = within("a command that asks the store", Duration::from_secs(60), command.output()).await.expect("run it");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{arguments:?}: {text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
