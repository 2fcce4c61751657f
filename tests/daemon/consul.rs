//! Whole daemons on Consul: what befalls them on every store, and what only Consul can do to them.

use std::time::Duration;

use serde_json::json;

use crate::scenario::scenarios;
use crate::support::consul::Consul;
use crate::support::daemon::Manage;
use crate::support::http::get;
use crate::support::store::{Kind, Store};
use crate::support::wait_for;
use crate::support::wire::Mode;
use crate::{foresight, outage, partition};

const KEY: &str = "bellwether/default/leader";
const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);

scenarios!(Consul);

#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    partition::cut_off(Kind::Consul, Mode::Delay(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_store_in_a_black_hole_stops_everybody_and_comes_back() {
    partition::black_hole(Kind::Consul).await;
}

#[tokio::test]
async fn a_store_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let consul = Consul::start_with(true, &json!({"session_ttl_min": "1s"})).await;
    foresight::kept_promises(&consul.url()).await;
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
