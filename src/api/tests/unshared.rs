//! Shared connections that cannot be had, or go, at a leader that is well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::StatusCode;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::http2::{Http2Client, read};
use super::rig::*;

/// What asks a leader for a shared connection.
const QUESTION: &[u8] = b"GET /_bellwether/mux ";

/// A way to a node on which nobody gets a shared connection until it is told otherwise.
struct Gate {
    address: String,
    lets_share: Arc<AtomicBool>,
    turned_away: Arc<AtomicUsize>,
    _passing: JoinSet<()>,
}

impl Gate {
    async fn before(node: &TestNode) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (lets_share, turned_away) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (target, open, count) = (node.address, Arc::clone(&lets_share), Arc::clone(&turned_away));
        let passing = async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut from, _) = listener.accept().await.unwrap();
                let (open, count) = (Arc::clone(&open), Arc::clone(&count));
                connections.spawn(async move {
                    let mut begin = [0; QUESTION.len()];
                    if from.read_exact(&mut begin).await.is_err() {
                        return;
                    }
                    if begin == QUESTION && !open.load(Ordering::SeqCst) {
                        count.fetch_add(1, Ordering::SeqCst);
                        return;
                    }
                    let mut to = TcpStream::connect(target).await.unwrap();
                    to.write_all(&begin).await.unwrap();
                    tokio::io::copy_bidirectional(&mut from, &mut to).await.ok();
                });
            }
        };
        Self { address, lets_share, turned_away, _passing: [passing].into_iter().collect() }
    }
}

#[tokio::test]
async fn a_shared_connection_that_cannot_be_had_is_no_trouble_for_what_needs_none() {
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let gate = Gate::before(&primary).await;
    let replica = TestNode::start(None);
    replica.follow_address(&gate.address, 1);
    let mut calling = Http2Client::connect(&replica).await;
    let call = http::Request::get("http://test/call").header("te", "trailers").body(Full::default().boxed()).unwrap();
    let call = calling.begin(call).await;
    replica.until("the call waits", |totals| totals.held == 1).await;
    let mut client = replica.client().await;
    while gate.turned_away.load(Ordering::SeqCst) < 2 {
        let answer = client.post("/", b"an order").await;
        assert_eq!((answer.status(), answer.field("server-timing")), (200, None), "it waits for nothing");
        assert!(!replica.plane.ledger().has_trouble(), "the leader serves");
    }
    gate.lets_share.store(true, Ordering::SeqCst);
    assert_eq!(read(call.await.unwrap()).await.0, StatusCode::OK);
}

/// What a leader says that goes before it has done anything: GOAWAY, with the streams that it still serves (RFC 9113 §6.8).
const GOAWAY: &[u8] = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
const NO_SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;

#[tokio::test]
async fn a_shared_connection_that_goes_says_nothing_about_its_leader() {
    let leader = TestApp::scripted(|mut raw, seen| async move {
        while let Some(request) = raw.request().await {
            let target = request.target().to_owned();
            seen.requests.lock().unwrap().push(request);
            match target.as_str() {
                "/_bellwether/leader" => raw.say(ok(r#"{"service":"default","id":"0000000000000001","role":"primary","epoch":1}"#)).await,
                "/_bellwether/mux" => {
                    raw.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bellwether-mux\r\n\r\n").await;
                    raw.say(NO_SETTINGS).await;
                    raw.through(b"SM\r\n\r\n").await.unwrap();
                    while let head = raw.exactly(9).await
                        && head[3] != HEADERS
                    {
                        raw.exactly(usize::from(head[1]) << 8 | usize::from(head[2])).await;
                    }
                    raw.say(GOAWAY).await;
                    raw.rest().await;
                    return;
                }
                _ => raw.say(ok("plain")).await,
            }
        }
    })
    .await;
    let replica = TestNode::start(None);
    replica.follow_address(&leader.address.to_string(), 1);
    let seen = |target: &str| leader.seen.requests().iter().filter(|request| request.target() == target).count();
    let mut client = replica.client().await;
    assert_eq!(client.get("/").await.text(), "plain");
    for round in 1..=3 {
        until("a shared connection is asked for", || seen("/_bellwether/mux") == round).await;
        while seen("/_bellwether/mux") == round {
            assert_eq!(client.get("/").await.text(), "plain");
            assert!(!replica.plane.ledger().has_trouble());
        }
    }
    assert_eq!(seen("/_bellwether/leader"), 1, "nobody had to ask it whether it is still the primary");
}
