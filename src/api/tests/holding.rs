//! The hold: requests wait for a primary, and for no longer than they should.

use super::rig::*;
use std::time::Duration;

#[tokio::test]
async fn a_request_waits_for_the_first_primary_and_says_how_long() {
    // S01: before the first election nobody serves.
    let app = TestApp::answering(|request| ok(request.text())).await;
    let node = TestNode::start(Some(&app));
    let mut client = node.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 5\r\n\r\nhello").await;
    node.until("it is held", |totals| totals.held == 1).await;
    assert_eq!(node.plane.held(), 1);
    assert_eq!(app.seen.connections(), 0);
    node.lead(7);
    let answer = client.answer().await;
    assert_eq!((answer.text(), answer.field("bellwether-epoch")), ("hello", Some("7")));
    assert!(answer.field("server-timing").unwrap().starts_with("held;dur="), "{answer:?}");
    node.until("it is counted", |totals| outcome(totals, "answered") == 1 && totals.hold.counts.iter().sum::<u64>() == 1).await;
    assert_eq!(client.get("/").await.field("server-timing"), None, "this one was not held");
}

#[tokio::test]
async fn a_replica_waits_for_its_first_leader() {
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let replica = TestNode::start(None);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    replica.until("it is held", |totals| totals.held == 1).await;
    replica.follow(&primary, 1);
    assert_eq!(client.answer().await.text(), "hello");
}

#[tokio::test]
async fn local_routes_never_wait() {
    // B73.
    let node = TestNode::start(None);
    assert_eq!(node.client().await.get("/_ping").await.text(), "OK");
    assert_eq!(outcome(&node.totals(), "local"), 1);
}

#[tokio::test]
async fn a_wait_ends_with_a_503_that_says_when_to_come_back() {
    let node = TestNode::with(None, |config| config.hold_timeout = Duration::from_millis(50));
    let mut client = node.client().await;
    let answer = client.get("/").await;
    assert_eq!((answer.status(), answer.field("retry-after")), (503, Some("2")));
    let json = answer.json();
    assert_eq!(
        (json["reason"].as_str(), json["verdict"].as_str(), json["epoch"].as_u64()),
        (Some("no-primary"), Some("not-sent"), Some(0))
    );
    assert!(answer.field("server-timing").unwrap().starts_with("held;dur="), "{answer:?}");
    assert_eq!(outcome(&node.totals(), "failed_no_primary"), 1);
}

#[tokio::test]
async fn a_client_may_shorten_its_wait_but_not_lengthen_it() {
    for (hold, wait) in [(HOLD, "0"), (Duration::from_millis(200), "3600")] {
        let node = TestNode::with(None, |config| config.hold_timeout = hold);
        let mut client = node.client().await;
        client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nPrefer: wait={wait}\r\n\r\n")).await;
        // The longer of the two is longer than this waits.
        assert_eq!(client.answer().await.status(), 503, "{wait}");
    }
}

#[tokio::test]
async fn more_than_may_wait_is_turned_away_at_once() {
    let app = TestApp::hello().await;
    let node = TestNode::with(Some(&app), |config| config.hold_requests = 2);
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let mut client = node.client().await;
        client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
        waiting.push(client);
    }
    node.until("two are held", |totals| totals.held == 2).await;
    let answer = node.client().await.get("/").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (503, Some("hold-full")));
    node.lead(1);
    for mut client in waiting {
        assert_eq!(client.answer().await.text(), "hello");
    }
    node.until("nothing is left", |totals| totals.held + totals.running == 0).await;
}

#[tokio::test]
async fn the_bytes_of_held_bodies_are_bounded_too() {
    let app = TestApp::answering(|request| ok(&request.body.len().to_string())).await;
    let node = TestNode::with(Some(&app), |config| config.hold_bytes = 10_000);
    let mut first = node.client().await;
    first.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 8000\r\n\r\n").await;
    first.say(vec![b'x'; 8_000]).await;
    // Once its body has been read ahead, there is no room for another head.
    let mut reason = String::new();
    while reason != "hold-full" {
        let mut client = node.client().await;
        client.say("GET / HTTP/1.1\r\nHost: test\r\nPrefer: wait=0\r\n\r\n").await;
        reason = client.answer().await.json()["reason"].as_str().unwrap().to_owned();
    }
    node.lead(1);
    assert_eq!(first.answer().await.text(), "8000", "what was read ahead is not lost");
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place() {
    // B99: also behind a body that is too long to be read ahead.
    let node = TestNode::start(None);
    for body in [0, 10, 10 * 1024 * 1024] {
        let mut client = node.client().await;
        client.say(format!("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: {body}\r\n\r\n")).await;
        client.say(vec![b'x'; body.min(200 * 1024)]).await;
        let left = outcome(&node.totals(), "left");
        node.until("it is held", |totals| totals.held == 1).await;
        drop(client);
        node.until("it is let go", |totals| totals.held == 0 && outcome(totals, "left") == left + 1).await;
    }
}

#[tokio::test]
async fn a_client_that_asked_for_more_already_frees_its_place_too() {
    // With a second request in the way, the library does not come upon the end of the connection.
    let node = TestNode::start(None);
    let mut client = node.client().await;
    client.say("GET /1 HTTP/1.1\r\nHost: test\r\n\r\nGET /2 HTTP/1.1\r\nHost: test\r\n\r\n").await;
    node.until("it is held", |totals| totals.held == 1).await;
    drop(client);
    // Long before the end of the hold.
    node.until("it is let go", |totals| totals.held == 0 && outcome(totals, "left") == 1).await;
}

#[tokio::test]
async fn a_long_body_streams_once_there_is_a_primary() {
    let app = TestApp::answering(|request| ok(&request.body.len().to_string())).await;
    let node = TestNode::start(Some(&app));
    let mut client = node.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 3000000\r\n\r\n").await;
    let (mut reading, writing) = client.stream.into_split();
    let _sending = sending(writing, vec![b'x'; 3_000_000]);
    node.until("it is held", |totals| totals.held == 1).await;
    node.lead(1);
    let mut heard = Vec::new();
    while !heard.ends_with(b"3000000") {
        tokio::io::AsyncReadExt::read_buf(&mut reading, &mut heard).await.unwrap();
    }
}
