//! How tenures, drains and nodes end.

use super::rig::*;
use crate::replication::Drain;
use crate::store::Epoch;
use std::time::Duration;
use tokio::time::timeout;

/// A client in the middle of an answer of [`slow_app`].
async fn in_the_middle(node: &TestNode, method: &str) -> Raw {
    let mut client = node.client().await;
    client.say(format!("{method} /slow HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n")).await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert_eq!(client.exactly(2).await, b"sl");
    client
}

#[tokio::test]
async fn a_drain_waits_for_what_runs_and_new_requests_wait_for_the_next_primary() {
    // B69, B124.
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = chain(&app);
    let mut running = in_the_middle(&replica, "GET").await;
    let drained = primary.plane.drained(Epoch(1));
    let mut drained = std::pin::pin!(drained);
    primary.step_down(1);
    let mut new = replica.client().await;
    new.say("POST /new HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi").await;
    replica.until("the new request waits, having been refused", |totals| totals.held == 1).await;
    assert!(timeout(Duration::from_millis(50), drained.as_mut()).await.is_err(), "one request runs");
    go.on();
    assert_eq!(running.exactly(2).await, b"ow");
    timeout(SOON, drained).await.expect("nothing runs any more");

    let next = TestNode::start(Some(&app));
    next.lead(2);
    replica.follow(&next, 2);
    primary.follow(&next, 2);
    let answer = new.answer().await;
    assert_eq!((answer.text(), answer.field("bellwether-epoch")), ("quick", Some("2")));
    assert_eq!(app.seen.requests().iter().filter(|request| request.target() == "/new").count(), 1);
}

#[tokio::test]
async fn losing_the_lock_cuts_what_runs() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = chain(&app);
    let mut direct = in_the_middle(&primary, "GET").await;
    let mut through = in_the_middle(&replica, "POST").await;
    primary.elect();
    for client in [&mut direct, &mut through] {
        assert!(client.is_closed().await, "the answer breaks off so that the client can tell");
    }
    until("the app's connections end", || app.seen.ended() == app.seen.connections()).await;
    primary.until("it is counted", |totals| outcome(totals, "failed_cut") == 2 && totals.running == 0).await;
    replica.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    timeout(SOON, primary.plane.drained(Epoch(1))).await.unwrap();
}

#[tokio::test]
async fn a_tenure_ends_at_its_deadline_though_nobody_says_so() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let mut client = in_the_middle(&primary, "GET").await;
    primary.lead_for(1, Duration::from_millis(300));
    assert!(client.is_closed().await);
    let mut late = primary.client().await;
    late.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    primary.until("what is late waits", |totals| totals.held == 1).await;
}

#[tokio::test]
async fn work_without_an_answer_is_repeated_if_safe_and_told_apart_if_not() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        // Takes every request and answers those of a later tenure.
        while let Some(request) = raw.request().await {
            let answers = request.field("bellwether-epoch") != Some("1");
            seen.requests.lock().unwrap().push(request);
            if answers {
                raw.say(ok("later")).await;
            }
        }
    })
    .await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let (mut get, mut post, mut keyed) = (primary.client().await, primary.client().await, primary.client().await);
    get.say("GET /get HTTP/1.1\r\nHost: test\r\n\r\n").await;
    post.say("POST /post HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").await;
    keyed.say("POST /keyed HTTP/1.1\r\nHost: test\r\nIdempotency-Key: k\r\nContent-Length: 2\r\n\r\nhi").await;
    until("the app has all three", || app.seen.requests().len() == 3).await;
    primary.elect();
    let answer = post.answer().await;
    assert_eq!((answer.status(), answer.json()["verdict"].as_str()), (502, Some("maybe-executed")));
    primary.until("the others wait", |totals| totals.held == 2).await;
    primary.lead(2);
    assert_eq!(get.answer().await.text(), "later");
    assert_eq!(keyed.answer().await.text(), "later");
    let repeated: Vec<String> = app.seen.requests()[3..].iter().map(|request| String::from_utf8(request.body.clone()).unwrap()).collect();
    assert!(repeated.contains(&"hi".to_owned()), "its body too: {repeated:?}");
}

/// Tells a node that it will close, and waits until its worker has heard.
async fn close_soon(node: &TestNode) {
    node.plane.closing();
    let mut told = false;
    while !told {
        let mut client = node.client().await;
        told = client.get("/_ping").await.field("connection") == Some("close");
        assert!(!told || client.is_closed().await);
    }
}

#[tokio::test]
async fn a_closing_node_sends_its_clients_elsewhere() {
    let app = TestApp::hello().await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    assert_eq!(client.get("/").await.field("connection"), None);
    replica.plane.closing();
    // Used without a pause, for a connection that nobody uses is closed without a word.
    let mut answer = client.get("/").await;
    while answer.field("connection").is_none() {
        assert_eq!(answer.text(), "hello");
        answer = client.get("/").await;
    }
    assert_eq!((answer.text(), answer.field("connection")), ("hello", Some("close")));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_closing_node_still_switches_protocols() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.request().await;
        raw.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n").await;
        raw.rest().await;
    })
    .await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    close_soon(&primary).await;
    let mut client = primary.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n").await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status(), head.field("connection")), (101, Some("Upgrade")));
}

#[tokio::test]
async fn a_node_that_closes_finishes_what_runs_and_what_waits_in_its_sockets() {
    // B124.
    let go = Go::new();
    let app = slow_app(&go).await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let mut idle = primary.client().await;
    assert_eq!(idle.get("/").await.text(), "quick");
    let mut running = in_the_middle(&primary, "GET").await;
    let closing = primary.plane.close(SOON);
    let mut closing = std::pin::pin!(closing);
    assert!(timeout(Duration::from_millis(50), closing.as_mut()).await.is_err(), "one request runs");
    assert!(idle.is_closed().await);
    until("nothing new is accepted", || std::net::TcpStream::connect(primary.address).is_err()).await;
    go.on();
    assert_eq!(running.exactly(2).await, b"ow");
    timeout(SOON, closing).await.expect("nothing is left");
    assert_eq!(outcome(&primary.totals(), "answered"), 2);
    assert!(timeout(Duration::from_millis(20), primary.plane.failed()).await.is_err(), "it ended as it was told");
}

#[tokio::test]
async fn at_the_end_of_its_time_a_node_answers_who_waits_and_cuts_what_runs() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let node = TestNode::start(Some(&app));
    node.lead(1);
    let mut running = in_the_middle(&node, "GET").await;
    node.step_down(1);
    let mut held = node.client().await;
    held.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    node.until("it is held", |totals| totals.held == 1).await;
    timeout(SOON, node.plane.close(Duration::from_millis(400))).await.unwrap();
    let answer = held.answer().await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (503, Some("no-primary")));
    assert!(running.is_closed().await);
    let totals = node.totals();
    assert_eq!((totals.running, totals.held, totals.connections), (0, 0, 0));
    assert_eq!((outcome(&totals, "failed_cut"), outcome(&totals, "failed_no_primary")), (1, 1));
}

#[tokio::test]
async fn a_replica_that_closes_finishes_what_it_forwards() {
    // B124.
    let go = Go::new();
    let app = {
        let go = go.clone();
        TestApp::scripted(move |mut raw, seen| {
            let go = go.clone();
            async move {
                while let Some(request) = raw.request().await {
                    seen.requests.lock().unwrap().push(request);
                    go.wait().await;
                    raw.say(ok("at last")).await;
                }
            }
        })
        .await
    };
    let (_primary, replica) = chain(&app);
    let mut idle = replica.client().await;
    assert_eq!(idle.get("/_ping").await.text(), "OK");
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = replica.client().await;
        client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
        clients.push(client);
    }
    until("all are at the app", || app.seen.requests().len() == 20).await;
    close_soon(&replica).await;
    let closing = replica.plane.close(Duration::from_secs(60));
    let mut closing = std::pin::pin!(closing);
    // Longer than connections that are not in use are kept.
    assert!(timeout(Duration::from_millis(1_700), closing.as_mut()).await.is_err(), "twenty requests run");
    assert!(idle.is_closed().await);
    for _ in 0..20 {
        go.on();
    }
    for client in &mut clients {
        let answer = client.answer().await;
        assert_eq!((answer.text(), answer.field("connection")), ("at last", Some("close")));
        assert!(client.is_closed().await);
    }
    timeout(SOON, closing).await.expect("nothing is left");
}
