//! Clients that are too many, and clients that do not go on (B101).

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::rig::*;

/// How long a client may rest in these tests; also the most that the node may look late.
const REST: Duration = Duration::from_secs(1);

fn impatient(app: &TestApp) -> TestNode {
    let node = TestNode::with(Some(app), |config| config.limits.body_idle_timeout = Some(REST));
    node.lead(1);
    node
}

fn closed(node: &TestNode, limit: &str) -> u64 {
    node.totals().closings.iter().find(|(name, _)| *name == limit).unwrap().1
}

/// A primary where all ordinary places are taken by clients that say nothing, and those clients.
async fn crowded(app: &TestApp) -> (TestNode, Vec<Raw>) {
    let primary = TestNode::with(Some(app), |config| config.max_connections = 4);
    primary.lead(1);
    let mut crowd = Vec::new();
    for _ in 0..4 {
        let mut client = primary.client().await;
        assert_eq!(client.get("/_ping").await.text(), "OK");
        crowd.push(client);
    }
    (primary, crowd)
}

#[tokio::test]
async fn one_client_too_many_is_told_so_and_those_before_it_are_served() {
    let app = TestApp::hello().await;
    let (primary, mut crowd) = crowded(&app).await;
    let mut extra = primary.client().await;
    let answer = extra.post("/", b"body").await;
    let json = answer.json();
    assert_eq!((answer.status(), &json["reason"], &json["verdict"]), (503, &"too-many-connections".into(), &"not-sent".into()));
    assert!(answer.field("retry-after").is_some() && extra.is_closed().await);
    assert_eq!(crowd[0].get("/").await.text(), "hello");
    assert_eq!(outcome(&primary.totals(), "failed_too_many_connections"), 1);
    assert_eq!(app.seen.requests().len(), 1);

    crowd.pop();
    primary.until("one has left", |totals| totals.connections == 3).await;
    assert_eq!(primary.client().await.get("/").await.text(), "hello", "there is room again");
}

#[tokio::test]
async fn other_nodes_and_health_checks_are_served_in_a_crowd() {
    let app = TestApp::hello().await;
    let (primary, _crowd) = crowded(&app).await;
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    let mut client = replica.client().await;
    for _ in 0..3 {
        assert_eq!(client.get("/").await.text(), "hello");
        assert_eq!(client.post("/", b"body").await.text(), "hello");
    }
    assert_eq!(primary.client().await.get("/_ping").await.text(), "OK");
    let mut extra = primary.client().await;
    assert_eq!(extra.get("/").await.status(), 503);
}

#[tokio::test]
async fn a_flood_fills_the_reserve_for_a_moment_only() {
    let app = TestApp::hello().await;
    let (primary, _crowd) = crowded(&app).await;
    let mut flood = Vec::new();
    for _ in 0..40 {
        flood.push(primary.client().await);
    }
    primary.until("some are refused", |totals| totals.closings.contains(&("refused", 24))).await;
    let mut told = 0;
    for client in &mut flood {
        let words = String::from_utf8(client.rest().await).unwrap();
        let named = words.contains(&format!("\r\nbellwether-primary: {}\r\n", primary.node.address)) && words.contains("\"epoch\":1");
        told += usize::from(words.starts_with("HTTP/1.1 503 ") && words.contains("\"too-many-connections\"") && named);
    }
    assert_eq!(told, 24, "the others were silent for too long");
    assert_eq!(closed(&primary, "idle"), 16);
    assert_eq!(primary.client().await.get("/_ping").await.text(), "OK");
}

#[tokio::test]
async fn a_client_in_excess_stays_once_there_is_room() {
    let app = TestApp::hello().await;
    let (primary, mut crowd) = crowded(&app).await;
    let mut client = primary.client().await;
    assert_eq!(client.get("/_ping").await.text(), "OK");
    crowd.pop();
    primary.until("one has left", |totals| totals.connections == 4).await;
    assert_eq!(client.get("/").await.text(), "hello");
    sleep(Duration::from_millis(2_600)).await;
    assert_eq!(client.get("/").await.text(), "hello", "it is not in the reserve any more");
}

#[tokio::test]
async fn a_body_that_stops_is_not_waited_for() {
    let app = TestApp::scripted(|mut raw, _| async move {
        while let Some(head) = raw.head().await {
            if head.target() == "/stops" {
                raw.rest().await;
                return;
            }
            raw.exactly(5).await;
            raw.say(ok("hello")).await;
        }
    })
    .await;
    let primary = impatient(&app);
    let replica = TestNode::with(None, |config| config.limits.body_idle_timeout = Some(REST));
    replica.follow(&primary, 1);
    for (number, node) in [&primary, &replica].into_iter().enumerate() {
        let ended = app.seen.ended();
        let mut client = node.client().await;
        client.say("POST /stops HTTP/1.1\r\nHost: test\r\nContent-Length: 10\r\n\r\nthr").await;
        let answer = client.answer().await;
        let json = answer.json();
        assert_eq!((answer.status(), &json["reason"], &json["verdict"]), (408, &"request-timeout".into(), &"maybe-executed".into()));
        assert_eq!(answer.field("connection"), Some("close"));
        assert!(client.is_closed().await);
        until("the app has its connection back", || app.seen.ended() > ended).await;
        assert_eq!(outcome(&node.totals(), "failed_request_timeout"), 1, "node {number}");
        assert_eq!(node.client().await.post("/", b"whole").await.text(), "hello");
    }
    primary.until("a replica's client has left, to the primary", |totals| totals.running == 0).await;
}

#[tokio::test]
async fn a_body_that_comes_slowly_is_waited_for() {
    let app = TestApp::answering(|request| ok(&String::from_utf8_lossy(&request.body))).await;
    let primary = impatient(&app);
    let mut client = primary.client().await;
    let begun = Instant::now();
    client.say("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    for _ in 0..10 {
        client.say("1\r\nx\r\n").await;
        sleep(REST / 4).await;
    }
    client.say("0\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "xxxxxxxxxx");
    assert!(begun.elapsed() > REST * 2);
}

#[tokio::test]
async fn nobody_is_cut_who_owes_nothing() {
    // An event stream, a long poll, a request whose answer has begun, and a stream of messages: all silent for long.
    let go = Go::new();
    let app = {
        let go = go.clone();
        TestApp::scripted(move |mut raw, _| {
            let go = go.clone();
            async move {
                let head = raw.head().await.unwrap();
                if head.target() == "/events" || head.target() == "/both" {
                    raw.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await;
                }
                go.wait().await;
                match head.target() {
                    "/events" | "/both" => raw.say("2\r\nhi\r\n0\r\n\r\n").await,
                    _ => raw.say(ok("hi")).await,
                }
                raw.rest().await;
            }
        })
        .await
    };
    let primary = impatient(&app);
    let streams = "Transfer-Encoding: chunked\r\n";
    let grpc = "Transfer-Encoding: chunked\r\nContent-Type: application/grpc+proto\r\n";
    let mut clients = Vec::new();
    for (target, method, fields) in [("/events", "GET", ""), ("/poll", "GET", ""), ("/both", "POST", streams), ("/messages", "POST", grpc)]
    {
        let mut client = primary.client().await;
        client.say(format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n")).await;
        clients.push(client);
    }
    sleep(REST * 4).await;
    // Whoever of them has come to the app first goes on first.
    clients.iter().for_each(|_| go.on());
    for client in &mut clients {
        let mut answer = client.head().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.body = client.through(b"hi").await.expect("the end of the answer");
    }
    assert_eq!(outcome(&primary.totals(), "failed_request_timeout") + outcome(&primary.totals(), "stalled"), 0);
}

#[tokio::test]
async fn an_answer_that_nobody_takes_is_cut_and_one_that_is_taken_slowly_is_not() {
    let body = "x".repeat(32 * 1024 * 1024);
    let app = TestApp::answering({
        let body = body.clone();
        move |_| ok(&body)
    })
    .await;
    let primary = impatient(&app);
    let (mut idle, mut slow) = (primary.client().await, primary.client().await);
    for client in [&mut idle, &mut slow] {
        client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    }
    let head = slow.head().await.unwrap();
    assert_eq!(head.status(), 200);
    for _ in 0..16 {
        slow.exactly(body.len() / 16).await;
        sleep(REST / 4).await;
    }
    primary.until("it is cut", |totals| outcome(totals, "stalled") == 1).await;
    assert_eq!((outcome(&primary.totals(), "answered"), closed(&primary, "stalled")), (1, 1));
    assert!(idle.rest().await.len() < body.len());
}

#[tokio::test]
async fn a_browser_gets_a_page_and_everybody_else_json() {
    let node = TestNode::start(None);
    node.lead(1);
    let replica = TestNode::start(None);
    replica.follow(&node, 1);
    for node in [&node, &replica] {
        let mut client = node.client().await;
        client.say("GET /<b> HTTP/1.1\r\nHost: test\r\nAccept: text/html,*/*;q=0.8\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 400, "the library's own");
        let mut client = node.client().await;
        for (accept, kind) in [("text/html,*/*;q=0.8", "text/html; charset=utf-8"), ("*/*", "application/json")] {
            client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nAccept: {accept}\r\n\r\n")).await;
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.field("content-type"), answer.field("vary")), (503, Some(kind), Some("Accept")));
            assert!(answer.field("retry-after").is_some() && answer.text().contains("no-upstream"), "{answer:?}");
        }
        client.say("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\nAccept: text/html\r\n\r\n").await;
        assert!(client.answer().await.text().contains("<dt>Verdict</dt><dd>not-sent: "), "also where nothing could be made of the request");
    }
}
