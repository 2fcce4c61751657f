//! Leaders that are not who, or not where, the record says.

use super::rig::*;
use std::time::Duration;
use tokio::time::Instant;

#[tokio::test]
async fn a_record_that_points_at_the_reader_is_never_followed() {
    // B67: under its own address, and under other names of it.
    let node = TestNode::with(None, |config| config.hold_timeout = Duration::from_millis(300));
    for address in [node.address.to_string(), format!("localhost:{}", node.address.port())] {
        node.follow_address(&address, 3);
        let answer = node.client().await.get("/").await;
        let json = answer.json();
        assert_eq!((answer.status(), json["reason"].as_str(), json["verdict"].as_str()), (503, Some("no-primary"), Some("not-sent")));
        assert!(json["message"].as_str().unwrap().contains("this node"), "{json}");
    }
    node.until("no connection is left of it", |totals| totals.connections <= 1).await;
    assert!(node.totals().accepted < 20, "it did not go round: {:?}", node.totals());
}

#[tokio::test]
async fn a_request_that_comes_round_ends() {
    let node = TestNode::start(None);
    node.elect();
    let mut client = node.client().await;
    client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nBellwether-Hop: {};epoch=1\r\n\r\n", node.node.boot)).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (508, Some("loop")));
}

#[tokio::test]
async fn two_replicas_that_name_each_other_refuse_each_other() {
    let one = TestNode::with(None, |config| config.hold_timeout = Duration::from_millis(300));
    let other = TestNode::start(None);
    one.follow(&other, 1);
    other.follow(&one, 1);
    let answer = one.client().await.get("/").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (503, Some("no-primary")));
    assert_eq!(answer.field("bellwether-refused"), None);
}

#[tokio::test]
async fn a_primary_refuses_what_was_meant_for_a_later_one() {
    let app = TestApp::hello().await;
    let node = TestNode::start(Some(&app));
    node.lead(5);
    for (epoch, status) in [(4, 200), (5, 200), (6, 503)] {
        let mut client = node.client().await;
        client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nBellwether-Hop: 00000000000000ff;epoch={epoch}\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!(answer.status(), status, "{epoch}");
        assert_eq!(answer.field("bellwether-refused"), (status == 503).then_some("superseded"));
    }
    assert_eq!(outcome(&node.totals(), "failed_superseded"), 1);
}

#[tokio::test]
async fn a_refusal_reads_no_body() {
    let node = TestNode::start(None);
    let mut client = node.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nBellwether-Hop: 00000000000000ff;epoch=1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.json()["verdict"].as_str()), (503, Some("not-sent")));
}

#[tokio::test]
async fn an_app_cannot_refuse_in_a_nodes_name() {
    let app = TestApp::answering(|_| {
        b"HTTP/1.1 503 Busy\r\nBellwether-Refused: superseded\r\nBellwether-Primary: evil:1\r\nBellwether-Epoch: 999\r\nContent-Length: 0\r\n\r\n".to_vec()
    })
    .await;
    let (primary, replica) = chain(&app);
    let answer = replica.client().await.get("/").await;
    assert_eq!((answer.status(), answer.field("bellwether-epoch")), (503, Some("1")));
    assert_eq!(answer.field("bellwether-primary"), Some(primary.node.address.as_str()));
    assert_eq!(app.seen.requests().len(), 1);
}

#[tokio::test]
async fn nothing_is_delivered_to_a_stranger_at_the_leaders_address() {
    // B80: the app's own port, and a node of another election.
    let app = TestApp::hello().await;
    let other = TestNode::member("other", Some(app.upstream()), |_| {});
    other.lead(1);
    let replica = TestNode::start(None);
    for (epoch, address) in [(1, app.address), (2, other.address)] {
        replica.follow_address(&address.to_string(), epoch);
        let answer = replica.client().await.post("/", b"secret").await;
        let json = answer.json();
        assert_eq!((answer.status(), json["verdict"].as_str()), (502, Some("not-sent")));
        let message = json["message"].as_str().unwrap();
        assert!(message.contains(&address.to_string()) && message.contains("not a node of election default"), "{message}");
    }
    assert!(app.seen.requests().iter().all(|request| request.target() == "/_bellwether/leader"), "{:?}", app.seen.requests());
}

#[tokio::test]
async fn a_leader_is_asked_who_it_is_once_in_its_tenure() {
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for _ in 0..5 {
        replica.client().await.get("/").await;
    }
    primary.until("it is asked to share a connection too", |totals| outcome(totals, "local") == 2).await;
}

#[tokio::test]
async fn every_address_of_a_leaders_name_is_tried() {
    // B78: `localhost` has an IPv6 address too, where nobody listens.
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let replica = TestNode::start(None);
    replica.follow_address(&format!("localhost:{}", primary.address.port()), 1);
    assert_eq!(replica.client().await.get("/").await.text(), "hello");
}

#[tokio::test]
async fn an_ipv6_leader_is_reached() {
    // B128.
    let app = TestApp::hello().await;
    let primary = TestNode::with(Some(&app), |config| config.listen = vec!["[::1]:0".parse().unwrap()]);
    primary.lead(1);
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    assert_eq!(replica.client().await.get("/").await.text(), "hello");
    assert_eq!(app.last().field("host"), Some("test"));
}

#[tokio::test]
async fn a_leader_that_swallows_everything_is_given_up_in_bounded_time() {
    // S07.
    let hole = TestApp::scripted(|mut raw, _| async move {
        raw.rest().await;
    })
    .await;
    let replica = TestNode::with(None, |config| {
        config.hold_timeout = Duration::from_millis(500);
        config.limits.connect_timeout = Duration::from_millis(200);
    });
    replica.follow_address(&hole.address.to_string(), 1);
    // Bounded by those two; without them nobody would ever answer.
    let answer = replica.client().await.post("/", b"x").await;
    assert_eq!((answer.status(), answer.json()["verdict"].as_str()), (503, Some("not-sent")));
}

/// Says once who it is, and nothing any more.
async fn leader_that_falls_silent() -> TestApp {
    TestApp::scripted(|mut raw, seen| async move {
        while let Some(request) = raw.head().await {
            let first = seen.requests().is_empty();
            seen.requests.lock().unwrap().push(request);
            if first {
                raw.say(ok(r#"{"service":"default","id":"0000000000000001"}"#)).await;
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_leader_that_falls_silent_in_its_tenure_is_given_up_after_two_ttls() {
    // S07: connections stand, and nothing comes back on any of them.
    let silent = leader_that_falls_silent().await;
    let ttl = Duration::from_millis(400);
    let replica = TestNode::with(None, |config| {
        config.ttl = ttl;
        config.hold_timeout = Duration::from_millis(300);
        // Long enough for the first introduction, which it does give.
        config.limits.connect_timeout = Duration::from_secs(3);
    });
    replica.follow_address(&silent.address.to_string(), 1);
    let asked = Instant::now();
    let (mut get, mut post) = (replica.client().await, replica.client().await);
    get.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    until("it is there", || silent.seen.requests().len() == 2).await;
    post.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").await;
    let answer = post.answer().await;
    assert!([502, 503].contains(&answer.status()), "{answer:?}");
    let answer = get.answer().await;
    assert_eq!((answer.status(), answer.json()["verdict"].as_str()), (503, Some("maybe-executed")));
    assert!(asked.elapsed() >= ttl * 2, "{:?}", asked.elapsed());
}

#[tokio::test]
async fn a_leader_that_has_fallen_silent_gets_no_more_requests() {
    let silent = leader_that_falls_silent().await;
    let replica = TestNode::with(None, |config| {
        config.ttl = Duration::from_secs(3_600);
        config.limits.connect_timeout = Duration::from_secs(3);
    });
    replica.follow_address(&silent.address.to_string(), 1);
    let (mut get, mut post) = (replica.client().await, replica.client().await);
    get.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    until("it is asked, and says nothing", || replica.plane.ledger().has_trouble()).await;
    post.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").await;
    replica.until("the order waits", |totals| totals.held == 1).await;

    let app = TestApp::hello().await;
    let next = TestNode::start(Some(&app));
    next.lead(2);
    replica.follow(&next, 2);
    for client in [&mut get, &mut post] {
        assert_eq!(client.answer().await.text(), "hello");
    }
    assert!(silent.seen.requests().iter().all(|seen| !seen.line.starts_with("POST")), "it was not lost with the leader");
}

#[tokio::test]
async fn a_leader_that_only_takes_long_is_not_given_up() {
    let go = Go::new();
    let app = {
        let go = go.clone();
        TestApp::scripted(move |mut raw, _| {
            let go = go.clone();
            async move {
                raw.request().await;
                go.wait().await;
                raw.say(ok("at last")).await;
            }
        })
        .await
    };
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    let mut client = replica.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n").await;
    primary.until("it was asked several times whether it is there", |totals| outcome(totals, "local") > 2).await;
    go.on();
    assert_eq!(client.answer().await.text(), "at last");
}

#[tokio::test]
async fn a_leader_that_refuses_connections_is_waited_for() {
    let app = TestApp::hello().await;
    let vacant = Vacant::take();
    let replica = TestNode::start(None);
    replica.follow_address(&vacant.address().to_string(), 1);
    let mut client = replica.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi").await;
    replica.until("it waits", |totals| totals.held == 1).await;
    // B64: it cannot forward, so it is not ready.
    assert!(replica.plane.ledger().has_trouble());
    let primary = TestNode::with(Some(&app), |config| config.listen = vec![crate::api::Listen::Tcp(vacant.address())]);
    primary.lead(1);
    assert_eq!(client.answer().await.text(), "hello");
    until("it is ready again", || !replica.plane.ledger().has_trouble()).await;
}

#[tokio::test]
async fn a_full_hold_asks_a_leader_in_trouble_once_for_all() {
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    primary.elect();
    let mut clients = Vec::new();
    for _ in 0..50 {
        let mut client = replica.client().await;
        client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
        clients.push(client);
    }
    replica.until("all of them wait", |totals| totals.held == 50).await;
    let refused = outcome(&primary.totals(), "failed_superseded");
    primary.until("it is asked whether it serves", |totals| outcome(totals, "local") > 8).await;
    assert_eq!(outcome(&primary.totals(), "failed_superseded"), refused, "nobody knocks meanwhile");
    primary.lead(1);
    for client in &mut clients {
        assert_eq!(client.answer().await.text(), "hello");
    }
}
