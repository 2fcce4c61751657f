//! APP: the toy service behind a node, one per node. Each path does one thing that a test needs; any other path echoes.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header, request};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use super::certificates::Credentials;
use super::http::Body;
use super::ledger::{Arrival, Ledger, REQUEST_ID};
use super::secure;

/// One copy of the app, until it is dropped.
#[derive(Debug)]
pub(crate) struct App {
    address: SocketAddr,
    state: Arc<State>,
    _serving: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    name: String,
    ledger: Ledger,
    connections: watch::Sender<usize>,
    tunnelled: watch::Sender<Vec<Vec<u8>>>,
    closes_unasked: AtomicBool,
    tasks: TaskTracker,
}

impl App {
    /// Serves on a free port.
    pub(crate) async fn start(name: &str, ledger: &Ledger) -> Self {
        Self::start_at((Ipv4Addr::LOCALHOST, 0).into(), name, ledger).await
    }

    /// Serves at `address`.
    pub(crate) async fn start_at(address: SocketAddr, name: &str, ledger: &Ledger) -> Self {
        Self::serve(address, name, ledger, None).await
    }

    /// The same over TLS, showing what is in `files`.
    pub(crate) async fn start_secured(name: &str, ledger: &Ledger, files: &Credentials) -> Self {
        Self::serve((Ipv4Addr::LOCALHOST, 0).into(), name, ledger, Some(files.clone())).await
    }

    async fn serve(address: SocketAddr, name: &str, ledger: &Ledger, tls: Option<Credentials>) -> Self {
        let listener = TcpListener::bind(address).await.expect("bind an app");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(State {
            name: name.to_owned(),
            ledger: ledger.clone(),
            connections: watch::Sender::new(0),
            tunnelled: watch::Sender::default(),
            closes_unasked: AtomicBool::new(false),
            tasks: TaskTracker::new(),
        });
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&state), tls));
        Self { address, state, _serving: serving }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many connections nodes have opened to it so far.
    pub(crate) fn connections(&self) -> usize {
        *self.state.connections.borrow()
    }

    /// What came through each tunnel that has ended its sending side, in the order of those ends.
    pub(crate) fn tunnelled(&self) -> watch::Receiver<Vec<Vec<u8>>> {
        self.state.tunnelled.subscribe()
    }

    /// From now on ends each connection after its next answer without announcing that, as B88's app does.
    pub(crate) fn close_unasked(&self) {
        self.state.closes_unasked.store(true, Ordering::SeqCst);
    }
}

async fn serve(listener: TcpListener, state: Arc<State>, tls: Option<Credentials>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.expect("accept");
        stream.set_nodelay(true).expect("no delay");
        state.connections.send_modify(|count| *count += 1);
        let (state, tls) = (Arc::clone(&state), tls.clone());
        connections.spawn(async move {
            let Some(files) = tls else { return converse(stream, &state).await };
            // Who does not believe us leaves here.
            if let Ok(stream) = secure::accept(&files, stream).await {
                converse(stream, &state).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: &Arc<State>) {
    let answered = Arc::new(tokio::sync::Notify::new());
    let service = service_fn(|request| {
        let (state, answered) = (Arc::clone(state), Arc::clone(&answered));
        async move {
            let answer = answer(&state, request).await;
            if state.closes_unasked.load(Ordering::SeqCst) {
                answered.notify_one();
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service).with_upgrades();
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // A node that goes away in the middle is part of most tests.
        _ = connection.as_mut() => {}
        () = async { answered.notified().await; tokio::time::sleep(Duration::from_millis(2)).await } => {}
    }
}

async fn answer(state: &Arc<State>, request: Request<Incoming>) -> Response<Body> {
    let (head, body) = request.into_parts();
    let arrival = Arrival {
        id: value(&head.headers, REQUEST_ID),
        epoch: value(&head.headers, "bellwether-epoch").parse().unwrap_or(0),
        method: head.method.clone(),
        app: state.name.clone(),
        refused: false,
    };
    let Some(_work) = state.ledger.enter(arrival) else {
        return status(StatusCode::CONFLICT, "this epoch is over");
    };
    route(state, head, body).await
}

async fn route(state: &Arc<State>, head: request::Parts, body: Incoming) -> Response<Body> {
    let path = head.uri.path().to_owned();
    match path.as_str() {
        "/who" => text(&state.name),
        "/slow" => {
            tokio::time::sleep(Duration::from_millis(query(&head, "ms"))).await;
            text(&state.name)
        }
        "/status" => status(StatusCode::from_u16(query(&head, "code") as u16).expect("a status"), "as asked"),
        "/big" => streamed("application/octet-stream", zeros(state, query(&head, "mb"))),
        "/trail" => streamed("text/plain", trailed(state)),
        "/duplex" => streamed("text/plain", duplex(state, body)),
        "/hijack" => hijack(state, head, body),
        _ => echo(head, body).await,
    }
}

/// What the app was sent, as JSON, once all of it has come.
async fn echo(head: request::Parts, body: Incoming) -> Response<Body> {
    let Ok(body) = body.collect().await else { return status(StatusCode::BAD_REQUEST, "half a body") };
    let pairs = |headers: &HeaderMap| -> Vec<Value> {
        headers.iter().map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())])).collect()
    };
    let trailers = body.trailers().map(pairs);
    let body = body.to_bytes();
    let seen = json!({
        "method": head.method.as_str(),
        "target": head.uri.to_string(),
        "headers": pairs(&head.headers),
        "length": body.len(),
        "body": String::from_utf8_lossy(&body[..body.len().min(1_000)]),
        "sum": checksum(&body),
        "trailers": trailers,
    });
    typed("application/json", full(seen.to_string()))
}

/// A number that two bodies share only when they are the same, as far as a test is concerned.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Switches protocols and then plays what the query asks for: `first=TEXT` sends that and ends the sending side before
/// anything is read; `after=N` sends N bytes once the client has ended its own; otherwise it echoes until that end.
fn hijack(state: &Arc<State>, mut head: request::Parts, body: Incoming) -> Response<Body> {
    let upgraded = hyper::upgrade::on(Request::from_parts(head.clone(), ()));
    let (first, after, delay) = (named(&head, "first"), query(&head, "after"), query(&head, "delay"));
    let token = head.headers.remove(header::UPGRADE).unwrap_or(HeaderValue::from_static("tcp"));
    let tunnels = Arc::clone(state);
    state.tasks.spawn(async move {
        drop(body.collect().await);
        let Ok(upgraded) = upgraded.await else { return };
        let (mut reader, mut writer) = tokio::io::split(TokioIo::new(upgraded));
        tokio::time::sleep(Duration::from_millis(delay)).await;
        let mut read = Vec::new();
        match first {
            Some(first) => {
                writer.write_all(first.as_bytes()).await.ok();
                writer.shutdown().await.ok();
                reader.read_to_end(&mut read).await.ok();
            }
            None if after > 0 => {
                reader.read_to_end(&mut read).await.ok();
                writer.write_all(&vec![b'z'; after as usize]).await.ok();
                writer.shutdown().await.ok();
            }
            None => {
                let mut buffer = vec![0; 16 * 1024];
                while let Ok(length @ 1..) = reader.read(&mut buffer).await {
                    read.extend_from_slice(&buffer[..length]);
                    writer.write_all(&buffer[..length]).await.ok();
                }
                writer.shutdown().await.ok();
            }
        }
        tunnels.tunnelled.send_modify(|all| all.push(read));
    });
    let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
    response.header(header::CONNECTION, "Upgrade").header(header::UPGRADE, token).body(full("")).expect("a response")
}

type Frames = mpsc::Sender<Frame<Bytes>>;

fn zeros(state: &State, megabytes: u64) -> mpsc::Receiver<Frame<Bytes>> {
    feed(state, async move |frames: Frames| {
        let piece = Bytes::from(vec![0; 64 * 1024]);
        for _ in 0..megabytes * 16 {
            if frames.send(Frame::data(piece.clone())).await.is_err() {
                return;
            }
        }
    })
}

fn trailed(state: &State) -> mpsc::Receiver<Frame<Bytes>> {
    feed(state, async move |frames: Frames| {
        frames.send(Frame::data("body".into())).await.ok();
        let mut trailers = HeaderMap::new();
        trailers.insert("x-checksum", HeaderValue::from_static("abc"));
        frames.send(Frame::trailers(trailers)).await.ok();
    })
}

/// Answers each piece of the body with the same piece, while the rest is still to come.
fn duplex(state: &State, mut body: Incoming) -> mpsc::Receiver<Frame<Bytes>> {
    feed(state, async move |frames: Frames| {
        while let Some(Ok(frame)) = body.frame().await {
            if let Ok(piece) = frame.into_data() {
                frames.send(Frame::data(piece)).await.ok();
            }
        }
    })
}

fn feed<F>(state: &State, source: impl FnOnce(Frames) -> F) -> mpsc::Receiver<Frame<Bytes>>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (frames, body) = mpsc::channel(1);
    state.tasks.spawn(source(frames));
    body
}

fn streamed(kind: &'static str, mut frames: mpsc::Receiver<Frame<Bytes>>) -> Response<Body> {
    let stream = futures_util::stream::poll_fn(move |context| frames.poll_recv(context).map(|frame| frame.map(Ok)));
    let mut response = typed(kind, StreamBody::new(stream).boxed());
    if kind == "text/plain" {
        response.headers_mut().insert(header::TRAILER, HeaderValue::from_static("x-checksum"));
    }
    response
}

fn text(text: &str) -> Response<Body> {
    typed("text/plain", full(text.to_owned()))
}

fn status(status: StatusCode, text: &'static str) -> Response<Body> {
    Response::builder().status(status).body(full(text)).expect("a response")
}

fn typed(kind: &'static str, body: Body) -> Response<Body> {
    Response::builder().header(header::CONTENT_TYPE, kind).body(body).expect("a response")
}

fn full(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

fn value(headers: &HeaderMap, name: &str) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

fn named(head: &request::Parts, name: &str) -> Option<String> {
    let pairs = head.uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    pairs.filter(|(found, _)| *found == name).map(|(_, value)| value.to_owned()).next()
}

fn query(head: &request::Parts, name: &str) -> u64 {
    named(head, name).and_then(|value| value.parse().ok()).unwrap_or(0)
}
