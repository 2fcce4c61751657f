//! B85: `Expect: 100-continue`, through one hop and through two. Nobody waits for somebody who waits for them.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::support::app::App;
use crate::support::daemon::Manage;
use crate::support::ledger::Ledger;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw};
use crate::support::{port, quickest, within};

/// Who waits for somebody who waits for them waits for ever; anybody else is done by then, on a busy machine too.
const NO_STALL: Duration = Duration::from_secs(20);
const LENGTH: usize = 300_000;
/// What ends the head of an answer: the app, which leaves then, gets no other request on this connection.
const LAST: &str = "Content-Length: 2\r\nConnection: close\r\n\r\n";

/// The app that says 100 gets the body, and its answer comes back.
#[tokio::test]
async fn an_app_that_continues_gets_the_body() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send(upload()).await;
        let mut app = origin.accept().await;
        let head = app.head().await.to_lowercase();
        assert!(head.contains("expect: 100-continue"), "{head}");
        app.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        let interim = within("the way to go on", NO_STALL, client.head()).await;
        assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
        client.send(vec![b'x'; LENGTH]).await;
        assert_eq!(app.take(LENGTH).await, vec![b'x'; LENGTH]);
        app.send(format!("HTTP/1.1 200 OK\r\n{LAST}ok")).await;
        assert_eq!(client.answer().await.1, "ok");
    }
}

/// A refusal reaches the client before it has sent anything.
#[tokio::test]
async fn a_refusal_comes_before_the_body() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for status in ["417 Expectation Failed", "401 Unauthorized"] {
            let took = quickest(async || {
                let mut client = Raw::connect(&place).await;
                client.send(upload()).await;
                let mut app = origin.accept().await;
                app.head().await;
                app.send(format!("HTTP/1.1 {status}\r\n{LAST}no")).await;
                let (head, body) = client.answer().await;
                assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
                assert_eq!(body, "no");
            });
            let took = took.await;
            // A node that first waits out the second after which a body is sent unasked would show.
            assert!(took < Duration::from_millis(500), "{took:?}");
        }
    }
}

/// An app that ignores the expectation gets the body all the same, after a second at most.
#[tokio::test]
async fn an_app_that_ignores_the_expectation_gets_the_body() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send(upload()).await;
        let mut app = origin.accept().await;
        app.head().await;
        let interim = within("the way to go on", NO_STALL, client.head()).await;
        assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
        client.send(vec![b'x'; LENGTH]).await;
        assert_eq!(app.take(LENGTH).await.len(), LENGTH);
        app.send(format!("HTTP/1.1 200 OK\r\n{LAST}ok")).await;
        assert_eq!(client.answer().await.1, "ok");
    }
}

/// A client that waits for no 100 is served as well.
#[tokio::test]
async fn a_client_that_sends_its_body_unasked_is_served() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send(upload()).await;
        client.send(vec![b'x'; LENGTH]).await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        assert_eq!(app.take(LENGTH).await.len(), LENGTH);
        app.send(format!("HTTP/1.1 200 OK\r\n{LAST}ok")).await;
        client.until("\r\n\r\nok").await;
    }
}

/// A client that never sends what it asked leave for is given up, and its app with it.
#[tokio::test]
async fn a_client_that_never_sends_its_body_is_given_up() {
    let origin = Origin::bind().await;
    let url = format!("http://{}", origin.address());
    let places = Places::with(&url, |manage| manage.with(["--body-idle-timeout", "1s"])).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send(upload()).await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 100 Continue\r\n\r\n").await;
        let interim = client.head().await;
        assert!(interim.starts_with("HTTP/1.1 100"), "{interim}");
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 408"), "{head}");
        assert!(app.is_cut().await, "the app waits for nobody");
    }
}

/// curl asks leave by itself for what is longer than a mebibyte, and waits a second for it.
#[tokio::test]
async fn curl_sends_its_body_when_it_may() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    let folder = tempfile::tempdir().unwrap();
    let body = folder.path().join("body");
    std::fs::write(&body, vec![b'x'; 1_200_000]).unwrap();
    let user = &places.world.user;
    for place in places.each() {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let mut curl = Command::new("curl");
            curl.args(["--silent", "--show-error", "--max-time", "60", version, "--header", "Expect: 100-continue", "--data-binary"]);
            curl.arg(format!("@{}", body.display())).arg(format!("{place}/echo"));
            curl.arg("--cacert").arg(&user.ca).arg("--cert").arg(&user.cert).arg("--key").arg(&user.key);
            let ended = curl.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("curl is installed");
            let (said, complaint) = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).into();
            assert!(ended.status.success() && said.contains("\"length\":1200000"), "{version} {place}: {said}{complaint}");
        }
    }
}

/// While there is no primary nobody says 100: the client keeps its body, and gets its answer in time.
#[tokio::test]
async fn a_held_request_is_not_told_to_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = port::free();
    let manage = Manage::new("a", folder.path()).replicated(&format!("etcd://{nowhere}"), Duration::from_secs(3));
    let node = manage.with(["--hold-timeout", "1500ms"]).start().await;
    let mut client = Raw::connect(node.address()).await;
    client.send(upload()).await;
    let head = client.head().await;
    assert!(head.starts_with("HTTP/1.1 503"), "{head}");
    assert!(head.to_lowercase().contains("retry-after: "), "{head}");
}

fn upload() -> String {
    format!("PUT /upload HTTP/1.1\r\nHost: service\r\nContent-Length: {LENGTH}\r\nExpect: 100-continue\r\n\r\n")
}
