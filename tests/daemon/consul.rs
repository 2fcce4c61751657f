//! Whole daemons on Consul: what befalls them on every store, and what only Consul can do to them.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::outage::Memory;
use crate::support::app::App;
use crate::support::cluster::Cluster;
use crate::support::consul::Consul;
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::get;
use crate::support::ledger::Ledger;
use crate::support::load::Load;
use crate::support::one::One;
use crate::support::store::{Kind, Store};
use crate::support::wait_for;
use crate::support::wire::Mode;
use crate::{crash, foresight, outage, partition, planned};

const KEY: &str = "bellwether/default/leader";
const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);
const WORK: u64 = 10;
const HOLD: &[&str] = &["--hold-timeout", "60s"];

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait() {
    crash::killed(Kind::Consul).await;
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_and_serves_no_more() {
    crash::frozen(Kind::Consul).await;
}

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails() {
    planned::terminated(Kind::Consul).await;
}

#[tokio::test]
async fn thirty_forced_changes_in_a_row_fail_no_request() {
    planned::resigned_in_turn(Kind::Consul).await;
}

#[tokio::test]
async fn no_node_leads_while_requests_of_the_last_tenure_run() {
    planned::drained(Kind::Consul).await;
}

#[tokio::test]
async fn a_long_outage_heals_by_itself() {
    outage::outage(Kind::Consul, Memory::Kept).await;
}

#[tokio::test]
async fn a_long_outage_that_comes_back_empty_heals_by_itself() {
    outage::outage(Kind::Consul, Memory::Lost).await;
}

#[tokio::test]
async fn a_single_node_that_lost_its_lock_leads_again() {
    outage::single(Kind::Consul).await;
}

#[tokio::test]
async fn a_primary_cut_off_from_the_store_steps_down_in_time() {
    partition::cut_off(Kind::Consul, Mode::Blackhole).await;
}

#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    partition::cut_off(Kind::Consul, Mode::Delay(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_lock_is_released_in_the_middle_of_a_renewal() {
    partition::released(Kind::Consul).await;
}

#[tokio::test]
async fn a_failover_costs_what_was_planned() {
    foresight::as_planned(Kind::Consul).await;
}

#[tokio::test]
async fn a_store_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let consul = Consul::start_with(true, &json!({"session_ttl_min": "1s"})).await;
    let found = foresight::json(&["store", "check", &consul.url(), "--replication-ttl", "3s"]).await;
    assert_eq!(found["safe"], true, "{found:#}");
    let promises = found["promises"].as_array().expect("promises");
    assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] == "kept"), "{found:#}");
    for left in ["/v1/kv/?keys", "/v1/session/list"] {
        let (_, body) = consul.api("GET", left, "").await;
        assert!(body.is_empty() || body == "[]", "{left}: {body}");
    }
}

/// Consul tells everybody at once that the key is gone, and who held it has let go before the next one begins.
#[tokio::test]
async fn a_deleted_key_ends_the_tenure() {
    let overlap = outage::deleted(Kind::Consul).await;
    assert_eq!(overlap, Duration::ZERO, "two primaries at once");
}

/// B47: the lock-delay keeps the next one waiting while the last one hears of it.
#[tokio::test]
async fn a_destroyed_session_ends_the_tenure() {
    let destroy = async |store: &Store| {
        let Store::Consul(consul) = store else { unreachable!("this test runs on Consul") };
        consul.destroy_holder(KEY).await;
    };
    let overlap = outage::meddled(Kind::Consul, destroy).await;
    assert_eq!(overlap, Duration::ZERO, "two primaries at once");
}

/// Nobody reaches Consul, while every connection stands: the primary stops by its own clock, and one leads when it is over.
#[tokio::test]
async fn a_store_in_a_black_hole_stops_everybody_and_comes_back() {
    let (cluster, wires) = Cluster::start_wired(Kind::Consul, TTL, HOLD).await;
    let one = cluster.watch();
    let load = Load::gentle(cluster.addresses(), WORK);
    load.answers(60).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;

    wires.iter().for_each(|wire| wire.set(Mode::Blackhole));
    sleep(TTL).await;
    assert_eq!(cluster.nodes[primary].info().await.role, "electing");
    sleep(TTL).await;
    wires.iter().for_each(|wire| wire.set(Mode::Pass));
    cluster.settled_after(epoch, 3, Kind::Consul.lasts(TTL) + LIMIT).await;
    load.answers(60).await;

    let outcomes = load.stop().await;
    outcomes.iter().for_each(|outcome| outcome.assert_survived());
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// A node whose wall clock is an hour wrong takes part like any other: nothing of the lock is told by wall clocks.
#[tokio::test]
async fn a_wall_clock_that_is_an_hour_wrong_makes_no_second_primary() {
    for offset in ["+3600s", "-3600s"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let consul = Consul::start().await;
        let (ledger, mut nodes, mut apps) = (Ledger::default(), Vec::new(), Vec::new());
        for (name, is_wrong) in [("wrong", true), ("right", false)] {
            let app = App::start(name, &ledger).await;
            let manage = Manage::new(name, folder.path()).replicated(&consul.url(), TTL).upstream(app.address());
            let node = if is_wrong { manage.by_clock(offset) } else { manage }.start().await;
            if is_wrong {
                node.assert_by_false_clock();
            }
            // The one that is wrong leads first.
            node.becomes(if is_wrong { "primary" } else { "replica" }, LIMIT).await;
            nodes.push(node);
            apps.push(app);
        }
        let one = One::watch(nodes.iter().map(Daemon::address));
        // It crashes, the other one crashes, and it hands over.
        for (from, crashes) in [(0, true), (1, true), (0, false)] {
            let epoch = nodes[from].becomes("primary", LIMIT).await.epoch;
            match crashes {
                true => nodes[from].kill().await,
                false => assert_eq!(nodes[from].resign().await.status, 200, "{offset}"),
            }
            let next = nodes[1 - from].becomes("primary", Kind::Consul.lasts(TTL) + LIMIT).await;
            assert!(next.epoch > epoch, "{offset}");
            if crashes {
                nodes[from] = nodes[from].manage().start().await;
            }
            nodes[from].becomes("replica", LIMIT).await;
        }
        one.assert_never_two();
        ledger.assert_in_order();
    }
}

/// A TTL that the servers do not keep: one line that says what to use, and no storm of tries.
#[tokio::test]
async fn a_ttl_below_the_servers_least_is_told_once() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let consul = Consul::start_with(true, &json!({})).await;
    let node = Manage::new("a", folder.path()).replicated(&consul.url(), TTL).start().await;
    // Beside the warning at the start, which is about servers as they come.
    let told = |log: &str| {
        let errors = log.lines().filter(|line| line.contains("ERROR") && line.contains("--replication-ttl 10s"));
        errors.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for("the log to say so", LIMIT, async || if told(&node.log()).is_empty() { Err(node.log()) } else { Ok(()) }).await;
    let tried = async || node.metrics().await.value("store_calls_total{op=\"acquire\",result=\"denied\"}");
    wait_for("another five tries", LIMIT, async || match tried().await {
        tries if tries >= 6.0 => Ok(()),
        tries => Err(tries),
    })
    .await;
    let told = told(&node.log());
    assert!(told.len() == 1 && told[0].contains("session_ttl_min"), "{told:#?}");
    assert_eq!(node.info().await.role, "electing");
    assert_eq!(get(node.address(), "/_bellwether/primary").await.status, 503);
}

/// A primary that may not renew any more stops in time, and its token is nowhere to be seen.
#[tokio::test]
async fn a_token_that_is_refused_is_never_shown() {
    const TOKEN: &str = "11111111-2222-3333-4444-555555555555";
    const OTHER: &str = "66666666-2222-3333-4444-555555555555";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let acl = json!({"enabled": true, "default_policy": "deny", "tokens": {"master": TOKEN}});
    let consul = Consul::start_with(true, &json!({"session_ttl_min": "1s", "acl": acl})).await;
    let file = folder.path().join("token");
    std::fs::write(&file, TOKEN).expect("write a token");
    let option = format!("token-file={}", file.display());
    let manage = Manage::new("a", folder.path()).replicated(&consul.url(), TTL).with(["--store-opt", &option]);
    let mut node = manage.start().await;
    node.becomes("primary", LIMIT).await;
    node.kill().await;

    std::fs::write(&file, OTHER).expect("write another token");
    let node = manage.start().await;
    wait_for("the log to say so", LIMIT, async || match node.log() {
        log if log.contains("the token is unknown to Consul") => Ok(()),
        log => Err(log),
    })
    .await;
    let shown = [node.log(), node.info().await.all.to_string(), get(node.address(), "/_bellwether/status").await.text().to_owned()];
    assert!(shown.iter().all(|text| !text.contains(TOKEN) && !text.contains(OTHER)), "{shown:#?}");
    // Put right, it leads without a restart.
    std::fs::write(&file, TOKEN).expect("write the token again");
    node.becomes("primary", Kind::Consul.lasts(TTL) + LIMIT).await;
}
