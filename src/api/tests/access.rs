//! What is written down of requests.

use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex};

use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::http2::{Http2Client, get, read, websocket};
use super::rig::*;
use crate::api::AccessLog;
use crate::api::access::{Format, Writer};

/// What was written, for a test to read.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Write::write(&mut *self.0.lock().unwrap(), bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn log(&self, format: Format) -> (AccessLog, Writer) {
        AccessLog::start(format, "10.0.0.1:4000".to_owned(), self.clone()).unwrap()
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// So many lines.
    async fn lines(&self, count: usize) -> Vec<String> {
        until("the lines are written", || self.text().lines().count() >= count).await;
        let lines: Vec<String> = self.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), count, "{lines:#?}");
        lines
    }

    async fn objects(&self, count: usize) -> Vec<Value> {
        self.lines(count).await.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[tokio::test]
async fn a_request_is_one_object_with_what_became_of_it() {
    let paper = Paper::default();
    let app = TestApp::hello().await;
    let node = TestNode::logging(&app, paper.log(Format::Json).0, |_| {});
    let mut client = node.client().await;
    client.say("POST /a?b=%22c HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\nhi").await;
    node.until("it waits", |totals| totals.held == 1).await;
    node.lead(7);
    let answer = client.answer().await;
    assert_eq!(client.get("/_ping").await.text(), "OK");
    client.say("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n").await;
    let refused = client.answer().await;

    let [served, local, failed] = &paper.objects(3).await[..] else { unreachable!("three lines") };
    assert_eq!(served["id"].as_str(), answer.field("x-request-id"));
    assert_eq!(served["id"].as_str(), app.last().field("x-request-id"));
    for (key, value) in [
        ("client", Value::from("127.0.0.1")),
        ("from_node", false.into()),
        ("method", "POST".into()),
        ("target", "/a?b=%22c".into()),
        ("version", "HTTP/1.1".into()),
        ("status", 200.into()),
        ("bytes", 5.into()),
        ("outcome", "answered".into()),
        ("verdict", Value::Null),
        ("node", "10.0.0.1:4000".into()),
        ("epoch", 7.into()),
    ] {
        assert_eq!(served[key], value, "{key}: {served}");
    }
    let millis = |key: &str| served[key].as_f64().unwrap();
    assert!(millis("held_ms") > 0.0 && millis("held_ms") <= millis("head_ms") && millis("head_ms") <= millis("total_ms"), "{served}");
    assert_eq!((&local["outcome"], &local["status"], &local["bytes"]), (&"local".into(), &200.into(), &2.into()));
    assert_eq!(
        (&failed["outcome"], &failed["status"], &failed["verdict"]),
        (&"failed_bad_request".into(), &400.into(), &"not-sent".into())
    );
    assert_eq!(failed["id"].as_str(), refused.field("x-request-id"));
    assert_ne!(failed["id"], served["id"]);
}

#[tokio::test]
async fn a_request_is_one_line_of_text() {
    let paper = Paper::default();
    let app = TestApp::hello().await;
    let node = TestNode::logging(&app, paper.log(Format::Text).0, |_| {});
    node.lead(7);
    let answer = node.client().await.get("/a\"b").await;
    let line = paper.lines(1).await.remove(0);
    let (at, rest) = line.split_once(' ').unwrap();
    assert!(at.ends_with('Z') && at.contains('T'), "{line}");
    assert!(rest.starts_with("127.0.0.1 \"GET /a%22b HTTP/1.1\" 200 5 answered received=- total="), "{line}");
    assert!(rest.ends_with(&format!(" node=10.0.0.1:4000 epoch=7 verdict=- from_node=false id={}", answer.field("x-request-id").unwrap())));
}

#[tokio::test]
async fn a_client_that_left_is_no_failure_of_ours() {
    // B99.
    let paper = Paper::default();
    let go = Go::new();
    let app = slow_app(&go).await;
    let node = TestNode::logging(&app, paper.log(Format::Json).0, |_| {});
    let mut client = node.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    node.until("it waits", |totals| totals.held == 1).await;
    drop(client);
    assert_eq!(paper.objects(1).await[0]["status"], Value::Null);
    node.lead(1);
    let mut client = node.client().await;
    client.say("GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
    client.head().await.unwrap();
    drop(client);
    let line = paper.objects(2).await.remove(1);
    assert_eq!((&line["status"], &line["outcome"], &line["bytes"]), (&200.into(), &"left".into(), &2.into()));
    assert_eq!(outcome(&node.totals(), "left"), 2);
}

#[tokio::test]
async fn a_name_is_taken_from_those_who_may_give_one_and_is_the_same_on_both_nodes() {
    let (first, second, trusting) = (Paper::default(), Paper::default(), Paper::default());
    let app = TestApp::hello().await;
    let primary = TestNode::logging(&app, first.log(Format::Json).0, |_| {});
    primary.lead(1);
    let replica = TestNode::logging(&app, second.log(Format::Json).0, |_| {});
    replica.follow(&primary, 1);
    let request = |id: &str| format!("GET / HTTP/1.1\r\nHost: test\r\nX-Request-Id: {id}\r\nX-Forwarded-For: 9.9.9.9\r\n\r\n");
    let mut client = replica.client().await;
    client.say(request("mine")).await;
    let answer = client.answer().await;
    let made = answer.field("x-request-id").unwrap();
    assert_ne!(made, "mine", "a client's own is not believed");
    let lines = [second.objects(1).await.remove(0), first.objects(2).await.pop().unwrap()];
    assert_eq!(lines.each_ref().map(|line| line["id"].as_str()), [Some(made); 2]);
    assert_eq!(lines.each_ref().map(|line| line["from_node"].as_bool()), [Some(false), Some(true)]);
    assert_eq!(app.last().field("x-request-id"), Some(made));

    let node = TestNode::logging(&app, trusting.log(Format::Json).0, |config| {
        config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
    });
    node.lead(2);
    let mut client = node.client().await;
    for (number, (given, kept)) in [("load-balancer/7", true), ("two words", false), (&"x".repeat(129), false)].into_iter().enumerate() {
        client.say(request(given)).await;
        assert_eq!(client.answer().await.field("x-request-id") == Some(given), kept, "{given}");
        let line = trusting.objects(number + 1).await.pop().unwrap();
        assert_eq!((line["id"] == given, &line["client"]), (kept, &"9.9.9.9".into()));
    }
}

#[tokio::test]
async fn without_a_log_names_and_traces_pass_untouched() {
    let app = TestApp::answering(|_| b"HTTP/1.1 200 OK\r\nX-Request-Id: the app's\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    client.say(format!("GET / HTTP/1.1\r\nHost: test\r\nX-Request-Id: mine\r\nTraceparent: {trace}\r\nTracestate: a=1,b=2\r\n\r\n")).await;
    assert_eq!(client.answer().await.field("x-request-id"), Some("the app's"));
    let seen = app.last();
    assert_eq!(
        [seen.field("x-request-id"), seen.field("traceparent"), seen.field("tracestate")],
        [Some("mine"), Some(trace), Some("a=1,b=2")]
    );
}

/// Paper that takes nothing until it is let go.
#[derive(Clone, Default)]
struct Stuck(Arc<(Mutex<bool>, Condvar)>, Paper);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (free, changed) = &*self.0;
        drop(changed.wait_while(free.lock().unwrap(), |free| !*free).unwrap());
        Write::write(&mut self.1, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_log_that_nobody_reads_holds_up_no_request_and_ends_with_its_node() {
    let stuck = Stuck::default();
    let (log, writer) = AccessLog::start(Format::Json, String::new(), stuck.clone()).unwrap();
    let lost = log.lost();
    let app = TestApp::hello().await;
    let node = TestNode::logging(&app, log, |_| {});
    let mut client = node.client().await;
    let asked = "GET /_ping HTTP/1.1\r\nHost: test\r\n\r\n".repeat(100);
    let mut answered = 0;
    while lost.load(std::sync::atomic::Ordering::Relaxed) < 50 {
        client.say(&asked).await;
        for _ in 0..100 {
            assert_eq!(client.answer().await.text(), "OK");
        }
        answered += 100;
        assert!(answered <= 40_000, "no line is ever lost");
    }
    *stuck.0.0.lock().unwrap() = true;
    stuck.0.1.notify_all();
    drop(client);
    node.plane.close(SOON).await;
    writer.finish(SOON).await;
    let written = stuck.1.text().lines().count();
    assert_eq!(written as u64 + lost.load(std::sync::atomic::Ordering::Relaxed), answered);
}

/// An app that agrees to a tunnel, sends ten bytes, and ends when the client does.
async fn tunnelling_app() -> TestApp {
    TestApp::scripted(|mut raw, _| async move {
        while let Some(request) = raw.request().await {
            match request.field("upgrade") {
                Some(protocol) => {
                    let agreed = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n");
                    raw.say(agreed + "0123456789").await;
                    raw.rest().await;
                }
                None => raw.say(ok("hello")).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn what_went_through_a_tunnel_is_written_down_when_it_has_ended() {
    let (first, second) = (Paper::default(), Paper::default());
    let app = tunnelling_app().await;
    let primary = TestNode::logging(&app, first.log(Format::Json).0, |_| {});
    primary.lead(1);
    let replica = TestNode::logging(&app, second.log(Format::Text).0, |_| {});
    replica.follow(&primary, 1);
    let mut client = replica.client().await;
    client.say("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly").await;
    assert_eq!(client.head().await.unwrap().status(), 101);
    assert_eq!(client.exactly(10).await, b"0123456789");
    client.say("late").await;
    client.finish().await;
    assert!(client.is_closed().await);
    let line = first.objects(2).await.pop().unwrap();
    assert_eq!((&line["status"], &line["outcome"]), (&101.into(), &"answered".into()), "{line}");
    assert_eq!((&line["bytes"], &line["received"]), (&10.into(), &9.into()), "{line}");
    assert!(line["total_ms"].as_f64() > line["head_ms"].as_f64(), "{line}");
    let line = second.lines(1).await.remove(0);
    assert!(line.contains(" 101 10 answered received=9 total="), "{line}");
}

#[tokio::test]
async fn a_tunnel_over_a_stream_is_written_down_like_any_other() {
    let paper = Paper::default();
    let app = tunnelling_app().await;
    let node = TestNode::logging(&app, paper.log(Format::Json).0, |_| {});
    node.lead(1);
    let mut client = Http2Client::connect(&node).await;
    let (status, ..) = read(client.send(get("/")).await.unwrap()).await;
    assert_eq!(status, 200, "the server has said that it takes such requests");
    let mut tunnel = TokioIo::new(hyper::upgrade::on(client.send(websocket()).await.unwrap()).await.unwrap());
    tunnel.read_exact(&mut [0; 10]).await.unwrap();
    tunnel.write_all(b"four").await.unwrap();
    tunnel.shutdown().await.unwrap();
    assert_eq!(tunnel.read(&mut [0; 1]).await.unwrap(), 0);
    let line = paper.objects(2).await.pop().unwrap();
    assert_eq!((&line["bytes"], &line["received"], &line["outcome"]), (&10.into(), &4.into(), &"answered".into()), "{line}");
    assert_eq!(line["version"], "HTTP/2.0", "{line}");
}

#[tokio::test]
async fn a_tunnel_that_is_cut_is_written_down_too() {
    let paper = Paper::default();
    let app = tunnelling_app().await;
    let node = TestNode::logging(&app, paper.log(Format::Json).0, |_| {});
    node.lead(1);
    let mut client = node.client().await;
    client.say("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await;
    client.head().await.unwrap();
    client.exactly(10).await;
    node.elect();
    let line = paper.objects(1).await.remove(0);
    assert_eq!((&line["bytes"], &line["received"], &line["outcome"]), (&10.into(), &0.into(), &"failed_cut".into()), "{line}");
}
