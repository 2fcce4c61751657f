//! A small HTTP client with kept-alive connections to one address, for the demo's load and its look at `/info`.
//!
//! It does what a careful client does and no more: a connection that turns out to be closed is replaced, as long as
//! nothing of the request was sent on it, and one that has been idle for long is not used again, because its node may be
//! closing it at that moment.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;

/// How long an idle connection is kept.
const IDLE_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a connection to this machine may take to be opened.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

type Sender = SendRequest<Full<Bytes>>;

/// Why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Broken {
    /// Nothing listens there, so nothing was sent.
    Refused,
    /// The connection ended, or fell silent, with the request on its way.
    Cut,
}

/// Kept-alive connections to one address.
pub(super) struct Client {
    address: SocketAddr,
    host: HeaderValue,
    idle: Mutex<Vec<(Sender, Instant)>>,
    connections: TaskTracker,
}

impl Client {
    pub(super) fn new(address: SocketAddr) -> Self {
        let host = HeaderValue::from_str(&address.to_string()).expect("an address is a header value");
        Self { address, host, idle: Mutex::default(), connections: TaskTracker::new() }
    }

    /// Sends `request` and reads the whole answer, which must come within `limit`.
    ///
    /// # Errors
    /// [`Broken`] when there was none.
    pub(super) async fn exchange(&self, mut request: Request<Full<Bytes>>, limit: Duration) -> Result<Response<Bytes>, Broken> {
        request.headers_mut().insert(header::HOST, self.host.clone());
        timeout(limit, self.attempts(request)).await.unwrap_or(Err(Broken::Cut))
    }

    async fn attempts(&self, mut request: Request<Full<Bytes>>) -> Result<Response<Bytes>, Broken> {
        loop {
            let mut sender = match self.idle() {
                Some(sender) => sender,
                None => match self.connect().await {
                    Ok(sender) => sender,
                    Err(_) => return Err(Broken::Refused),
                },
            };
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    let body = body.collect().await.map_err(|_| Broken::Cut)?.to_bytes();
                    self.keep(sender);
                    return Ok(Response::from_parts(head, body));
                }
                Err(mut error) => request = error.take_message().ok_or(Broken::Cut)?,
            }
        }
    }

    fn idle(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|(sender, since)| since.elapsed() < IDLE_TIMEOUT && !sender.is_closed());
        idle.pop().map(|(sender, _)| sender)
    }

    fn keep(&self, sender: Sender) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push((sender, Instant::now()));
    }

    async fn connect(&self) -> Result<Sender, Box<dyn std::error::Error + Send + Sync>> {
        let stream = timeout(CONNECT_TIMEOUT, TcpStream::connect(self.address)).await??;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        self.connections.spawn(connection);
        Ok(sender)
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Client({})", self.address)
    }
}
