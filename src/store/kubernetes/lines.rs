//! The ways to the API server, and answers that come in lines.

use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::access::{Server, Way};
use crate::store::contract::Cause;
use crate::store::http::{Incoming, Line};

/// etcd's limit for an object is 1.5 MiB.
pub(super) const MOST_OF_A_BODY: usize = 2 * 1024 * 1024;

/// Connects to the first address that takes a connection, each in its share of `limit`, beginning with another one at
/// each `turn`. What follows is not bounded: the caller is.
pub(super) async fn open(server: &Server, way: &Way, turn: usize, limit: Duration) -> Result<Line, Cause> {
    let tls = match way {
        Way::Plain => None,
        Way::Tls(tls, name) => Some((tls, name.as_str())),
    };
    Line::over(connect(server, turn, limit).await?, tls).await
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

/// An answer that comes in lines, for as long as the server likes.
pub(super) struct Lines {
    line: Line,
    pub(super) status: StatusCode,
    body: Incoming,
    buffer: Vec<u8>,
}

impl Lines {
    /// Sends a request over a connection that is the answer's from then on, and hands it out as it comes.
    pub(super) async fn ask(mut line: Line, request: Request<Full<Bytes>>) -> Result<Self, Cause> {
        let (head, body) = line.send(request).await?.into_parts();
        Ok(Self { line, status: head.status, body, buffer: Vec::new() })
    }

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
            let Some(frame) = self.line.driven(self.body.frame()).await.transpose()? else { return Ok(None) };
            if let Ok(data) = frame.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }

    /// All that is left of an answer that is no stream.
    pub(super) async fn rest(mut self) -> Result<Bytes, Cause> {
        let body = self.line.driven(Limited::new(self.body, MOST_OF_A_BODY).collect()).await?;
        Ok(body.to_bytes())
    }
}
