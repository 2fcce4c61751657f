//! Apps behind TLS that choose between HTTP/2 and HTTP/1.1 when hands are shaken.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::header::{CONNECTION, UPGRADE};
use http::{Request, Response, StatusCode, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::rig::*;
use crate::api::Config;
use crate::cluster::Upstream;
use crate::tls::tests::World;
use crate::tls::{self, Terms, Tls};

/// An app that says over which version of HTTP it was asked. What it chooses can be changed.
struct App {
    port: u16,
    connections: Arc<AtomicUsize>,
    changes: mpsc::Sender<Terms>,
    world: World,
    _serving: JoinSet<()>,
}

impl App {
    async fn choosing(http2: bool) -> Self {
        let world = World::new();
        let terms = Terms { http2, ..world.lone() };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let (changes, changed) = mpsc::channel(1);
        let serving = serve(listener, terms, changed, Arc::clone(&connections));
        Self { port, connections, changes, world, _serving: [serving].into_iter().collect() }
    }

    /// Ends every connection, and chooses anew from then on.
    async fn now_chooses(&self, http2: bool) {
        self.changes.send(Terms { http2, ..self.world.lone() }).await.unwrap();
        // Taken up, and not only sent.
        self.changes.reserve().await.unwrap();
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A primary in front of it.
    fn primary(&self, change: impl FnOnce(&mut Config)) -> TestNode {
        let upstream = Upstream::Https { host: "127.0.0.1".to_owned(), port: self.port };
        let node = TestNode::member("default", Some(upstream), |config| {
            config.to_app = Some(tls::Client::read(Some(&self.world.authority.file()), None).unwrap());
            change(config);
        });
        node.lead(1);
        node
    }
}

async fn serve(listener: TcpListener, mut terms: Terms, mut changes: mpsc::Receiver<Terms>, connections: Arc<AtomicUsize>) {
    let mut serving = JoinSet::new();
    loop {
        tokio::select! {
            changed = changes.recv() => {
                serving.shutdown().await;
                terms = changed.unwrap_or(terms);
            }
            accepted = listener.accept() => {
                connections.fetch_add(1, Ordering::SeqCst);
                serving.spawn(converse(accepted.unwrap().0, Tls::load(terms.clone()).unwrap().0));
            }
        }
    }
}

async fn converse(stream: TcpStream, tls: Tls) {
    let Ok((stream, _)) = tls.accept(stream).await else { return };
    let chose_http2 = stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2);
    // A node that goes is part of most tests.
    if chose_http2 {
        drop(http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service_fn(answer)).await);
    } else {
        drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(answer)).with_upgrades().await);
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let mut answer = Response::builder().header("x-target", request.uri().to_string());
    let version = if request.version() == Version::HTTP_2 { "2" } else { "1" };
    if request.headers().contains_key(UPGRADE) {
        answer = answer.status(StatusCode::SWITCHING_PROTOCOLS).header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
    }
    let read = request.into_body().collect().await.map(|body| body.to_bytes().len()).unwrap_or_default();
    Ok(answer.body(format!("{version}:{read}").into()).unwrap())
}

async fn get(node: &TestNode) -> Message {
    ask(node, "GET /a?b HTTP/1.1\r\nHost: shop.example\r\n\r\n").await
}

async fn post(node: &TestNode) -> Message {
    ask(node, "POST / HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nhello").await
}

async fn ask(node: &TestNode, request: &str) -> Message {
    let mut client = node.client().await;
    client.say(request).await;
    client.answer().await
}

#[tokio::test]
async fn an_app_that_chooses_http2_is_spoken_to_in_it() {
    let app = App::choosing(true).await;
    let node = app.primary(|_| {});
    for _ in 0..3 {
        assert_eq!(post(&node).await.text(), "2:5");
        let answer = get(&node).await;
        assert_eq!((answer.text(), answer.field("x-target")), ("2:0", Some("https://shop.example/a?b")));
    }
    assert_eq!(app.connections(), 1);
}

#[tokio::test]
async fn an_app_that_chooses_http1_gets_that_and_its_first_connection_is_used() {
    let app = App::choosing(false).await;
    let node = app.primary(|_| {});
    for _ in 0..3 {
        assert_eq!(post(&node).await.text(), "1:5");
        let answer = get(&node).await;
        assert_eq!((answer.text(), answer.field("x-target")), ("1:0", Some("/a?b")));
    }
    assert_eq!(app.connections(), 1, "what was dialled to find out was kept");
}

#[tokio::test]
async fn an_app_may_choose_anew_on_every_connection() {
    let app = App::choosing(true).await;
    let primary = app.primary(|_| {});
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    for (round, http2) in [true, false, true, false].into_iter().enumerate() {
        if round > 0 {
            app.now_chooses(http2).await;
        }
        for node in [&replica, &primary] {
            let version = if http2 { "2" } else { "1" };
            // Its end may not have been seen yet: what may be repeated is, and what may not is next.
            assert_eq!(get(node).await.text(), format!("{version}:0"), "in round {round}");
            assert_eq!(post(node).await.text(), format!("{version}:5"), "in round {round}");
        }
    }
}

#[tokio::test]
async fn an_upgrade_goes_over_http1_though_the_app_prefers_http2() {
    let app = App::choosing(true).await;
    let node = app.primary(|_| {});
    assert_eq!(get(&node).await.text(), "2:0");
    let answer = ask(&node, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
    assert_eq!(answer.status(), 101);
    assert_eq!(get(&node).await.text(), "2:0", "and nothing is learned from it");
    assert_eq!(app.connections(), 2);
}

#[tokio::test]
async fn without_http2_an_app_is_not_offered_any() {
    let app = App::choosing(true).await;
    let node = app.primary(|config| config.http2 = false);
    assert_eq!(get(&node).await.text(), "1:0");
}

#[tokio::test]
async fn many_first_requests_at_once_find_out_once() {
    for (http2, version) in [(true, "2"), (false, "1")] {
        let app = App::choosing(http2).await;
        let node = app.primary(|_| {});
        let answers = futures_util::future::join_all((0..30).map(|_| post(&node))).await;
        assert!(answers.iter().all(|answer| answer.text() == format!("{version}:5")));
        // In HTTP/1.1 each may need a connection of its own, the one that was dialled to find out among them, and none needs two.
        let most = if http2 { 1 } else { answers.len() };
        assert!((1..=most).contains(&app.connections()), "{} connections", app.connections());
    }
}
