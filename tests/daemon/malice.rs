//! Requests that are made to be read in two ways (B93), and heads that are none, at each of the three places, in one piece and in many:
//! the answer is a refusal, the connection ends, and the app never sees a second request.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::App;
use crate::support::frames::{PREFACE, settings};
use crate::support::http::get;
use crate::support::ledger::Ledger;
use crate::support::metrics::Metrics;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw, header};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(20);
/// What would be the second request, where the first one is cut in the wrong place.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: service\r\n\r\n";

/// Bodies whose end can be looked for in two places, none of them refused for anything else.
const LENGTHS: [&str; 24] = [
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5\r\nContent-Length: ",
    "Content-Length: 5, 6",
    "Content-Length: +5",
    "Content-Length: -1",
    "Content-Length: 0x5",
    "Content-Length: 5 5",
    "Content-Length: 5;",
    "Content-Length: ",
    "Content-Length: \u{665}",
    "Content-Length: 18446744073709551621",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: chunked, identity",
    "Transfer-Encoding: identity, chunked",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
    "Transfer-Encoding : chunked",
    "Content-Length : 5",
    "Transfer-Encoding:\r\n chunked",
    "Content-Length: 5\r\nTransfer-Encoding: identity",
];

/// Chunks that are none.
const CHUNKS: [&str; 12] = [
    "0x5\r\nhello",
    "+5\r\nhello",
    "-1\r\n",
    "G\r\nx",
    "\r\nx",
    " \r\nx",
    "FFFFFFFFFFFFFFFFF\r\nx",
    "10000000000000005\r\nhello",
    "5\r\nhello!!",
    "5\nhello\r\n",
    "5 5\r\nhello",
    "5\r\nhello\n\n",
];

/// Heads that are none.
const HEADS: [&str; 32] = [
    "GET / HTTP/1.1\r\nHost: service\r\nX-A: one\r\n two",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A: one\r\n\ttwo",
    "GET / HTTP/1.1\r\nHost: service\r\n X-A: one",
    "GET / HTTP/1.1\r\n Host: service",
    "GET / HTTP/1.1\r\nHost : service",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A : one",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A\t: one",
    "GET / HTTP/1.1\r\nHost: service\r\nX A: one",
    "GET / HTTP/1.1\r\nHost: service\r\n: one",
    "GET / HTTP/1.1\r\nHost: service\r\nno colon",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A: a\0b",
    "GET / HTTP/1.1\r\nHost: service\r\nX-\0A: b",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A: a\rb: c",
    "GET / HTTP/1.1\r\nHost: service\r\nX-A: a\r",
    "GET / HTTP/1.1\r\nHost: service\r\nX-\x7f: one",
    "GET / HTTP/1.1\r\nHost: a\r\nHost: b",
    "GET / HTTP/1.1\r\nHost: a/b",
    "GET / HTTP/1.1\r\nX-No: host",
    "GET  HTTP/1.1\r\nHost: service",
    "GET /a b HTTP/1.1\r\nHost: service",
    "GET /a\0b HTTP/1.1\r\nHost: service",
    "GET /<b> HTTP/1.1\r\nHost: service",
    "GET relative HTTP/1.1\r\nHost: service",
    "GET http:// HTTP/1.1\r\nHost: service",
    "GET http://a b/ HTTP/1.1\r\nHost: service",
    "CONNECT service:443 HTTP/1.1\r\nHost: service:443",
    "G(T / HTTP/1.1\r\nHost: service",
    "GET / HTTP/1.1 \r\nHost: service",
    "GET / HTTP/3.0\r\nHost: service",
    "GET / FTP/1.1\r\nHost: service",
    "GET / HTTP/1.1\rHost: service",
    "nonsense",
];

/// An app that answers what is a whole request; and the first lines of all that it has seen.
async fn app() -> (Played, Arc<Mutex<Vec<String>>>) {
    let seen = Arc::<Mutex<Vec<String>>>::default();
    let seen_by_app = Arc::clone(&seen);
    let app = Origin::bind().await.play(move |mut raw: Raw| {
        let seen = Arc::clone(&seen_by_app);
        async move {
            while let Some(head) = raw.next_head().await {
                seen.lock().expect("no panic under this lock").push(head.lines().next().unwrap_or_default().to_owned());
                if raw.next_body(&head).await.is_none() || raw.try_send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello").await.is_err()
                {
                    return;
                }
            }
        }
    });
    (app, seen)
}

/// Says it in pieces of `size` bytes. Gives the status of the one answer, and all of it; the connection has ended behind that.
async fn told(place: &Place, said: &[u8], size: usize) -> (u16, String) {
    let mut client = Raw::connect(place).await;
    for piece in said.chunks(size) {
        // Whoever has heard enough hears no more.
        if client.try_send(piece).await.is_err() {
            break;
        }
    }
    let heard = String::from_utf8_lossy(&client.rest().await).into_owned();
    let shown = String::from_utf8_lossy(&said[..said.len().min(200)]).into_owned();
    assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{shown:?} at {place} got {heard:?}");
    let status = heard.get(9..12).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("{shown:?} at {place} got {heard:?}")), heard)
}

#[tokio::test]
async fn what_can_be_read_in_two_ways_or_in_none_is_refused_and_hides_nothing() {
    let post = |fields: &str, rest: &str| format!("POST /first HTTP/1.1\r\nHost: service\r\n{fields}\r\n\r\n{rest}\r\n0\r\n\r\n{HIDDEN}");
    let lengths = LENGTHS.map(|fields| post(fields, "0\r\n"));
    let chunks = CHUNKS.map(|chunk| post("Transfer-Encoding: chunked", chunk));
    let heads = HEADS.map(|head| format!("{head}\r\n\r\n{HIDDEN}"));
    let (app, seen) = app().await;
    let places = Places::of(app.address).await;
    for place in places.each() {
        for said in lengths.iter().chain(&chunks).chain(&heads) {
            for size in [said.len(), 7] {
                let (status, heard) = told(&place, said.as_bytes(), size).await;
                assert_eq!(status, 400, "{said:?} at {place}: {heard}");
            }
        }
        // The way to the app is as good as before.
        for _ in 0..5 {
            assert_eq!(get(&place, "/next").await.text(), "hello");
        }
    }
    let mut seen = seen.lock().expect("no panic under this lock").clone();
    seen.sort();
    seen.dedup();
    assert_eq!(seen, ["GET /next HTTP/1.1", "POST /first HTTP/1.1"]);
}

/// RFC 9112 §6.1: read by the chunks alone, or refused.
#[tokio::test]
async fn a_request_with_both_lengths_is_the_last_on_its_connection() {
    let (app, seen) = app().await;
    let places = Places::of(app.address).await;
    for place in places.each() {
        for fields in ["Content-Length: 43\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"] {
            let said = format!("POST /first HTTP/1.1\r\nHost: service\r\n{fields}\r\n\r\n0\r\n\r\n{HIDDEN}");
            let (status, heard) = told(&place, said.as_bytes(), said.len()).await;
            assert!([200, 400].contains(&status), "{fields}: {heard}");
        }
    }
    assert!(seen.lock().expect("no panic under this lock").iter().all(|line| line == "POST /first HTTP/1.1"));
}

#[tokio::test]
async fn a_head_that_is_too_much_is_refused_as_such() {
    let long = "x".repeat(80 * 1024);
    let many: String = (0..104).map(|number| format!("X-{number}: y\r\n")).collect();
    let heads = [format!("GET / HTTP/1.1\r\nHost: service\r\nX-Long: {long}\r\n"), format!("GET / HTTP/1.1\r\nHost: service\r\n{many}")];
    let (app, seen) = app().await;
    let places = Places::of(app.address).await;
    for place in places.each() {
        for head in &heads {
            let (status, heard) = told(&place, format!("{head}\r\n{HIDDEN}").as_bytes(), 4_096).await;
            assert_eq!(status, 431, "{:?} at {place}: {heard}", &head[..40]);
        }
        let (status, heard) = told(&place, format!("GET /{long} HTTP/1.1\r\nHost: service\r\n\r\n{HIDDEN}").as_bytes(), 4_096).await;
        assert!([414, 431].contains(&status), "at {place}: {heard}");
    }
    assert!(seen.lock().expect("no panic under this lock").is_empty());
}

/// Whatever begins like HTTP, in either version, at a node that asks for certificates.
#[tokio::test]
async fn plain_http_on_a_port_with_mutual_tls_is_told_so() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    let preface = [PREFACE, &settings(&[])].concat();
    let said: [&[u8]; 4] =
        [b"GET /who HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", &preface, b"\r\n"];
    for node in [&places.mutual.primary, &places.mutual.replica] {
        let before = node.metrics().await;
        for said in said {
            let mut client = Raw::connect(node.address()).await;
            client.send(said).await;
            let (head, body) = client.answer().await;
            assert!(head.starts_with("HTTP/1.1 400 ") && header(&head, "connection") == Some("close"), "{head}");
            let told: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"));
            assert!(told["message"].as_str().is_some_and(|message| message.contains("this port speaks TLS: use https://")), "{told}");
            assert_eq!((&told["reason"], &told["verdict"]), (&"bad-request".into(), &"not-sent".into()));
            assert_eq!(client.rest().await, b"", "the end comes behind it, and no reset");
        }
        let after = node.metrics().await;
        let plain = "tls_handshakes_total{result=\"plain\"}";
        assert_eq!(after.value(plain) - before.value(plain), said.len() as f64);
        // Those who asked for these numbers are all.
        assert_eq!(after.value("requests_accepted_total") - before.value("requests_accepted_total"), 1.0);
    }
    assert_eq!(app.connections(), 0);
}

/// How a client of TLS begins, and waits to be answered (RFC 8446 §4.1.2).
#[tokio::test]
async fn tls_on_a_plain_port_is_refused_and_no_request() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    let hello = [&[22, 3, 1, 0, 0xf4, 1, 0, 0, 0xf0, 3, 3][..], &[7; 32], &[0; 205]].concat();
    for node in [&places.clear.primary, &places.clear.replica] {
        let before = node.metrics().await;
        for _ in 0..5 {
            assert!(places.world.secure().connect(node.address()).await.is_err());
            let mut client = TcpStream::connect(node.address()).await.expect("connect");
            client.write_all(&hello).await.expect("send");
            let mut heard = Vec::new();
            within("the end", LIMIT, client.read_to_end(&mut heard)).await.expect("an end and no reset");
            // In plain HTTP, which is all that is spoken there.
            assert!(heard.starts_with(b"HTTP/1.1 400 "), "{:?}", String::from_utf8_lossy(&heard));
        }
        let after = wait_for("their connections to be let go", LIMIT, async || {
            let after = node.metrics().await;
            // The one that asks is one of them, and so are those between the nodes.
            if after.value("connections") <= 4.0 && after.unaccounted() == 0.0 { Ok(after) } else { Err(after.value("connections")) }
        })
        .await;
        let others = |metrics: &Metrics| metrics.sum("requests_total") - metrics.value("requests_total{outcome=\"local\"}");
        assert_eq!(others(&after), others(&before), "none was a request");
        assert_eq!(get(node.place(), "/who").await.text(), "a");
    }
}
