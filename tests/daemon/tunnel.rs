//! `Connection: Upgrade`: opaque bytes in both directions, each of which ends by itself.

use std::time::Duration;

use bytes::Bytes;
use http::{Method, Response};
use tokio::time::sleep;

use crate::support::app::App;
use crate::support::cluster::Cluster;
use crate::support::daemon::Daemon;
use crate::support::ledger::Ledger;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw, header};
use crate::support::store::Kind;
use crate::support::streams::{Http2Origin, Streams, piece, request};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(20);
const MEGABYTE: usize = 1_000_000;

/// B86, B132: the client ends its direction first, right after its request's head; all that the app sends still arrives.
#[tokio::test]
async fn the_client_may_end_its_direction_first() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    for (number, place) in places.each().into_iter().enumerate() {
        let mut client = Raw::connect(&place).await;
        client.send(upgrade(&format!("/hijack?after={MEGABYTE}"), "tcp")).await;
        let head = client.head().await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.send("abc").await;
        client.finish().await;
        assert_eq!(client.rest().await, vec![b'z'; MEGABYTE]);
        let mut tunnelled = app.tunnelled();
        let all = tunnelled.wait_for(|all| all.len() > number).await.unwrap();
        assert_eq!(all[number], b"abc");
    }
}

/// B132: a `docker exec` without `-i`: a JSON body, FIN at once, and an app that takes its time.
#[tokio::test]
async fn a_client_that_only_listens_hears_everything() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        let body = r#"{"Detach":false,"Tty":false}"#;
        let head = "POST /hijack?after=3000&delay=300 HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n";
        client.send(format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
        client.finish().await;
        let answer = client.head().await;
        assert!(answer.starts_with("HTTP/1.1 101"), "{answer}");
        assert_eq!(client.rest().await.len(), 3_000);
    }
}

/// B86, the mirror: the app ends its direction first, and still gets all that the client sends.
#[tokio::test]
async fn the_app_may_end_its_direction_first() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for (number, place) in places.each().into_iter().enumerate() {
        let mut client = Raw::connect(&place).await;
        client.send(upgrade("/hijack?first=bye", "tcp")).await;
        client.head().await;
        assert_eq!(client.rest().await, b"bye");
        client.send(vec![b'a'; MEGABYTE]).await;
        client.finish().await;
        let mut tunnelled = app.tunnelled();
        let all = tunnelled.wait_for(|all| all.len() > number).await.unwrap();
        assert_eq!(all[number].len(), MEGABYTE);
    }
}

/// B140: bytes that the app sends along with its 101 arrive, however the switch is spelled.
#[tokio::test]
async fn bytes_glued_to_the_switch_arrive() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (connection, token) in [("Upgrade", "websocket"), ("keep-alive, Upgrade", "WebSocket"), ("upgrade", "h2c"), ("Upgrade", "tcp")]
        {
            let mut client = Raw::connect(&place).await;
            client.send(format!("GET /ws HTTP/1.1\r\nHost: service\r\nConnection: {connection}\r\nUpgrade: {token}\r\n\r\nearly")).await;
            let mut app = origin.accept().await;
            let head = app.head().await;
            assert_eq!(header(&head, "upgrade"), Some(token), "{head}");
            assert!(header(&head, "connection").is_some_and(|value| value.eq_ignore_ascii_case("upgrade")), "{head}");
            app.send(format!("HTTP/1.1 101 Switching Protocols\r\nConnection: {connection}\r\nUpgrade: {token}\r\n\r\nfirst")).await;
            let head = client.head().await;
            assert_eq!(header(&head, "upgrade"), Some(token), "{head}");
            assert_eq!(client.take(5).await, b"first");
            assert_eq!(app.take(5).await, b"early");
        }
    }
}

/// B134: what comes after the switch is opaque, also when it looks like HTTP/2.
#[tokio::test]
async fn a_tunnel_carries_any_protocol() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send(upgrade("/hijack", "h2c")).await;
        client.head().await;
        let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        for _ in 0..50 {
            client.send(preface).await;
            assert_eq!(client.take(preface.len()).await, preface);
        }
        client.finish().await;
        assert!(client.rest().await.is_empty());
    }
}

/// An app that does not switch answers as to any request, and the connection goes on.
#[tokio::test]
async fn a_refused_switch_is_an_ordinary_answer() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        let mut app = None;
        for status in ["400 Bad Request", "200 OK"] {
            client.send(upgrade("/attach", "tcp")).await;
            let app = match &mut app {
                Some(app) => app,
                None => app.insert(origin.accept().await),
            };
            app.head().await;
            app.send(format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno")).await;
            let (head, body) = client.answer().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
            assert_eq!(body, "no");
        }
    }
}

/// B79: an upgrade is a GET, and still goes to the primary; a tunnel ends with the tenure it was opened under.
#[tokio::test]
async fn a_tunnel_ends_with_its_tenure() {
    let cluster = Cluster::start_with(Kind::Sqlite, Duration::from_secs(30), &["--drain-timeout", "500ms"]).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let mut tunnels = Vec::new();
    for way in cluster.addresses() {
        let mut client = Raw::connect(way).await;
        client.send(upgrade("/hijack", "tcp")).await;
        client.head().await;
        client.send("ping").await;
        assert_eq!(client.take(4).await, b"ping");
        tunnels.push(client);
    }
    assert!(cluster.ledger.arrivals().iter().all(|arrival| arrival.app == cluster.nodes[primary].name()));

    assert_eq!(cluster.nodes[primary].resign().await.status, 200);
    cluster.settled_after(epoch, 3, LIMIT).await;
    for tunnel in &mut tunnels {
        assert!(tunnel.is_cut().await, "a tunnel of the last tenure is still open");
    }
}

/// B137, for as long as a test can wait: nothing is cut because it is quiet, neither a tunnel nor an answer.
#[tokio::test]
async fn what_is_quiet_stays_open() {
    let app = App::start("a", &Ledger::default()).await;
    let mut origin = Http2Origin::bind().await;
    let (places, streaming) = (Places::of(app.address()).await, Places::with(&origin.url(), |manage| manage).await);
    let counted = async |node: &Daemon| node.metrics().await.value("running_requests");
    let (mut tunnels, mut calls, mut events) = (Vec::new(), Vec::new(), Vec::new());
    for place in places.each() {
        for protocol in ["tcp", "websocket"] {
            let mut client = Raw::connect(&place).await;
            client.send(upgrade("/hijack", protocol)).await;
            client.head().await;
            tunnels.push(client);
        }
    }
    // One for each place, but the first node is the second's primary.
    for (node, running) in places.nodes().into_iter().zip([4.0, 2.0, 2.0]) {
        assert_eq!(counted(node).await, running, "a tunnel counts as running");
    }
    for place in streaming.each() {
        let mut client = Streams::connect(&place).await;
        let mut call = client.ask(request(Method::POST, "/service/call"), false).await.unwrap();
        let (_, mut answer) = origin.accept().await;
        let head = Response::builder().header("content-type", "application/grpc").body(()).unwrap();
        let app = answer.send_response(head, false).unwrap();
        let body = call.head().await.unwrap().into_body();
        calls.push((client, call, body, app));

        let mut client = Raw::connect(&place).await;
        client.send("GET /events HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let (_, mut answer) = origin.accept().await;
        let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
        let app = answer.send_response(head, false).unwrap();
        client.head().await;
        events.push((client, app));
    }
    // Longer than the limits on connecting, on reading a head and on idle connections that a node has.
    sleep(Duration::from_secs(35)).await;
    for mut client in tunnels {
        client.send("still here").await;
        assert_eq!(client.take(10).await, b"still here");
    }
    for (mut client, mut app) in events {
        app.send_data(Bytes::from_static(b"data: news\n\n"), true).unwrap();
        client.until("data: news\n\n\r\n0\r\n\r\n").await;
    }
    for (_client, mut call, mut body, mut app) in calls {
        call.sending.send_data(Bytes::from_static(b"more"), true).unwrap();
        app.send_data(Bytes::from_static(b"news"), false).unwrap();
        assert_eq!(piece(&mut body).await.unwrap().as_deref(), Some(&b"news"[..]));
        app.send_trailers([("grpc-status".parse().unwrap(), "0".parse().unwrap())].into_iter().collect()).unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), None);
    }
    for node in places.nodes() {
        wait_for("all to be counted as ended", LIMIT, async || match counted(node).await {
            0.0 => Ok(()),
            running => Err(running),
        })
        .await;
    }
}

fn upgrade(target: &str, token: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: service\r\nConnection: Upgrade\r\nUpgrade: {token}\r\n\r\n")
}
