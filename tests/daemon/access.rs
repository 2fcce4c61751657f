//! The access log of whole daemons, in JSON and in text, at each of the three places and of clients in either version of HTTP: each field
//! says what was so.

use std::time::Duration;

use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::support::access::{Format, line_of};
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Method, request, with};
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw};
use crate::support::spoken::{Connection, Spoken};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);
/// How long the app thinks about what it is asked at `/slow`.
const SLOW: Duration = Duration::from_millis(300);
/// How much it has to say at `/much`.
const MUCH: usize = 500_000_000;
/// By how much a clock of one process and the lines of another may differ, as they are written in tenths of milliseconds.
const ROUNDED: f64 = 1.0;

/// An app that does at each path what a line is to tell of.
async fn app() -> Played {
    Origin::bind().await.play(|mut raw: Raw| async move {
        while let Some((head, body)) = raw.next_request().await {
            let target = head.split(' ').nth(1).expect("a target");
            let path = target.split('?').next().expect("a path");
            let answered = match path {
                "/breaks" => return,
                "/never" => return drop(raw.next_head().await),
                "/half" => {
                    // Whoever has left does not hear it.
                    raw.try_send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc").await.ok();
                    return;
                }
                "/much" => {
                    let mut sent = raw.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {MUCH}\r\n\r\n")).await;
                    let piece = vec![b'x'; 100_000];
                    for _ in 0..MUCH / piece.len() {
                        if sent.is_ok() {
                            sent = raw.try_send(&piece).await;
                        }
                    }
                    sent
                }
                "/switch" => {
                    raw.try_send("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n0123456789").await.ok();
                    // All that comes, and then the end.
                    while raw.next_head().await.is_some() {}
                    return;
                }
                path => {
                    if path == "/slow" {
                        sleep(SLOW).await;
                    }
                    let said = head + &String::from_utf8_lossy(&body);
                    raw.try_send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{said}", said.len())).await
                }
            };
            if answered.is_err() {
                return;
            }
        }
    })
}

/// Where lines are looked for, and how they are read.
struct Log<'a> {
    node: &'a Daemon,
    /// In front of the app, where that is another one.
    primary: Option<&'a Daemon>,
    format: Format,
    spoken: Spoken,
    epoch: u64,
}

impl Log<'_> {
    /// Whether `line` is one of a replica, of an error that its primary gave.
    fn passes_on_a_refusal(&self, line: &Value) -> bool {
        self.primary.is_some() && line["status"] == 502
    }

    /// The one line of what was asked at `target`, with all that is so of each request that came here, however it ended.
    async fn line_of(&self, method: &str, target: &str) -> Value {
        let line = line_of(self.node, self.format, target).await;
        let version = if self.spoken == Spoken::Http1 { "HTTP/1.1" } else { "HTTP/2.0" };
        let node = self.node.address().to_string();
        for (key, value) in [
            ("client", json!("127.0.0.1")),
            ("from_node", json!(false)),
            ("method", json!(method)),
            ("target", json!(target)),
            ("version", json!(version)),
            ("node", json!(node)),
            // Where nothing of the app came nothing was said of a tenure.
            ("epoch", json!(if line["status"].is_null() || self.passes_on_a_refusal(&line) { 0 } else { self.epoch })),
        ] {
            assert_eq!(line[key], value, "{key}: {line}");
        }
        let time = line["time"].as_str().unwrap_or_default();
        assert!(time.ends_with('Z') && time.len() == "2026-11-29T23:29:57.123Z".len(), "{line}");
        assert_eq!((line["held_ms"].as_f64(), &line["received"]), (Some(0.0), &Value::Null), "{line}");
        if let Some(primary) = self.primary {
            let other = line_of(primary, self.format, target).await;
            assert_eq!((&other["from_node"], &other["id"]), (&json!(true), &line["id"]), "{other}");
            assert_eq!((&other["client"], &other["method"]), (&line["client"], &line["method"]), "{other}");
            assert_eq!(other["node"], primary.address().to_string(), "{other}");
        }
        line
    }
}

/// Whether `line` says what became of a request: its status, the bytes of its answer, how it ended, and its verdict.
fn tells(line: &Value, status: impl Into<Value>, bytes: usize, outcome: &str, verdict: Option<&str>) {
    let told = (&line["status"], &line["bytes"], &line["outcome"], &line["verdict"]);
    assert_eq!(told, (&status.into(), &bytes.into(), &outcome.into(), &json!(verdict)), "{line}");
}

/// When the answer's head was there, and how long it took in all, as the client saw it from `asked` on.
fn takes(line: &Value, asked: Instant, at_least: Duration) {
    let (head, total) = (line["head_ms"].as_f64().expect("a time"), line["total_ms"].as_f64().expect("a time"));
    let (least, most) = (at_least.as_secs_f64() * 1e3, asked.elapsed().as_secs_f64() * 1e3);
    assert!(least - ROUNDED <= head && head <= total && total <= most + ROUNDED, "{least} to {most}: {line}");
}

async fn answered(log: &Log<'_>, client: &mut Connection) {
    for (method, path, least) in [(Method::POST, "/a%2Fb;c", Duration::ZERO), (Method::GET, "/slow", SLOW)] {
        let target = target(log, path);
        let asked = Instant::now();
        let answer = client.send(with(request(method.clone(), &target, "an order"), "x-request-id", "mine")).await;
        let line = log.line_of(method.as_str(), &target).await;
        tells(&line, 200, answer.body.len(), "answered", None);
        takes(&line, asked, least);
        let id = line["id"].as_str().expect("a name");
        assert!(id != "mine" && answer.header("x-request-id") == id, "{line}");
        assert!(answer.text().contains(&format!("x-request-id: {id}\r\n")), "{}", answer.text());
    }
}

async fn broken(log: &Log<'_>, client: &mut Connection) {
    let breaks = target(log, "/breaks");
    let answer = client.send(request(Method::POST, &breaks, "an order")).await;
    assert_eq!(answer.status, 502);
    let line = log.line_of("POST", &breaks).await;
    let of_primary = match log.primary {
        None => line,
        Some(primary) => {
            tells(&line, 502, answer.body.len(), "answered", None);
            line_of(primary, log.format, &breaks).await
        }
    };
    tells(&of_primary, 502, answer.body.len(), "failed_upstream_failed", Some("maybe-executed"));

    let half = target(log, "/half");
    let answer = client.start(request(Method::GET, &half, "")).await.expect("a head");
    within("the end", LIMIT, answer.into_body().collect()).await.expect_err("half an answer");
    tells(&log.line_of("GET", &half).await, 200, 3, "failed_cut", None);
}

/// On a connection of its own, which breaks off.
async fn left(log: &Log<'_>) {
    let never = target(log, "/never");
    let mut client = Connection::open(&log.node.place(), log.spoken).await;
    let running = async || log.primary.unwrap_or(log.node).metrics_aside().await.value("running_requests");
    let before = running().await;
    let asked = Instant::now();
    tokio::select! {
        answer = client.start(request(Method::GET, &never, "")) => panic!("{answer:?}"),
        () = async {
            wait_for("the request to run", LIMIT, async || match running().await {
                now if now > before => Ok(()),
                now => Err(now),
            })
            .await;
        } => {}
    }
    drop(client);
    let line = log.line_of("GET", &never).await;
    tells(&line, Value::Null, 0, "left", None);
    assert_eq!(line["head_ms"], Value::Null, "{line}");
    assert!(line["total_ms"].as_f64().expect("a time") <= asked.elapsed().as_secs_f64() * 1e3 + ROUNDED, "{line}");

    let much = target(log, "/much");
    let mut client = Connection::open(&log.node.place(), log.spoken).await;
    let answer = client.start(request(Method::GET, &much, "")).await.expect("a head");
    let mut body = answer.into_body();
    let mut read = 0;
    while read < 300_000 {
        let frame = within("more", LIMIT, body.frame()).await.expect("more of it").expect("more of it");
        read += frame.into_data().map_or(0, |piece| piece.len());
    }
    drop((client, body));
    let line = log.line_of("GET", &much).await;
    assert_eq!((&line["status"], &line["outcome"], &line["verdict"]), (&json!(200), &json!("left"), &Value::Null), "{line}");
    let bytes = line["bytes"].as_u64().expect("a number") as usize;
    assert!((read..MUCH).contains(&bytes), "{read} were read: {line}");
}

/// A line is written when it has ended.
async fn tunnelled(log: &Log<'_>) {
    let switch = target(log, "/switch");
    let mut client = Raw::connect(log.node.place()).await;
    client.send(format!("GET {switch} HTTP/1.1\r\nHost: service\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nearly")).await;
    assert!(client.head().await.starts_with("HTTP/1.1 101 "));
    assert_eq!(client.take(10).await, b"0123456789");
    client.send("late").await;
    client.finish().await;
    assert_eq!(client.rest().await, b"");
    let line = line_of(log.node, log.format, &switch).await;
    tells(&line, 101, 10, "answered", None);
    assert_eq!((&line["received"], &line["version"]), (&json!(9), &json!("HTTP/1.1")), "{line}");
}

async fn local(log: &Log<'_>, client: &mut Connection) {
    let target = target(log, "/_ping");
    let answer = client.send(request(Method::GET, &target, "")).await;
    let line = line_of(log.node, log.format, &target).await;
    tells(&line, 200, answer.body.len(), "local", None);
    assert_eq!(line["from_node"], false, "{line}");
}

/// One that nothing else is asked for.
fn target(log: &Log<'_>, path: &str) -> String {
    format!("{path}?{:?}={}", log.spoken, log.node.address().port())
}

#[tokio::test]
async fn each_line_is_true() {
    for format in [Format::Json, Format::Text] {
        let app = app().await;
        let own = |manage: Manage| manage.with(["--access-log", format.name()]);
        let places = Places::with(&format!("http://{}", app.address), own).await;
        let primaries = [None, Some(&places.clear.primary), Some(&places.mutual.primary)];
        for (node, primary) in places.nodes().into_iter().zip(primaries) {
            for spoken in Spoken::BOTH {
                let log = Log { node, primary, format, spoken, epoch: node.info().await.epoch };
                let mut client = Connection::open(&node.place(), spoken).await;
                answered(&log, &mut client).await;
                local(&log, &mut client).await;
                broken(&log, &mut client).await;
                left(&log).await;
                if spoken == Spoken::Http1 {
                    tunnelled(&log).await;
                }
            }
        }
        for node in places.nodes() {
            assert_eq!(node.metrics().await.value("access_log_lost_lines_total"), 0.0);
        }
    }
}
