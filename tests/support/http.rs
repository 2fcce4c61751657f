//! An HTTP client for tests: kept-alive connections to one address, and nothing that it does behind a test's back.

use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
pub(crate) use http::Method;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::place::Place;

/// What a client may send.
pub(crate) type Body = BoxBody<Bytes, std::io::Error>;

/// How long a test's request may take, unless it says otherwise. Longer than any hold in these tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// How long an idle connection is kept: one that a careful client uses again is not about to be closed.
const IDLE_TIMEOUT: Duration = Duration::from_millis(250);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// Nothing listens there, or its TLS handshake failed: nothing was sent.
    Refused,
    /// The connection ended with the request on its way.
    Cut,
    /// Nothing came in time.
    Silent,
}

/// A whole answer.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("an answer in UTF-8")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {:?}", self.body))
    }

    /// A header's value, or the empty text.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("a header in ASCII"))
    }

    /// The epoch that the answer says it was given under.
    pub(crate) fn epoch(&self) -> Option<u64> {
        self.header("bellwether-epoch").parse().ok()
    }

    /// How long it says that the request was held.
    pub(crate) fn held(&self) -> Option<Duration> {
        let milliseconds = self.header("server-timing").strip_prefix("held;dur=")?;
        Some(Duration::from_secs_f64(milliseconds.parse::<f64>().ok()? / 1_000.0))
    }
}

/// Kept-alive connections to one address.
#[derive(Debug)]
pub(crate) struct Client {
    place: Place,
    idle: Mutex<Vec<(SendRequest<Body>, Instant)>>,
    connections: TaskTracker,
}

impl Client {
    pub(crate) fn new(place: impl Into<Place>) -> Self {
        Self { place: place.into(), idle: Mutex::default(), connections: TaskTracker::new() }
    }

    /// Sends a request and reads its whole answer.
    pub(crate) async fn send(&self, request: Request<Body>) -> Result<Answer, Broken> {
        self.send_within(PATIENCE, request).await
    }

    pub(crate) async fn send_within(&self, limit: Duration, request: Request<Body>) -> Result<Answer, Broken> {
        tokio::time::timeout(limit, self.exchange(request)).await.unwrap_or(Err(Broken::Silent))
    }

    /// Sends a request and returns as soon as the answer's head is there; the connection is not kept.
    pub(crate) async fn start(&self, request: Request<Body>) -> Result<Response<Incoming>, Broken> {
        let (sent, _) = tokio::time::timeout(PATIENCE, self.head(request)).await.unwrap_or(Err(Broken::Silent))?;
        Ok(sent)
    }

    async fn exchange(&self, request: Request<Body>) -> Result<Answer, Broken> {
        let (response, sender) = self.head(request).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|_| Broken::Cut)?;
        self.idle.lock().expect("no panic under this lock").push((sender, Instant::now()));
        let trailers = body.trailers().cloned();
        Ok(Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers })
    }

    async fn head(&self, mut request: Request<Body>) -> Result<(Response<Incoming>, SendRequest<Body>), Broken> {
        let host = self.place.address.to_string().parse().expect("an address is a header value");
        request.headers_mut().entry(header::HOST).or_insert(host);
        loop {
            let mut sender = match self.take_idle() {
                Some(sender) => sender,
                None => self.connect().await?,
            };
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                // Never sent: the connection had ended while it was idle.
                Err(mut error) => request = error.take_message().ok_or(Broken::Cut)?,
            }
        }
    }

    fn take_idle(&self) -> Option<SendRequest<Body>> {
        let mut idle = self.idle.lock().expect("no panic under this lock");
        idle.retain(|(sender, since)| since.elapsed() < IDLE_TIMEOUT && !sender.is_closed());
        idle.pop().map(|(sender, _)| sender)
    }

    async fn connect(&self) -> Result<SendRequest<Body>, Broken> {
        let stream = self.place.connect().await.map_err(|_| Broken::Refused)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|_| Broken::Cut)?;
        self.connections.spawn(connection);
        Ok(sender)
    }
}

/// A request with a whole body.
pub(crate) fn request(method: Method, target: &str, body: impl Into<Bytes>) -> Request<Body> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    Request::builder().method(method).uri(target).body(body).expect("a valid request")
}

/// A request with one more header.
pub(crate) fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().append(name, value.parse().expect("a valid header"));
    request
}

/// The answer to one GET on a connection of its own.
///
/// # Panics
/// When there is none.
pub(crate) async fn get(place: impl Into<Place>, target: &str) -> Answer {
    let client = Client::new(place);
    let answer = client.send(request(Method::GET, target, "")).await;
    answer.unwrap_or_else(|broken| panic!("GET {target} at {}: {broken:?}", client.place.address))
}

/// The answer to one POST on a connection of its own.
///
/// # Panics
/// When there is none.
pub(crate) async fn post(place: impl Into<Place>, target: &str, body: impl Into<Bytes>) -> Answer {
    let client = Client::new(place);
    let answer = client.send(request(Method::POST, target, body)).await;
    answer.unwrap_or_else(|broken| panic!("POST {target} at {}: {broken:?}", client.place.address))
}
