//! Whole daemons on Kubernetes: what befalls them on every store, and what only Kubernetes can do to them.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use crate::outage::Memory;
use crate::support::app::App;
use crate::support::cluster::Cluster;
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::get;
use crate::support::kubernetes::{Kubernetes, NAMESPACE};
use crate::support::ledger::Ledger;
use crate::support::load::Load;
use crate::support::one::One;
use crate::support::store::{Kind, Store};
use crate::support::wait_for;
use crate::support::wire::Mode;
use crate::{crash, foresight, outage, partition, planned};

const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);
const WORK: u64 = 10;
const HOLD: &[&str] = &["--hold-timeout", "60s"];

#[tokio::test]
async fn a_killed_primary_costs_a_short_wait() {
    crash::killed(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_frozen_primary_is_replaced_and_serves_no_more() {
    crash::frozen(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_terminated_primary_hands_over_and_no_request_fails() {
    planned::terminated(Kind::Kubernetes).await;
}

#[tokio::test]
async fn thirty_forced_changes_in_a_row_fail_no_request() {
    planned::resigned_in_turn(Kind::Kubernetes).await;
}

#[tokio::test]
async fn no_node_leads_while_requests_of_the_last_tenure_run() {
    planned::drained(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_long_outage_heals_by_itself() {
    outage::outage(Kind::Kubernetes, Memory::Kept).await;
}

#[tokio::test]
async fn a_long_outage_that_comes_back_empty_heals_by_itself() {
    outage::outage(Kind::Kubernetes, Memory::Lost).await;
}

#[tokio::test]
async fn a_single_node_that_lost_its_lock_leads_again() {
    outage::single(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_primary_cut_off_from_the_store_steps_down_in_time() {
    partition::cut_off(Kind::Kubernetes, Mode::Blackhole).await;
}

#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    partition::cut_off(Kind::Kubernetes, Mode::Delay(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_lock_is_released_in_the_middle_of_a_renewal() {
    partition::released(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_failover_costs_what_was_planned() {
    foresight::as_planned(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_store_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(Kind::Kubernetes, folder.path()).await;
    let found = foresight::json(&["store", "check", &store.url(), "--replication-ttl", "3s"]).await;
    assert_eq!(found["safe"], true, "{found:#}");
    let promises = found["promises"].as_array().expect("promises");
    assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] != "broken"), "{found:#}");
    let Store::Kubernetes(kubernetes) = &store else { unreachable!("this test runs on Kubernetes") };
    assert_eq!(names(kubernetes), [""; 0]);
}

/// The names of all leases.
fn names(server: &Kubernetes) -> Vec<String> {
    let (_, list) = server.objects(|objects| objects.list(NAMESPACE, None));
    let items = list["items"].as_array().expect("a list");
    items.iter().map(|lease| lease["metadata"]["name"].as_str().expect("a name").to_owned()).collect()
}

/// Whoever has seen the holder waits for its time, and the holder itself finds out at its next renewal.
#[tokio::test]
async fn a_deleted_lease_ends_the_tenure() {
    let overlap = outage::deleted(Kind::Kubernetes).await;
    assert_eq!(overlap, Duration::ZERO, "two primaries at once");
}

/// B65: another holder's name in the record ends the tenure, with no second primary for as long as that one is honoured.
#[tokio::test]
async fn an_edited_holder_ends_the_tenure() {
    let edit = async |store: &Store| {
        let Store::Kubernetes(kubernetes) = store else { unreachable!("this test runs on Kubernetes") };
        kubernetes.edit("default", &json!({"spec": {"holderIdentity": "x"}}));
    };
    let overlap = outage::meddled(Kind::Kubernetes, edit).await;
    assert_eq!(overlap, Duration::ZERO, "two primaries at once");
}

/// Nobody reaches the API server, while every connection stands: the primary stops by its own clock, and one leads when it is over.
#[tokio::test]
async fn a_store_in_a_black_hole_stops_everybody_and_comes_back() {
    let (cluster, wires) = Cluster::start_wired(Kind::Kubernetes, TTL, HOLD).await;
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
    cluster.settled_after(epoch, 3, TTL + LIMIT).await;
    load.answers(60).await;

    let outcomes = load.stop().await;
    outcomes.iter().for_each(|outcome| outcome.assert_survived());
    cluster.assert_told_the_truth(&outcomes);
    cluster.ledger.assert_in_order();
    one.assert_never_two();
    cluster.balances().await;
}

/// B13: a node whose wall clock is an hour wrong takes part like any other: times in the record are compared with nothing.
#[tokio::test]
async fn a_wall_clock_that_is_an_hour_wrong_makes_no_second_primary() {
    for offset in ["+3600s", "-3600s"] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::start(Kind::Kubernetes, folder.path()).await;
        let (ledger, mut nodes, mut apps) = (Ledger::default(), Vec::new(), Vec::new());
        for (name, is_wrong) in [("wrong", true), ("right", false)] {
            let app = App::start(name, &ledger).await;
            let manage = Manage::new(name, folder.path()).replicated(&store.url(), TTL).upstream(app.address());
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
            let next = nodes[1 - from].becomes("primary", TTL + LIMIT).await;
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

/// In a Pod: the address from the environment, the files of a ServiceAccount. A token that expires is read again from its file;
/// until it is replaced, the node says what is wrong and shows no token.
#[tokio::test]
async fn a_node_in_a_pod_signs_in_with_its_service_account() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Kubernetes::start().await;
    let options = [format!("cacert={}", server.file("ca.pem")), format!("token-file={}", server.file("token"))];
    let manage = Manage::new("a", folder.path()).replicated(&server.url(), TTL);
    let manage = manage.with(options.iter().flat_map(|option| ["--store-opt", option]));
    let (host, port) = (server.address().ip().to_string(), server.address().port().to_string());
    let manage = manage.env([("KUBERNETES_SERVICE_HOST", host), ("KUBERNETES_SERVICE_PORT", port), ("KUBECONFIG", String::new())]);
    let node = manage.start().await;
    let epoch = node.becomes("primary", LIMIT).await.epoch;

    server.expire_token("valid-token");
    server.accept_token("second-token");
    node.becomes("electing", LIMIT).await;
    wait_for("the log to say so", LIMIT, async || match node.log() {
        log if log.contains("does not accept the token in") => Ok(()),
        log => Err(log),
    })
    .await;
    std::fs::write(server.file("token"), "second-token").expect("replace the token");
    assert!(node.becomes("primary", TTL + LIMIT).await.epoch > epoch);
    let shown = [node.log(), node.info().await.all.to_string(), get(node.address(), "/_bellwether/status").await.text().to_owned()];
    assert!(shown.iter().all(|text| !text.contains("valid-token") && !text.contains("second-token")), "{shown:#?}");
}

/// A node without rights says once what to grant, keeps trying, and leads when it was granted.
#[tokio::test]
async fn a_node_without_rights_says_what_to_grant_and_heals() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(Kind::Kubernetes, folder.path()).await;
    let Store::Kubernetes(server) = &store else { unreachable!("this test runs on Kubernetes") };
    server.allow_only(&["get", "watch"]);
    let node = Manage::new("a", folder.path()).replicated(&store.url(), TTL).start().await;
    let tried = async || node.metrics().await.value("store_calls_total{op=\"acquire\",result=\"denied\"}");
    wait_for("six tries", LIMIT, async || match tried().await {
        tries if tries >= 6.0 => Ok(()),
        tries => Err(tries),
    })
    .await;
    let log = node.log();
    let told = log.lines().filter(|line| line.contains("the ServiceAccount web of namespace shop")).collect::<Vec<_>>();
    assert!(told.len() == 1 && told[0].contains("ERROR") && told[0].contains("create and update"), "{told:#?}");
    assert_eq!(get(node.address(), "/_bellwether/ready").await.status, 503, "B64: it can neither serve nor forward");
    server.allow_only(&["get", "watch", "create", "update"]);
    node.becomes("primary", LIMIT).await;
}
