//! Requests that are made to be read in two ways (B93), and heads that are no heads. Whatever comes of them at the first node,
//! the app never sees a second request.

use std::sync::{Arc, Mutex};

use super::rig::*;

/// What would be the second request, where the first one is cut in the wrong place.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n";

/// An app that keeps every byte, and answers what is a whole request without a body, or with an empty or a chunked one.
async fn keeping() -> (TestApp, Arc<Mutex<Vec<u8>>>) {
    let kept = Arc::<Mutex<Vec<u8>>>::default();
    let there = Arc::clone(&kept);
    let app = TestApp::scripted(move |mut raw, _| {
        let kept = Arc::clone(&there);
        async move {
            while let Some(head) = raw.through(b"\r\n\r\n").await {
                kept.lock().unwrap().extend_from_slice(&head);
                if String::from_utf8_lossy(&head).contains("transfer-encoding") {
                    let Some(body) = raw.through(b"0\r\n\r\n").await else { break };
                    kept.lock().unwrap().extend(body);
                }
                raw.say(ok("hello")).await;
            }
            let rest = raw.rest().await;
            kept.lock().unwrap().extend(rest);
        }
    })
    .await;
    (app, kept)
}

/// Says it to a primary and to a replica of it, and hears what each makes of it until the connection ends.
async fn both(said: &[u8]) -> Vec<u16> {
    let (app, kept) = keeping().await;
    let (primary, replica) = chain(&app);
    let mut statuses = Vec::new();
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        client.say(said).await;
        let heard = String::from_utf8(client.rest().await).unwrap();
        let shown = String::from_utf8_lossy(&said[..said.len().min(200)]).into_owned();
        let status = heard.get(9..12).and_then(|status| status.parse().ok());
        statuses.push(status.unwrap_or_else(|| panic!("{shown:?} got {heard:?}")));
        assert_eq!(heard.matches("HTTP/1.1 ").count(), 1, "{shown:?} got {heard:?}");
        // The way to the app is as good as before.
        assert_eq!(node.client().await.get("/next").await.text(), "hello", "after {shown:?}");
    }
    let kept = String::from_utf8_lossy(&kept.lock().unwrap()).into_owned();
    assert!(!kept.contains("hidden"), "the app was given {kept:?}");
    statuses
}

#[tokio::test]
async fn a_body_that_can_be_measured_in_two_ways_hides_nothing() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5, 6",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 0x5",
        "Content-Length: 5 5",
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
    ] {
        let said = format!("POST /first HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n0\r\n\r\n{HIDDEN}");
        assert_eq!(both(said.as_bytes()).await, [400, 400], "{fields}");
    }
}

#[tokio::test]
async fn of_both_lengths_the_chunks_count_and_the_connection_ends() {
    for fields in ["Content-Length: 41\r\nTransfer-Encoding: chunked", "Transfer-Encoding: chunked\r\nContent-Length: 5"] {
        let said = format!("POST /first HTTP/1.1\r\nHost: test\r\n{fields}\r\n\r\n0\r\n\r\n{HIDDEN}");
        for status in both(said.as_bytes()).await {
            assert!(status == 200 || status == 400, "{fields}: {status}");
        }
    }
}

#[tokio::test]
async fn a_chunk_that_is_none_ends_the_request() {
    for chunk in [
        "0x5\r\nhello",
        "+5\r\nhello",
        "-1\r\n",
        "G\r\nx",
        "\r\nx",
        "FFFFFFFFFFFFFFFFF\r\nx",
        "5\r\nhello!!",
        "5\nhello\r\n",
        "5 5\r\nhello",
    ] {
        let said = format!("POST /first HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n{chunk}\r\n0\r\n\r\n{HIDDEN}");
        assert_eq!(both(said.as_bytes()).await, [400, 400], "{chunk:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_none_is_refused() {
    for head in [
        "GET / HTTP/1.1\r\nHost: test\r\nX-A: one\r\n two",
        "GET / HTTP/1.1\r\nHost: test\r\n X-A: one",
        "GET / HTTP/1.1\r\nHost : test",
        "GET / HTTP/1.1\r\nHost: test\r\nX A: one",
        "GET / HTTP/1.1\r\nHost: test\r\n: one",
        "GET / HTTP/1.1\r\nHost: test\r\nno colon",
        "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\0b",
        "GET / HTTP/1.1\r\nHost: test\r\nX-A: a\rb: c",
        "GET / HTTP/1.1\r\nHost: test\r\nX-\x7f: one",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b",
        "GET / HTTP/1.1\r\nHost: a/b",
        "GET / HTTP/1.1\r\nX-No: host",
        "GET  HTTP/1.1\r\nHost: test",
        "GET /a b HTTP/1.1\r\nHost: test",
        "GET /a\0b HTTP/1.1\r\nHost: test",
        "GET /<b> HTTP/1.1\r\nHost: test",
        "GET relative HTTP/1.1\r\nHost: test",
        "GET http:// HTTP/1.1\r\nHost: test",
        "GET http://a b/ HTTP/1.1\r\nHost: test",
        "CONNECT test:443 HTTP/1.1\r\nHost: test:443",
        "G(T / HTTP/1.1\r\nHost: test",
        "GET / HTTP/1.1 \r\nHost: test",
        "GET / HTTP/3.0\r\nHost: test",
        "GET / FTP/1.1\r\nHost: test",
        "nonsense",
    ] {
        let said = format!("{head}\r\nConnection: close\r\n\r\n");
        assert_eq!(both(said.as_bytes()).await, [400, 400], "{head:?}");
    }
}

#[tokio::test]
async fn a_head_that_is_too_much_is_refused_as_such() {
    let long = "x".repeat(80 * 1024);
    let many: String = (0..200).map(|number| format!("X-{number}: y\r\n")).collect();
    let few_too_many: String = (0..104).map(|number| format!("X-{number}: y\r\n")).collect();
    for fields in [format!("X-Long: {long}\r\n"), many, few_too_many] {
        let said = format!("GET / HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n");
        assert_eq!(both(said.as_bytes()).await, [431, 431], "{}", &fields[..20]);
    }
    for status in both(format!("GET /{long} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").as_bytes()).await {
        assert!(status == 414 || status == 431, "{status}");
    }
}

#[tokio::test]
async fn lines_that_end_carelessly_are_read_one_way_only() {
    for said in [
        "GET /first HTTP/1.1\nHost: test\n\n",
        "GET /first HTTP/1.1\r\nHost: test\r\nX: a\nConnection: close\r\n\r\n",
        "GET /_ping HTTP/1.1\r\nHost: test\r\n\n",
    ] {
        assert_eq!(both(said.as_bytes()).await, [400, 400], "{said:?}");
    }
    let said = "\r\nGET /first HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n";
    assert_eq!(both(said.as_bytes()).await, [200, 200], "{said:?}");
}

#[tokio::test]
async fn lines_of_bodies_end_as_they_like() {
    let (app, _) = keeping().await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        for piece in ["\n\na\n", "\r\n\n\r"] {
            client.say(format!("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{piece}\r\n0\r\n\r\n")).await;
            assert_eq!(client.head().await.unwrap().status(), 200);
            client.through(b"hello").await.unwrap();
            client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
            assert_eq!(client.head().await.unwrap().status(), 200);
            client.through(b"hello").await.unwrap();
        }
        client.say("GET / HTTP/1.1\r\nHost: test\nX: a\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 400);
    }
}

#[tokio::test]
async fn a_head_that_comes_in_two_parts_behind_another_is_read_as_one() {
    const SECOND: &str = "POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n\n\na\n\r\n0\r\n\r\n";
    let (app, _) = keeping().await;
    let node = TestNode::start(Some(&app));
    node.lead(1);
    let firsts = ["GET / HTTP/1.1\r\nHost: test\r\n\r\n", SECOND];
    for (first, cut) in firsts.into_iter().flat_map(|first| (0..SECOND.len()).map(move |cut| (first, cut))) {
        let mut client = node.client().await;
        let (begin, rest) = SECOND.split_at(cut);
        client.say(format!("{first}{begin}")).await;
        for part in [rest, ""] {
            assert_eq!(client.head().await.unwrap().status(), 200, "{rest:?}");
            client.through(b"hello").await.unwrap();
            client.say(part).await;
        }
    }
}
