//! Requests and answers pass through one hop or two as if there were none.

use http_body_util::{BodyExt, Full};

use super::http2::{Http2Client, read};
use super::rig::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn any_node_answers_through_the_primary() {
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        let answer = client.get("/path?query").await;
        assert_eq!((answer.status(), answer.text()), (200, "hello"));
        assert_eq!(answer.field("bellwether-epoch"), Some("1"));
        assert_eq!(answer.field("bellwether-primary"), Some(primary.node.address.as_str()));
        assert_eq!(app.last().line, "GET /path?query HTTP/1.1");
        assert_eq!(app.last().field("bellwether-epoch"), Some("1"));
        assert_eq!(app.last().field("bellwether-hop"), None);

        let answer = client.post("/", b"some body").await;
        assert_eq!((answer.status(), answer.text()), (200, "hello"));
        assert_eq!(app.last().text(), "some body");
        node.until("both are counted", |totals| outcome(totals, "answered") >= 2 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn the_target_reaches_the_app_byte_for_byte() {
    // B74.
    let app = TestApp::hello().await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    for target in [
        "/echo?q=select%20*&empty=&a=1&a=2",
        "/echo?",
        "/a%2Fb/../c",
        "//double",
        "/%E2%9C%93",
        "/;v=1",
        "/?a?b",
        "/users/info",
        "/information",
        "/v1/info",
        "/debug",
        "/containers/_ping",
    ] {
        client.get(target).await;
        assert_eq!(app.last().target(), target);
    }
    client.say("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n").await;
    client.answer().await;
    assert_eq!(app.last().line, "OPTIONS * HTTP/1.1");
    client.say("GET http://other:81/x?y HTTP/1.1\r\nHost: test\r\n\r\n").await;
    client.answer().await;
    assert_eq!((app.last().target(), app.last().field("host").unwrap().to_owned()), ("/x?y", "other:81".to_owned()));
}

#[tokio::test]
async fn every_method_passes_with_and_without_a_body() {
    // B75.
    let app = TestApp::answering(|request| {
        let answer = ok(&format!("{}", request.body.len()));
        if request.line.starts_with("HEAD") { answer[..answer.len() - 1].to_vec() } else { answer }
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO"] {
        for (framing, body, sent) in
            [("", "", 0), ("Content-Length: 3\r\n", "abc", 3), ("Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n", 3)]
        {
            client.say(format!("{method} /x HTTP/1.1\r\nHost: test\r\n{framing}\r\n{body}")).await;
            let answer = client.answer_to(method).await;
            assert_eq!(answer.status(), 200, "{method} {framing}");
            assert_eq!(app.last().line, format!("{method} /x HTTP/1.1"));
            assert_eq!(app.last().body.len(), sent, "{method} {framing}");
        }
    }
    client.say("CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (400, Some("bad-request")));
}

#[tokio::test]
async fn fields_keep_their_order_and_their_duplicates_and_have_names_in_lower_case() {
    let app = TestApp::answering(|_| {
        b"HTTP/1.1 200 Fine\r\nX-One: 1\r\nsEt-CoOkIe: a\r\nX-Two: 2\r\nsEt-CoOkIe: b\r\nContent-Length: 0\r\n\r\n".to_vec()
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\nX-FIRST: 1\r\nAccept: a\r\nx-Second: 2\r\nConnection: keep-alive\r\nAccept: b\r\nX-lAst: 3\r\n\r\n").await;
    let answer = client.answer().await;
    let names = |fields: &[(String, String)]| fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&app.last().fields)[..6], ["host", "x-first", "accept", "accept", "x-second", "x-last"]);
    assert_eq!(answer.line, "HTTP/1.1 200 Fine");
    assert_eq!(names(&answer.fields)[..5], ["x-one", "set-cookie", "set-cookie", "x-two", "content-length"]);
    assert_eq!(answer.field("date"), None, "the app sent none");
}

#[tokio::test]
async fn fields_for_one_hop_stay_on_it_and_the_inner_connections_are_kept() {
    // B81, B138.
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for _ in 0..20 {
        let mut client = replica.client().await;
        client.say("GET / HTTP/1.1\r\nHost: test\r\nConnection: close, X-Secret, X-Forwarded-For\r\nX-Secret: 1\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!(answer.text(), "hello");
        assert!(client.is_closed().await, "the client asked for it");
        assert_eq!(app.last().field("x-secret"), None);
        assert_eq!(app.last().field("connection"), None);
        assert_eq!(app.last().field("x-forwarded-for"), Some("127.0.0.1"));
        assert_eq!(app.last().field("x-forwarded-host"), Some("test"));
        let mut old = replica.client().await;
        old.say("GET / HTTP/1.0\r\nHost: test\r\n\r\n").await;
        assert_eq!(old.answer().await.text(), "hello");
        assert!(old.is_closed().await, "HTTP/1.0 closes");
    }
    assert_eq!(app.seen.connections(), 1, "one inner connection serves them all");
    assert_eq!(primary.totals().connections, 2, "one for a request at a time, and the shared one");
}

#[tokio::test]
async fn a_redirect_is_passed_on_untouched() {
    // B70.
    let app =
        TestApp::answering(|_| b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:4101/ui/\r\nContent-Length: 0\r\n\r\n".to_vec()).await;
    let (_primary, replica) = chain(&app);
    let answer = replica.client().await.get("/r").await;
    assert_eq!((answer.status(), answer.field("location")), (302, Some("http://127.0.0.1:4101/ui/")));
    assert_eq!(app.seen.requests().len(), 1);
}

#[tokio::test]
async fn answers_without_a_body_are_framed_as_the_app_framed_them() {
    // B95.
    let app = TestApp::answering(|request| {
        let head = match request.target() {
            "/head-length" => "200 OK\r\nContent-Length: 1234",
            "/head-chunked" => "200 OK\r\nTransfer-Encoding: chunked",
            "/head-neither" => "200 OK",
            "/204" => "204 No Content",
            "/304" => "304 Not Modified\r\nContent-Length: 99\r\nETag: \"x\"",
            "/205" => "205 Reset Content\r\nContent-Length: 0",
            _ => return ok("hello"),
        };
        format!("HTTP/1.1 {head}\r\n\r\n").into_bytes()
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    for (method, target, length) in [
        ("HEAD", "/head-length", Some("1234")),
        ("HEAD", "/head-chunked", None),
        ("HEAD", "/head-neither", None),
        ("GET", "/204", None),
        ("GET", "/304", Some("99")),
        ("GET", "/205", Some("0")),
    ] {
        client.say(format!("{method} {target} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        let answer = client.answer_to(method).await;
        assert_eq!(answer.field("content-length"), length, "{target}: {answer:?}");
        assert_eq!(client.get("/next").await.text(), "hello", "after {target}");
    }
}

#[tokio::test]
async fn heads_and_single_bytes_are_passed_on_at_once_and_both_ways() {
    // B71, B87, S06: the app answers while the request is still coming, and each side waits for the other's last byte.
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        raw.say("HTTP/1.1 200 OK\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n").await;
        for byte in *b"abc" {
            raw.through(b"next").await;
            raw.say([b"1\r\n".as_slice(), &[byte], b"\r\n"].concat()).await;
        }
        raw.say("0\r\n\r\n").await;
    })
    .await;
    let (_primary, replica) = chain(&app);
    for framing in ["Content-Length: 12", "Transfer-Encoding: chunked"] {
        let mut client = replica.client().await;
        client.say(format!("POST / HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n")).await;
        assert_eq!(client.head().await.unwrap().status(), 200);
        let next = if framing.starts_with('C') { "next" } else { "4\r\nnext\r\n" };
        for chunk in ["1\r\na\r\n", "1\r\nb\r\n", "1\r\nc\r\n"] {
            client.say(next).await;
            assert_eq!(client.exactly(chunk.len()).await, chunk.as_bytes());
        }
        assert_eq!(client.exactly(5).await, b"0\r\n\r\n");
    }
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    // B91.
    let app = TestApp::scripted(|mut raw, seen| async move {
        let mut request = raw.head().await.unwrap();
        request.body = raw.through(b"0\r\nx-sum: 7\r\n\r\n").await.unwrap();
        seen.requests.lock().unwrap().push(request);
        raw.say("HTTP/1.1 200 OK\r\nTrailer: x-late\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-late: yes\r\n\r\n").await;
        raw.rest().await;
    })
    .await;
    let (primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nTE: trailers\r\nTrailer: x-sum\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.say("3\r\nabc\r\n0\r\nx-sum: 7\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    assert!(client.through(b"0\r\nx-late: yes\r\n\r\n").await.is_some());
    assert_eq!(app.last().field("te"), Some("trailers"));
    for node in [&primary, &replica] {
        node.until("an answer with trailers to be over", |totals| (outcome(totals, "answered"), totals.running) == (1, 0)).await;
    }
}

#[tokio::test]
async fn a_client_says_nothing_about_its_way_in_head_or_trailers() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        let mut request = raw.head().await.unwrap();
        request.body = raw.through(b"\r\n\r\n").await.unwrap();
        seen.requests.lock().unwrap().push(request);
        raw.say(ok("")).await;
        raw.rest().await;
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nX-Forwarded-Port: 1\r\nX-Forwarded-User: root\r\nX-First: 1\r\nX-Forwarded-Prefix: /x\r\nX-Last: 1\r\n").await;
    client.say("Trailer: x-sum, bellwether-epoch, x-forwarded-for\r\nTransfer-Encoding: chunked\r\n\r\n").await;
    client.say("3\r\nabc\r\n0\r\nx-sum: 7\r\nbellwether-epoch: 99\r\nx-forwarded-for: 6.6.6.6\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 200);
    let seen = app.last();
    for gone in ["x-forwarded-port", "x-forwarded-user", "x-forwarded-prefix"] {
        assert_eq!(seen.field(gone), None, "{seen:?}");
    }
    assert_eq!((seen.field("x-forwarded-for"), seen.field("x-last")), (Some("127.0.0.1"), Some("1")));
    assert!(seen.text().ends_with("0\r\nx-sum: 7\r\n\r\n"), "{}", seen.text());
}

#[tokio::test]
async fn a_message_with_two_lengths_is_cut_at_one_place_by_both_hops() {
    // B93: the hidden request must never be seen as one.
    let app = TestApp::hello().await;
    let (_primary, replica) = chain(&app);
    let hidden = "GET /hidden HTTP/1.1\r\nHost: test\r\n\r\n";
    for framing in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding : chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: ,chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: +5",
        "Transfer-Encoding:\r\n chunked",
    ] {
        let mut client = replica.client().await;
        client.say(format!("POST /open HTTP/1.1\r\nHost: test\r\n{framing}\r\n\r\n0\r\n\r\n{hidden}")).await;
        // Whatever the answer, the connection ends with it.
        client.rest().await;
    }
    let targets: Vec<String> = app.seen.requests().iter().map(|request| request.target().to_owned()).collect();
    assert!(!targets.iter().any(|target| target == "/hidden"), "{targets:?}");
}

#[tokio::test]
async fn heads_over_the_limit_get_a_431_or_a_502_and_never_a_bare_reset() {
    // B97.
    let app = TestApp::answering(|request| {
        let lines: usize = request.target().trim_start_matches('/').parse().unwrap_or(0);
        let cookies: String = (0..lines).map(|index| format!("Set-Cookie: c{index}=v\r\n")).collect();
        format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: 0\r\n\r\n").into_bytes()
    })
    .await;
    let (_primary, replica) = chain(&app);
    let with_lines = |lines: usize| -> String { (1..lines).map(|index| format!("X-{index}: v\r\n")).collect() };
    for (fields, status) in [
        (with_lines(100), 200),
        (with_lines(101), 431),
        (with_lines(250), 431),
        (format!("Cookie: {}\r\n", "c".repeat(60 * 1024)), 200),
        (format!("Cookie: {}\r\n", "c".repeat(70 * 1024)), 431),
    ] {
        let mut client = replica.client().await;
        client.say(format!("GET /0 HTTP/1.1\r\nHost: test\r\n{fields}\r\n")).await;
        assert_eq!(client.answer().await.status(), status, "{} bytes of fields", fields.len());
    }
    let mut client = replica.client().await;
    for cookies in [150, 255] {
        let answer = client.get(&format!("/{cookies}")).await;
        assert_eq!((answer.status(), answer.fields.iter().filter(|(name, _)| name == "set-cookie").count()), (200, cookies));
    }
    let answer = client.get("/400").await;
    assert_eq!((answer.status(), answer.json()["reason"].as_str()), (502, Some("upstream-failed")));
}

#[tokio::test]
async fn a_node_serves_on_unix_sockets_and_reaches_its_app_over_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("app.sock");
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let mut app = tokio::task::JoinSet::new();
    app.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            heard.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(&ok("over unix")).await.unwrap();
        String::from_utf8(heard).unwrap()
    });
    let place = folder.path().join("node.sock");
    let upstream = format!("unix://{}", socket.display()).parse().unwrap();
    let node = TestNode::member("default", Some(upstream), |config| config.listen.push(crate::api::Listen::Unix(place.clone())));
    node.lead(1);
    let mut client = tokio::net::UnixStream::connect(&place).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nX-Forwarded-For: 1.2.3.4\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("over unix"), "{answer}");
    let heard = app.join_next().await.unwrap().unwrap();
    assert!(!heard.contains("1.2.3.4"), "a client's own word about itself: {heard}");
}

#[tokio::test]
async fn a_request_names_one_host_and_one_that_can_be() {
    // RFC 9112 §3.2, RFC 9110 §7.2, RFC 3986 §3.2.2.
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        for host in ["a b", "a/b", "caf\u{e9}", "a\r\nHost: a", "[::1:80", "[::1", "[a]", "a:1:2", "a:b", "a%zz"] {
            let mut client = node.client().await;
            client.say(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.field("connection")), (400, Some("close")), "{host:?}");
            assert!(client.is_closed().await);
        }
        let mut without = node.client().await;
        without.say("GET / HTTP/1.1\r\n\r\n").await;
        assert_eq!(without.answer().await.status(), 400);
        // A name is not resolved, and need not be one that anybody resolves.
        for host in ["", "[::1]:80", "a-b_c.example:8080", "a..b", "a%41"] {
            let mut client = node.client().await;
            client.say(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")).await;
            assert_eq!((client.answer().await.status(), app.last().field("host")), (200, Some(host)), "{host:?}");
        }
        let mut old = node.client().await;
        old.say("GET / HTTP/1.0\r\n\r\n").await;
        assert_eq!(old.answer().await.status(), 200, "HTTP/1.0 knows no Host");
        let mut old = node.client().await;
        old.say("POST / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx").await;
        assert_eq!(old.answer().await.status(), 200, "over a connection of its own neither");
    }
}

/// What names a host elsewhere than in `Host` is looked at in the same way, as far as the library has not refused it.
#[tokio::test]
async fn a_target_names_one_that_can_be_too() {
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        for (target, status) in [
            ("http://a..b:80/", 200),
            ("http://[::1]/", 200),
            ("http://a:1:2/", 400),
            ("http://[::1/", 400),
            ("http://[a]/", 400),
            ("http://a:b/", 400),
            ("http://a%zz/", 400),
            ("*", 400),
        ] {
            let mut client = node.client().await;
            client.say(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
            assert_eq!(client.answer().await.status(), status, "{target}");
            // HTTP/2 has what names the host in a field of its own, of which the library knows only the characters.
            let Ok(uri) = target.parse::<http::Uri>() else { continue };
            let request = http::Request::get(uri).body(Full::default().boxed()).unwrap();
            if request.uri().authority().is_some() {
                assert_eq!(read(Http2Client::connect(node).await.send(request).await.unwrap()).await.0, status, "{target}");
            }
        }
        let mut client = node.client().await;
        client.say("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n").await;
        assert_eq!((client.answer().await.status(), app.last().line), (200, "OPTIONS * HTTP/1.1".to_owned()));
    }
}

#[tokio::test]
async fn a_status_that_has_no_phrase_gets_none() {
    let app = TestApp::answering(|_| b"HTTP/1.1 299 \r\nContent-Length: 2\r\n\r\nok".to_vec()).await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica, &replica] {
        assert_eq!(node.client().await.get("/").await.line.trim_end(), "HTTP/1.1 299");
    }
}
