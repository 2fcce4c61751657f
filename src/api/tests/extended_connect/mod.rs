//! WebSockets to an app that speaks HTTP/2 (RFC 8441).

mod app;
mod ending;

use std::sync::atomic::Ordering;
use std::time::Duration;

use http::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::http2::{Http2Client, get, read, websocket};
use super::rig::*;
use crate::cluster::Upstream;
use app::{ASKS, App, Says, UNWILLING, WILLING};

#[tokio::test]
async fn an_upgrade_becomes_an_extended_connect() {
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let mut client = node.client().await;
        client.say(ASKS).await;
        let asked = app.asked().await;
        assert_eq!((asked.head.method(), asked.protocol()), (&Method::CONNECT, Some("websocket")));
        assert_eq!(asked.head.uri(), "http://shop.example/chat?room=7");
        for (name, expected) in [
            ("sec-websocket-version", Some("13")),
            ("sec-websocket-protocol", Some("chat, superchat")),
            ("sec-websocket-extensions", Some("permessage-deflate")),
            ("origin", Some("http://shop.example")),
            ("bellwether-epoch", Some("1")),
            ("via", Some("1.1 bellwether")),
            ("x-forwarded-host", Some("shop.example")),
            ("x-forwarded-for", Some("127.0.0.1")),
            ("sec-websocket-key", None),
            ("upgrade", None),
            ("connection", None),
            ("host", None),
            ("bellwether-hop", None),
        ] {
            assert_eq!(asked.field(name), expected, "{name}");
        }

        let chosen = [("sec-websocket-protocol", "chat"), ("sec-websocket-accept", "of no meaning"), ("bellwether-epoch", "99")];
        let mut app = asked.agree_with(chosen.into_iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect());
        app.say("early");
        let answer = client.head().await.unwrap();
        assert_eq!(answer.status(), 101);
        for (name, expected) in [
            ("upgrade", Some("websocket")),
            ("connection", Some("Upgrade")),
            ("sec-websocket-accept", Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")),
            ("sec-websocket-protocol", Some("chat")),
            ("sec-websocket-extensions", None),
            ("bellwether-epoch", Some("1")),
        ] {
            assert_eq!(answer.field(name), expected, "{name}");
        }
        assert_eq!(client.exactly(5).await, b"early");
        client.say("hello").await;
        assert_eq!(app.exactly(5).await, b"hello");
    }
}

#[tokio::test]
async fn an_extended_connect_of_a_client_is_passed_on_as_one() {
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let mut client = Http2Client::connect(node).await;
        client.send(get("/_ping")).await.expect("the server has said that it takes such requests");
        let (answer, mut end) = tokio::join!(client.send(websocket()), async {
            let asked = app.asked().await;
            assert_eq!((asked.head.method(), asked.protocol()), (&Method::CONNECT, Some("websocket")));
            assert_eq!((asked.head.uri().path(), asked.field("sec-websocket-key")), ("/chat", None));
            asked.agree()
        });
        let answer = answer.unwrap();
        assert_eq!((answer.status(), answer.headers().get("sec-websocket-accept")), (StatusCode::OK, None));
        let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        tunnel.write_all(b"hello").await.unwrap();
        assert_eq!(end.exactly(5).await, b"hello");
        end.say("there");
        let mut heard = [0; 5];
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"there");
        tunnel.shutdown().await.unwrap();
        assert!(end.is_over().await);
        end.finish();
        assert_eq!(tunnel.read(&mut heard).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn either_end_may_stop_first() {
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let (mut client, mut end) = app.tunnel(node).await;
        client.finish().await;
        assert!(end.is_over().await);
        end.say("last words");
        end.finish();
        assert_eq!(client.rest().await, b"last words");

        let (mut client, mut end) = app.tunnel(node).await;
        // Without it, a replica has to think that the leader is gone.
        end.say(b"\x88\x02\x03\xe8");
        end.finish();
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        assert!(client.is_closed().await);
        client.say("last words").await;
        client.finish().await;
        assert_eq!(end.exactly(10).await, b"last words");
        assert!(end.is_over().await);
        node.until("both are counted", |totals| outcome(totals, "answered") == 2 && totals.running == 0).await;
    }
}

/// More than there is room for on the way, in both directions at once.
#[tokio::test]
async fn a_slow_reader_holds_back_the_writer_and_gets_everything() {
    const MUCH: usize = 8 * 1024 * 1024;
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let (client, mut end) = app.tunnel(node).await;
        let (mut hearing, saying) = client.stream.into_split();
        let _busy = sending(saying, vec![b'x'; MUCH]);
        for _ in 0..MUCH / 65_536 {
            end.say([b'y'; 65_536]);
        }
        let mut heard = 0;
        while heard < MUCH {
            let piece = end.piece().await.expect("more");
            assert!(piece.iter().all(|byte| *byte == b'x'));
            heard += piece.len();
        }
        let mut all = vec![0; MUCH];
        timeout(SOON, hearing.read_exact(&mut all)).await.expect("all of it").unwrap();
        assert!(all.iter().all(|byte| *byte == b'y'));
    }
}

#[tokio::test]
async fn a_refusal_is_relayed_whole_and_the_connection_stays() {
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let mut client = node.client().await;
        for status in [403, 426, 503] {
            client.say(ASKS).await;
            app.asked().await.answer(status, "not you");
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.text(), answer.field("x-why")), (status, "not you", Some("because")));
        }
        let mut client = Http2Client::connect(node).await;
        client.send(get("/_ping")).await.unwrap();
        let (answer, ()) = tokio::join!(client.send(websocket()), async { app.asked().await.answer(403, "not you") });
        let (status, headers, text) = read(answer.unwrap()).await;
        assert_eq!((status.as_u16(), text.as_str(), headers["x-why"].to_str().unwrap()), (403, "not you", "because"));
    }
}

#[tokio::test]
async fn an_app_that_does_not_say_so_is_asked_for_no_websocket() {
    let mut app = App::start(UNWILLING).await;
    for node in &app.chain() {
        let mut client = node.client().await;
        for _ in 0..3 {
            client.say(ASKS).await;
            let answer = client.answer().await;
            let error = answer.json();
            assert_eq!((answer.status(), &error["reason"], &error["verdict"]), (502, &"upstream-failed".into(), &"not-sent".into()));
            assert!(error["message"].as_str().unwrap().contains("SETTINGS_ENABLE_CONNECT_PROTOCOL"), "{error}");
        }
        client.say("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
        app.asked().await.answer(200, "hello");
        assert_eq!(client.answer().await.text(), "hello");
    }
    assert_eq!(app.connections(), 1, "what was opened to ask is used");
}

#[tokio::test]
async fn a_request_that_is_no_handshake_is_refused() {
    let app = App::start(WILLING).await;
    for node in &app.chain() {
        for bad in [
            ASKS.replace("dGhlIHNhbXBsZSBub25jZQ==", "short"),
            ASKS.replace("Sec-WebSocket-Key", "X-Key"),
            ASKS.replace("\r\n\r\n", "\r\nContent-Length: 1\r\n\r\nx"),
        ] {
            let mut client = node.client().await;
            client.say(&bad).await;
            let answer = client.answer().await;
            let error = answer.json();
            assert_eq!((answer.status(), &error["reason"], &error["verdict"]), (400, &"bad-request".into(), &"not-sent".into()), "{bad}");
        }
    }
}

/// RFC 9110 §7.8: a server may ignore it.
#[tokio::test]
async fn any_other_upgrade_is_not_passed_on() {
    let mut app = App::start(WILLING).await;
    for node in &app.chain() {
        let mut client = node.client().await;
        client.say("GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await;
        let asked = app.asked().await;
        assert_eq!((asked.head.method(), asked.field("upgrade")), (&Method::GET, None));
        asked.answer(200, "as if it had not asked");
        assert_eq!(client.answer().await.text(), "as if it had not asked");
    }
}

#[tokio::test]
async fn behind_tls_too_it_is_asked_by_extended_connect() {
    let mut app = App::behind_tls(WILLING).await;
    for node in &app.chain() {
        let mut client = node.client().await;
        client.say(ASKS).await;
        let asked = app.asked().await;
        assert_eq!((asked.head.method(), asked.head.uri().scheme_str()), (&Method::CONNECT, Some("https")));
        let mut end = asked.agree();
        assert_eq!(client.head().await.unwrap().field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
        client.say("hello").await;
        assert_eq!(end.exactly(5).await, b"hello");
    }
    assert_eq!(app.connections(), 1, "both share one");
}

#[tokio::test]
async fn behind_tls_an_app_that_does_not_say_so_is_asked_in_http1() {
    let mut app = App::behind_tls(UNWILLING).await;
    for node in &app.chain() {
        for _ in 0..2 {
            let mut client = node.client().await;
            client.say(ASKS).await;
            assert_eq!(client.head().await.unwrap().status(), 101);
            client.say("hello").await;
            assert_eq!(client.exactly(5).await, b"hello");
        }
        let mut client = node.client().await;
        client.say("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
        app.asked().await.answer(200, "still in HTTP/2");
        assert_eq!(client.answer().await.text(), "still in HTTP/2");
    }
    assert_eq!(app.connections(), 1 + 4, "one for requests, and one for each WebSocket");
}

#[tokio::test]
async fn websockets_take_as_many_connections_as_the_app_makes_them_and_keep_no_request_waiting() {
    const WEBSOCKETS: usize = 45;
    let mut app = App::start(Says { streams: 10, ..WILLING }).await;
    let [primary, _replica] = app.chain();
    let mut tunnels = Vec::new();
    for _ in 0..WEBSOCKETS {
        tunnels.push(app.tunnel(&primary).await);
    }
    assert_eq!(app.connections(), 5, "ten on each");
    let mut client = primary.client().await;
    client.say("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
    app.asked().await.answer(200, "hello");
    assert_eq!(client.answer().await.text(), "hello");
    assert_eq!(app.connections(), 6, "requests have connections of their own");
    drop(tunnels);
    until("connections that carry nothing are closed", || app.open.load(Ordering::SeqCst) == 0).await;
    app.tunnel(&primary).await;
}

/// The newest goes where there are others, so that those that are left come together.
#[tokio::test]
async fn connections_for_websockets_become_fewer_with_them() {
    let mut app = App::start(Says { streams: 2, ..WILLING }).await;
    let [node, _replica] = app.chain_with(|config| config.limits.idle_timeout = Duration::from_secs(1));
    let mut tunnels = Vec::new();
    for _ in 0..4 {
        tunnels.push(app.tunnel(&node).await);
    }
    assert_eq!(app.connections(), 2, "two on each");
    // One of the first connection, and one of the second.
    drop((tunnels.remove(2), tunnels.remove(0)));
    node.until("two have ended", |totals| totals.running == 2).await;
    tunnels.push(app.tunnel(&node).await);
    tunnels.remove(1);
    until("the second connection carries nothing", || app.open.load(Ordering::SeqCst) == 1).await;
    for (client, end) in &mut tunnels {
        client.say("still").await;
        assert_eq!(end.exactly(5).await, b"still");
    }
}

/// What it said on an older connection, which is still in use, is not its last word.
#[tokio::test]
async fn an_app_that_has_come_to_take_them_is_asked_for_them() {
    let mut app = App::start(Says { streams: 1, ..UNWILLING }).await;
    let [node, _replica] = app.chain();
    let ask = async |app: &mut App| {
        let mut client = node.client().await;
        client.say("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
        (client, app.asked().await)
    };
    let _old = ask(&mut app).await;
    app.now_says(Says { streams: 1, ..WILLING });
    let _new = ask(&mut app).await;
    let (mut client, mut end) = app.tunnel(&node).await;
    client.say("hello").await;
    assert_eq!(end.exactly(5).await, b"hello");
}

/// Where a WebSocket is, there may be another.
#[tokio::test]
async fn an_app_that_has_a_websocket_is_asked_for_another_whatever_it_says_elsewhere() {
    let mut app = App::behind_tls(WILLING).await;
    let [node, _replica] = app.chain();
    let _open = app.tunnel(&node).await;
    app.now_says(UNWILLING);
    let mut client = node.client().await;
    client.say("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n").await;
    app.asked().await.answer(200, "hello");
    assert_eq!(client.answer().await.text(), "hello");
    app.tunnel(&node).await;
    assert_eq!(app.connections(), 2, "one for WebSockets, and one for requests");
}

/// They wait for one and the same answer.
#[tokio::test]
async fn websockets_that_wait_for_an_app_that_says_nothing_fail_together() {
    const WEBSOCKETS: usize = 12;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let node = TestNode::member("default", Some(upstream), |config| config.limits.connect_timeout = Duration::from_secs(2));
    node.lead(1);
    let mut clients = Vec::new();
    for _ in 0..WEBSOCKETS {
        let mut client = node.client().await;
        client.say(ASKS).await;
        clients.push(client);
    }
    let mut taken = Vec::new();
    let answers = async {
        for client in &mut clients {
            let error = client.answer().await.json();
            assert_eq!((&error["reason"], &error["verdict"]), (&"upstream-failed".into(), &"not-sent".into()), "{error}");
        }
    };
    let accepting = async {
        loop {
            taken.push(listener.accept().await.unwrap());
        }
    };
    tokio::select! {
        () = answers => {}
        () = accepting => unreachable!("it never ends"),
    }
    // Each may have been tried twice.
    assert!(taken.len() < WEBSOCKETS / 2, "{} connections", taken.len());
}

/// A port that takes connections and says nothing, and one that speaks HTTP/1.1.
#[tokio::test]
async fn an_app_that_does_not_speak_http2_was_sent_nothing() {
    for speaks in [None, Some("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let node = TestNode::member("default", Some(upstream), |config| config.limits.connect_timeout = Duration::from_millis(200));
        node.lead(1);
        let mut client = node.client().await;
        client.say(ASKS).await;
        let answering = async {
            let mut connections = Vec::new();
            loop {
                let mut connection = listener.accept().await.unwrap().0;
                if let Some(words) = speaks {
                    connection.write_all(words.as_bytes()).await.unwrap();
                }
                connections.push(connection);
            }
        };
        let answer = tokio::select! {
            answer = client.answer() => answer,
            () = answering => unreachable!("it never ends"),
        };
        let error = answer.json();
        assert_eq!((answer.status(), &error["reason"], &error["verdict"]), (502, &"upstream-failed".into(), &"not-sent".into()), "{error}");
    }
}
