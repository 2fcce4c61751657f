//! Bodies in both directions, through one hop and through two: nothing is kept back, and nothing is lost.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use crate::support::app::{App, checksum};
use crate::support::http::{Body, Client, Method, get, request, with};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw, header};
use crate::support::within;

/// What is sent is there within this; a buffer that waits for a while would show.
const AT_ONCE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(20);

/// B71: server-sent events come through a replica one by one, and the head before the first of them.
#[tokio::test]
async fn events_come_one_by_one() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send("GET /events HTTP/1.1\r\nHost: service\r\nAccept: text/event-stream\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        let head = client.head().await;
        assert_eq!(header(&head, "content-type"), Some("text/event-stream"), "{head}");
        for number in 0..7 {
            let event = format!("data: {number}\n\n");
            app.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            // The next one is not sent before this has come through.
            client.until(&event).await;
        }
        app.send("0\r\n\r\n").await;
        client.until("0\r\n\r\n").await;
    }
}

/// B87: a head alone is passed on at once, and so is each byte after it, whatever the content type.
#[tokio::test]
async fn a_head_and_single_bytes_are_passed_on_at_once() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        let mut took = Vec::new();
        let bytes = ["1\r\nx\r\n"; 12];
        for piece in ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"].into_iter().chain(bytes).chain(["0\r\n\r\n"]) {
            let sent = Instant::now();
            app.send(piece).await;
            // Nothing more is sent before this has come through.
            client.until(if piece.len() > 10 { "\r\n\r\n" } else { piece }).await;
            took.push(sent.elapsed());
        }
        // A busy machine makes some slow; a buffer that waits for more, or for a while, makes all of them slow.
        took.sort();
        assert!(took[2] < AT_ONCE, "{took:?}");
    }
}

/// S06: the app answers while the body is still coming; neither side waits for the other's end.
#[tokio::test]
async fn both_directions_flow_at_the_same_time() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let (sender, body) = streaming();
        let client = Client::new(&place);
        let response = client.start(request(Method::POST, "/duplex", "").map(|_| body)).await.unwrap();
        let mut answer = response.into_body();
        for number in 0..20 {
            let piece = Bytes::from(format!("piece {number}"));
            sender.send(Ok(Frame::data(piece.clone()))).await.unwrap();
            let echoed = within("the echo", LIMIT, answer.frame()).await.unwrap().unwrap();
            assert_eq!(echoed.into_data().unwrap(), piece);
        }
        drop(sender);
        assert!(within("the end", LIMIT, answer.frame()).await.is_none());
    }
}

/// Large bodies arrive whole in both directions: much more than is kept for another try, with and without a length.
#[tokio::test]
async fn large_bodies_arrive_whole() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let client = Client::new(&place);
        for size in [0, 1, 65_535, 65_536, 65_537, 1_000_000, 8_000_000] {
            let upload = Bytes::from((0..size).map(|byte| (byte % 251) as u8).collect::<Vec<_>>());
            let known = client.send(request(Method::PUT, "/echo", upload.clone())).await.unwrap();
            assert_eq!((known.json()["length"].as_u64(), known.json()["sum"].as_u64()), (Some(size), Some(checksum(&upload))));
            let chunked = client.send(request(Method::PUT, "/echo", "").map(|_| in_pieces(&upload))).await.unwrap();
            assert_eq!(chunked.json()["sum"], known.json()["sum"], "{size} bytes in chunks");
        }
        let download = client.send(request(Method::GET, "/big?mb=16", "")).await.unwrap();
        assert_eq!(download.body.len(), 16 * 1024 * 1024);
    }
}

/// A slow reader slows the app down instead of filling the nodes.
#[tokio::test]
async fn a_slow_reader_fills_no_node() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    let pairs = [&places.clear, &places.mutual];
    let before = pairs.map(resident);
    let clients = pairs.map(|pair| Client::new(pair.replica.place()));
    let readers = clients.iter().flat_map(|client| (0..4).map(|_| client.start(request(Method::GET, "/big?mb=100", ""))));
    let responses = futures_util::future::join_all(readers).await;
    // Long enough for hundreds of megabytes to come, had anybody room for them.
    sleep(Duration::from_secs(2)).await;
    for (pair, before) in pairs.into_iter().zip(before) {
        let grown = resident(pair).saturating_sub(before);
        assert!(grown < 24 * 1024, "the nodes grew by {grown} KiB for four bodies that nobody reads, at {}", pair.replica.place());
    }
    assert!(responses.iter().all(Result::is_ok));
}

/// Trailers of an answer reach a client that asked for them, and those of a request reach the app.
#[tokio::test]
async fn trailers_are_passed_on_in_both_directions() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let client = Client::new(&place);
        let answer = client.send(with(request(Method::GET, "/trail", ""), "te", "trailers")).await.unwrap();
        assert_eq!(answer.text(), "body");
        assert_eq!(answer.trailers.expect("trailers")["x-checksum"], "abc");

        let (sender, body) = streaming();
        let upload = with(request(Method::POST, "/echo", "").map(|_| body), "trailer", "x-sum");
        let (answer, ()) = tokio::join!(client.send(upload), async {
            sender.send(Ok(Frame::data("body".into()))).await.unwrap();
            let trailers = [("x-sum".parse().unwrap(), "abc".parse().unwrap())].into_iter().collect();
            sender.send(Ok(Frame::trailers(trailers))).await.unwrap();
            drop(sender);
        });
        let seen = answer.unwrap().json();
        assert_eq!((seen["body"].as_str(), seen["trailers"][0][1].as_str()), (Some("body"), Some("abc")), "{seen}");
    }
}

/// B95: the answer to HEAD keeps the length that the app gave, has no body, and the connection goes on.
#[tokio::test]
async fn answers_without_a_body_keep_their_framing() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    let cases = [
        ("HEAD", "200 OK", "Content-Length: 1234\r\n", Some("1234")),
        ("HEAD", "200 OK", "Transfer-Encoding: chunked\r\n", None),
        ("GET", "204 No Content", "", None),
        ("GET", "304 Not Modified", "ETag: \"x\"\r\n", None),
    ];
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        for (method, status, headers, length) in cases {
            client.send(format!("{method} / HTTP/1.1\r\nHost: service\r\n\r\n")).await;
            // Each worker has connections of its own to the app, so that the next request may come over another one.
            let mut app = origin.accept().await;
            assert!(app.head().await.starts_with(method));
            app.send(format!("HTTP/1.1 {status}\r\n{headers}\r\n")).await;
            let head = client.head().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{head}");
            assert_eq!(header(&head, "content-length"), length, "{method} {status}: {head}");
        }
        client.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlast").await;
        assert_eq!(client.answer().await.1, "last");
    }
}

/// B83: what the app says before its answer never passes for the answer, whether it is passed on or not.
#[tokio::test]
async fn early_hints_leave_the_answer_intact() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
        let unknown = "HTTP/1.1 142 Whatever\r\n\r\n";
        app.send(format!("{hint}{hint}{unknown}HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")).await;
        let mut head = client.head().await;
        while head.starts_with("HTTP/1.1 103") || head.starts_with("HTTP/1.1 142") {
            head = client.head().await;
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert_eq!(header(&head, "link"), None, "{head}");
        assert_eq!(client.take(4).await, b"done");
    }
}

/// B88: an app that closes its connections without a word costs no client an error.
#[tokio::test]
async fn an_app_that_closes_idle_connections_costs_nothing() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    app.close_unasked();
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let client = Client::new(&place);
        for number in 0..150 {
            let answer = client.send(request(Method::GET, &format!("/echo/{number}"), "")).await.unwrap();
            assert_eq!(answer.status, 200, "request {number}: {}", answer.text());
            // The app closes after two milliseconds: some requests meet an open connection, some a closing one.
            sleep(Duration::from_millis(number % 5)).await;
        }
    }
}

/// A client that leaves takes its request with it: the app's connection is closed, and the books call it `left`.
#[tokio::test]
async fn a_client_that_leaves_is_no_error() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for node in places.nodes() {
        let before = node.metrics().await.value("requests_total{outcome=\"left\"}");
        let mut client = Raw::connect(node.place()).await;
        client.send("GET /slow?ms=60000 HTTP/1.1\r\nHost: service\r\n\r\n").await;
        crate::support::wait_for("the request to run", LIMIT, async || match node.metrics().await.value("running_requests") {
            running if running >= 1.0 => Ok(()),
            running => Err(running),
        })
        .await;
        drop(client);
        crate::support::wait_for("the request to be counted as left", LIMIT, async || {
            let metrics = node.metrics().await;
            if metrics.value("requests_total{outcome=\"left\"}") > before { Ok(()) } else { Err(metrics) }
        })
        .await;
        assert_eq!(get(node.place(), "/who").await.text(), "a");
    }
}

fn streaming() -> (mpsc::Sender<std::io::Result<Frame<Bytes>>>, Body) {
    let (sender, mut frames) = mpsc::channel(1);
    let stream = futures_util::stream::poll_fn(move |context| frames.poll_recv(context));
    (sender, StreamBody::new(stream).boxed())
}

fn in_pieces(whole: &Bytes) -> Body {
    let pieces = (0..whole.len()).step_by(10_000).map(|at| whole.slice(at..(at + 10_000).min(whole.len())));
    let frames = pieces.map(|piece| Ok(Frame::data(piece))).collect::<Vec<_>>();
    StreamBody::new(futures_util::stream::iter(frames)).boxed()
}

/// The resident memory of both nodes, in KiB.
fn resident(pair: &Pair) -> u64 {
    [&pair.primary, &pair.replica].into_iter().map(|node| node.resident()).sum()
}
