//! What is told of streams in HTTP/2, at each of the three places: events that come one by one, clients that take a request back,
//! and connections that end while streams run on them.

use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use http::{Method, Response};
use rustix::process::Signal;
use tokio::time::Instant;

use crate::support::cluster::Cluster;
use crate::support::daemon::{Daemon, Manage};
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw, header};
use crate::support::store::Kind;
use crate::support::streams::{Http2Origin, Streams, piece, request};
use crate::support::{port, wait_for};

/// What is sent is there within this; a buffer that waits for a while would show.
const AT_ONCE: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_secs(20);
/// Of the elections that change their primary.
const TTL: Duration = Duration::from_secs(4);
/// What is answered at once.
const QUICK: &str = "/who";
/// How many events there are.
const EVENTS: usize = 12;
const EVENT_STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// B71: the head comes before the first event, and each event before the next is sent, without a pause.
#[tokio::test]
async fn events_come_one_by_one_to_a_client_in_http2() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Streams::connect(&place).await;
        let mut stream = client.get("/events").await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send(EVENT_STREAM).await;
        let mut body = stream.head().await.unwrap().into_body();
        let mut took = Vec::new();
        for number in 0..EVENTS {
            let (event, sent) = (event(number), Instant::now());
            app.send(format!("{:x}\r\n{event}\r\n", event.len())).await;
            assert_eq!(piece(&mut body).await.unwrap(), Some(Bytes::from(event)), "at {place}");
            took.push(sent.elapsed());
        }
        assert_at_once(took);
        app.send("0\r\n\r\n").await;
        assert_eq!(piece(&mut body).await.unwrap(), None);
    }
}

/// B71 with an app in HTTP/2, for clients of both versions.
#[tokio::test]
async fn events_of_an_app_in_http2_come_one_by_one() {
    let mut origin = Http2Origin::bind().await;
    let places = Places::with(&origin.url(), |manage| manage).await;
    for place in places.each() {
        let mut client = Streams::connect(&place).await;
        let mut stream = client.get("/events").await;
        let (_, mut answer) = origin.accept().await;
        let head = Response::builder().header("content-type", "text/event-stream").body(()).unwrap();
        let mut app = answer.send_response(head.clone(), false).unwrap();
        let mut body = stream.head().await.unwrap().into_body();
        let mut took = Vec::new();
        for number in 0..EVENTS {
            let (event, sent) = (Bytes::from(event(number)), Instant::now());
            app.send_data(event.clone(), false).unwrap();
            assert_eq!(piece(&mut body).await.unwrap(), Some(event), "at {place}");
            took.push(sent.elapsed());
        }
        assert_at_once(took);
        app.send_data(Bytes::new(), true).unwrap();
        assert_eq!(piece(&mut body).await.unwrap(), None);

        let mut client = Raw::connect(&place).await;
        client.send("GET /events HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let (_, mut answer) = origin.accept().await;
        let mut app = answer.send_response(head, false).unwrap();
        client.head().await;
        let mut took = Vec::new();
        for number in 0..EVENTS {
            let (event, sent) = (event(number), Instant::now());
            app.send_data(Bytes::from(event.clone()), false).unwrap();
            client.until(&event).await;
            took.push(sent.elapsed());
        }
        assert_at_once(took);
        app.send_data(Bytes::new(), true).unwrap();
        client.until("0\r\n\r\n").await;
    }
}

fn event(number: usize) -> String {
    format!("data: {number}\n\n")
}

/// A busy machine makes some slow; a buffer that waits for more, or for a while, makes all of them slow.
fn assert_at_once(mut took: Vec<Duration>) {
    took.sort();
    assert!(took[2] < AT_ONCE, "{took:?}");
}

/// B83: what the app says before its answer never passes for the answer, over HTTP/2 neither.
#[tokio::test]
async fn early_hints_leave_the_answer_to_a_client_in_http2_intact() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Streams::connect(&place).await;
        let mut stream = client.get("/early").await;
        let mut app = origin.accept().await;
        app.head().await;
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n";
        let unknown = "HTTP/1.1 142 Whatever\r\n\r\n";
        app.send(format!("{hint}{hint}{unknown}HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone")).await;
        let head = stream.head().await.unwrap();
        assert!(head.headers().get("link").is_none(), "{head:?}");
        let mut body = head.into_body();
        assert_eq!(piece(&mut body).await.unwrap().as_deref(), Some(&b"done"[..]), "at {place}");
    }
}

/// B83 with an app in HTTP/2, for clients of both versions.
#[tokio::test]
async fn early_hints_of_an_app_in_http2_leave_the_answer_intact() {
    let mut origin = Http2Origin::bind().await;
    let places = Places::with(&origin.url(), |manage| manage).await;
    let answer = async |origin: &mut Http2Origin| {
        let (_, mut answer) = origin.accept().await;
        for status in [103, 103, 142] {
            let hint = Response::builder().status(status).header("link", "</style.css>; rel=preload").body(()).expect("a head");
            answer.send_informational(hint).expect("the stream is open");
        }
        let mut body = answer.send_response(Response::new(()), false).expect("the stream is open");
        body.send_data(Bytes::from_static(b"done"), true).expect("the stream is open");
    };
    for place in places.each() {
        let mut client = Streams::connect(&place).await;
        let mut stream = client.get("/early").await;
        answer(&mut origin).await;
        assert_eq!(stream.whole().await.unwrap(), (200, "done".to_owned()), "at {place}");
        let mut client = Raw::connect(&place).await;
        client.send("GET /early HTTP/1.1\r\nHost: service\r\n\r\n").await;
        answer(&mut origin).await;
        let mut head = client.head().await;
        while head.starts_with("HTTP/1.1 103") || head.starts_with("HTTP/1.1 142") {
            head = client.head().await;
        }
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && header(&head, "link").is_none(), "{head}");
        client.until("done").await;
    }
}

/// B99: a stream that its client resets ends at the app, through both hops; it counts as left and as no failure, and the leader
/// goes on being one for everybody else.
#[tokio::test]
async fn a_request_that_is_taken_back_is_no_error() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for node in places.nodes() {
        let mut client = Streams::connect(&node.place()).await;
        for method in [Method::GET, Method::POST] {
            let (left, failed) = (left(node).await, failed(node).await);
            // A body that is never sent to its end.
            let stream = client.ask(request(method.clone(), "/slow"), method == Method::GET).await.unwrap();
            let mut app = origin.accept().await;
            app.head().await;
            stream.cancel();
            assert!(app.is_cut().await, "the app works for nobody");
            wait_for("the request to be counted as left", LIMIT, async || match self::left(node).await {
                now if now > left => Ok(()),
                now => Err(now),
            })
            .await;
            assert_eq!(self::failed(node).await, failed, "it is no failure");
        }
        let mut stream = client.get("/").await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
        assert_eq!(stream.whole().await.unwrap(), (200, "ok".to_owned()));
    }
}

/// B99, while there is no primary: whoever leaves is no failure, and its place is free.
#[tokio::test]
async fn a_client_that_leaves_while_it_is_held_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = port::free();
    let manage = Manage::new("a", folder.path()).replicated(&format!("etcd://{nowhere}"), Duration::from_secs(3));
    let node = manage.with(["--hold-timeout", "10m"]).start().await;
    let held = async || node.metrics().await.value("held_requests");
    let awaited = async |count: f64| {
        wait_for(&format!("{count} requests to be held"), LIMIT, async || match held().await {
            now if now == count => Ok(()),
            now => Err(now),
        })
        .await;
    };
    let mut client = Streams::connect(&node.place()).await;
    let stream = client.get("/").await;
    let mut other = Raw::connect(node.place()).await;
    other.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
    awaited(2.0).await;
    stream.cancel();
    awaited(1.0).await;
    drop(other);
    awaited(0.0).await;
    assert_eq!((left(&node).await, failed(&node).await), (2.0, 0.0));
}

/// How many requests their clients have left.
async fn left(node: &Daemon) -> f64 {
    node.metrics().await.value("requests_total{outcome=\"left\"}")
}

/// How many failed, in whichever way.
async fn failed(node: &Daemon) -> f64 {
    let metrics = node.metrics().await;
    let well = ["left", "answered", "local"].map(|end| metrics.value(&format!("requests_total{{outcome=\"{end}\"}}")));
    metrics.sum("requests_total") - well.iter().sum::<f64>()
}

/// B142: a node that stops tells clients in HTTP/2 to go. The stream that runs ends well, and so does what comes meanwhile: there,
/// or at another node, which the client tries when it is told that nothing of a request was done.
#[tokio::test]
async fn streams_finish_at_a_node_that_stops_and_new_ones_go_elsewhere() {
    for stops_primary in [true, false] {
        let mut cluster = Cluster::start_with(Kind::Sqlite, TTL, &["--drain-timeout", "60s"]).await;
        let primary = cluster.settled(3, LIMIT).await;
        let [replica, other] = cluster.others(primary);
        let stopping = if stops_primary { primary } else { replica };
        let mut client = Streams::connect(&cluster.places()[stopping]).await;
        let mut long = client.ask(request(Method::POST, "/duplex"), false).await.unwrap();
        let mut body = long.head().await.unwrap().into_body();
        cluster.nodes[stopping].signal(Signal::TERM);

        let mut asked = Vec::new();
        wait_for("the client to be told to go", LIMIT, async || {
            long.sending.send_data(Bytes::from_static(b"tick"), false).unwrap();
            assert_eq!(piece(&mut body).await.unwrap().as_deref(), Some(&b"tick"[..]));
            match client.ask(request(Method::GET, QUICK), true).await {
                Ok(stream) => {
                    asked.push(stream);
                    Err("it takes more")
                }
                Err(told) if told.is_go_away() && told.reason() == Some(Reason::NO_ERROR) => Ok(()),
                Err(error) => panic!("{error}"),
            }
        })
        .await;
        let mut elsewhere = Streams::connect(&cluster.places()[other]).await;
        let mut again = vec![elsewhere.get(QUICK).await];
        long.sending.send_data(Bytes::from_static(b"last"), true).unwrap();
        assert_eq!(piece(&mut body).await.unwrap().as_deref(), Some(&b"last"[..]));
        assert_eq!(piece(&mut body).await.unwrap(), None, "the long stream is cut short");
        for mut stream in asked {
            match stream.whole().await {
                Ok((status, text)) => assert_eq!(status, 200, "{text}"),
                Err(error) if error.is_go_away() || error.reason() == Some(Reason::REFUSED_STREAM) => {
                    again.push(elsewhere.get(QUICK).await)
                }
                Err(error) => panic!("{error}"),
            }
        }
        for mut stream in again {
            assert_eq!(stream.whole().await.unwrap().0, 200);
        }
        client.ended().await.unwrap();
        assert!(cluster.nodes[stopping].ended(LIMIT).await.success());
    }
}
