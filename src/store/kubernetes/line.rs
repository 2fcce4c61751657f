//! One HTTP/1.1 connection to the API server, for one request at a time.
//!
//! HTTP/1.1 on purpose: a connection that went silent then takes one request with it, not all (kubernetes/kubernetes#125530).

use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::access::{Server, Way};
use crate::store::contract::Cause;

/// etcd's limit for an object is 1.5 MiB.
const MOST_OF_A_BODY: usize = 2 * 1024 * 1024;
/// A head is a few lines.
const MOST_OF_A_HEAD: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Driver = Pin<Box<Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// A connection that is driven only while somebody waits for it: nothing of it runs in the background.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Driver>,
}

impl Line {
    /// Connects to the first address that takes a connection, each in its share of `limit`, beginning with another one at
    /// each `turn`. What follows is not bounded: the caller is.
    pub(super) async fn open(server: &Server, way: &Way, turn: usize, limit: Duration) -> Result<Self, Cause> {
        let stream = connect(server, turn, limit).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match way {
            Way::Plain => Box::new(stream),
            Way::Tls(tls, name) => Box::new(Box::pin(tls.connect(name.clone(), stream)).await?),
        };
        let (sender, driver) = Builder::new().max_buf_size(MOST_OF_A_HEAD).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Whether it can be asked again.
    pub(super) fn is_open(&self) -> bool {
        self.driver.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer. Dropped in between, the connection is of no more use.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), Cause> {
        let (status, body) = self.send(request).await?;
        let body = driven(&mut self.driver, Limited::new(body, MOST_OF_A_BODY).collect()).await?.to_bytes();
        Ok((status, body))
    }

    /// Sends a request and hands its answer out as it comes.
    pub(super) async fn listen(mut self, request: Request<Full<Bytes>>) -> Result<Lines, Cause> {
        let (status, body) = self.send(request).await?;
        Ok(Lines { line: self, status, body, buffer: Vec::new() })
    }

    async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Incoming), Cause> {
        let Self { sender, driver } = self;
        let exchange = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        let (head, body) = driven(driver, exchange).await?.into_parts();
        Ok((head.status, body))
    }
}

async fn connect(server: &Server, turn: usize, limit: Duration) -> Result<TcpStream, Cause> {
    let addresses = tokio::net::lookup_host((server.host(), server.port())).await?.collect::<Vec<_>>();
    let count = addresses.len().max(1);
    let share = limit / u32::try_from(count).unwrap_or(u32::MAX);
    let mut failure = Cause::from("its name has no address");
    for address in addresses.iter().cycle().skip(turn % count).take(addresses.len()) {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => failure = error.into(),
            Err(_) => failure = format!("{address} took no connection within {share:?}").into(),
        }
    }
    Err(failure)
}

/// Waits for `exchange`, and lets the connection go on meanwhile. What goes wrong with it, the exchange hears as well.
async fn driven<F: Future>(driver: &mut Option<Driver>, exchange: F) -> F::Output {
    let mut exchange = pin!(exchange);
    if let Some(running) = driver {
        tokio::select! {
            biased;
            outcome = &mut exchange => return outcome,
            _ = running => *driver = None,
        }
    }
    exchange.await
}

/// An answer that comes in lines, for as long as the server likes.
pub(super) struct Lines {
    line: Line,
    pub(super) status: StatusCode,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    /// The next line without its end; nothing when the answer is over.
    ///
    /// # Cancel safety
    /// What has come stays for the next call.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Cause> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line = self.buffer.drain(..=end).take(end).collect::<Vec<_>>();
                return Ok(Some(line.into()));
            }
            if self.buffer.len() > MOST_OF_A_BODY {
                return Err("sent a line without an end".into());
            }
            let Some(frame) = driven(&mut self.line.driver, self.body.frame()).await.transpose()? else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// All that is left of an answer that is no stream.
    pub(super) async fn rest(mut self) -> Result<Bytes, Cause> {
        let body = driven(&mut self.line.driver, Limited::new(self.body, MOST_OF_A_BODY).collect()).await?;
        Ok(body.to_bytes())
    }
}
