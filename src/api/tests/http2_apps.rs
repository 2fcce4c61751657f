//! Apps that speak HTTP/2, and calls as gRPC makes them.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::http2::{AnyBody, Http2Client, Spoken, get, read};
use super::rig::*;
use crate::cluster::Upstream;

/// An app that gives each piece of a request back as it comes, and says `grpc-status` at the end, unannounced.
struct EchoApp {
    upstream: Upstream,
    connections: Arc<AtomicUsize>,
    /// Requests whose client has not gone yet.
    running: Arc<AtomicUsize>,
    _accepting: JoinSet<()>,
}

impl EchoApp {
    async fn start(most_streams: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let (connections, running) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, at_work) = (Arc::clone(&connections), Arc::clone(&running));
        let accepting = async move {
            let mut serving = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let at_work = Arc::clone(&at_work);
                let service = service_fn(move |request| echo(request, Running::new(&at_work)));
                let mut builder = http2::Builder::new(TokioExecutor::new());
                // What is taken back together is no flood: this is about the nodes and not about the app.
                builder.max_concurrent_streams(most_streams).max_pending_accept_reset_streams(1_000);
                serving.spawn(async move { drop(builder.serve_connection(TokioIo::new(socket), service).await) });
            }
        };
        Self { upstream, connections, running, _accepting: [accepting].into_iter().collect() }
    }

    /// A primary in front of it, and a replica of that.
    async fn chain(&self) -> [TestNode; 2] {
        let primary = TestNode::member("default", Some(self.upstream.clone()), |_| {});
        primary.lead(1);
        let replica = TestNode::start(None);
        replica.follow(&primary, 1);
        [replica, primary]
    }
}

struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn echo(request: Request<Incoming>, running: Running) -> Result<Response<AnyBody>, Infallible> {
    let about = |name: &str| request.headers().get(name).map_or("", |value| value.to_str().unwrap()).to_owned();
    let (epoch, te) = (about("bellwether-epoch"), about("te"));
    let target = request.uri().to_string();
    let mut body = request.into_body();
    let frames = async_stream(move |say| async move {
        let _running = running;
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(piece) = frame.into_data()
                && !piece.is_empty()
                && say.send(Ok(Frame::data(piece))).await.is_err()
            {
                return;
            }
        }
        let status = [("grpc-status".parse().unwrap(), "0".parse().unwrap())];
        say.send(Ok(Frame::trailers(status.into_iter().collect()))).await.ok();
    });
    let answer = Response::builder().header("x-target", target).header("x-epoch", epoch).header("x-te", te);
    Ok(answer.body(BodyExt::boxed(frames)).unwrap())
}

/// A body that a task says.
fn async_stream<F: Future<Output = ()> + Send + 'static>(
    speak: impl FnOnce(mpsc::Sender<Result<Frame<Bytes>, Infallible>>) -> F,
) -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + Sync> {
    let (say, spoken) = mpsc::channel(8);
    let speaking: JoinSet<()> = [speak(say)].into_iter().collect();
    StreamBody::new(futures_util::stream::unfold((spoken, speaking), |(mut spoken, speaking)| async move {
        let frame = spoken.recv().await?;
        Some((frame, (spoken, speaking)))
    }))
}

fn call(target: &str, body: AnyBody) -> Request<AnyBody> {
    let uri = format!("http://shop.example{target}");
    Request::post(uri).header("te", "trailers").header("content-type", "application/grpc").body(body).unwrap()
}

/// What HTTP/1.1 lets a client name as its host, and HTTP/2 has no way to say, is no reason to break anything.
#[tokio::test]
async fn whatever_names_a_host_reaches_an_app_over_http2() {
    let app = EchoApp::start(100).await;
    for node in &app.chain().await {
        let mut client = node.client().await;
        for host in ["", "a..b", "caf%C3%A9", "a:", ":80", "[v1.a:b]:80"] {
            client.say(format!("POST /a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 5\r\n\r\nhello")).await;
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.text()), (200, "hello"), "{host:?}");
        }
    }
}

/// Each attempt may have been executed.
#[tokio::test]
async fn an_app_that_breaks_every_exchange_on_its_connection_is_asked_once_more() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let _serving: JoinSet<()> = [async move {
        let service = service_fn(|_| {
            let is_first = counter.fetch_add(1, Ordering::SeqCst) == 0;
            async move { if is_first { Ok(Response::new(Empty::<Bytes>::new())) } else { Err(io::Error::other("a reset")) } }
        });
        let (socket, _) = listener.accept().await.unwrap();
        http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await.unwrap();
    }]
    .into_iter()
    .collect();
    let node = TestNode::member("default", Some(upstream), |_| {});
    node.lead(1);
    let mut client = node.client().await;
    assert_eq!(client.get("/").await.status(), 200);
    let answer = client.get("/").await;
    assert_eq!((answer.status(), asked.load(Ordering::SeqCst)), (502, 3));
    assert!(answer.text().contains("maybe-executed"), "{}", answer.text());
}

#[tokio::test]
async fn a_request_reaches_an_app_over_http2() {
    let app = EchoApp::start(100).await;
    for node in &app.chain().await {
        let mut plain = node.client().await;
        plain.say("POST /a?b HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nhello").await;
        let answer = plain.answer().await;
        assert_eq!((answer.status(), answer.text()), (200, "hello"));
        assert_eq!(answer.field("x-target"), Some("http://shop.example/a?b"));
        assert_eq!(answer.field("x-epoch"), Some("1"));
        let mut client = Http2Client::connect(node).await;
        assert_eq!(read(client.send(get("/")).await.unwrap()).await.0, StatusCode::OK);
    }
}

#[tokio::test]
async fn a_call_speaks_both_ways_at_once_and_ends_with_its_status() {
    let app = EchoApp::start(100).await;
    for node in &app.chain().await {
        let mut client = Http2Client::connect(node).await;
        let (say, spoken) = mpsc::channel(8);
        let answer = client.send(call("/chat", BodyExt::boxed(Spoken(spoken)))).await.unwrap();
        assert_eq!(answer.headers()["x-te"], "trailers");
        let mut heard = answer.into_body();
        for word in ["one", "two"] {
            say.send(Frame::data(Bytes::from_static(word.as_bytes()))).await.unwrap();
            assert_eq!(heard.frame().await.unwrap().unwrap().into_data().unwrap(), word, "before the next is said");
        }
        drop(say);
        let status = heard.frame().await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(status["grpc-status"], "0");
        until("nothing runs at the app", || app.running.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn a_call_that_is_cancelled_ends_at_the_app() {
    let app = EchoApp::start(100).await;
    for node in &app.chain().await {
        let mut client = Http2Client::connect(node).await;
        let (say, spoken) = mpsc::channel(8);
        let answer = client.send(call("/chat", BodyExt::boxed(Spoken(spoken)))).await.unwrap();
        until("it runs", || app.running.load(Ordering::SeqCst) == 1).await;
        drop((answer, say));
        until("the app hears of it", || app.running.load(Ordering::SeqCst) == 0).await;
    }
}

#[tokio::test]
async fn calls_that_last_keep_no_other_waiting() {
    let app = EchoApp::start(100).await;
    let [replica, primary] = app.chain().await;
    let mut clients = Vec::new();
    for n in 0..220 {
        let mut client = Http2Client::connect(if n % 2 == 0 { &replica } else { &primary }).await;
        let (say, spoken) = mpsc::channel(1);
        let answer = client.send(call("/chat", BodyExt::boxed(Spoken(spoken)))).await.unwrap();
        clients.push((client, say, answer));
    }
    assert_eq!(app.running.load(Ordering::SeqCst), 220);
    assert_eq!(app.connections.load(Ordering::SeqCst), 3, "a hundred on each");
}

#[tokio::test]
async fn an_app_is_asked_for_no_more_at_once_on_a_connection_than_it_says() {
    let app = EchoApp::start(2).await;
    let [replica, _primary] = app.chain().await;
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = Http2Client::connect(&replica).await;
        let (say, spoken) = mpsc::channel(1);
        let answer = client.begin(call("/chat", BodyExt::boxed(Spoken(spoken)))).await;
        clients.push((client, say, answer));
    }
    until("all are under way", || app.running.load(Ordering::SeqCst) == 5).await;
    assert_eq!(app.connections.load(Ordering::SeqCst), 3, "two on each");
}

/// An app that speaks HTTP/2 frame by frame.
struct Frames(Raw);

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;

impl Frames {
    /// The next connection that is made at `listener`.
    async fn accept(listener: &TcpListener) -> Self {
        let mut raw = Raw { stream: timeout(SOON, listener.accept()).await.expect("a connection").unwrap().0, heard: Vec::new() };
        raw.through(b"SM\r\n\r\n").await.unwrap();
        Self(raw)
    }

    async fn say(&mut self, kind: u8, flags: u8, stream: u8, payload: &[u8]) {
        let head = [0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream];
        self.0.say([&head, payload].concat()).await;
    }

    /// Says that so many streams may be open, and waits until that has been heard. No request comes meanwhile.
    async fn allow(&mut self, streams: u8) {
        self.say(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, streams]).await;
        self.say(PING, 0, 0, b"question").await;
        while let (kind, flags, _) = self.next().await
            && (kind, flags) != (PING, 1)
        {
            assert_ne!(kind, HEADERS);
        }
    }

    /// The kind, flags, and stream of the next frame.
    async fn next(&mut self) -> (u8, u8, u8) {
        let head = self.0.exactly(9).await;
        self.0.exactly(usize::from(head[1]) << 8 | usize::from(head[2])).await;
        (head[3], head[4], head[8])
    }

    /// The stream of the next request.
    async fn request(&mut self) -> u8 {
        loop {
            if let (HEADERS, _, stream) = self.next().await {
                return stream;
            }
        }
    }

    /// Answers with 200 and nothing.
    async fn answer(&mut self, stream: u8) {
        self.say(HEADERS, 5, stream, b"\x88").await;
    }
}

/// RFC 9113 §6.5.2: 0 is for a while.
#[tokio::test]
async fn an_app_is_asked_where_and_when_it_takes_something() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let node = TestNode::member("default", Some(upstream), |_| {});
    node.lead(1);
    let mut client = node.client().await;
    let ask = "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n";
    client.say(ask).await;
    let mut first = Frames::accept(&listener).await;
    first.allow(0).await;
    first.say(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]).await;
    let stream = first.request().await;
    first.answer(stream).await;
    assert_eq!(client.answer().await.status(), 200);

    first.allow(0).await;
    client.say(ask).await;
    let mut second = Frames::accept(&listener).await;
    second.say(SETTINGS, 0, 0, &[]).await;
    let stream = second.request().await;
    second.answer(stream).await;
    assert_eq!(client.answer().await.status(), 200);
}

/// An answer that has come to its end is none that was taken back, whether trailers end it or not.
#[tokio::test]
async fn calls_that_end_well_are_as_many_as_anybody_likes() {
    let app = EchoApp::start(100).await;
    for node in &app.chain().await {
        let mut client = Http2Client::connect(node).await;
        for _ in 0..15 {
            let mut calls = Vec::new();
            for _ in 0..100 {
                calls.push(client.begin(call("/", BodyExt::boxed(http_body_util::Empty::new()))).await);
            }
            for answer in calls {
                let answer = answer.await.unwrap().into_body().collect().await.unwrap();
                assert_eq!(answer.trailers().unwrap()["grpc-status"], "0");
            }
        }
        assert_eq!(node.totals().closings.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

/// The same for an app that speaks HTTP/1.1, whose answers end with trailers in a chunk of their own.
#[tokio::test]
async fn answers_with_trailers_are_as_many_as_anybody_likes() {
    let app = TestApp::scripted(|mut raw, _| async move {
        while raw.head().await.is_some() {
            raw.say("HTTP/1.1 200 OK\r\nTrailer: x-late\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nx-late: yes\r\n\r\n").await;
        }
    })
    .await;
    let (primary, replica) = chain(&app);
    let get = |path: &str| {
        let nothing = BodyExt::boxed(http_body_util::Empty::new());
        Request::get(format!("http://test{path}")).header("te", "trailers").body(nothing).unwrap()
    };
    for node in [&primary, &replica] {
        let mut client = Http2Client::connect(node).await;
        for _ in 0..15 {
            let mut calls = Vec::new();
            for _ in 0..100 {
                calls.push(client.begin(get("/")).await);
            }
            for answer in calls {
                let answer = answer.await.unwrap().into_body().collect().await.unwrap();
                assert_eq!(answer.trailers().unwrap()["x-late"], "yes");
            }
        }
        assert_eq!(node.totals().closings.iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

/// Pieces of nothing, of which the library takes a hundred on a connection, are not passed on to one that many share.
#[tokio::test]
async fn a_call_outlives_what_others_say_of_nothing() {
    let app = EchoApp::start(100).await;
    let [replica, _primary] = app.chain().await;
    let mut client = Http2Client::connect(&replica).await;
    let (say, spoken) = mpsc::channel(1);
    let mut heard = client.send(call("/chat", BodyExt::boxed(Spoken(spoken)))).await.unwrap().into_body();
    for _ in 0..4 {
        let mut empty = Http2Client::connect(&replica).await;
        let (say_nothing, nothing) = mpsc::channel(1);
        let answer = empty.send(call("/chat", BodyExt::boxed(Spoken(nothing)))).await.unwrap();
        for _ in 0..90 {
            say_nothing.send(Frame::data(Bytes::new())).await.unwrap();
        }
        drop(say_nothing);
        assert_eq!(answer.into_body().collect().await.unwrap().trailers().unwrap()["grpc-status"], "0");
    }
    say.send(Frame::data(Bytes::from_static(b"word"))).await.unwrap();
    assert_eq!(heard.frame().await.unwrap().unwrap().into_data().unwrap(), "word");
}

/// What many clients take back at once ends no connection that the nodes share, on which calls of others are.
#[tokio::test]
async fn a_call_outlives_what_others_take_back() {
    let app = EchoApp::start(100).await;
    let [replica, _primary] = app.chain().await;
    let mut client = Http2Client::connect(&replica).await;
    let (say, spoken) = mpsc::channel(1);
    let mut heard = client.send(call("/chat", BodyExt::boxed(Spoken(spoken)))).await.unwrap().into_body();
    for _ in 0..5 {
        let mut clients = Vec::new();
        for _ in 0..6 {
            clients.push(Http2Client::connect(&replica).await);
        }
        let accepted = replica.totals().accepted;
        let mut asked = Vec::new();
        for client in &mut clients {
            for _ in 0..100 {
                asked.push(client.begin(call("/chat", BodyExt::boxed(Spoken(mpsc::channel(1).1)))).await);
            }
        }
        until("all have come", || replica.totals().accepted == accepted + 600).await;
        drop((asked, clients));
        say.send(Frame::data(Bytes::from_static(b"word"))).await.unwrap();
        assert_eq!(heard.frame().await.unwrap().unwrap().into_data().unwrap(), "word");
    }
    drop(say);
    assert_eq!(heard.frame().await.unwrap().unwrap().into_trailers().unwrap()["grpc-status"], "0");
}

/// As many as take several connections from client to replica, from there to the leader, and on to the app.
#[tokio::test]
async fn more_calls_at_once_than_one_connection_between_nodes_takes_wait_for_none() {
    const CLIENTS: usize = 6;
    const CALLS: usize = 100;
    let app = EchoApp::start(100).await;
    let [replica, primary] = app.chain().await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Http2Client::connect(&replica).await);
    }
    let mut asked = Vec::new();
    for client in &mut clients {
        for _ in 0..CALLS {
            let (say, spoken) = mpsc::channel(1);
            asked.push((say, client.begin(call("/chat", BodyExt::boxed(Spoken(spoken)))).await));
        }
    }
    let mut calls = Vec::new();
    for (say, answer) in asked {
        calls.push((say, answer.await.unwrap().into_body()));
    }
    assert_eq!(app.running.load(Ordering::SeqCst), CLIENTS * CALLS);
    let shared = primary.totals().connections;
    assert!((3..=6).contains(&shared), "{shared} connections between the nodes");
    for (say, heard) in &mut calls {
        say.send(Frame::data(Bytes::from_static(b"word"))).await.unwrap();
        assert_eq!(heard.frame().await.unwrap().unwrap().into_data().unwrap(), "word", "while all others last");
    }
    let mut another = Http2Client::connect(&replica).await;
    assert_eq!(read(another.send(get("/")).await.unwrap()).await.0, StatusCode::OK);
    drop(calls);
    until("nothing runs at the app", || app.running.load(Ordering::SeqCst) == 0).await;
    assert_eq!(read(another.send(call("/", BodyExt::boxed(http_body_util::Empty::new()))).await.unwrap()).await.0, StatusCode::OK);
}

#[tokio::test]
async fn an_app_that_is_not_there_was_sent_nothing() {
    // Bound and never listened on: nobody else is given the port meanwhile.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let upstream = Upstream::H2c { host: "127.0.0.1".to_owned(), port: nobody.local_addr().unwrap().port() };
    let node = TestNode::member("default", Some(upstream), |_| {});
    node.lead(1);
    let mut client = node.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 1\r\n\r\nx").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), &answer.json()["verdict"]), (502, &"not-sent".into()));
}
