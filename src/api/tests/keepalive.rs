//! Connections that an app closes just as they are picked (B88).

use super::rig::*;
use crate::api::Totals;
use std::time::Duration;

/// Short enough to be waited for, and long enough for this machine to send a head in time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(2);

#[tokio::test]
async fn an_app_that_closes_after_every_third_answer_costs_no_request() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        for _ in 0..3 {
            let Some(request) = raw.request().await else { return };
            seen.requests.lock().unwrap().push(request);
            raw.say(ok("hello")).await;
        }
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    for number in 0..300 {
        let answer = if number % 2 == 0 { client.get("/").await } else { client.post("/", b"body").await };
        assert_eq!(answer.status(), 200, "request {number}: {answer:?}");
    }
    assert_eq!(app.seen.requests().len(), 300, "none was executed twice");
}

#[tokio::test]
async fn many_clients_at_once_do_not_change_that() {
    let app = TestApp::scripted(|mut raw, _| async move {
        for _ in 0..3 {
            if raw.request().await.is_none() {
                return;
            }
            raw.say(ok("hello")).await;
        }
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let address = replica.address;
        clients.spawn(async move {
            let mut client = Raw::connect(address).await;
            for _ in 0..50 {
                assert_eq!(client.get("/").await.status(), 200);
            }
        });
    }
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
}

#[tokio::test]
async fn a_request_that_an_old_connection_swallowed_is_repeated_only_if_safe() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        // Answers once on each connection, and swallows what comes next.
        for answers in [true, false] {
            let Some(request) = raw.request().await else { return };
            seen.requests.lock().unwrap().push(request);
            if answers {
                raw.say(ok("hello")).await;
            }
        }
    })
    .await;
    let asked = |target: &str| app.seen.requests().iter().filter(|request| request.target() == target).count();
    let safe = TestNode::start(Some(&app));
    safe.lead(1);
    let mut client = safe.client().await;
    assert_eq!(client.get("/first").await.status(), 200);
    assert_eq!(client.get("/second").await.status(), 200, "repeated on a new connection");
    assert_eq!(asked("/second"), 2);

    let once = TestNode::start(Some(&app));
    once.lead(1);
    let mut client = once.client().await;
    for number in 0..20 {
        let (connections, target) = (app.seen.connections(), format!("/post/{number}"));
        let answer = client.post(&target, b"body").await;
        assert_eq!(asked(&target), 1, "sent once: {answer:?}");
        if app.seen.connections() > connections {
            // The first one; or this machine was so slow that no connection counted as used a moment ago.
            assert_eq!(answer.status(), 200);
            continue;
        }
        assert_eq!((answer.status(), answer.json()["verdict"].as_str()), (502, Some("maybe-executed")));
        for _ in 0..5 {
            assert_eq!(client.post("/later", b"body").await.status(), 200, "what the app does is known by now");
        }
        return;
    }
    panic!("no POST ever went out on a connection that was used before");
}

#[tokio::test]
async fn a_new_connection_that_breaks_is_not_tried_again() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.request().await;
    })
    .await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let answer = primary.client().await.get("/").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (502, Some("upstream-failed")));
    assert_eq!(app.seen.connections(), 1);
}

#[tokio::test]
async fn idle_connections_are_closed_before_the_app_would() {
    let app = TestApp::hello().await;
    let primary = TestNode::with(Some(&app), |config| config.limits.idle_timeout = Duration::from_millis(100));
    primary.lead(1);
    primary.client().await.get("/").await;
    until("it is closed", || app.seen.ended() == 1).await;
}

#[tokio::test]
async fn an_app_that_is_down_is_tried_for_a_moment_and_then_named() {
    let mut vacant = Vacant::take();
    let address = vacant.address();
    let primary = TestNode::member("default", Some(format!("http://{address}").parse().unwrap()), |_| {});
    primary.lead(1);
    let answer = primary.client().await.post("/", b"x").await;
    let json = answer.json();
    assert_eq!((answer.status(), json["verdict"].as_str(), json["reason"].as_str()), (502, Some("not-sent"), Some("upstream-failed")));
    assert!(json["message"].as_str().unwrap().contains(&address.to_string()), "{json}");

    // A socket that is back within that moment costs nothing. A machine that takes longer to bring it back tries again.
    let moment = Duration::from_millis(125);
    for _ in 0..20 {
        let accepted = primary.totals().accepted;
        let mut client = primary.client().await;
        let asked = tokio::time::Instant::now();
        client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi").await;
        primary.until("it is on its way", |totals| totals.accepted > accepted).await;
        let back = TestApp::on(vacant.listen(), |mut raw, _| async move {
            while raw.request().await.is_some() {
                raw.say(ok("back")).await;
            }
        });
        let in_time = asked.elapsed() < moment;
        let answer = client.answer().await;
        if answer.status() == 200 {
            assert_eq!((answer.text(), back.seen.connections()), ("back", 1));
            return;
        }
        assert!(!in_time, "{answer:?}");
        drop(back);
        vacant = Vacant::at(address);
    }
    panic!("this machine takes longer than {moment:?} to listen, time after time");
}

#[tokio::test]
async fn a_primary_without_an_app_says_so() {
    let node = TestNode::start(None);
    node.lead(1);
    let answer = node.client().await.get("/").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (503, Some("no-upstream")));
}

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection_and_nothing_else_does() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let primary = TestNode::with(Some(&app), |config| config.limits.head_timeout = HEAD_TIMEOUT);
    primary.lead(1);
    let mut patient = primary.client().await;
    patient.say("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
    let (mut silent, mut slow) = (primary.client().await, primary.client().await);
    slow.say("GET / HT").await;
    let told = slow.answer().await;
    assert_eq!((told.status(), told.json()["reason"].as_str(), told.field("connection")), (408, Some("request-timeout"), Some("close")));
    assert_eq!((silent.rest().await, slow.rest().await), (Vec::new(), Vec::new()));
    let closed = |totals: &Totals| totals.closings.iter().filter(|(_, count)| *count > 0).copied().collect::<Vec<_>>();
    primary.until("both are counted", |totals| closed(totals) == [("idle", 1), ("slow_head", 1)]).await;
    assert_eq!(primary.totals().accepted, 1, "neither was a request");
    go.on();
    assert_eq!(patient.answer().await.status(), 200, "it took longer than a head may");
    assert_eq!(patient.get("/again").await.status(), 200, "its time for a head has just begun");
    assert_eq!(patient.rest().await, b"", "no other head came");
}

#[tokio::test]
async fn a_client_that_reads_slowly_is_not_one_that_sends_no_head() {
    let body = "x".repeat(16 * 1024 * 1024);
    let app = TestApp::answering({
        let body = body.clone();
        move |_| ok(&body)
    })
    .await;
    let primary = TestNode::with(Some(&app), |config| config.limits.head_timeout = HEAD_TIMEOUT);
    primary.lead(1);
    let mut reader = primary.client().await;
    reader.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    for _ in 0..2 {
        assert_eq!(primary.client().await.rest().await, b"", "no head came");
    }
    assert_eq!(reader.answer().await.text().len(), body.len());
}
