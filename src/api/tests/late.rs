//! Apps that do not begin to answer in time, where their answers have a limit.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::http2::AnyBody;
use super::rig::*;
use crate::cluster::Upstream;

const LIMIT: Duration = Duration::from_secs(2);

/// A primary whose app may take so long, and a replica of it; of both, what clients see is to be the same.
fn impatient(upstream: Upstream) -> [TestNode; 2] {
    let primary = TestNode::member("default", Some(upstream), |config| config.limits.answer_timeout = Some(LIMIT));
    primary.lead(1);
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    [primary, replica]
}

/// # Panics
/// Unless it is the error that is meant for this.
fn assert_late(answer: &Message, primary: &TestNode) {
    let json = answer.json();
    assert_eq!((answer.status(), &json["reason"], &json["verdict"]), (504, &"upstream-timeout".into(), &"maybe-executed".into()));
    assert!(json["message"].as_str().unwrap().contains("within 2s"), "{json}");
    assert_eq!(answer.field("proxy-status"), Some("bellwether; error=http_response_timeout"));
    assert_eq!(answer.field("bellwether-primary"), Some(primary.node.address.as_str()));
    assert_eq!((answer.field("bellwether-epoch"), answer.field("retry-after")), (None, None));
}

/// Answers everything at once, but for `/late`, of which it takes the head alone.
async fn app_that_is_late() -> TestApp {
    TestApp::scripted(|mut raw, seen| async move {
        while let Some(head) = raw.head().await {
            let (late, length) = (head.target() == "/late", head.field("content-length").map_or(0, |length| length.parse().unwrap()));
            seen.requests.lock().unwrap().push(head);
            if late {
                raw.rest().await;
                return;
            }
            raw.exactly(length).await;
            raw.say(ok("quick")).await;
        }
    })
    .await
}

#[tokio::test]
async fn an_answer_that_does_not_begin_is_given_up_once() {
    let app = app_that_is_late().await;
    let [primary, replica] = impatient(app.upstream());
    for (number, node) in [&primary, &replica].into_iter().enumerate() {
        for (method, body) in [("GET", ""), ("POST", "body")] {
            let (asked, ended) = (app.seen.requests().len(), app.seen.ended());
            let mut client = node.client().await;
            let begun = Instant::now();
            client.say(format!("{method} /late HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len())).await;
            assert_late(&client.answer().await, &primary);
            assert!(begun.elapsed() >= LIMIT, "{:?}", begun.elapsed());
            until("the app learns of it", || app.seen.ended() > ended).await;
            assert_eq!(app.seen.requests().len(), asked + 1, "it is sent once, also where it is safe to repeat");
            assert_eq!(client.get("/").await.text(), "quick", "the client's connection goes on");
        }
        assert_eq!(outcome(&primary.totals(), "failed_upstream_timeout"), 2 * (number as u64 + 1));
    }
    assert_eq!(outcome(&replica.totals(), "answered"), 4, "a replica passes on what it is told");
}

#[tokio::test]
async fn an_app_that_takes_nothing_of_a_body_is_late_too() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        let stays = raw.stream;
        sleep(SOON).await;
        drop(stays);
    })
    .await;
    let [primary, _replica] = impatient(app.upstream());
    let client = primary.client().await;
    let (from, to) = client.stream.into_split();
    let head = "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100000000\r\n\r\n";
    let _sending = sending(to, [head.as_bytes(), &vec![0; 100_000_000]].concat());
    let mut answer = Vec::new();
    until("an answer", || {
        let mut piece = [0; 4096];
        if let Ok(length) = from.try_read(&mut piece) {
            answer.extend_from_slice(&piece[..length]);
        }
        String::from_utf8_lossy(&answer).contains("upstream-timeout")
    })
    .await;
    assert_eq!(outcome(&primary.totals(), "failed_upstream_timeout"), 1);
}

#[tokio::test]
async fn the_time_of_clients_and_of_answers_is_not_counted() {
    // Both sides rest in the middle of their bodies for longer than the limit.
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        raw.exactly(6).await;
        raw.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n").await;
        sleep(LIMIT * 3 / 2).await;
        raw.say("answer").await;
    })
    .await;
    let [primary, replica] = impatient(app.upstream());
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 6\r\n\r\nreq").await;
        sleep(LIMIT * 3 / 2).await;
        client.say("est").await;
        assert_eq!(client.answer().await.text(), "answer");
    }
}

#[tokio::test]
async fn over_http2_the_stream_alone_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let (connections, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (connected, at_work) = (Arc::clone(&connections), Arc::clone(&running));
    let accepting = async move {
        let mut serving = JoinSet::new();
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            connected.fetch_add(1, Ordering::SeqCst);
            let at_work = Arc::clone(&at_work);
            let service = service_fn(move |_: Request<Incoming>| {
                at_work.fetch_add(1, Ordering::SeqCst);
                let at_work = Leaves(Arc::clone(&at_work));
                async move {
                    let _at_work = at_work;
                    std::future::pending::<Result<Response<AnyBody>, Infallible>>().await
                }
            });
            let builder = http2::Builder::new(TokioExecutor::new());
            serving.spawn(async move { drop(builder.serve_connection(TokioIo::new(socket), service).await) });
        }
    };
    let _accepting: JoinSet<()> = [accepting].into_iter().collect();
    let [primary, replica] = impatient(upstream);
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        assert_late(&client.get("/").await, &primary);
        assert_late(&client.post("/", &[0; 1_000_000]).await, &primary);
        until("its streams are reset", || running.load(Ordering::SeqCst) == 0).await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1, "its connection goes on");
    assert_eq!(outcome(&primary.totals(), "failed_upstream_timeout"), 4);
}

struct Leaves(Arc<AtomicUsize>);

impl Drop for Leaves {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
