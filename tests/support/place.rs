//! Where requests come in, and how whoever sends them speaks there.

use std::fmt::{self, Debug};
use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::secure::Secure;

/// A stream of any kind.
pub(crate) trait Duplex: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Debug + Send + Unpin> Duplex for S {}

/// An address, and how it is spoken to.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) address: SocketAddr,
    /// Speaks TLS there.
    pub(crate) tls: Option<Secure>,
}

impl From<SocketAddr> for Place {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

impl From<&Self> for Place {
    fn from(place: &Self) -> Self {
        place.clone()
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.scheme(), self.address)
    }
}

impl Place {
    /// By which URLs name it.
    pub(crate) fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// The same with HTTP/2 as all there is to choose, where hands are shaken.
    pub(crate) fn for_http2(&self) -> Self {
        Self { address: self.address, tls: self.tls.as_ref().map(Secure::for_http2) }
    }

    /// A connection to it that is ready for HTTP.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Duplex>> {
        self.over(TcpStream::connect(self.address).await?).await
    }

    /// The same over a bare connection that is there already.
    pub(crate) async fn over(&self, stream: TcpStream) -> io::Result<Box<dyn Duplex>> {
        stream.set_nodelay(true)?;
        Ok(match &self.tls {
            None => Box::new(stream),
            Some(tls) => Box::new(tls.over(stream).await?),
        })
    }
}
