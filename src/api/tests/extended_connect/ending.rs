//! How they end.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use h2::server::Builder;
use h2::{Reason, SendStream};
use http::Response;
use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::http2::{Http2Client, get, websocket};
use super::super::rig::*;
use super::app::{ASKS, App, End, WILLING};
use crate::cluster::Upstream;

/// A Close frame with the code for a restart, as a server sends it.
const RESTART: &[u8] = b"\x88\x0f\x03\xf4connect again";

/// A frame as a client sends it.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 77, 177, 217];
    let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [0x80 | opcode, 0x80 | payload.len() as u8].into_iter().chain(mask).chain(masked).collect()
}

#[tokio::test]
async fn both_ends_are_told_when_the_primary_steps_down() {
    for through in 0..2 {
        let mut app = App::start(WILLING).await;
        let nodes = app.chain();
        let (mut client, mut end) = app.tunnel(&nodes[through]).await;
        client.say(masked(1, b"hello")).await;
        assert_eq!(end.frame().await, (1, b"hello".to_vec()));
        end.say(b"\x81\x03hey");
        assert_eq!(client.exactly(5).await, b"\x81\x03hey");
        nodes[0].step_down(1);
        assert_eq!(client.exactly(RESTART.len()).await, RESTART);
        assert_eq!(end.frame().await, (8, RESTART[2..].to_vec()));
        end.say(b"\x88\x02\x03\xf4");
        nodes[0].until("the drain waits for no client", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
        client.say(masked(8, &RESTART[2..4])).await;
        assert!(client.rest().await.is_empty(), "nothing follows a Close frame but the end");
        nodes[0].elect();
        until("the app's connection is cut", || app.open.load(Ordering::SeqCst) == 0).await;
    }
}

/// Some apps leave their streams open then, and a client in HTTP/1.1 waits for the server's end (RFC 6455 §7.1.1).
#[tokio::test]
async fn an_app_that_has_answered_a_goodbye_need_not_end_its_stream() {
    let mut app = App::start(WILLING).await;
    let [node, _replica] = app.chain();
    let (mut client, mut end) = app.tunnel(&node).await;
    client.say(masked(8, b"\x03\xe8")).await;
    assert_eq!(end.frame().await, (8, b"\x03\xe8".to_vec()));
    end.say(b"\x88\x02\x03\xe8");
    assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
    assert!(client.is_closed().await);
    assert!(end.is_over().await);
    node.until("it ended well", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
}

/// Nor one that has begun with it, and has its answer.
#[tokio::test]
async fn an_app_that_has_said_goodbye_first_need_not_end_its_stream() {
    for through in 0..2 {
        let mut app = App::start(WILLING).await;
        let nodes = app.chain();
        let (mut client, mut end) = app.tunnel(&nodes[through]).await;
        end.say(b"\x88\x02\x03\xe8");
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        client.say(masked(8, b"\x03\xe8")).await;
        assert_eq!(end.frame().await, (8, b"\x03\xe8".to_vec()));
        assert!(client.is_closed().await);
        assert!(end.is_over().await);
        nodes[0].until("it ended well", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn who_loses_the_lock_tells_the_client_and_says_nothing_more_to_the_app() {
    for through in 0..2 {
        let mut app = App::start(WILLING).await;
        let nodes = app.chain();
        let (mut client, mut end) = app.tunnel(&nodes[through]).await;
        nodes[0].elect();
        assert_eq!(client.exactly(RESTART.len()).await, RESTART);
        assert!(end.is_over().await, "the app is cut off");
        client.say(masked(8, &RESTART[2..4])).await;
        assert!(client.is_closed().await);
        nodes[0].until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_gone_for_the_app() {
    for through in 0..2 {
        let mut app = App::start(WILLING).await;
        let nodes = app.chain();
        let (client, mut end) = app.tunnel(&nodes[through]).await;
        client.stream.set_zero_linger().unwrap();
        drop(client);
        assert!(end.is_over().await);
        if through == 0 {
            let reset = std::future::poll_fn(|cx| end.to.poll_reset(cx));
            assert_eq!(timeout(SOON, reset).await.expect("it need not answer").unwrap(), Reason::CANCEL);
        }
        drop(end);
        for node in &nodes {
            node.until("nothing is left of it", |totals| totals.running == 0).await;
        }
        assert_eq!(app.open.load(Ordering::SeqCst), 1, "its connection stays");
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_takes_its_request_with_it() {
    let mut app = App::start(WILLING).await;
    let [node, _replica] = app.chain();
    let mut client = Http2Client::connect(&node).await;
    client.send(get("/_ping")).await.unwrap();
    let mut asked = tokio::select! {
        answer = client.send(websocket()) => panic!("{answer:?}"),
        asked = app.asked() => asked,
    };
    let reset = std::future::poll_fn(|cx| asked.answer.poll_reset(cx));
    assert_eq!(timeout(SOON, reset).await.expect("the app hears of it").unwrap(), Reason::CANCEL);
    node.until("nothing is left of it", |totals| outcome(totals, "left") == 1 && totals.running == 0).await;
}

#[tokio::test]
async fn an_app_that_resets_a_stream_ends_its_websocket_alone() {
    let mut app = App::start(WILLING).await;
    let [node, _replica] = app.chain();
    let (mut other, mut others) = app.tunnel(&node).await;
    let (mut client, mut end) = app.tunnel(&node).await;
    end.to.send_reset(Reason::INTERNAL_ERROR);
    assert!(client.is_closed().await);
    node.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 1).await;
    other.say("still").await;
    assert_eq!(others.exactly(5).await, b"still");
}

/// RFC 9113 §8.1: it has said all it had to say.
#[tokio::test]
async fn an_app_that_wants_to_hear_no_more_is_heard_to_its_end() {
    let mut app = App::start(WILLING).await;
    let [node, _replica] = app.chain();
    let (client, mut end) = app.tunnel(&node).await;
    let (mut hearing, saying) = client.stream.into_split();
    let _busy = sending(saying, vec![b'x'; 32 * 1024 * 1024]);
    end.piece().await.unwrap();
    end.say("all of it");
    let mut heard = [0; 9];
    timeout(SOON, hearing.read_exact(&mut heard)).await.expect("it comes").unwrap();
    end.to.send_reset(Reason::NO_ERROR);
    let rest = timeout(SOON, hearing.read(&mut heard)).await.expect("it ends").expect("an end and no reset");
    assert_eq!((&heard, rest), (b"all of it", 0));
    node.until("it is counted", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
}

#[tokio::test]
async fn an_app_that_goes_ends_no_websocket() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let node = TestNode::member("default", Some(upstream), |_| {});
    node.lead(1);
    let mut client = node.client().await;
    client.say(ASKS).await;
    let mut connection = Builder::new().enable_connect_protocol().handshake(listener.accept().await.unwrap().0).await.unwrap();
    let (request, mut answer) = connection.accept().await.unwrap().unwrap();
    let mut end = End { from: request.into_body(), to: answer.send_response(Response::new(()), false).unwrap(), heard: Vec::new() };
    connection.graceful_shutdown();
    let _serving: JoinSet<()> = [async move { while connection.accept().await.is_some() {} }].into_iter().collect();
    assert_eq!(client.head().await.unwrap().status(), 101);

    let mut another = node.client().await;
    another.say(ASKS).await;
    let mut connection = Builder::new().enable_connect_protocol().handshake(listener.accept().await.unwrap().0).await.unwrap();
    let (_, mut answer) = connection.accept().await.unwrap().unwrap();
    let _open: SendStream<Bytes> = answer.send_response(Response::new(()), false).unwrap();
    let _serving_another: JoinSet<()> = [async move { while connection.accept().await.is_some() {} }].into_iter().collect();
    assert_eq!(another.head().await.unwrap().status(), 101, "on a connection of its own");

    client.say("still").await;
    assert_eq!(end.exactly(5).await, b"still");
    end.say("here");
    assert_eq!(client.exactly(4).await, b"here");
}
