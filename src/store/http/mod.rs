//! One HTTP/1.1 connection to a store's server, for one request at a time: what the drivers that speak HTTP have in common.
//!
//! HTTP/1.1 on purpose: a connection that went silent then takes one request with it, not all (kubernetes/kubernetes#125530).
//! Whom to ask, for how long and what to make of an answer is the drivers'.

use std::pin::{Pin, pin};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::store::contract::Cause;
use crate::store::tls::{self, Stream, Tls};

pub(super) use hyper::body::Incoming;

/// What is offered by ALPN.
pub(super) const PROTOCOL: &[u8] = b"http/1.1";

/// A head is a few lines.
const MOST_OF_A_HEAD: usize = 64 * 1024;

type Driver = Pin<Box<Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// A connection that is driven only while somebody waits for it: nothing of it runs in the background.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Driver>,
}

impl Line {
    /// Speaks HTTP over `stream`, inside TLS where it is given with the host that the server must prove to be. Not bounded:
    /// the caller is.
    pub(super) async fn over(stream: TcpStream, tls: Option<(&Tls, &str)>) -> Result<Self, Cause> {
        let stream = tls::over(stream, tls).await?;
        let (sender, driver) = Builder::new().max_buf_size(MOST_OF_A_HEAD).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Whether it can be asked again.
    pub(super) fn is_open(&self) -> bool {
        self.driver.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer, of which no more than `most` bytes are taken. Dropped in between, the
    /// connection is of no more use.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>, most: usize) -> Result<Response<Bytes>, Cause> {
        let (head, body) = self.send(request).await?.into_parts();
        let body = self.driven(Limited::new(body, most).collect()).await?.to_bytes();
        Ok(Response::from_parts(head, body))
    }

    /// Sends a request and hands out the answer, whose body comes only while it is waited for by [`driven`](Self::driven).
    pub(super) async fn send(&mut self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Cause> {
        let Self { sender, driver } = self;
        let exchange = async {
            sender.ready().await?;
            sender.send_request(request).await
        };
        Ok(driven(driver, exchange).await?)
    }

    /// Waits for something that comes over this connection.
    pub(super) async fn driven<F: Future>(&mut self, exchange: F) -> F::Output {
        driven(&mut self.driver, exchange).await
    }
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
