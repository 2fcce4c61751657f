//! What clients may do to HTTP/2, and for how long: bodies that stop, answers that nobody takes, requests that are taken back.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::http2::{Http2Client, Spoken, chain, get, read, trusting};
use super::rig::*;
use crate::api::Config;

#[tokio::test]
async fn a_body_that_stops_is_not_waited_for_and_its_connection_stays() {
    // B101.
    let app = TestApp::scripted(|mut raw, _| async move {
        while let Some(head) = raw.head().await {
            if head.target() == "/stops" {
                raw.rest().await;
                return;
            }
            raw.say(ok("hello")).await;
        }
    })
    .await;
    let node = TestNode::with(Some(&app), |config| config.limits.body_idle_timeout = Some(Duration::from_secs(1)));
    node.lead(1);
    let mut client = Http2Client::connect(&node).await;
    let (say, spoken) = mpsc::channel(8);
    let request = Request::post("http://test/stops").body(Spoken(spoken).boxed()).unwrap();
    say.send(Frame::data(Bytes::from_static(b"some"))).await.unwrap();
    let (status, _, text) = read(client.send(request).await.unwrap()).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT, "{text}");
    assert_eq!(client.get("/").await.2, "hello");
    until("the app has its connection back", || app.seen.ended() == 1).await;
    assert_eq!(outcome(&node.totals(), "failed_request_timeout"), 1);
}

#[tokio::test]
async fn an_answer_that_nobody_takes_ends_its_connection() {
    let app = TestApp::answering(|_| ok(&"x".repeat(8 * 1024 * 1024))).await;
    let node = TestNode::with(Some(&app), |config| config.limits.body_idle_timeout = Some(Duration::from_secs(1)));
    node.lead(1);
    let (near, far) = tokio::io::duplex(64 * 1024);
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(16 * 1024 * 1024)
        .initial_connection_window_size(16 * 1024 * 1024)
        .handshake(TokioIo::new(near))
        .await
        .unwrap();
    let mut running: JoinSet<()> = JoinSet::new();
    running.spawn(async move { drop(connection.await) });
    // What the client says reaches the node; what the node says piles up.
    let socket = TcpStream::connect(node.address).await.unwrap();
    let (_unread, mut to_node) = socket.into_split();
    let (mut from_client, _to_client) = tokio::io::split(far);
    running.spawn(async move { drop(tokio::io::copy(&mut from_client, &mut to_node).await) });
    running.spawn(async move { drop(sender.send_request(get("/")).await) });
    node.until("it is cut", |totals| totals.closings.contains(&("stalled", 1)) && totals.running == 0).await;
    assert_eq!(outcome(&node.totals(), "left"), 1);
}

/// B101: a stream that is not read, on a connection where others are.
#[tokio::test]
async fn an_answer_that_nobody_takes_ends_alone_where_its_connection_goes_on() {
    let app = TestApp::answering(|request| match request.target() {
        "/large" => ok(&"x".repeat(16 * 1024 * 1024)),
        _ => ok("quick"),
    })
    .await;
    let impatient = |config: &mut Config| config.limits.body_idle_timeout = Some(Duration::from_secs(1));
    let primary = TestNode::with(Some(&app), impatient);
    primary.lead(1);
    let replica = TestNode::with(None, impatient);
    replica.follow(&primary, 1);
    for node in [&primary, &replica] {
        let mut client = Http2Client::connect(node).await;
        let unread = client.send(get("/large")).await.unwrap();
        let ended = app.seen.ended();
        let mut quick = 0;
        while outcome(&node.totals(), "stalled") == 0 {
            assert_eq!(client.get("/quick").await.2, "quick");
            quick += 1;
        }
        assert!(quick > 1, "the connection was in use");
        until("the app's connection is free", || app.seen.ended() > ended).await;
        let read = unread.into_body().collect().await;
        let error = read.unwrap_err();
        let reason = std::error::Error::source(&error).and_then(|cause| cause.downcast_ref::<h2::Error>()).and_then(|cause| cause.reason());
        assert_eq!(reason, Some(h2::Reason::CANCEL), "{error:?}");
        assert_eq!(client.get("/quick").await.2, "quick", "the connection stays");
        assert_eq!(node.totals().closings.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

/// An app that answers what is quick, and nothing else.
async fn app_that_may_never_answer() -> TestApp {
    TestApp::scripted(|mut raw, _| async move {
        while let Some(head) = raw.head().await {
            match head.target() {
                "/quick" => raw.say(ok("quick")).await,
                _ => drop(raw.is_closed().await),
            }
        }
    })
    .await
}

impl Http2Client {
    /// Takes requests back that are on their way to the app, many at a time, until the connection ends or `enough` have been.
    /// Tells how many.
    async fn take_back(&mut self, node: &TestNode, enough: impl Fn(u32) -> bool) -> u32 {
        const AT_ONCE: u32 = 50;
        let mut taken_back = 0;
        while !enough(taken_back) && self.sender.ready().await.is_ok() {
            let before = node.totals().accepted;
            let asked = futures_util::future::join_all((0..AT_ONCE).map(|_| self.sender.send_request(get("/never"))));
            let came = async {
                while node.totals().accepted < before + u64::from(AT_ONCE) {
                    tokio::task::yield_now().await;
                }
            };
            tokio::select! {
                ended = asked => assert!(ended.iter().all(Result::is_err), "the app never answers"),
                () = came => taken_back += AT_ONCE,
            }
        }
        taken_back
    }
}

/// Behind a proxy that is trusted there are many clients.
#[tokio::test]
async fn a_trusted_proxy_may_take_back_what_its_clients_do() {
    let app = app_that_may_never_answer().await;
    let node = TestNode::with(Some(&app), trusting);
    node.lead(1);
    let mut proxy = Http2Client::connect(&node).await;
    let begun = Instant::now();
    // More than anybody else may, however long it takes.
    let enough = |taken_back| f64::from(taken_back) > 1_200.0 + 150.0 * begun.elapsed().as_secs_f64();
    proxy.take_back(&node, enough).await;
    assert_eq!(proxy.get("/quick").await.2, "quick");
    assert_eq!(node.totals().closings.iter().map(|(_, count)| count).sum::<u64>(), 0);
}

/// The library's own count, of requests that come and go before anybody has seen them.
#[tokio::test]
async fn what_a_trusted_proxy_takes_back_at_once_is_no_flood() {
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = &(payload.len() as u32).to_be_bytes()[1..];
        [length, &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let (get, cancel) = (b"\x82\x86\x84\x01\x04test", 8_u32.to_be_bytes());
    let taken_back = (0..1_200).flat_map(|n| [frame(1, 5, 2 * n + 1, get), frame(3, 0, 2 * n + 1, &cancel)].concat());
    let all =
        [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, b""), taken_back.collect(), frame(6, 0, 0, b"question")].concat();
    for is_trusted in [false, true] {
        let node = TestNode::with(None, |config| {
            if is_trusted {
                trusting(config);
            }
        });
        let mut proxy = node.client().await;
        proxy.say(&all).await;
        let answer = proxy.through(&frame(6, 1, 0, b"question")).await;
        assert_eq!(answer.is_some(), is_trusted);
        node.until("it is counted", |totals| totals.closings.contains(&("flood", u64::from(!is_trusted)))).await;
    }
}

/// CVE-2023-44487, as far as the library counts nothing: each request is on its way to the app before it is taken back.
#[tokio::test]
async fn requests_that_are_taken_back_again_and_again_end_their_connection() {
    let app = app_that_may_never_answer().await;
    let [replica, primary] = chain(&app).await;
    for node in [&replica, &primary] {
        let mut client = Http2Client::connect(node).await;
        let mut bystander = Http2Client::connect(node).await;
        let begun = Instant::now();
        let taken_back = client.take_back(node, |_| false).await;
        let most = 1_200.0 + 150.0 * begun.elapsed().as_secs_f64();
        assert!(taken_back >= 1_000 && f64::from(taken_back) < most, "{taken_back}");
        node.until("it is counted", |totals| totals.closings.contains(&("flood", 1))).await;
        assert_eq!(bystander.get("/quick").await.2, "quick");
        node.until("nothing is left of it", |totals| totals.running == 0).await;
    }
}
