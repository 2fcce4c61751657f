//! The primary is asked to go: by SIGTERM, or by `resign`. Nothing may fail.

use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::cluster::Cluster;
use crate::support::http::{Client, Method, get, request};
use crate::support::load::Load;
use crate::support::store::Kind;
use crate::support::wait_for;

/// A handover does not wait for it, whatever it is.
const LONG_TTL: Duration = Duration::from_secs(30);
const SHORT_TTL: Duration = Duration::from_secs(2);
/// Another node is primary within this after a planned stop, once the running requests are done.
const HANDOVER: Duration = Duration::from_secs(1);
/// How long a node may take to come back, or to end, on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
const WORK: u64 = 10;

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails_on_etcd() {
    terminated(Kind::Etcd).await;
}

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails_on_sqlite() {
    terminated(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails_on_postgres() {
    terminated(Kind::Postgres).await;
}

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails_on_mysql() {
    terminated(Kind::Mysql).await;
}

#[tokio::test]
async fn thirty_forced_changes_in_a_row_fail_no_request_on_etcd() {
    resigned_in_turn(Kind::Etcd).await;
}

#[tokio::test]
async fn thirty_forced_changes_in_a_row_fail_no_request_on_sqlite() {
    resigned_in_turn(Kind::Sqlite).await;
}

#[tokio::test]
async fn no_node_leads_while_requests_of_the_last_tenure_run_on_etcd() {
    drained(Kind::Etcd).await;
}

#[tokio::test]
async fn no_node_leads_while_requests_of_the_last_tenure_run_on_sqlite() {
    drained(Kind::Sqlite).await;
}

/// B09, B69: SIGTERM under load, three times in turn with restarts, and a TTL that nobody can have waited for.
pub(crate) async fn terminated(kind: Kind) {
    let mut cluster = Cluster::start(kind, LONG_TTL).await;
    let one = cluster.watch();
    let load = Load::start(cluster.addresses(), WORK);
    let mut handovers = Vec::new();
    for _ in 0..3 {
        let primary = cluster.settled(3, LIMIT).await;
        let epoch = cluster.epoch_at(primary).await;
        load.answers(150).await;

        let asked = Instant::now();
        cluster.nodes[primary].signal(Signal::TERM);
        cluster.led_after(epoch, LIMIT).await;
        handovers.push(asked.elapsed());

        let status = cluster.nodes[primary].ended(LIMIT).await;
        assert!(status.success(), "a planned stop ends with {status}");
        cluster.restart(primary);
    }
    cluster.settled(3, LIMIT).await;
    load.answers(50).await;
    // A busy machine makes some slow; what has to wait makes all slow.
    let quickest = handovers.iter().min().expect("three handovers");
    assert!(*quickest < HANDOVER + Duration::from_millis(WORK), "another node was primary after {handovers:?}");

    let outcomes = load.stop().await;
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_refused()) {
        outcome.assert_answered();
    }
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// B02: whoever leads resigns, thirty times in a row; nobody stops being a candidate, and no request fails.
pub(crate) async fn resigned_in_turn(kind: Kind) {
    const CHANGES: usize = 30;
    // A request may meet several changes in a row on a machine that is slower at serving than at changing.
    let cluster = Cluster::start_with(kind, SHORT_TTL, &["--hold-timeout", "30s"]).await;
    let one = cluster.watch();
    let load = Load::start(cluster.addresses(), WORK);
    let mut primary = cluster.settled(3, LIMIT).await;
    let mut resigned = [0; 3];
    while resigned.iter().sum::<usize>() < CHANGES {
        let epoch = cluster.epoch_at(primary).await;
        let answer = cluster.nodes[primary].resign().await;
        primary = match answer.status.as_u16() {
            200 => {
                resigned[primary] += 1;
                let next = cluster.led_after(epoch, LIMIT).await;
                // A tenure in which nobody is served proves nothing.
                load.answers(10).await;
                next
            }
            // A busy machine can cost a tenure before it is told to resign.
            409 => cluster.settled(3, LIMIT).await,
            _ => panic!("{}", answer.text()),
        };
    }
    cluster.settled(3, LIMIT).await;
    load.answers(50).await;

    for outcome in &load.stop().await {
        outcome.assert_answered();
    }
    for (node, led) in cluster.nodes.iter().zip(resigned) {
        assert!(led >= CHANGES / 5, "{} led {led} times of {CHANGES}", node.name());
        assert!(node.metrics().await.value("role_changes_total") >= led as f64 * 2.0);
    }
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// B08, B124: long requests through every node finish before anybody else leads; those that come meanwhile wait.
pub(crate) async fn drained(kind: Kind) {
    const LONG: Duration = Duration::from_secs(5);
    let mut cluster = Cluster::start(kind, LONG_TTL).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let long = cluster
        .addresses()
        .into_iter()
        .flat_map(|node| [node; 7])
        .map(|node| async move { get(node, &format!("/slow?ms={}", LONG.as_millis())).await });
    let mut running = tokio::task::JoinSet::new();
    running.spawn(join_all(long));
    arrived(&cluster, 21).await;

    cluster.nodes[primary].signal(Signal::TERM);
    cluster.nodes[primary].becomes("stepping-down", LIMIT).await;
    let [other, _] = cluster.others(primary);
    let (met, next) = tokio::join!(get(cluster.nodes[other].address(), "/who"), cluster.led_after(epoch, LIMIT));
    for answer in running.join_next().await.expect("the long requests").expect("their end") {
        assert_eq!((answer.status.as_u16(), answer.epoch()), (200, Some(epoch)));
    }
    cluster.ledger.assert_never_overlapped();
    assert_eq!(met.text(), cluster.nodes[next].name(), "what came meanwhile was served by the next primary");
    assert!(met.held().is_some_and(|held| held > LONG / 3), "it was held: {:?}", met.headers);
    assert!(cluster.nodes[primary].ended(LIMIT).await.success());
    cluster.ledger.assert_in_order();
}

/// B124: a replica that is asked to go finishes what it forwards, tells its clients to go elsewhere, and ends.
#[tokio::test]
async fn a_terminated_replica_finishes_what_it_forwards() {
    let mut cluster = Cluster::start(Kind::Sqlite, LONG_TTL).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let [replica, _] = cluster.others(primary);
    let address = cluster.nodes[replica].address();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(join_all((0..20).map(move |_| get(address, "/slow?ms=5000"))));
    arrived(&cluster, 20).await;

    cluster.nodes[replica].signal(Signal::TERM);
    for answer in running.join_next().await.expect("the requests").expect("their end") {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("connection"), "close", "{:?}", answer.headers);
    }
    assert!(cluster.nodes[replica].ended(LIMIT).await.success());
    assert_eq!(cluster.epoch_at(primary).await, epoch, "leadership is untouched");
}

/// A second signal ends the process at once, whatever still runs.
#[tokio::test]
async fn a_second_signal_waits_for_nothing() {
    let mut cluster = Cluster::start_with(Kind::Sqlite, LONG_TTL, &["--drain-timeout", "60s"]).await;
    let primary = cluster.settled(3, LIMIT).await;
    let address = cluster.nodes[primary].address();
    let client = Client::new(address);
    let mut endless = std::pin::pin!(client.send(request(Method::GET, "/slow?ms=60000", "")));
    tokio::select! {
        answer = &mut endless => panic!("answered: {answer:?}"),
        () = arrived(&cluster, 1) => {}
    }
    cluster.nodes[primary].signal(Signal::TERM);
    cluster.nodes[primary].becomes("stepping-down", LIMIT).await;
    cluster.nodes[primary].signal(Signal::TERM);
    // Long before the end of its drain.
    cluster.nodes[primary].ended(LIMIT).await;
    assert!(endless.await.is_err(), "the running request is cut");
}

/// Waits until `count` requests have reached the apps.
async fn arrived(cluster: &Cluster, count: usize) {
    wait_for(&format!("{count} requests to reach an app"), LIMIT, async || match cluster.ledger.arrivals().len() {
        arrived if arrived >= count => Ok(()),
        arrived => Err(arrived),
    })
    .await;
}
