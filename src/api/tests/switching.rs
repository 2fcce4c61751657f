//! Switches of protocol: tunnels, half-closes, and refusals.

use super::rig::*;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

const SWITCH: &str = "HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n";
const ASK: &str = "POST /attach HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n";

/// An app that switches and then echoes until its client has finished, and says `bye`.
async fn echo() -> TestApp {
    TestApp::scripted(|mut raw, seen| async move {
        let Some(request) = raw.request().await else { return };
        seen.requests.lock().unwrap().push(request);
        raw.say(SWITCH).await;
        let all = raw.rest().await;
        // Nobody hears it behind a tunnel that was cut.
        raw.stream.write_all(&[&all[..], b"bye"].concat()).await.ok();
    })
    .await
}

#[tokio::test]
async fn a_client_that_finishes_first_still_hears_everything() {
    // B86.
    const LENGTH: usize = 1024 * 1024;
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.request().await;
        raw.say(SWITCH).await;
        assert_eq!(raw.rest().await, b"abc");
        raw.say(vec![b'x'; LENGTH]).await;
    })
    .await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        client.say(ASK).await;
        let head = client.head().await.unwrap();
        assert_eq!((head.status(), head.field("upgrade"), head.field("connection")), (101, Some("tcp"), Some("Upgrade")));
        client.say("abc").await;
        client.finish().await;
        assert_eq!(client.rest().await.len(), LENGTH);
        node.until("the tunnel is over", |totals| totals.running == 0 && totals.connections <= 1).await;
    }
    primary.until("both are counted", |totals| outcome(totals, "answered") == 2).await;
}

#[tokio::test]
async fn an_app_that_finishes_first_still_hears_everything() {
    // B86, the mirror.
    let app = TestApp::scripted(|mut raw, seen| async move {
        raw.request().await;
        raw.say(SWITCH).await;
        raw.say("done").await;
        raw.finish().await;
        let body = raw.rest().await;
        seen.requests.lock().unwrap().push(Message { body, ..Message::default() });
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    client.head().await.unwrap();
    assert_eq!(client.rest().await, b"done");
    client.say(vec![b'y'; 300_000]).await;
    client.finish().await;
    until("the app has heard the rest", || app.seen.requests().len() == 1).await;
    assert_eq!(app.last().body.len(), 300_000);
}

#[tokio::test]
async fn a_client_may_stop_sending_before_its_101() {
    // B132: `docker exec` without `-i`, with its JSON, and an app that takes its time; old style, answered 200, too.
    let go = Go::new();
    let app = {
        let go = go.clone();
        TestApp::scripted(move |mut raw, seen| {
            let go = go.clone();
            async move {
                let Some(request) = raw.request().await else { return };
                let old = request.target() == "/old";
                seen.requests.lock().unwrap().push(request);
                go.wait().await;
                raw.say(if old { "HTTP/1.1 200 OK\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n" } else { SWITCH }).await;
                for line in ["one\n", "two\n", "three\n"] {
                    tokio::task::yield_now().await;
                    raw.say(line).await;
                }
            }
        })
        .await
    };
    let (primary, replica) = chain(&app);
    for (asked, (node, target)) in
        [(&primary, "/exec"), (&replica, "/exec"), (&primary, "/old"), (&replica, "/old")].into_iter().enumerate()
    {
        let mut client = node.client().await;
        client
            .say(format!("POST {target} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{{\"Tty\":false}}"))
            .await;
        client.finish().await;
        until("the app has it", || app.seen.requests().len() == asked + 1).await;
        assert_eq!(app.last().text(), "{\"Tty\":false}");
        go.on();
        let head = client.head().await.expect("an answer");
        assert_eq!(head.status(), if target == "/old" { 200 } else { 101 });
        let rest = String::from_utf8(client.rest().await).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            assert!(rest.contains(line), "{target}: {rest:?}");
        }
    }
}

#[tokio::test]
async fn bytes_right_behind_the_switch_arrive_in_whatever_pieces() {
    // B140, B134: any protocol is opaque bytes.
    for split in [false, true] {
        let app = TestApp::scripted(move |mut raw, _| async move {
            raw.request().await;
            let all = format!("{SWITCH}first frame");
            if split {
                for byte in all.bytes() {
                    raw.say([byte]).await;
                    tokio::task::yield_now().await;
                }
            } else {
                raw.say(all).await;
            }
            assert_eq!(raw.exactly(24).await, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
            raw.say("ok").await;
        })
        .await;
        let (_primary, replica) = chain(&app);
        let mut client = replica.client().await;
        client.say("POST /session HTTP/1.1\r\nHost: test\r\nConnection: keep-alive, Upgrade\r\nUpgrade: h2c\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 101);
        client.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        assert_eq!(client.exactly(13).await, b"first frameok");
    }
}

#[tokio::test]
async fn what_a_client_sends_right_behind_its_request_arrives_too() {
    let app = echo().await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(format!("{ASK}early")).await;
    client.finish().await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    assert_eq!(client.rest().await, b"earlybye");
}

#[tokio::test]
async fn a_refused_switch_is_passed_on_whole_and_the_connection_lives() {
    let app = TestApp::answering(|request| match request.target() {
        "/426" => b"HTTP/1.1 426 Upgrade Required\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 2\r\n\r\nno".to_vec(),
        _ => ok("plain"),
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    for (target, status, text, upgrade) in [("/426", 426, "no", Some("websocket")), ("/200", 200, "plain", None)] {
        client.say(format!("GET {target} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n")).await;
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.text(), answer.field("upgrade")), (status, text, upgrade));
        assert_eq!(client.get("/next").await.text(), "plain");
    }
}

#[tokio::test]
async fn a_large_refusal_is_not_cut_short() {
    // The library hands out a connection that might have been upgraded without flushing it.
    const LENGTH: usize = 8 * 1024 * 1024;
    let app = TestApp::answering(|_| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + LENGTH, b'x');
        answer
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n").await;
    client.finish().await;
    assert_eq!(client.answer().await.body.len(), LENGTH);
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn a_switch_that_nobody_asked_for_is_never_passed_on() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.request().await;
        raw.say(SWITCH).await;
        raw.rest().await;
    })
    .await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let answer = primary.client().await.get("/").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (502, Some("upstream-failed")));
    until("the app's connection ends", || app.seen.ended() == 1).await;
}

#[tokio::test]
async fn a_tunnel_counts_as_running_and_is_cut_with_its_tenure() {
    // B142.
    use crate::replication::Drain;
    let app = echo().await;
    let (primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    client.head().await.unwrap();
    assert_eq!((primary.totals().running, replica.totals().running), (1, 1));
    let drained = primary.plane.drained(crate::store::Epoch(1));
    let mut drained = std::pin::pin!(drained);
    primary.step_down(1);
    assert!(tokio::time::timeout(Duration::from_millis(50), drained.as_mut()).await.is_err(), "the tunnel runs");
    primary.elect();
    assert!(client.is_closed().await);
    tokio::time::timeout(SOON, drained).await.expect("the tunnel is cut");
    until("the app's connection ends", || app.seen.ended() == 1).await;
    primary.until("it counts as cut", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
}

#[tokio::test]
async fn a_tunnel_through_a_former_leader_is_cut_after_its_grace() {
    // Even if that leader is frozen and never ends its side.
    let app = echo().await;
    let (primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    client.head().await.unwrap();
    let next = TestNode::start(Some(&app));
    next.lead(2);
    replica.follow(&next, 2);
    assert!(client.is_closed().await);
    replica.until("it counts as cut", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    primary.until("its side ends too", |totals| totals.connections == 0).await;
}

#[tokio::test]
async fn a_tunnel_whose_client_vanishes_ends_on_both_sides() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.request().await;
        raw.say(SWITCH).await;
        // Talks until nobody listens.
        while raw.stream.write_all(b"tick").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let (primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    client.head().await.unwrap();
    drop(client);
    until("the app's connection ends", || app.seen.ended() == 1).await;
    for node in [&primary, &replica] {
        node.until("the tunnel is over", |totals| totals.running == 0).await;
    }
}
