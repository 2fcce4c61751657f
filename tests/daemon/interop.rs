//! Clients and apps that nobody here wrote, through both hops, in the clear and over mutual TLS.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::adapter::Adapter;
use crate::support::daemon::Manage;
use crate::support::http::{Client, Method, request};
use crate::support::interop::{ECHO, GRPC, GRPC_MANY, HTTP1, Served, run, websocket_suite};
use crate::support::pair::Pair;
use crate::support::places::Places;
use crate::support::secure::World;

/// How many kinds of calls the client makes.
const CALLS: usize = 15;

/// Has the client make its calls at each place, of which it gets the files for one that speaks TLS.
async fn calls_everywhere(places: &Places) {
    let user = [&places.world.user.ca, &places.world.user.cert, &places.world.user.key];
    let files = user.map(|file| file.to_str().expect("a path in UTF-8"));
    for place in places.each() {
        let address = place.address.to_string();
        let own = if place.tls.is_some() { &files[..] } else { &[] };
        let said = run(GRPC, &[&["call", address.as_str()], own].concat()).await;
        assert_eq!(said.lines().count(), CALLS, "{place}: {said}");
    }
}

#[tokio::test]
async fn grpc_calls_of_every_kind_reach_the_app() {
    let service = Served::start(GRPC, &["serve"]).await;
    calls_everywhere(&Places::with(&format!("h2c://127.0.0.1:{}", service.port), |manage| manage).await).await;
}

/// Far more than the nodes have room for on one connection between them, and none waits for another.
#[tokio::test]
async fn grpc_calls_that_last_are_under_way_at_once_in_their_hundreds() {
    let service = Served::start(GRPC_MANY, &["serve"]).await;
    let one_worker = |manage: Manage| manage.with(["--workers", "1"]);
    let pair = Pair::start_with(&format!("h2c://127.0.0.1:{}", service.port), one_worker).await;
    let said = run(GRPC_MANY, &["call", &pair.replica.address().to_string(), "600"]).await;
    assert_eq!(said, "begun 600\nended 600\nwell 600\n");
}

/// The service is behind TLS, and HTTP/2 agreed on when hands are shaken with it.
#[tokio::test]
async fn grpc_calls_reach_a_service_behind_tls() {
    let world = World::new();
    let files = world.node("service");
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().expect("a path in UTF-8"));
    let service = Served::start(GRPC, &["serve", cert, key]).await;
    let ca = world.authority.file().display().to_string();
    let own = |manage: Manage| manage.env([("SSL_CERT_FILE", ca.clone())]);
    calls_everywhere(&Places::with(&format!("https://127.0.0.1:{}", service.port), own).await).await;
}

/// A server that chooses HTTP/1.1, and one that does not know of a choice.
#[tokio::test]
async fn a_server_behind_tls_without_http2_is_asked_in_http1() {
    let world = World::new();
    let files = world.node("service");
    let [cert, key] = [&files.cert, &files.key].map(|file| file.to_str().expect("a path in UTF-8"));
    let ca = world.authority.file().display().to_string();
    let own = |manage: Manage| manage.env([("SSL_CERT_FILE", ca.clone())]);
    for arguments in [&[cert, key, "http/1.1"][..], &[cert, key]] {
        let service = Served::start(HTTP1, arguments).await;
        let places = Places::with(&format!("https://127.0.0.1:{}", service.port), own).await;
        for place in places.each() {
            for length in [5, 300_000] {
                let answer = Client::new(place.clone()).send(request(Method::POST, "/", vec![b'x'; length])).await.expect("an answer");
                assert!(answer.status == 200 && answer.header("x-version") == "HTTP/1.1", "{answer:?}");
                assert_eq!(answer.body.len(), length);
            }
        }
    }
}

/// Each case of Autobahn's suite ends as it does without us, at each of the three places.
#[tokio::test]
async fn websockets_behave_as_at_the_app_itself() {
    let app = Served::start(ECHO, &[]).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let report = async |place: String, name| behaviours(&websocket_suite(&place, &folder.path().join(name)).await);
    let direct = report(format!("127.0.0.1:{}", app.port), "direct").await;
    assert!(direct.len() > 200, "the suite has cases: {direct:?}");
    let places = Places::with(&format!("http://127.0.0.1:{}", app.port), |manage| manage).await;
    // The suite speaks no TLS.
    let [primary, replica, mutual] = places.each();
    let adapter = Adapter::to(mutual).await;
    for (way, name) in [(primary.address, "primary"), (replica.address, "replica"), (adapter.address, "mutual")] {
        assert_eq!(report(way.to_string(), name).await, direct, "{name}");
    }
}

fn behaviours(report: &Value) -> BTreeMap<String, String> {
    let cases = report.as_object().into_iter().flat_map(|agents| agents.values()).filter_map(Value::as_object).flatten();
    cases.map(|(case, result)| (case.clone(), result["behavior"].to_string() + &result["behaviorClose"].to_string())).collect()
}
