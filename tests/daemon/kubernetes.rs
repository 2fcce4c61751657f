//! Whole daemons on Kubernetes: what befalls them on every store, and what only Kubernetes can do to them.

use std::time::Duration;

use serde_json::json;

use crate::scenario::scenarios;
use crate::support::daemon::Manage;
use crate::support::http::get;
use crate::support::kubernetes::{Kubernetes, NAMESPACE};
use crate::support::store::{Kind, Store};
use crate::support::wait_for;
use crate::support::wire::Mode;
use crate::{foresight, outage, partition};

const TTL: Duration = Duration::from_secs(4);
const LIMIT: Duration = Duration::from_secs(30);

scenarios!(Kubernetes);

#[tokio::test]
async fn a_primary_with_a_crawling_store_steps_down_in_time() {
    partition::cut_off(Kind::Kubernetes, Mode::Delay(Duration::from_secs(60))).await;
}

#[tokio::test]
async fn a_store_in_a_black_hole_stops_everybody_and_comes_back() {
    partition::black_hole(Kind::Kubernetes).await;
}

#[tokio::test]
async fn a_store_that_keeps_its_promises_is_found_to_and_left_as_it_was() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(Kind::Kubernetes, folder.path()).await;
    foresight::promises(&store.url()).await;
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
