//! What an app says before its answer: its own 100, which nobody has asked for, and 103. The library passes neither on, and
//! neither passes for the answer or spoils the connection, in either version of HTTP on either side.

use bytes::Bytes;
use h2::server;
use http::{Response, StatusCode};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::frames::{DATA, END_HEADERS, END_STREAM, Frames, HEADERS, block, frame};
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw, header};
use crate::support::spoken::Spoken;

/// How many requests, one after the other, on one connection of a client.
const TIMES: u32 = 6;
const HINT: &str = "</style.css>; rel=preload";
const BODY: &str = "an order";

/// Says all it can in advance before it reads a request's body, and then gives its target back.
async fn hint_over_http1(mut raw: Raw) {
    while let Some(head) = raw.next_head().await {
        for interim in [
            "100 Continue\r\n".to_owned(),
            format!("103 Early Hints\r\nLink: {HINT}\r\nContent-Length: 7\r\n"),
            "103 Early Hints\r\n".to_owned(),
        ] {
            // In pieces, as it comes from an app that has its answer later.
            if raw.try_send(format!("HTTP/1.1 {interim}\r\n")).await.is_err() {
                return;
            }
            tokio::task::yield_now().await;
        }
        let target = head.split(' ').nth(1).expect("a target").to_owned();
        let read = raw.next_body(&head).await;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{target}", target.len());
        if read.is_none() || raw.try_send(answer).await.is_err() {
            return;
        }
    }
}

/// The same over HTTP/2.
async fn hint_over_http2(stream: TcpStream) -> Result<(), h2::Error> {
    let mut connection = server::handshake(stream).await?;
    let mut answering = JoinSet::new();
    while let Some(asked) = connection.accept().await {
        let (request, mut answer) = asked?;
        answering.spawn(async move {
            let interim = |status, link: Option<&str>| {
                let builder = Response::builder().status(status);
                link.into_iter().fold(builder, |builder, link| builder.header("link", link)).body(()).expect("an interim answer")
            };
            answer.send_informational(interim(StatusCode::CONTINUE, None))?;
            for link in [Some(HINT), None] {
                answer.send_informational(interim(StatusCode::EARLY_HINTS, link))?;
                tokio::task::yield_now().await;
            }
            let target = request.uri().path().to_owned();
            let mut body = request.into_body();
            while let Some(piece) = body.data().await {
                let length = piece?.len();
                body.flow_control().release_capacity(length)?;
            }
            let head = Response::builder().header("content-length", target.len()).body(()).expect("an answer");
            answer.send_response(head, false)?.send_data(Bytes::from(target), true)
        });
    }
    Ok(())
}

/// An app in front of which nodes can be, and its URL.
async fn app(spoken: Spoken) -> (String, Played) {
    let origin = Origin::bind().await;
    let (scheme, app) = match spoken {
        Spoken::Http1 => ("http", origin.play(hint_over_http1)),
        Spoken::Http2 => ("h2c", origin.play_bare(|stream| async { drop(hint_over_http2(stream).await) })),
    };
    (format!("{scheme}://{}", app.address), app)
}

/// A client that would take what is said in advance for the answer.
async fn over_http1(place: &Place) {
    let mut client = Raw::connect(place).await;
    for number in 0..TIMES {
        let (method, body) = if number % 2 == 0 { ("GET", "") } else { ("POST", BODY) };
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        client.send(format!("{method} /{number} HTTP/1.1\r\nHost: service\r\n{length}\r\n{body}")).await;
        let (head, answer) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{place}: {head}");
        assert_eq!((answer, header(&head, "link")), (format!("/{number}"), None), "{place}: {head}");
    }
}

async fn over_http2(place: &Place) {
    let mut client = Frames::begin(place).await;
    for number in 0..TIMES {
        let (stream, path) = (1 + 2 * number, format!("/{number}"));
        let (method, body) = if number % 2 == 0 { ("GET", "") } else { ("POST", BODY) };
        let head = block(&[(":method", method), (":scheme", "http"), (":authority", "service"), (":path", &path)]);
        let end = if body.is_empty() { Vec::new() } else { frame(DATA, END_STREAM, stream, body) };
        let flags = if body.is_empty() { END_HEADERS | END_STREAM } else { END_HEADERS };
        client.send([frame(HEADERS, flags, stream, head), end].concat()).await;
        let first = client.find(|seen| seen.stream == stream).await.expect("an answer");
        assert_eq!(first.status(), Some(200), "{place}: {first:?}");
        let answer = client.find(|seen| seen.stream == stream).await.expect("its body");
        assert_eq!((answer.kind, answer.payload), (DATA, path.into_bytes()), "{place}");
    }
}

#[tokio::test]
async fn nothing_that_an_app_says_in_advance_does_harm() {
    for spoken in Spoken::BOTH {
        let (url, _app) = app(spoken).await;
        let places = Places::with(&url, |manage| manage).await;
        for place in places.each() {
            over_http1(&place).await;
            over_http2(&place).await;
        }
    }
}
