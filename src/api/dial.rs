//! Opening a connection to an upstream.
//!
//! A name is looked up for each connection, so that an upstream which has moved is found where it is now (B78). All that the
//! name stands for is tried, beginning with what answered last: a dead address costs its time once, and not at each request.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use crate::api::ahead::Ahead;
use crate::api::io::Socket;
use crate::cluster::Upstream;
use crate::tls;

/// How long an upstream may be silent before its machine is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);
/// How long from one such question to the next,
const ASK_EVERY: Duration = Duration::from_secs(2);
/// and how many are asked before it is taken for lost, and its connection with it.
const QUESTIONS: u32 = 3;
/// How long a TLS handshake may take, once connected. It waits for work to be done at the other end, of which there may be
/// a lot at once.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// An upstream, and how it is spoken to.
#[derive(Clone, Debug)]
pub(super) struct Way {
    upstream: Upstream,
    /// There is one for an upstream that speaks TLS.
    tls: Option<tls::Client>,
    /// Whether an upstream that speaks TLS may choose HTTP/2.
    either: bool,
    /// The address that answered last, of those that the upstream's name stands for.
    answered: Rc<Cell<Option<SocketAddr>>>,
}

impl From<Upstream> for Way {
    fn from(upstream: Upstream) -> Self {
        Self::new(upstream, None)
    }
}

impl Way {
    /// The way to an upstream, with `tls` where it speaks that.
    pub(super) fn new(upstream: Upstream, tls: Option<tls::Client>) -> Self {
        Self { upstream, tls, either: false, answered: Rc::default() }
    }

    /// The same, letting an upstream that speaks TLS choose HTTP/2 if `either`.
    pub(super) fn offering_http2(self, either: bool) -> Self {
        Self { either, ..self }
    }

    /// Whether the upstream may be one that speaks HTTP/2.
    pub(super) fn may_be_http2(&self) -> bool {
        match self.upstream {
            Upstream::H2c { .. } => true,
            Upstream::Https { .. } => self.either,
            Upstream::Http { .. } | Upstream::Unix(_) => false,
        }
    }

    pub(super) fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// Connects by `deadline`, and shakes hands after that. An upstream that may choose HTTP/2 is not let to with
    /// `http1_only`.
    ///
    /// # Errors
    /// Nothing of a request has been sent then. With [`tls::Untrusted`] inside when the upstream is not whom it should be.
    pub(super) async fn dial(&self, deadline: Instant, http1_only: bool) -> io::Result<Socket> {
        match &self.upstream {
            Upstream::Unix(path) => timeout_at(deadline, UnixStream::connect(path)).await.map_err(late)?.map(Socket::Unix),
            Upstream::Http { host, port } | Upstream::H2c { host, port } => self.connect(host, *port, deadline).await.map(Socket::Tcp),
            Upstream::Https { host, port } => {
                let stream = self.connect(host, *port, deadline).await?;
                let tls = self.tls.as_ref().ok_or_else(|| io::Error::other("nobody said whom to believe there"))?;
                // Boxed, so that those who dial without TLS have no room for it.
                let stream = Ahead::new(stream);
                let shaken = if self.either && !http1_only {
                    timeout(HANDSHAKE, Box::pin(tls.connect_for_either(host, stream))).await
                } else {
                    timeout(HANDSHAKE, Box::pin(tls.connect(host, stream))).await
                };
                let stream = shaken.map_err(late).and_then(|shaken| shaken).inspect_err(|_| self.doubt())?;
                Ok(Socket::Tls(Box::new(stream.into())))
            }
        }
    }

    /// Begins anew with the first address that the name stands for: whoever answers at the one of the last connection is not
    /// whom it should be.
    pub(super) fn doubt(&self) {
        self.answered.set(None);
    }

    /// Connects to the first address that answers. Each address gets its share of the time, so that a dead first one does
    /// not use it up.
    async fn connect(&self, host: &str, port: u16, deadline: Instant) -> io::Result<TcpStream> {
        let mut addresses: Vec<_> = timeout_at(deadline, lookup_host((host, port))).await.map_err(late)??.collect();
        addresses.sort_by_key(|address| Some(*address) != self.answered.get());
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
        for (tried, address) in addresses.iter().enumerate() {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match timeout_at(Instant::now() + share, TcpStream::connect(address)).await.map_err(late) {
                Ok(Ok(stream)) => {
                    self.answered.set(Some(*address));
                    stream.set_nodelay(true)?;
                    let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_EVERY).with_retries(QUESTIONS);
                    SockRef::from(&stream).set_tcp_keepalive(&probes)?;
                    return Ok(stream);
                }
                Ok(Err(error)) | Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

fn late(_: tokio::time::error::Elapsed) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_upstream_s_host_is_asked_whether_it_is_still_there() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream: Upstream = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let dialled = Way::from(upstream).dial(Instant::now() + Duration::from_secs(20), true).await.unwrap();
        let Socket::Tcp(stream) = dialled else { panic!("a TCP stream") };
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().unwrap() && socket.tcp_nodelay().unwrap());
        let asked = (socket.tcp_keepalive_time(), socket.tcp_keepalive_interval(), socket.tcp_keepalive_retries());
        assert_eq!((asked.0.unwrap(), asked.1.unwrap(), asked.2.unwrap()), (SILENCE, ASK_EVERY, QUESTIONS));
    }
}
