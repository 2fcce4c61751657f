//! The primary dies or freezes, without giving anything back.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::support::app::checksum;
use crate::support::cluster::Cluster;
use crate::support::http::{Client, Method, request, with};
use crate::support::ledger::REQUEST_ID;
use crate::support::load::{Load, Outcome, Running};
use crate::support::raw::Raw;
use crate::support::store::Kind;
use crate::support::wait_for;

const TTL: Duration = Duration::from_secs(4);
/// How long a takeover may take after the lock has run out, on a busy machine.
const TAKEOVER: Duration = Duration::from_secs(20);
/// How long the app works on a request, in milliseconds: some are always running.
const WORK: u64 = 10;
/// Long enough to be in the middle of it when the primary dies, however long it takes to send them all.
const LONG_WORK: u64 = 5_000;

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait_on_etcd() {
    killed(Kind::Etcd).await;
}

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait_on_sqlite() {
    killed(Kind::Sqlite).await;
}

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait_on_postgres() {
    killed(Kind::Postgres).await;
}

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait_on_mysql() {
    killed(Kind::Mysql).await;
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_and_serves_no_more_on_etcd() {
    frozen(Kind::Etcd).await;
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_and_serves_no_more_on_sqlite() {
    frozen(Kind::Sqlite).await;
}

/// SIGKILL: no GET through a survivor fails, a POST only as `maybe-executed`, and the dead node comes back as a replica.
pub(crate) async fn killed(kind: Kind) {
    let mut cluster = Cluster::start(kind, TTL).await;
    let one = cluster.watch();
    let load = Load::start(cluster.addresses(), WORK);
    load.answers(150).await;
    let primary = cluster.settled(3, TAKEOVER).await;
    let epoch = cluster.epoch_at(primary).await;
    let running = Running::start(cluster.addresses(), LONG_WORK, &cluster.ledger).await;

    cluster.nodes[primary].kill().await;
    cluster.settled_after(epoch, 2, kind.lasts(TTL) + TAKEOVER).await;
    load.answers(100).await;
    cluster.restart(primary);
    cluster.settled_after(epoch, 3, TAKEOVER).await;
    load.answers(150).await;

    let (mut outcomes, running) = (load.stop().await, running.outcomes().await);
    let survivors = cluster.others(primary).map(|node| cluster.nodes[node].address());
    for outcome in outcomes.iter().chain(&running).filter(|outcome| survivors.contains(&outcome.through)) {
        outcome.assert_survived();
    }
    let posts = running.iter().filter(|outcome| outcome.method == Method::POST && survivors.contains(&outcome.through));
    posts.for_each(|post| assert!(post.is_maybe_executed(), "it had reached the app: {post:?}"));
    outcomes.extend(running);
    assert!(outcomes.iter().any(Outcome::is_refused), "clients of the dead node's own port are refused");
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// SIGSTOP for a TTL longer than the lock lasts: the same, and after SIGCONT nothing is served under the old epoch.
pub(crate) async fn frozen(kind: Kind) {
    let cluster = Cluster::start(kind, TTL).await;
    let one = cluster.watch();
    let load = Load::start(cluster.addresses(), WORK);
    load.answers(150).await;
    let primary = cluster.settled(3, TAKEOVER).await;
    let epoch = cluster.epoch_at(primary).await;
    let running = Running::start(cluster.addresses(), LONG_WORK, &cluster.ledger).await;

    let waiting = warm(cluster.nodes[primary].address()).await;
    cluster.nodes[primary].freeze().await;
    // These lie in its sockets, and are the first thing that it sees when it goes on.
    let mut asleep = JoinSet::new();
    asleep.spawn(join_all(waiting.into_iter().enumerate().map(|(number, client)| async move {
        let asked = with(request(Method::POST, "/count", "an order"), REQUEST_ID, &format!("asleep-{number}"));
        client.send(asked).await
    })));
    // The time for which it is frozen is the scenario itself.
    tokio::time::sleep(kind.lasts(TTL) + TTL).await;
    cluster.nodes[primary].signal(Signal::CONT);
    cluster.settled_after(epoch, 3, TAKEOVER).await;
    load.answers(150).await;

    for answer in asleep.join_next().await.expect("the sleeping requests").expect("their end") {
        let answer = answer.expect("an answer");
        assert!(answer.status == 200 && answer.epoch() > Some(epoch), "{} under {:?}", answer.text(), answer.epoch());
    }
    let mut outcomes = load.stop().await;
    outcomes.extend(running.outcomes().await);
    for outcome in &outcomes {
        // Through every node: the frozen one answers what it had accepted, by way of the new primary.
        outcome.assert_survived();
    }
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// Clients with a connection each to `node`.
async fn warm(node: SocketAddr) -> Vec<Client> {
    let clients = (0..100).map(|_| Client::new(node)).collect::<Vec<_>>();
    let answers = join_all(clients.iter().map(|client| client.send(request(Method::GET, "/_ping", "")))).await;
    answers.into_iter().for_each(|answer| assert_eq!(answer.expect("an answer").status, 200));
    clients
}

/// B90: the primary dies while it is being sent a body. The next one gets all of it, or the client is told that nobody knows; and the
/// replica does not keep what it cannot send again.
#[tokio::test]
async fn a_body_reaches_the_next_primary_whole_or_not_at_all() {
    const SMALL: usize = 10_000;
    const LARGE: usize = 20_000_000;
    // What a replica keeps of a body to send it again.
    const KEPT: usize = 64 * 1024;
    let mut cluster = Cluster::start(Kind::Sqlite, Duration::from_secs(2)).await;
    for (length, sent) in [(SMALL, 0), (SMALL, 1_000), (LARGE, 1_000), (LARGE, LARGE / 2)] {
        let primary = cluster.settled(3, TAKEOVER).await;
        let [replica, _] = cluster.others(primary);
        let body = (0..length).map(|byte| (byte % 251) as u8).collect::<Vec<_>>();
        cluster.nodes[replica].forget_peak();
        let before = cluster.nodes[replica].resident();
        let mut client = Raw::connect(cluster.places()[replica].clone()).await;
        let head = "PUT /echo HTTP/1.1\r\nHost: service\r\nIdempotency-Key: key\r\n";
        client.send(format!("{head}Content-Length: {length}\r\n\r\n")).await;
        client.send(&body[..sent]).await;
        wait_for("the request to run at the primary", TAKEOVER, async || {
            match cluster.nodes[primary].metrics().await.value("running_requests") {
                running if running >= 1.0 => Ok(()),
                running => Err(running),
            }
        })
        .await;
        cluster.nodes[primary].kill().await;
        if sent <= KEPT {
            client.send(&body[sent..]).await;
        }
        let (head, said) = client.answer().await;
        let said: Value = serde_json::from_str(&said).expect("JSON");
        if head.starts_with("HTTP/1.1 200") {
            assert_eq!((said["length"].as_u64(), said["sum"].as_u64()), (Some(length as u64), Some(checksum(&body))), "{sent} of {length}");
        } else {
            assert!(head.starts_with("HTTP/1.1 502") && length > KEPT, "{sent} of {length}: {head}{said}");
            assert_eq!(said["verdict"], "maybe-executed", "{said}");
        }
        let grown = cluster.nodes[replica].peak().saturating_sub(before);
        assert!(grown < 6 * 1024, "{grown} KiB are kept of {length} bytes");
        cluster.restart(primary);
    }
}
