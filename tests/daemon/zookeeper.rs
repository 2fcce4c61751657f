//! Whole daemons on ZooKeeper: what befalls them on every store, and what only ZooKeeper can do to them.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use crate::scenario::scenarios;
use crate::support::cluster::Cluster;
use crate::support::daemon::Manage;
use crate::support::kazoo::Kazoo;
use crate::support::load::Load;
use crate::support::store::{Kind, Store};
use crate::support::wait_for;
use crate::support::wire::Mode;
use crate::support::zookeeper::ZooKeeper;
use crate::{foresight, outage, partition};

const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(20);
const WORK: u64 = 10;
const HOLD: &[&str] = &["--hold-timeout", "60s"];
const FOLDER: &str = "/bellwether/default/leader";

scenarios!(ZooKeeper);

/// The holder and the next one are told in the same moment: how near to each other they act is the machine's doing.
#[tokio::test]
async fn a_deleted_node_ends_the_tenure() {
    let overlap = outage::deleted(Kind::ZooKeeper).await;
    assert!(overlap <= TTL, "two primaries for {overlap:?}");
}

#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    partition::cut_off(Kind::ZooKeeper, Mode::Delay(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_store_in_a_black_hole_stops_everybody_and_comes_back() {
    partition::black_hole(Kind::ZooKeeper).await;
}

#[tokio::test]
async fn one_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let store = ZooKeeper::start(1, "").await;
    let hand = Kazoo::start(store.address(0));
    let before = hand.line("/").await;
    foresight::kept_promises(&store.url()).await;
    assert_eq!(hand.line("/bellwether").await, []);
    assert_eq!(hand.line("/").await.iter().filter(|node| node.name != "bellwether").cloned().collect::<Vec<_>>(), before);
}

fn hold(manage: Manage) -> Manage {
    manage.with(HOLD.iter().copied())
}

/// Any one of three members may freeze or die.
#[tokio::test]
async fn an_ensemble_without_one_of_three_members_costs_no_tenure() {
    // On a busy machine the others have taken eight seconds to agree on who leads them.
    const LONG_TTL: Duration = Duration::from_secs(18);
    let store = Store::ZooKeeper(ZooKeeper::start(3, "").await);
    let mut cluster = Cluster::start_on(store, LONG_TTL, [&hold, &hold, &hold]).await;
    let one = cluster.watch();
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let load = Load::gentle(cluster.addresses(), WORK);
    let Store::ZooKeeper(servers) = &mut cluster.store else { unreachable!("this test runs on ZooKeeper") };
    let first = servers.leading_member().await;
    servers.signal(first, Signal::STOP);
    // The length of the fault is the scenario itself.
    sleep(LONG_TTL).await;
    servers.signal(first, Signal::CONT);
    let second = servers.leading_member().await;
    servers.stop(second);
    sleep(LONG_TTL).await;
    servers.restart(second).await;
    assert_eq!((cluster.settled(3, LIMIT).await, cluster.epoch_at(primary).await), (primary, epoch));
    cluster.assert_unharmed(load).await;
    one.assert_never_two();
}

/// No wall clock has a say: one node lives an hour ahead, one an hour behind.
#[tokio::test]
async fn wall_clocks_that_differ_by_hours_make_no_second_primary() {
    let ahead = |manage: Manage| hold(manage).by_clock("+1h");
    let behind = |manage: Manage| hold(manage).by_clock("-1h");
    let store = Store::ZooKeeper(ZooKeeper::start(1, "").await);
    let mut cluster = Cluster::start_on(store, TTL, [&ahead, &behind, &hold]).await;
    let one = cluster.watch();
    let load = Load::gentle(cluster.addresses(), WORK);
    for _ in 0..3 {
        let primary = cluster.settled(3, LIMIT).await;
        let epoch = cluster.epoch_at(primary).await;
        // Longer than a session that nobody keeps.
        sleep(TTL * 3 / 2).await;
        assert_eq!(cluster.epoch_at(primary).await, epoch, "nobody lost the lock");
        cluster.nodes[primary].kill().await;
        cluster.settled_after(epoch, 2, TTL * 2 + LIMIT).await;
        cluster.restart(primary);
    }
    cluster.settled(3, LIMIT).await;
    cluster.assert_told_the_truth(&load.stop().await);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
}

/// Different services on one store are different elections: each has its primary, and one that goes moves only its own.
#[tokio::test]
async fn two_services_on_one_ensemble_do_not_touch_each_other() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = ZooKeeper::start(1, "").await;
    let start = async |name: &str, service: &str| {
        let manage = Manage::new(name, folder.path()).replicated(&store.url(), TTL).with(["--service", service]);
        manage.start().await
    };
    let (mut web, mut spare) = (start("web", "web").await, start("spare", "web").await);
    let mail = start("mail", "mail").await;
    let epoch = mail.becomes("primary", LIMIT).await.epoch;
    let leads = wait_for("one of two to lead", LIMIT, async || match (web.info().await.role, spare.info().await.role) {
        (one, other) if one == "primary" && other == "replica" => Ok(true),
        (one, other) if one == "replica" && other == "primary" => Ok(false),
        other => Err(other),
    });
    let (first, second) = if leads.await { (&mut web, &spare) } else { (&mut spare, &web) };
    first.kill().await;
    second.becomes("primary", TTL * 2 + LIMIT).await;
    assert_eq!((mail.info().await.role.as_str(), mail.info().await.epoch), ("primary", epoch));
    let hand = Kazoo::start(store.address(0));
    for service in ["web", "mail"] {
        assert_eq!(hand.line(&FOLDER.replace("default", service)).await.len(), 1, "{service}");
    }
}

/// A wrong password is said, and never shown.
#[tokio::test]
async fn a_wrong_password_is_said_and_never_shown() {
    let store = ZooKeeper::start(1, "").await;
    let folder = store.folder();
    let hand = Kazoo::start(store.address(0));
    hand.command::<()>(serde_json::json!(["guard", "/team", "bw", "hunter3", "cdrwa"])).await;
    let file = folder.join("password");
    std::fs::write(&file, "wrong-hunter\n").expect("write a password");
    let password = format!("password-file={}", file.display());
    let node = Manage::new("a", folder).replicated(&format!("{}/team", store.url()), TTL);
    let node = node.with(["--store-opt", "username=bw", "--store-opt", &password]).start().await;
    wait_for("the refusal to be logged", LIMIT, async || match node.log() {
        log if log.contains("election cannot go on") && log.contains("cdrw on /team/default/leader") => Ok(()),
        log => Err(log),
    })
    .await;
    assert!(!node.log().contains("wrong-hunter") && !node.info().await.all.to_string().contains("hunter"), "{}", node.log());
}
