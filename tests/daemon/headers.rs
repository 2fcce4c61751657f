//! Which headers reach the app, and which the client.

use std::time::Duration;

use serde_json::Value;

use crate::support::app::App;
use crate::support::daemon::Manage;
use crate::support::frames::{END_HEADERS, END_STREAM, Frames, HEADERS, PRIORITY, frame, get};
use crate::support::http::{Client, Method, request, with};
use crate::support::ledger::Ledger;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw, header};

/// The addresses that the app is told at each place: the client's; and the replica's where the primary knows by its certificate
/// that it is a node, and so believes it.
const ADDRESSES: [&[&str]; 3] = [&["127.0.0.1"], &["127.0.0.1"], &["127.0.0.1", "127.0.0.1"]];

/// B81: what `Connection` names goes, what the node adds stays, and the connection to the leader is used again.
#[tokio::test]
async fn headers_that_connection_names_end_at_the_node() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for (place, addresses) in places.each().into_iter().zip(ADDRESSES) {
        let client = Client::new(&place);
        for _ in 0..20 {
            let asked = with(request(Method::GET, "/echo", ""), "connection", "close, X-Secret, X-Forwarded-For, Bellwether-Epoch");
            let asked = with(with(asked, "x-secret", "1"), "keep-alive", "timeout=5");
            let seen = client.send(asked).await.unwrap().json();
            for gone in ["x-secret", "keep-alive", "connection", "bellwether-hop"] {
                assert_eq!(values(&seen, gone), Vec::<String>::new(), "{gone} in {seen}");
            }
            assert_eq!(values(&seen, "x-forwarded-for"), addresses, "{seen}");
            assert_eq!(values(&seen, "x-forwarded-proto"), [place.scheme()], "{seen}");
            assert_eq!(values(&seen, "via").len(), 1, "{seen}");
            assert_eq!(values(&seen, "bellwether-epoch").len(), 1, "{seen}");
        }
    }
    assert!(app.connections() <= 16, "{} connections of two primaries for 60 requests one after the other", app.connections());
}

/// A client cannot give itself an address, an epoch or a hop.
#[tokio::test]
async fn a_client_cannot_speak_for_a_node() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for (node, addresses) in places.nodes().into_iter().zip(ADDRESSES) {
        let (place, info) = (node.place(), node.info().await);
        let epoch = info.epoch.to_string();
        let mut asked = request(Method::GET, "/echo", "");
        for (name, value) in [
            ("x-forwarded-for", "10.9.9.9"),
            ("x-forwarded-proto", "gopher"),
            ("x-forwarded-host", "evil.example"),
            ("bellwether-epoch", "99999999999999"),
            ("bellwether-hop", "junk"),
            ("bellwether-primary", "evil.example:1"),
        ] {
            asked = with(asked, name, value);
        }
        let answer = Client::new(&place).send(with(asked, "host", "service.example")).await.unwrap();
        let seen = answer.json();
        assert_eq!(values(&seen, "x-forwarded-for"), addresses, "{seen}");
        assert_eq!(values(&seen, "x-forwarded-proto"), [place.scheme()]);
        assert_eq!(values(&seen, "x-forwarded-host"), ["service.example"]);
        assert_eq!(values(&seen, "host"), ["service.example"]);
        assert_eq!(values(&seen, "bellwether-epoch"), [epoch.as_str()]);
        for gone in ["bellwether-hop", "bellwether-primary"] {
            assert_eq!(values(&seen, gone), Vec::<String>::new(), "{gone} in {seen}");
        }
        assert_eq!(answer.header("bellwether-epoch"), epoch);
        assert_eq!(answer.header("bellwether-primary"), info.primary);
    }
}

/// RFC 7239: a client's own `Forwarded` is none of a proxy's, and a trusted one's goes on with each hop.
#[tokio::test]
async fn a_list_of_proxies_reaches_the_app_only_from_who_is_trusted() {
    let app = App::start("a", &Ledger::default()).await;
    let upstream = format!("http://{}", app.address());
    for trusted in [false, true] {
        let own = |manage: Manage| if trusted { manage.with(["--trusted-proxies", "127.0.0.1/32"]) } else { manage };
        let places = Places::with(&upstream, own).await;
        for (place, hops) in places.each().into_iter().zip([1, 2, 2]) {
            let asked = with(with(request(Method::GET, "/echo", ""), "forwarded", "for=10.9.9.9"), "host", "service");
            let seen = Client::new(&place).send(asked).await.unwrap().json();
            let hop = format!("for=127.0.0.1;host=\"service\";proto={}", place.scheme());
            let listed = std::iter::once("for=10.9.9.9").chain(std::iter::repeat_n(hop.as_str(), hops));
            let wanted: Vec<_> = if trusted { listed.collect() } else { Vec::new() };
            assert_eq!(values(&seen, "forwarded"), wanted, "{seen}");
        }
    }
}

/// RFC 7239 on request: each node that is believed adds itself, as any two proxies would; a client's own list is still none.
#[tokio::test]
async fn the_app_is_told_by_a_list_of_proxies_where_that_is_asked_for() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::with(&format!("http://{}", app.address()), |manage| manage.with(["--forwarded"])).await;
    for (place, addresses) in places.each().into_iter().zip(ADDRESSES) {
        let hop = format!("for=127.0.0.1;host=\"service\";proto={}", place.scheme());
        for own in [None, Some("for=10.9.9.9")] {
            let mut asked = with(request(Method::GET, "/echo", ""), "host", "service");
            if let Some(own) = own {
                asked = with(asked, "forwarded", own);
            }
            let seen = Client::new(&place).send(asked).await.unwrap().json();
            assert_eq!(values(&seen, "forwarded"), vec![hop.as_str(); addresses.len()], "{seen}");
            assert_eq!(values(&seen, "x-forwarded-for"), addresses, "{seen}");
        }
    }
}

/// RFC 9110 §7.6.2: OPTIONS and TRACE can be asked of what is on the way. All nodes of a service count once.
#[tokio::test]
async fn how_far_a_request_may_go_is_for_its_sender_to_say() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    for node in places.nodes() {
        let (client, before) = (Client::new(node.place()), ledger.arrivals().len());
        let limited = |method: Method, most: &str| with(request(method, "/echo", ""), "max-forwards", most);
        let options = client.send(limited(Method::OPTIONS, "0")).await.unwrap();
        assert_eq!((options.status.as_u16(), options.text(), options.header("content-length")), (200, "", "0"), "{options:?}");
        assert!(options.header("server").starts_with("bellwether/"), "{options:?}");
        let trace = client.send(with(limited(Method::TRACE, "0"), "authorization", "secret")).await.unwrap();
        assert_eq!((trace.status.as_u16(), trace.header("content-type")), (200, "message/http"), "{trace:?}");
        assert!(trace.text().starts_with("TRACE /echo HTTP/1.1\r\n") && trace.text().contains("\r\nmax-forwards: 0\r\n"), "{trace:?}");
        assert!(!trace.text().contains("secret"), "{trace:?}");
        assert_eq!(ledger.arrivals().len(), before, "neither is the app's");
        for (method, most, left) in [(Method::OPTIONS, "1", "0"), (Method::TRACE, "7", "6"), (Method::GET, "0", "0")] {
            let seen = client.send(limited(method.clone(), most)).await.unwrap().json();
            assert_eq!(values(&seen, "max-forwards"), [left], "{method}: {seen}");
        }
    }
}

/// RFC 9110 §4.2.4: a user before the host is there to look like a host.
#[tokio::test]
async fn a_target_that_names_a_user_is_refused() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send("GET http://bank.example@service/echo HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 400 ") && body.contains("names a user"), "{head}{body}");
        assert!(client.is_cut().await);
    }
    assert_eq!(ledger.arrivals().len(), 0);
}

/// RFC 9218: how urgent something is, is between client and app; in frames it concerns one hop, and does no harm.
#[tokio::test]
async fn priorities_are_passed_on_as_they_are() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Frames::begin(&place).await;
        let update = [&1_u32.to_be_bytes()[..], b"u=7"].concat();
        let head = get("/", &[("priority", "u=1, i")]);
        let frames =
            [frame(0x10, 0, 0, &update), frame(HEADERS, END_HEADERS | END_STREAM, 1, head), frame(PRIORITY, 0, 1, [0, 0, 0, 0, 200])];
        client.send([&frames.concat()[..], &frame(0x10, 0, 0, &update)].concat()).await;
        let mut app = origin.accept().await;
        let asked = app.head().await;
        assert_eq!(header(&asked, "priority"), Some("u=1, i"), "{asked}");
        app.send("HTTP/1.1 200 OK\r\nPriority: u=6\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        let answer = client.find(|seen| seen.kind == HEADERS).await.expect("an answer");
        assert_eq!(answer.status(), Some(200));

        let mut plain = Raw::connect(&place).await;
        plain.send("GET / HTTP/1.1\r\nHost: service\r\nPriority: u=1, i\r\n\r\n").await;
        let mut app = origin.accept().await;
        assert_eq!(header(&app.head().await, "priority"), Some("u=1, i"));
        app.send("HTTP/1.1 200 OK\r\nPriority: u=6\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
        assert_eq!(header(&plain.head().await, "priority"), Some("u=6"));
    }
}

/// RFC 9209: only errors of ours are said to be that; what an app says of proxies behind it is passed on.
#[tokio::test]
async fn errors_of_ours_say_what_went_wrong_on_the_way() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (answer, status, said) in [
            ("HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 502, None),
            ("HTTP/1.1 200 OK\r\nProxy-Status: cache; hit\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", 200, Some("cache; hit")),
            ("", 502, Some("bellwether; error=connection_terminated")),
        ] {
            let mut client = Raw::connect(&place).await;
            client.send("POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n").await;
            let mut app = origin.accept().await;
            app.head().await;
            app.send(answer).await;
            drop(app);
            let head = client.head().await;
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
            assert_eq!(header(&head, "proxy-status"), said, "{head}");
        }
    }
}

/// An app cannot speak for a node either: no refusal, epoch or primary of its own gets past the primary.
#[tokio::test]
async fn an_app_cannot_speak_for_a_node() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for node in places.nodes() {
        let (place, epoch) = (node.place(), node.info().await.epoch.to_string());
        let mut client = Raw::connect(&place).await;
        client.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        let forged = "Bellwether-Refused: superseded\r\nBellwether-Epoch: 1\r\nBellwether-Primary: evil.example:1\r\n";
        app.send(format!("HTTP/1.1 503 Service Unavailable\r\n{forged}Content-Length: 7\r\nConnection: close\r\n\r\nthe app")).await;
        let (head, body) = client.answer().await;
        assert_eq!(body, "the app", "the app's own 503 is passed on, not tried again");
        assert_eq!(header(&head, "bellwether-epoch"), Some(epoch.as_str()), "{head}");
        assert_eq!(header(&head, "bellwether-refused"), None, "{head}");
        assert!(!head.contains("evil.example"), "{head}");
    }
    assert!(origin.is_left_alone(Duration::from_millis(100)).await, "nothing was sent twice");
}

/// Order, repetition and values of headers are the sender's; their names are passed on in lower case.
#[tokio::test]
async fn headers_keep_their_order_and_have_names_in_lower_case() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        client.send("GET / HTTP/1.1\r\nHost: service\r\nX-One: 1\r\nx-TWO: 2\r\nX-One: 3\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n").await;
        let mut app = origin.accept().await;
        let head = app.head().await;
        let sent = head.lines().filter(|line| line.to_lowercase().starts_with("x-one") || line.to_lowercase().starts_with("x-two"));
        assert_eq!(sent.collect::<Vec<_>>(), ["x-one: 1", "x-one: 3", "x-two: 2"], "{head}");
        assert!(head.find("a=1") < head.find("b=2"), "{head}");
        app.send(
            "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nX-Odd-CASE: Yes\r\nSet-Cookie: b=2\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        )
        .await;
        let head = client.head().await;
        let cookies = head.lines().filter(|line| line.to_lowercase().starts_with("set-cookie: ")).collect::<Vec<_>>();
        assert_eq!(cookies, ["set-cookie: a=1", "set-cookie: b=2"], "{head}");
        assert!(head.contains("\r\nx-odd-case: Yes\r\n"), "{head}");
        assert_eq!(header(&head, "connection"), None, "the app's connection is not the client's: {head}");
    }
}

/// A client's `Connection: close` ends its own connection, not the one to the leader; HTTP/1.0 is served too (B138).
#[tokio::test]
async fn a_client_closes_only_its_own_connection() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let before = app.connections();
        for _ in 0..40 {
            for start in ["GET /who HTTP/1.1\r\nHost: service\r\nConnection: close\r\n\r\n", "GET /who HTTP/1.0\r\n\r\n"] {
                let mut client = Raw::connect(&place).await;
                client.send(start).await;
                let answer = String::from_utf8(client.rest().await).unwrap();
                assert!(answer.contains(" 200 OK\r\n") && answer.ends_with('a'), "{answer}");
            }
        }
        let opened = app.connections() - before;
        assert!(opened <= 8, "{opened} connections for 80 requests one after the other at {place}");
    }
}

/// B93: a message whose length can be read in two ways is refused, and nothing that it hides is carried out.
#[tokio::test]
async fn an_ambiguous_request_is_refused() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    let hidden = "GET /hidden HTTP/1.1\r\nHost: service\r\nRequest-Id: hidden\r\n\r\n";
    let heads = [
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 6\r\n",
        "X-Header : space\r\nContent-Length: 5\r\n",
        "X-Header: nul\0\r\nContent-Length: 5\r\n",
    ];
    for place in places.each() {
        for head in heads {
            let mut client = Raw::connect(&place).await;
            client.send(format!("POST /echo HTTP/1.1\r\nHost: service\r\n{head}\r\n0\r\n\r\n{hidden}")).await;
            let answer = String::from_utf8_lossy(&client.rest().await).into_owned();
            assert!(answer.starts_with("HTTP/1.1 400"), "{head:?} at {place}: {answer:?}");
        }
        let mut client = Raw::connect(&place).await;
        let both = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
        client.send(format!("POST /echo HTTP/1.1\r\nHost: service\r\nRequest-Id: both\r\n{both}\r\n0\r\n\r\n{hidden}")).await;
        let answer = String::from_utf8_lossy(&client.rest().await).into_owned();
        assert!(answer.starts_with("HTTP/1.1 400") || answer.starts_with("HTTP/1.1 200"), "{answer:?}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "the connection is closed after it: {answer:?}");
    }
    assert_eq!(ledger.count("hidden"), 0, "{:?}", ledger.arrivals());
}

/// All values of a header that the app saw, in order.
fn values(seen: &Value, name: &str) -> Vec<String> {
    let headers = seen["headers"].as_array().expect("headers").iter();
    headers.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().expect("a value").to_owned()).collect()
}
