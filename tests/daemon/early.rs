//! Answers that come before the end of their request's body, from apps over HTTP/1.1: the client gets them whole, and no byte of that
//! body ever passes for a request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::support::http::{Body, Method, request};
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw, header};
use crate::support::spoken::{Connection, Spoken};
use crate::support::within;

const LIMIT: Duration = Duration::from_secs(20);
/// What a body says that is to be taken for nothing but a body.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: service\r\n\r\n";

/// The request lines that an app has seen.
type Seen = Arc<Mutex<Vec<String>>>;

/// Answers when it has read a request's head; and then goes on with the next one behind that body, if it keeps its connections.
async fn answers_early(keeps: bool) -> (Played, Seen) {
    let seen = Seen::default();
    let seen_by_app = Arc::clone(&seen);
    let app = Origin::bind().await.play(move |mut raw: Raw| {
        let seen = Arc::clone(&seen_by_app);
        async move {
            while let Some(head) = raw.next_head().await {
                let line = head.lines().next().unwrap_or_default().to_owned();
                seen.lock().expect("no panic under this lock").push(line.clone());
                let (status, more) = if line.starts_with("GET") { ("200 OK", "") } else { ("413 Content Too Large", "") };
                let more = if keeps { more } else { "Connection: close\r\n" };
                let answer = format!("HTTP/1.1 {status}\r\n{more}Content-Length: {}\r\n\r\n{line}", line.len());
                if raw.try_send(answer).await.is_err() || !keeps || raw.next_body(&head).await.is_none() {
                    return;
                }
            }
        }
    });
    (app, seen)
}

/// Sends `rest` only when the answer is there; then asks for something else, on the same connection where it goes on.
async fn rest_comes_later(place: &Place, framing: &str, begin: &str, rest: &str) {
    let mut client = Raw::connect(place).await;
    client.send(format!("POST /early HTTP/1.1\r\nHost: service\r\n{framing}\r\n\r\n{begin}")).await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{place}: {head}");
    assert_eq!(body, "POST /early HTTP/1.1", "{place}");
    if header(&head, "connection") == Some("close") {
        // Whatever is sent now goes nowhere.
        client.try_send(rest).await.ok();
        assert!(client.is_cut().await, "{place}");
        client = Raw::connect(place).await;
    } else {
        client.send(rest).await;
    }
    client.send("GET /next HTTP/1.1\r\nHost: service\r\n\r\n").await;
    let (head, body) = client.answer().await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{place}: {head}");
    assert_eq!(body, "GET /next HTTP/1.1", "{place}");
}

/// Sends much, and reads beside it.
async fn rest_comes_anyway(place: &Place) {
    const LENGTH: usize = 3_000_000;
    let (mut reader, mut writer) = tokio::io::split(within("connecting", LIMIT, place.connect()).await.expect("connect"));
    let sending = async {
        let head = format!("POST /early HTTP/1.1\r\nHost: service\r\nContent-Length: {LENGTH}\r\n\r\n");
        // Who hears no more is not told.
        writer.write_all(head.as_bytes()).await.ok();
        writer.write_all(&HIDDEN.as_bytes().repeat(LENGTH / HIDDEN.len())).await.ok();
        writer.flush().await.ok();
        std::future::pending::<()>().await;
    };
    let reading = async {
        let mut heard = Vec::new();
        while !heard.ends_with(b"POST /early HTTP/1.1") {
            let read = reader.read_buf(&mut heard).await;
            assert!(matches!(read, Ok(1..)), "{read:?} after {:?}", String::from_utf8_lossy(&heard));
        }
        assert!(heard.starts_with(b"HTTP/1.1 413 "), "{:?}", String::from_utf8_lossy(&heard));
    };
    tokio::select! {
        () = within("the answer", LIMIT, reading) => {}
        () = sending => {}
    }
}

/// Over HTTP/2 the stream has its answer, and the connection goes on.
async fn over_http2(place: &Place, size: usize) {
    let mut client = Connection::open(place, Spoken::Http2).await;
    let (sender, mut pieces) = mpsc::channel::<std::io::Result<Frame<Bytes>>>(1);
    let body: Body = StreamBody::new(futures_util::stream::poll_fn(move |context| pieces.poll_recv(context))).boxed();
    let piece = Bytes::from(HIDDEN.as_bytes().repeat(size / HIDDEN.len()));
    let answer = async {
        let answer = client.start(request(Method::POST, "/early", "").map(|_| body)).await.expect("an answer");
        assert_eq!(answer.status(), 413, "{place}");
        within("its body", LIMIT, answer.into_body().collect()).await.expect("all of it").to_bytes()
    };
    // It may have been reset when the rest comes.
    let (answer, sent) = tokio::join!(answer, sender.send(Ok(Frame::data(piece.clone()))));
    sent.expect("the first of it is taken");
    assert_eq!(answer, "POST /early HTTP/1.1", "{place}");
    sender.send(Ok(Frame::data(piece))).await.ok();
    drop(sender);
    assert_eq!(client.send(request(Method::GET, "/next", "")).await.text(), "GET /next HTTP/1.1", "{place}");
}

#[tokio::test]
async fn an_answer_before_the_end_of_the_body_is_whole_and_the_body_hides_nothing() {
    for keeps in [true, false] {
        let (app, seen) = answers_early(keeps).await;
        let places = Places::of(app.address).await;
        for place in places.each() {
            for begin in ["", &HIDDEN[..10], HIDDEN] {
                let (whole, rest) = (HIDDEN.repeat(3), &HIDDEN.repeat(3)[begin.len()..]);
                rest_comes_later(&place, &format!("Content-Length: {}", whole.len()), begin, rest).await;
                let chunk = |text: &str| if text.is_empty() { String::new() } else { format!("{:x}\r\n{text}\r\n", text.len()) };
                rest_comes_later(&place, "Transfer-Encoding: chunked", &chunk(begin), &(chunk(rest) + "0\r\n\r\n")).await;
            }
            rest_comes_anyway(&place).await;
            for size in [100, 1_000_000] {
                over_http2(&place, size).await;
            }
        }
        let seen = seen.lock().expect("no panic under this lock");
        let odd: Vec<_> = seen.iter().filter(|line| !["POST /early HTTP/1.1", "GET /next HTTP/1.1"].contains(&line.as_str())).collect();
        assert!(odd.is_empty(), "an app that keeps its connections ({keeps}) has seen {odd:?}");
    }
}
