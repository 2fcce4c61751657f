//! A small client for one question to one node, or to an app: what the reading and acting commands use.
//!
//! It opens a connection, asks once, and closes. Every step is bounded by the one limit that the caller gives.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONNECTION, HOST, USER_AGENT};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::admin::Token;
use super::fenced::Fenced;
use super::handshake::is_refusal_of_plain_http;
use super::headers::EPOCH;
use super::io::Fence;
use crate::node::Address;
use crate::tls;

/// More than any answer of a node is long.
const LONGEST_ANSWER: usize = 1 << 20;

/// Which node to ask.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// At an address; the host may be a name.
    Tcp(Address),
    /// At a unix socket.
    Unix(PathBuf),
}

/// What a question goes out with.
#[derive(Clone, Copy, Default, Debug)]
pub struct With<'a> {
    /// What gives the right to act.
    pub token: Option<&'a Token>,
    /// TLS, over TCP.
    pub tls: Option<&'a tls::Client>,
}

/// Why a text names no node.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TargetError {
    /// Not one of the forms.
    #[error("write host:port, :port, tcp://host:port or unix:///path")]
    Form,
}

/// Why a node gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("cannot connect to {target}, is a node running there? -H (BELLWETHER_HOST) names another")]
    Connect {
        /// Which node.
        target: Target,
        /// What the system reported.
        source: std::io::Error,
    },
    /// Whoever listens there broke the exchange off, or does not speak HTTP.
    #[error("{target} did not answer as a node does")]
    Exchange {
        /// Which node.
        target: Target,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It speaks TLS, and was asked in plain HTTP.
    #[error("{target} speaks TLS: add --tls (BELLWETHER_TLS), and --tlscacert unless a CA of this system issued its certificate")]
    Secured {
        /// Which node.
        target: Target,
    },
    /// Not in time.
    #[error("{target} did not answer within {}", humantime::format_duration(*.limit))]
    Timeout {
        /// Which node.
        target: Target,
        /// The limit that was given.
        limit: Duration,
    },
}

/// What a node answered.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// Its fields.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Target {
    /// Asks this node once, within `limit`, with what `with` brings along.
    ///
    /// # Errors
    /// [`ClientError`] when there was no answer; an answer of any status is `Ok`.
    pub async fn ask(&self, method: Method, path: &str, with: With<'_>, limit: Duration) -> Result<Answer, ClientError> {
        self.ask_behind(None, method, path, with, limit).await
    }

    /// The same, of the app, by a primary: under the tenure that `fence` is about, once which is over nothing more is said.
    ///
    /// # Errors
    /// As [`ask`](Self::ask), and when the tenure ends before the question is asked.
    pub(super) async fn ask_under(
        &self,
        fence: Fence,
        method: Method,
        path: &str,
        with: With<'_>,
        limit: Duration,
    ) -> Result<Answer, ClientError> {
        self.ask_behind(Some(fence), method, path, with, limit).await
    }

    async fn ask_behind(
        &self,
        fence: Option<Fence>,
        method: Method,
        path: &str,
        with: With<'_>,
        limit: Duration,
    ) -> Result<Answer, ClientError> {
        let tls = with.tls;
        let broken = |source| ClientError::Exchange { target: self.clone(), source };
        let request = self.request(method, path, with, fence.as_ref()).map_err(|error| broken(error.into()))?;
        let asked = async {
            let refused = |source| ClientError::Connect { target: self.clone(), source };
            match self {
                Self::Tcp(address) => {
                    let stream = TcpStream::connect((address.host(), address.port())).await.map_err(refused)?;
                    let stream = Fenced::new(stream, fence);
                    let Some(tls) = tls else { return self.exchange(stream, request).await };
                    let stream = Box::pin(tls.connect(address.host(), stream)).await.map_err(|error| broken(error.into()))?;
                    self.exchange(stream, request).await
                }
                Self::Unix(socket) => {
                    let stream = UnixStream::connect(socket).await.map_err(refused)?;
                    self.exchange(Fenced::new(stream, fence), request).await
                }
            }
        };
        let answer =
            tokio::time::timeout(limit, asked).await.unwrap_or_else(|_| Err(ClientError::Timeout { target: self.clone(), limit }))?;
        if is_refusal_of_plain_http(answer.status, &answer.body) {
            return Err(ClientError::Secured { target: self.clone() });
        }
        Ok(answer)
    }

    async fn exchange<S>(&self, stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, ClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let broken = |source| ClientError::Exchange { target: self.clone(), source };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| broken(error.into()))?;
        let answered = async {
            let (head, body) = sender.send_request(request).await.map_err(|error| broken(error.into()))?.into_parts();
            let body = Limited::new(body, LONGEST_ANSWER).collect().await.map_err(broken)?.to_bytes();
            Ok(Answer { status: head.status, headers: head.headers, body })
        };
        tokio::pin!(answered);
        tokio::select! {
            biased;
            answer = &mut answered => answer,
            ended = connection => match ended {
                // The connection may end with the answer complete and not yet read.
                Ok(()) => answered.await,
                Err(error) => Err(broken(error.into())),
            },
        }
    }

    fn request(&self, method: Method, path: &str, with: With<'_>, fence: Option<&Fence>) -> http::Result<Request<Empty<Bytes>>> {
        let host = match self {
            Self::Tcp(address) => address.as_str(),
            Self::Unix(_) => "localhost",
        };
        let mut request = Request::builder().method(method).uri(path).header(HOST, host).header(CONNECTION, "close");
        request = request.header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")));
        if let Some(fence) = fence {
            request = request.header(EPOCH, fence.epoch.0);
        }
        if let Some(token) = with.token {
            request = request.header(AUTHORIZATION, token.bearer());
        }
        request.body(Empty::new())
    }
}

impl FromStr for Target {
    type Err = TargetError;

    /// Takes every form that a node listens on. Of several, as a node's own `BELLWETHER_HOST` may hold, the first.
    fn from_str(text: &str) -> Result<Self, TargetError> {
        let first = text.split(',').next().unwrap_or(text);
        if let Some(path) = first.strip_prefix("unix://") {
            return if path.starts_with('/') { Ok(Self::Unix(path.into())) } else { Err(TargetError::Form) };
        }
        let place = first.strip_prefix("tcp://").or_else(|| first.strip_prefix("http://")).unwrap_or(first);
        let place = place.strip_suffix('/').unwrap_or(place);
        let local = if place.starts_with(':') { "127.0.0.1" } else { "" };
        format!("{local}{place}").parse().map(Self::Tcp).map_err(|_| TargetError::Form)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(socket) => write!(out, "unix://{}", socket.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_as_it_listens() {
        for (text, shown) in [
            (":4000", "127.0.0.1:4000"),
            ("10.0.0.1:4000", "10.0.0.1:4000"),
            ("tcp://node-1:4000", "node-1:4000"),
            ("http://node-1:4000/", "node-1:4000"),
            ("[::1]:4000", "[::1]:4000"),
            ("unix:///run/b.sock", "unix:///run/b.sock"),
            (":4000,unix:///run/b.sock", "127.0.0.1:4000"),
        ] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), shown, "{text}");
        }
        for text in ["", "4000", "unix://relative", "::1", "https://node:4000", "node:0"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
