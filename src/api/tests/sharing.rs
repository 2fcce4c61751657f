//! The connection that a replica's requests share.

use super::rig::*;
use std::num::NonZeroUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;

use crate::api::{Config, Totals};

/// A replica whose other connections to its leader are closed as soon as they are idle.
fn keeps_nothing_idle(config: &mut Config) {
    config.limits.idle_timeout = Duration::ZERO;
}

/// Two nodes whose requests without a body share one connection, the only one between them.
async fn sharing_chain(app: &TestApp) -> (TestNode, TestNode) {
    let primary = TestNode::start(Some(app));
    primary.lead(1);
    let replica = TestNode::with(None, keeps_nothing_idle);
    replica.follow(&primary, 1);
    shares(&replica, &primary, 1).await;
    (primary, replica)
}

/// Waits until all that the replica has to its leader is the shared connection, which the leader has been asked for once
/// per time, after it was asked once who it is.
async fn shares(replica: &TestNode, leader: &TestNode, time: u64) {
    assert_eq!(replica.client().await.get("/first").await.status(), 200);
    let shared = |totals: &Totals| totals.connections == 1 && outcome(totals, "local") == 1 + time;
    leader.until("the nodes share a connection and have no other", shared).await;
}

#[tokio::test]
async fn many_requests_share_one_connection() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = sharing_chain(&app).await;
    let mut clients = JoinSet::new();
    for _ in 0..50 {
        let mut client = replica.client().await;
        clients.spawn(async move { client.get("/slow").await });
    }
    until("the app has all of them at once", || app.seen.requests().iter().filter(|seen| seen.target() == "/slow").count() == 50).await;
    assert_eq!(primary.totals().connections, 1);
    assert_eq!(replica.client().await.get("/quick").await.text(), "quick", "past all that wait");
    (0..50).for_each(|_| go.on());
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap().text(), "slow");
    }
    assert_eq!(outcome(&replica.totals(), "answered"), 52);
    assert_eq!(primary.totals().connections, 1);
}

#[tokio::test]
async fn what_has_a_body_or_asks_for_more_goes_on_a_connection_of_its_own() {
    let app = TestApp::hello().await;
    let (primary, replica) = sharing_chain(&app).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx",
        "GET / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx",
        "DELETE / HTTP/1.1\r\nHost: test\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n",
    ] {
        let connections = app.seen.connections.load(Ordering::SeqCst);
        let mut client = replica.client().await;
        client.say(request).await;
        assert_eq!(client.answer().await.text(), "hello");
        assert_eq!(primary.totals().connections, 2, "{request}");
        primary.until("it is closed again", |totals| totals.connections == 1).await;
        assert!(app.seen.connections.load(Ordering::SeqCst) <= connections + 1);
    }
}

#[tokio::test]
async fn what_was_long_last_time_comes_over_a_connection_of_its_own() {
    let app = app_with_long_answers().await;
    let (primary, replica) = sharing_chain(&app).await;
    let [mut first, mut second] = [replica.client().await, replica.client().await];
    for (client, connections) in [(&mut first, 1), (&mut second, 2)] {
        client.say("GET /long HTTP/1.1\r\nHost: test\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 200);
        assert_eq!(primary.totals().connections, connections);
    }
    assert_eq!(replica.client().await.get("/quick").await.text(), "quick");
    assert_eq!(primary.totals().connections, 2, "what is short shares as before");
}

const LONG: usize = 8 * 1024 * 1024;

/// An app with long answers, which no client has got to its end before it reads, under `/long`.
async fn app_with_long_answers() -> TestApp {
    TestApp::answering(|request| {
        if request.target().starts_with("/long") {
            [format!("HTTP/1.1 200 OK\r\nContent-Length: {LONG}\r\n\r\n").into_bytes(), vec![b'x'; LONG]].concat()
        } else {
            ok("quick")
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_is_the_same_whichever_way_it_comes() {
    let app = TestApp::answering(|request| {
        let answer = match request.target() {
            "/head-length" => "200 OK\r\nContent-Length: 1234\r\n\r\n",
            "/head-chunked" => "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "/head-neither" => "200 OK\r\n\r\n",
            "/204" => "204 No Content\r\n\r\n",
            "/304" => "304 Not Modified\r\nContent-Length: 99\r\nETag: \"x\"\r\n\r\n",
            "/205" => "205 Reset Content\r\nContent-Length: 0\r\n\r\n",
            "/empty" => "200 OK\r\nContent-Length: 0\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\n\r\n",
            "/first" | "/cookies" => "200 Fine\r\nSet-Cookie: a=1\r\nX-B: b\r\nSet-Cookie: c=2\r\nContent-Length: 2\r\n\r\nok",
            "/chunked" => "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            target => panic!("{target}"),
        };
        format!("HTTP/1.1 {answer}").into_bytes()
    })
    .await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let replica = TestNode::with(None, keeps_nothing_idle);
    replica.follow(&primary, 1);
    let asks = [
        ("HEAD", "/head-length"),
        ("HEAD", "/head-chunked"),
        ("HEAD", "/head-neither"),
        ("GET", "/204"),
        ("GET", "/304"),
        ("GET", "/205"),
        ("GET", "/empty"),
        ("GET", "/cookies"),
        ("GET", "/chunked"),
    ];
    let mut direct = Vec::new();
    for (method, target) in asks {
        let mut client = primary.client().await;
        client.say(format!("{method} {target} HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\n\r\n")).await;
        direct.push((client.answer_to(method).await, app.last()));
    }
    shares(&replica, &primary, 1).await;
    for ((method, target), (expected, seen)) in asks.into_iter().zip(direct) {
        let mut client = replica.client().await;
        client.say(format!("{method} {target} HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nConnection: TE\r\n\r\n")).await;
        let answer = client.answer_to(method).await;
        // Without a reason phrase of the app's own: HTTP/2 has none (RFC 9113 §8.3.2).
        assert_eq!((answer.status(), &answer.body), (expected.status(), &expected.body), "{target}");
        assert_eq!(of_the_app(&answer), of_the_app(&expected), "{target}");
        let request = app.last();
        assert_eq!(
            (&request.line, request.field("te"), request.field("host")),
            (&seen.line, seen.field("te"), seen.field("host")),
            "{target}"
        );
        assert_eq!(primary.totals().connections, 1, "{target} came over the shared connection");
    }
}

/// The fields that the app set, in their order.
fn of_the_app(message: &Message) -> Vec<&(String, String)> {
    message.fields.iter().filter(|(name, _)| !name.starts_with("bellwether-")).collect()
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_back_and_nobody_elses() {
    // B99.
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = sharing_chain(&app).await;
    let (mut leaving, mut staying) = (replica.client().await, replica.client().await);
    for client in [&mut leaving, &mut staying] {
        client.say("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 200);
    }
    drop(leaving);
    until("the app's connection ends", || app.seen.ended() == 1).await;
    primary.until("it counts as left", |totals| outcome(totals, "left") == 1).await;
    go.on();
    assert_eq!(staying.exactly(4).await, b"slow");
    assert_eq!(primary.totals().connections, 1);
}

#[tokio::test]
async fn a_client_that_does_not_read_keeps_nobody_waiting() {
    let app = app_with_long_answers().await;
    let (primary, replica) = sharing_chain(&app).await;
    let mut idlers = Vec::new();
    for n in 0..4 {
        let mut client = replica.client().await;
        client.say(format!("GET /long/{n} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        assert_eq!(client.head().await.unwrap().status(), 200);
        idlers.push(client);
    }
    for _ in 0..20 {
        assert_eq!(replica.client().await.get("/quick").await.text(), "quick");
    }
    let mut reader = idlers.pop().unwrap();
    assert_eq!(reader.exactly(LONG).await.len(), LONG, "what was held back comes");
    assert_eq!(primary.totals().connections, 1);
}

#[tokio::test]
async fn when_the_shared_connection_breaks_its_requests_move_on_to_the_next_leader() {
    let (go, next_app) = (Go::new(), TestApp::hello().await);
    let app = slow_app(&go).await;
    let (primary, replica) = sharing_chain(&app).await;
    let next = TestNode::start(Some(&next_app));
    next.lead(2);
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let mut client = replica.client().await;
        clients.spawn(async move { client.get("/wait").await });
    }
    primary.elect();
    primary.plane.close(Duration::ZERO).await;
    replica.follow(&next, 2);
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap().status(), 200);
    }
    next.until("the next leader shares one too", |totals| totals.connections == 1).await;
}

#[tokio::test]
async fn a_leader_that_stops_finishes_what_came_over_the_shared_connection() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = sharing_chain(&app).await;
    let mut client = replica.client().await;
    client.say("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    let close = async {
        primary.plane.close(SOON).await;
    };
    let finish = async {
        replica.elect();
        go.on();
        assert_eq!(client.exactly(4).await, b"slow");
    };
    tokio::join!(close, finish);
}

#[tokio::test]
async fn an_idle_shared_connection_is_closed_and_opened_anew() {
    let app = TestApp::hello().await;
    let primary = TestNode::with(Some(&app), |config| config.limits.head_timeout = Duration::from_millis(300));
    primary.lead(1);
    let replica = TestNode::with(None, keeps_nothing_idle);
    replica.follow(&primary, 1);
    shares(&replica, &primary, 1).await;
    primary.until("it is closed", |totals| totals.connections == 0).await;
    shares(&replica, &primary, 2).await;
}

#[tokio::test]
async fn a_leader_that_does_not_share_is_asked_once_in_its_tenure() {
    let leader = TestApp::answering(|request| match request.target() {
        "/_bellwether/leader" => ok(r#"{"service":"default","id":"0000000000000001"}"#),
        "/_bellwether/mux" => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
        _ => ok("plain"),
    })
    .await;
    let replica = TestNode::start(None);
    replica.follow_address(&leader.address.to_string(), 1);
    for _ in 0..20 {
        assert_eq!(replica.client().await.get("/").await.text(), "plain");
    }
    let asked = || leader.seen.requests().iter().filter(|request| request.target() == "/_bellwether/mux").count();
    until("it was asked", || asked() == 1).await;
    for _ in 0..20 {
        assert_eq!(replica.client().await.get("/").await.text(), "plain");
    }
    assert_eq!(asked(), 1);
}

#[tokio::test]
async fn a_long_head_passes_over_the_shared_connection() {
    let long = "x".repeat(50 * 1024);
    let (sent, answered) = (long.clone(), long.clone());
    let app = TestApp::answering(move |_| format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX-Long: {answered}\r\n\r\n").into_bytes()).await;
    let (primary, replica) = sharing_chain(&app).await;
    let mut client = replica.client().await;
    client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Long: {sent}\r\n\r\n")).await;
    let answer = client.answer().await;
    assert_eq!(answer.field("x-long"), Some(long.as_str()));
    assert_eq!(app.last().field("x-long"), Some(long.as_str()));
    assert_eq!(primary.totals().connections, 1);
}

#[tokio::test]
async fn every_replica_finds_a_worker_of_its_leader_that_has_room() {
    let app = TestApp::hello().await;
    let workers = |config: &mut Config| config.workers = NonZeroUsize::new(4).unwrap();
    let primary = TestNode::with(Some(&app), workers);
    primary.lead(1);
    let replicas: Vec<_> = (0..8).map(|_| TestNode::with(None, keeps_nothing_idle)).collect();
    for replica in &replicas {
        replica.follow(&primary, 1);
        assert_eq!(replica.client().await.get("/").await.text(), "hello");
    }
    primary.until("eight shared connections are open, and no other", |totals| totals.connections == 8).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_arrives_as_far_as_it_came() {
    let app = TestApp::scripted(|mut raw, _| async move {
        let request = raw.request().await.unwrap();
        match request.target() {
            "/first" => raw.say(ok("whole")).await,
            _ => raw.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await,
        }
    })
    .await;
    let (primary, replica) = sharing_chain(&app).await;
    for node in [&replica, &primary].into_iter().cycle().take(40) {
        let mut client = node.client().await;
        client.say("GET /broken HTTP/1.1\r\nHost: test\r\n\r\n").await;
        assert_eq!(client.head().await.expect("a head").status(), 200);
        assert_eq!(client.rest().await, b"abc");
    }
    primary.until("nothing but the shared connection is left", |totals| totals.connections == 1).await;
    assert_eq!((outcome(&primary.totals(), "failed_cut"), outcome(&replica.totals(), "failed_cut")), (40, 20));
}
