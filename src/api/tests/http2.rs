//! Clients that speak HTTP/2.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper::ext::Protocol;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::rig::*;
use crate::api::Config;
use crate::api::worker::SWEEP_EVERY;

pub(super) type AnyBody = http_body_util::combinators::BoxBody<Bytes, Infallible>;

pub(super) fn bodiless() -> AnyBody {
    Full::default().boxed()
}

/// What a client says over HTTP/2, until it is dropped.
pub(super) struct Http2Client {
    pub(super) sender: SendRequest<AnyBody>,
    connection: JoinSet<hyper::Result<()>>,
}

impl Http2Client {
    pub(super) async fn connect(node: &TestNode) -> Self {
        let socket = TcpStream::connect(node.address).await.unwrap();
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
        Self { sender, connection: [connection].into_iter().collect() }
    }

    pub(super) async fn send(&mut self, request: Request<AnyBody>) -> hyper::Result<Response<Incoming>> {
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    /// Sends a request; its answer is to be waited for.
    pub(super) async fn begin(&mut self, request: Request<AnyBody>) -> impl Future<Output = hyper::Result<Response<Incoming>>> + use<> {
        self.sender.ready().await.unwrap();
        self.sender.send_request(request)
    }

    pub(super) async fn get(&mut self, target: &str) -> (StatusCode, HeaderMap, String) {
        read(self.send(get(target)).await.unwrap()).await
    }
}

pub(super) fn get(target: &str) -> Request<AnyBody> {
    Request::get(format!("http://shop.example{target}")).body(bodiless()).unwrap()
}

pub(super) async fn read(answer: Response<Incoming>) -> (StatusCode, HeaderMap, String) {
    let (head, body) = answer.into_parts();
    let text = String::from_utf8(body.collect().await.unwrap().to_bytes().into()).unwrap();
    (head.status, head.headers, text)
}

/// A body whose pieces are said one by one.
pub(super) struct Spoken(pub(super) mpsc::Receiver<Frame<Bytes>>);

impl Body for Spoken {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|frame| frame.map(Ok))
    }
}

pub(super) fn trusting(config: &mut Config) {
    config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
}

/// A primary, and a replica of it.
pub(super) async fn chain(app: &TestApp) -> [TestNode; 2] {
    let primary = TestNode::start(Some(app));
    primary.lead(1);
    let replica = TestNode::start(None);
    replica.follow(&primary, 1);
    [replica, primary]
}

#[tokio::test]
async fn a_request_reaches_the_app_as_http1_says_it() {
    let app = TestApp::hello().await;
    for node in &chain(&app).await {
        let mut client = Http2Client::connect(node).await;
        let mut request = get("/a%2Fb?c=d");
        for cookie in ["a=1", "b=2"] {
            request.headers_mut().append("cookie", cookie.parse().unwrap());
        }
        request.headers_mut().insert("bellwether-epoch", "99".parse().unwrap());
        let (status, headers, text) = read(client.send(request).await.unwrap()).await;
        assert_eq!((status, text.as_str()), (StatusCode::OK, "hello"));
        assert_eq!(headers["bellwether-epoch"], "1");
        let seen = app.last();
        assert_eq!(seen.line, "GET /a%2Fb?c=d HTTP/1.1");
        assert_eq!(seen.field("host"), Some("shop.example"));
        assert_eq!(seen.field("cookie"), Some("a=1; b=2"), "RFC 9113 §8.2.3");
        assert_eq!(seen.field("bellwether-epoch"), Some("1"));
        assert_eq!(seen.field("x-forwarded-host"), Some("shop.example"));
    }
}

#[tokio::test]
async fn the_nodes_own_routes_answer_too() {
    let node = TestNode::start(None);
    let mut client = Http2Client::connect(&node).await;
    let (status, _, text) = client.get("/_ping").await;
    assert_eq!((status, text.as_str()), (StatusCode::OK, "OK"));
}

#[tokio::test]
async fn a_body_streams_to_the_app_and_its_trailers_with_it() {
    let app = TestApp::answering(|request| ok(&String::from_utf8_lossy(&request.body))).await;
    let nodes = chain(&app).await;
    // Of a GET, too, a body without a length is one.
    for (node, method) in nodes.iter().flat_map(|node| [(node, "POST"), (node, "GET")]) {
        let mut client = Http2Client::connect(node).await;
        let (say, spoken) = mpsc::channel(8);
        let request =
            Request::builder().method(method).uri("http://test/").header("trailer", "x-sum").body(Spoken(spoken).boxed()).unwrap();
        client.sender.ready().await.unwrap();
        let answer = client.sender.send_request(request);
        for piece in ["one ", "two"] {
            say.send(Frame::data(Bytes::from_static(piece.as_bytes()))).await.unwrap();
        }
        say.send(Frame::trailers([("x-sum".parse().unwrap(), "7".parse().unwrap())].into_iter().collect())).await.unwrap();
        drop(say);
        assert_eq!(read(answer.await.unwrap()).await.2, "one two");
    }
}

#[tokio::test]
async fn a_request_that_is_taken_back_is_taken_from_the_app() {
    // B99.
    let go = Go::new();
    let app = slow_app(&go).await;
    for node in &chain(&app).await {
        let mut client = Http2Client::connect(node).await;
        let (ended, left) = (app.seen.ended(), outcome(&node.totals(), "left"));
        let answer = client.send(get("/slow")).await.unwrap();
        drop(answer);
        until("the app's connection ends", || app.seen.ended() > ended).await;
        node.until("it counts as left", |totals| outcome(totals, "left") == left + 1).await;
        assert_eq!(client.get("/quick").await.2, "quick", "the connection stays");
    }
}

#[tokio::test]
async fn requests_are_held_side_by_side_and_leave_one_by_one() {
    let app = TestApp::hello().await;
    let node = TestNode::start(Some(&app));
    let mut client = Http2Client::connect(&node).await;
    let mut held = JoinSet::new();
    let mut leaving = None;
    for _ in 0..3 {
        client.sender.ready().await.unwrap();
        leaving = Some(held.spawn(client.sender.send_request(get("/"))));
    }
    node.until("all wait", |totals| totals.held == 3).await;
    leaving.unwrap().abort();
    node.until("one has left", |totals| totals.held == 2 && outcome(totals, "left") == 1).await;
    node.lead(1);
    assert!(held.join_next().await.unwrap().is_err_and(|error| error.is_cancelled()));
    for answer in held.join_all().await {
        assert_eq!(answer.unwrap().status(), StatusCode::OK);
    }
}

#[tokio::test]
async fn a_closing_node_finishes_what_runs_and_sends_the_rest_away() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let node = TestNode::start(Some(&app));
    node.lead(1);
    let mut client = Http2Client::connect(&node).await;
    let answer = client.send(get("/slow")).await.unwrap();
    let close = node.plane.close(SOON);
    let finish = async {
        while let Ok(quick) = client.send(get("/quick")).await {
            assert_eq!(read(quick).await.2, "quick", "until the client is told to go");
        }
        go.on();
        assert_eq!(read(answer).await.2, "slow");
        client.connection.join_next().await.unwrap().unwrap().unwrap();
    };
    tokio::join!(close, finish);
}

/// RFC 9113 §8.1 lets a server reset a stream once it has answered; curl 7.88 for one then loses the answer.
#[tokio::test]
async fn an_app_that_answers_early_and_goes_resets_no_stream_at_once() {
    let app = TestApp::scripted(|mut raw, _| async move {
        if raw.head().await.is_some_and(|head| head.target() == "/") {
            raw.exactly(5).await;
            raw.say("HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\nConnection: close\r\n\r\nenough!").await;
        }
    })
    .await;
    for node in &chain(&app).await {
        let (client, connection) = h2::client::handshake(TcpStream::connect(node.address).await.unwrap()).await.unwrap();
        let _running: JoinSet<_> = [connection].into_iter().collect();
        let mut client = client.ready().await.unwrap();
        loop {
            let (begun, ended) = (Instant::now(), app.seen.ended());
            let request = Request::post("http://shop.example/").header("content-length", "10").body(()).unwrap();
            let (answer, mut says) = client.send_request(request, false).unwrap();
            says.send_data("hello".into(), false).unwrap();
            let mut answer = timeout(SOON, answer).await.unwrap().unwrap();
            assert_eq!(answer.status(), StatusCode::PAYLOAD_TOO_LARGE);
            assert_eq!(timeout(SOON, answer.body_mut().data()).await.unwrap().unwrap().unwrap(), "enough!");
            until("the app has gone", || app.seen.ended() > ended).await;
            let (ping, _) = client.send_request(get("/_ping").map(|_| ()), true).unwrap();
            timeout(SOON, ping).await.unwrap().unwrap();
            let reset = std::future::poll_fn(|cx| says.poll_reset(cx)).now_or_never();
            // On a machine that is slow enough, the moment is over.
            if begun.elapsed() < Duration::from_secs(1) {
                assert!(reset.is_none(), "{reset:?}");
                says.send_data("there".into(), true).unwrap();
                break;
            }
        }
        node.until("nothing is left of it", |totals| totals.running == 0).await;
    }
}

/// What a proxy sends on a connection that the node has asked it to leave is served, and what it sends later comes on another.
#[tokio::test]
async fn whoever_steps_down_asks_trusted_proxies_to_connect_anew_and_finishes_what_runs() {
    let go = Go::new();
    let app = slow_app(&go).await;
    let (primary, replica) = (TestNode::with(Some(&app), trusting), TestNode::with(None, trusting));
    primary.lead(1);
    replica.follow(&primary, 1);
    let mut through_replica = Http2Client::connect(&replica).await;
    let forwarded = through_replica.send(get("/slow")).await.unwrap();
    let (client, connection) = h2::client::handshake(TcpStream::connect(primary.address).await.unwrap()).await.unwrap();
    let mut connection: JoinSet<_> = [connection].into_iter().collect();
    let mut client = client.ready().await.unwrap();
    let (running, _) = client.send_request(get("/slow").map(|_| ()), true).unwrap();
    let mut running = timeout(SOON, running).await.unwrap().unwrap().into_body();

    primary.step_down(1);
    until("the proxy is asked to go", || is_told(&client)).await;
    let mut anew = Http2Client::connect(&primary).await;
    let held = anew.begin(get("/quick")).await;
    primary.until("what comes meanwhile is held", |totals| totals.held == 1).await;
    // It takes more time, and says so.
    primary.step_down(1);
    go.on();
    go.on();
    let mut heard = Vec::new();
    while let Some(piece) = timeout(SOON, running.data()).await.unwrap() {
        heard.extend_from_slice(&piece.unwrap());
    }
    assert_eq!(heard, b"slow");
    drop(client);
    timeout(SOON, connection.join_next()).await.expect("it ends").unwrap().unwrap().expect("and well");
    assert_eq!(read(forwarded).await.2, "slow");

    primary.lead(2);
    replica.follow(&primary, 2);
    assert_eq!(read(held.await.unwrap()).await.2, "quick");
    for client in [&mut anew, &mut through_replica] {
        assert_eq!(client.get("/quick").await.2, "quick", "on the connection that it has");
    }
}

fn is_told(client: &h2::client::SendRequest<Bytes>) -> bool {
    client.clone().ready().now_or_never().is_some_and(|ready| ready.is_err())
}

/// To some clients a GOAWAY is the end of what runs, or costs the next request.
#[tokio::test]
async fn whoever_steps_down_lets_clients_keep_their_connections() {
    let app = TestApp::hello().await;
    let (primary, replica) = (TestNode::start(Some(&app)), TestNode::start(Some(&app)));
    primary.lead(1);
    replica.follow(&primary, 1);
    let mut clients = [Http2Client::connect(&primary).await, Http2Client::connect(&replica).await];
    let (watching, connection) = h2::client::handshake(TcpStream::connect(primary.address).await.unwrap()).await.unwrap();
    let _connection: JoinSet<_> = [connection].into_iter().collect();
    primary.step_down(1);
    replica.lead(2);
    primary.follow(&replica, 2);
    for _ in 0..3 {
        tokio::time::sleep(SWEEP_EVERY).await;
        for client in &mut clients {
            assert_eq!(client.get("/").await.0, StatusCode::OK);
        }
    }
    assert!(!is_told(&watching.ready().await.expect("the connection stays")));
}

#[tokio::test]
async fn a_preface_may_come_byte_by_byte_and_a_post_is_none() {
    let app = TestApp::hello().await;
    let node = TestNode::start(Some(&app));
    node.lead(1);
    let mut slow = TcpStream::connect(node.address).await.unwrap();
    slow.set_nodelay(true).unwrap();
    for byte in b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0" {
        slow.write_all(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    let mut head = [0; 9];
    slow.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "a SETTINGS frame");

    let mut plain = node.client().await;
    for part in ["P", "R", "OPFIND / HTTP/1.1\r\nHost: test\r\n\r\n"] {
        plain.say(part).await;
    }
    assert_eq!(plain.answer().await.text(), "hello");
}

#[tokio::test]
async fn a_node_without_http2_takes_its_preface_for_no_request() {
    let node = TestNode::with(None, |config| config.http2 = false);
    let mut client = node.client().await;
    client.say("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    assert!(client.is_closed().await);
}

/// A request for a WebSocket as browsers make it over HTTP/2 (RFC 8441).
pub(super) fn websocket() -> Request<AnyBody> {
    let request = Request::connect("http://shop.example/chat").header("sec-websocket-version", "13");
    request.extension(Protocol::from_static("websocket")).body(bodiless()).unwrap()
}

#[tokio::test]
async fn a_websocket_over_a_stream_is_an_upgrade_to_the_app() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        while let Some(request) = raw.request().await {
            let upgrades = request.field("upgrade") == Some("websocket");
            seen.requests.lock().unwrap().push(request);
            if !upgrades {
                raw.say(ok("plain")).await;
                continue;
            }
            let agreed = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
            raw.say([agreed.as_bytes(), b"early"].concat()).await;
            let heard = raw.exactly(5).await;
            raw.say(heard).await;
            raw.is_closed().await;
        }
    })
    .await;
    for node in &chain(&app).await {
        let mut client = Http2Client::connect(node).await;
        assert_eq!(client.get("/").await.2, "plain", "the server has said that it takes such requests");
        let answer = client.send(websocket()).await.unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        assert!(!answer.headers().contains_key("sec-websocket-accept"), "which means nothing here");
        let seen = app.last();
        assert_eq!((seen.line.as_str(), seen.field("host")), ("GET /chat HTTP/1.1", Some("shop.example")));
        assert_eq!(seen.field("via"), Some("2 bellwether"), "the version that the client speaks");
        assert_eq!(seen.field("sec-websocket-key").map(str::len), Some(24));
        assert_eq!(seen.field("sec-websocket-version"), Some("13"));

        let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
        let mut heard = [0; 5];
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"early");
        tunnel.write_all(b"hello").await.unwrap();
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        tunnel.shutdown().await.unwrap();
        assert_eq!(tunnel.read(&mut heard).await.unwrap(), 0, "and the app's end comes back");
        assert_eq!(client.get("/").await.2, "plain", "beside it");
    }
}

/// RFC 9113 §8.3.1, as for any other request.
#[tokio::test]
async fn a_websocket_over_a_stream_goes_to_one_place() {
    let app = TestApp::hello().await;
    for node in &chain(&app).await {
        let mut client = Http2Client::connect(node).await;
        client.get("/").await;
        for (hosts, status) in [(&["other.example"][..], 400), (&["shop.example", "shop.example"], 400), (&["Shop.example"], 502)] {
            let mut request = websocket();
            for host in hosts {
                request.headers_mut().append("host", host.parse().unwrap());
            }
            let (answered, _, text) = read(client.send(request).await.unwrap()).await;
            assert_eq!(answered, status, "{hosts:?}: {text}");
        }
    }
}

#[tokio::test]
async fn an_app_without_websockets_refuses_them_over_a_stream_too() {
    let app = TestApp::hello().await;
    for node in &chain(&app).await {
        let mut client = Http2Client::connect(node).await;
        client.get("/").await;
        let (status, _, text) = read(client.send(websocket()).await.unwrap()).await;
        assert_eq!(status, StatusCode::BAD_GATEWAY, "{text}");
        assert!(text.contains("did not agree to a WebSocket"), "{text}");
    }
}

#[tokio::test]
async fn connect_is_refused() {
    let node = TestNode::start(None);
    let mut client = Http2Client::connect(&node).await;
    let request = Request::connect("shop.example:443").body(bodiless()).unwrap();
    assert_eq!(client.send(request).await.unwrap().status(), StatusCode::BAD_REQUEST);
}
