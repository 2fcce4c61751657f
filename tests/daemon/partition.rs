//! The network between one node and the store fails, while everything else goes on.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use crate::support::cluster::Cluster;
use crate::support::daemon::Daemon;
use crate::support::http::get;
use crate::support::load::{End, Load};
use crate::support::store::Kind;
use crate::support::wait_for;
use crate::support::wire::Mode;

const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(20);
const WORK: u64 = 10;
const HOLD: &[&str] = &["--hold-timeout", "30s"];

/// B04: a primary whose calls to the store are swallowed steps down by its own clock before anybody else may lead.
#[tokio::test]
async fn a_primary_cut_off_from_the_store_steps_down_in_time() {
    cut_off(Kind::Etcd, Mode::Blackhole).await;
}

#[tokio::test]
async fn a_primary_cut_off_from_postgres_steps_down_in_time() {
    cut_off(Kind::Postgres, Mode::Blackhole).await;
}

#[tokio::test]
async fn a_primary_cut_off_from_mysql_steps_down_in_time() {
    cut_off(Kind::Mysql, Mode::Blackhole).await;
}

/// B04, as reported: the connection stays, and every call takes a minute.
#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    cut_off(Kind::Etcd, Mode::Delay(Duration::from_secs(60))).await;
}

pub(crate) async fn cut_off(kind: Kind, mode: Mode) {
    let (cluster, wires) = Cluster::start_wired(kind, TTL, HOLD).await;
    let one = cluster.watch();
    let load = Load::gentle(cluster.addresses(), WORK);
    load.answers(60).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;

    wires[primary].set(mode);
    // A TTL later its last renewal is longer ago than that. Whoever asks then finds no primary, however late he asks.
    sleep(TTL).await;
    assert_eq!(cluster.nodes[primary].info().await.role, "electing");
    let next = cluster.led_after(epoch, kind.lasts(TTL) + LIMIT).await;
    assert_ne!(next, primary);
    load.answers(40).await;
    wires[primary].set(Mode::Pass);
    cluster.settled_after(epoch, 3, TTL * 2 + LIMIT).await;
    load.answers(60).await;

    cluster.assert_unharmed(load).await;
    one.assert_never_two();
}

/// Nobody reaches the store, while every connection stands: the primary stops by its own clock, and one leads when it is over.
pub(crate) async fn black_hole(kind: Kind) {
    const LONG_HOLD: &[&str] = &["--hold-timeout", "60s"];
    /// What a candidate may take to try again after so long, and a busy machine on top.
    const LONG_LIMIT: Duration = Duration::from_secs(30);
    let (cluster, wires) = Cluster::start_wired(kind, TTL, LONG_HOLD).await;
    let one = cluster.watch();
    let load = Load::gentle(cluster.addresses(), WORK);
    load.answers(60).await;
    let primary = cluster.settled(3, LONG_LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;

    wires.iter().for_each(|wire| wire.set(Mode::Blackhole));
    // As above, its last renewal is too long ago by then.
    sleep(TTL).await;
    assert_eq!(cluster.nodes[primary].info().await.role, "electing");
    // Nobody else leads either for a while longer, which is the scenario itself.
    sleep(TTL).await;
    wires.iter().for_each(|wire| wire.set(Mode::Pass));
    cluster.settled_after(epoch, 3, kind.lasts(TTL) + LONG_LIMIT).await;
    load.answers(60).await;

    cluster.assert_unharmed(load).await;
    one.assert_never_two();
}

/// B119: a fault shorter than the lease moves nothing, and quick errors use it up no faster than slow ones.
#[tokio::test]
async fn a_fault_shorter_than_the_lease_moves_nothing() {
    const LONG_TTL: Duration = Duration::from_secs(12);
    let (mut cluster, wires) = Cluster::start_wired(Kind::Etcd, LONG_TTL, &[]).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let load = Load::start(cluster.addresses(), WORK);
    for fault in [Some(Mode::Reset), Some(Mode::Blackhole), None] {
        match fault {
            Some(mode) => wires.iter().for_each(|wire| wire.set(mode)),
            None => cluster.store.fail().await,
        }
        // Shorter than what is left of any lease that is renewed every third of its TTL, with room for a server's start.
        sleep(LONG_TTL / 6).await;
        match fault {
            Some(_) => wires.iter().for_each(|wire| wire.set(Mode::Pass)),
            None => cluster.store.recover().await,
        }
        renews(&cluster.nodes[primary], LONG_TTL).await;
        assert_eq!((cluster.settled(3, LIMIT).await, cluster.epoch_at(primary).await), (primary, epoch), "after {fault:?}");
    }
    for outcome in &load.stop().await {
        assert!(matches!(outcome.end, End::Answered { held: false, .. }), "nobody waits: {outcome:?}");
    }
}

/// B10: the lock is given back also when the primary is asked to go in the middle of a renewal.
#[tokio::test]
async fn a_lock_is_released_in_the_middle_of_a_renewal() {
    released(Kind::Etcd).await;
}

pub(crate) async fn released(kind: Kind) {
    const LONG_TTL: Duration = Duration::from_secs(20);
    const DELAY: Duration = Duration::from_millis(500);
    let (mut cluster, wires) = Cluster::start_wired(kind, LONG_TTL, &[]).await;
    for _ in 0..2 {
        let primary = cluster.settled(3, LIMIT).await;
        let epoch = cluster.epoch_at(primary).await;
        wires[primary].set(Mode::Delay(DELAY));
        renews(&cluster.nodes[primary], LONG_TTL).await;
        // The next renewal goes out a third of the TTL after this one did, and is under way for two delays.
        sleep(LONG_TTL / 3 - DELAY).await;
        cluster.nodes[primary].signal(Signal::TERM);
        // Left to itself, the lease would last for two thirds of its time and more.
        cluster.led_after(epoch, LONG_TTL / 2).await;
        assert!(cluster.nodes[primary].ended(LIMIT).await.success());
        wires[primary].set(Mode::Pass);
        cluster.restart(primary);
    }
}

/// Waits until a primary has renewed its lease twice: it is whole again, and the first of the two may have been under way.
async fn renews(node: &Daemon, ttl: Duration) {
    let renewals = async || node.metrics().await.value("store_calls_total{op=\"renew\",result=\"ok\"}");
    let before = renewals().await;
    wait_for("another two renewals", ttl + LIMIT, async || match renewals().await {
        now if now >= before + 2.0 => Ok(()),
        now => Err(now),
    })
    .await;
}

/// A replica that is cut off from the store still serves its local routes and gives no request to a leader of the past.
#[tokio::test]
async fn a_replica_cut_off_from_the_store_serves_again_when_it_is_back() {
    let (cluster, wires) = Cluster::start_wired(Kind::Etcd, TTL, HOLD).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let [replica, _] = cluster.others(primary);
    wires[replica].set(Mode::Blackhole);
    assert_eq!(cluster.nodes[primary].resign().await.status, 200);
    cluster.led_after(epoch, LIMIT).await;
    assert_eq!(get(cluster.nodes[replica].address(), "/_ping").await.status, 200);
    let address = cluster.nodes[replica].address();
    let mut waiting = tokio::task::JoinSet::new();
    waiting.spawn(async move { get(address, "/who").await });
    sleep(TTL).await;
    wires[replica].set(Mode::Pass);
    let answer = waiting.join_next().await.expect("a request").expect("its answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.epoch() > Some(epoch), "served under the present tenure: {:?}", answer.headers);
    cluster.ledger.assert_in_order();
}
