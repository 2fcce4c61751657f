//! RAW: a socket's exact bytes, in both directions and on either side of a node.

use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::place::{Duplex, Place};
use super::within;

/// How long the other side may take for whatever a test awaits of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// One connection, with what has been read of it and not been asked for yet.
#[derive(Debug)]
pub(crate) struct Raw {
    stream: Box<dyn Duplex>,
    unread: Vec<u8>,
}

impl Raw {
    /// A client's connection to a node.
    pub(crate) async fn connect(place: impl Into<Place>) -> Self {
        let place = place.into();
        let stream = within("connecting", PATIENCE, place.connect()).await;
        Self { stream: stream.unwrap_or_else(|error| panic!("connect to {place}: {error}")), unread: Vec::new() }
    }

    /// A connection that is there already.
    pub(crate) fn over(stream: impl Duplex + 'static) -> Self {
        Self { stream: Box::new(stream), unread: Vec::new() }
    }

    /// The bare connection, of which nothing has been read that was not asked for.
    pub(crate) fn into_stream(self) -> Box<dyn Duplex> {
        assert!(self.unread.is_empty(), "{:?} has been read", lossy(&self.unread));
        self.stream
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        within("sending", PATIENCE, sent).await.expect("send");
    }

    /// Ends this side's direction: `shutdown(SHUT_WR)`.
    pub(crate) async fn finish(&mut self) {
        self.stream.shutdown().await.expect("end the sending side");
    }

    /// Everything up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            if let Some(at) = find(&self.unread, end.as_bytes()) {
                let rest = self.unread.split_off(at + end.len());
                return text(std::mem::replace(&mut self.unread, rest));
            }
            assert!(self.more(end).await, "the connection ended before {end:?}, after {:?}", lossy(&self.unread));
        }
    }

    /// A message's head, with the empty line that ends it.
    pub(crate) async fn head(&mut self) -> String {
        self.until("\r\n\r\n").await
    }

    /// The head of the next request to an app, which waits for it as long as it takes; none where the connection ends before.
    pub(crate) async fn next_head(&mut self) -> Option<String> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                let rest = self.unread.split_off(at + 4);
                return Some(text(std::mem::replace(&mut self.unread, rest)));
            }
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
    }

    /// The same with its body, which has a length or chunks without trailers.
    pub(crate) async fn next_request(&mut self) -> Option<(String, Vec<u8>)> {
        let head = self.next_head().await?;
        let body = self.next_body(&head).await?;
        Some((head, body))
    }

    /// The body behind a request's head; none where the connection ends before.
    pub(crate) async fn next_body(&mut self, head: &str) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        if header(head, "transfer-encoding").is_none() {
            let length = header(head, "content-length").map_or(0, |length| length.parse().expect("a length"));
            return self.next_bytes(length).await;
        }
        loop {
            let line = loop {
                if let Some(at) = find(&self.unread, b"\r\n") {
                    break self.next_bytes(at + 2).await?;
                }
                if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                    return None;
                }
            };
            let length = usize::from_str_radix(text(line).trim_end(), 16).expect("a chunk's length");
            let chunk = self.next_bytes(length + 2).await?;
            if length == 0 {
                return Some(body);
            }
            body.extend_from_slice(&chunk[..length]);
        }
    }

    async fn next_bytes(&mut self, length: usize) -> Option<Vec<u8>> {
        while self.unread.len() < length {
            if self.stream.read_buf(&mut self.unread).await.unwrap_or(0) == 0 {
                return None;
            }
        }
        let rest = self.unread.split_off(length);
        Some(std::mem::replace(&mut self.unread, rest))
    }

    /// Sends to somebody who may have left.
    pub(crate) async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        self.stream.write_all(bytes.as_ref()).await?;
        self.stream.flush().await
    }

    /// Exactly `length` bytes.
    pub(crate) async fn take(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            let read = self.unread.len();
            assert!(self.more(&format!("{length} bytes")).await, "the connection ended after {read} of {length} bytes");
        }
        let rest = self.unread.split_off(length);
        std::mem::replace(&mut self.unread, rest)
    }

    /// Everything until the other side ends its direction.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        while self.more("the end").await {}
        std::mem::take(&mut self.unread)
    }

    /// How the connection ends, behind whatever still comes: with an error where it breaks off, over TLS also without a goodbye.
    pub(crate) async fn end(&mut self) -> io::Result<()> {
        self.unread.clear();
        let ending = async {
            while self.stream.read_buf(&mut self.unread).await? > 0 {
                self.unread.clear();
            }
            Ok(())
        };
        within("the end", PATIENCE, ending).await
    }

    /// Whether the other side has ended the connection, by its end or by a reset.
    pub(crate) async fn is_cut(&mut self) -> bool {
        matches!(tokio::time::timeout(PATIENCE, self.stream.read(&mut [0; 1])).await, Ok(Ok(0) | Err(_)))
    }

    /// An answer whose body has a `Content-Length`: its head and its body.
    pub(crate) async fn answer(&mut self) -> (String, String) {
        let head = self.head().await;
        let length = header(&head, "content-length").unwrap_or_else(|| panic!("no length in {head:?}"));
        let body = self.take(length.parse().expect("a length")).await;
        (head, text(body))
    }

    /// Whether more came; false at the end of the other side's direction.
    async fn more(&mut self, awaited: &str) -> bool {
        match tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.unread)).await {
            Ok(Ok(read)) => read > 0,
            // Over TLS, a connection that breaks off: in the clear that is an end like any other.
            Ok(Err(error)) if error.kind() == ErrorKind::UnexpectedEof => false,
            Ok(Err(error)) => panic!("reading up to {awaited:?}: {error}, after {:?}", lossy(&self.unread)),
            Err(_) => panic!("nothing for {PATIENCE:?} on the way to {awaited:?}, after {:?}", lossy(&self.unread)),
        }
    }
}

/// An app of which a test plays every byte itself.
#[derive(Debug)]
pub(crate) struct Origin {
    listener: TcpListener,
}

impl Origin {
    pub(crate) async fn bind() -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// The same at `address`.
    pub(crate) async fn at(address: SocketAddr) -> Self {
        Self { listener: TcpListener::bind(address).await.expect("bind") }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("an address")
    }

    /// The next connection to it.
    pub(crate) async fn accept(&self) -> Raw {
        let (stream, _) = self.accept_bare().await;
        stream.set_nodelay(true).expect("no delay");
        Raw::over(stream)
    }

    /// The next connection, for a test that speaks more than TCP on it.
    pub(crate) async fn accept_bare(&self) -> (TcpStream, SocketAddr) {
        within("accepting a connection", PATIENCE, self.listener.accept()).await.expect("accept")
    }

    /// The next connection, however long it takes to come.
    pub(crate) async fn next(&self) -> TcpStream {
        let (stream, _) = self.listener.accept().await.expect("accept");
        stream.set_nodelay(true).expect("no delay");
        stream
    }

    /// The same, answered with these bytes and closed.
    pub(crate) async fn answer_next(&self, bytes: &[u8]) {
        let mut stream = self.next().await;
        // Whoever connected may have left meanwhile.
        stream.write_all(bytes).await.ok();
    }

    /// Plays `script` on every connection, until what is given back is dropped.
    pub(crate) fn play<F>(self, script: impl Fn(Raw) -> F + Send + 'static) -> Played
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.play_bare(move |stream| script(Raw::over(stream)))
    }

    /// The same for a script that speaks more than TCP.
    pub(crate) fn play_bare<F>(self, script: impl Fn(TcpStream) -> F + Send + 'static) -> Played
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = self.address();
        let mut playing = JoinSet::new();
        playing.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = self.listener.accept().await {
                stream.set_nodelay(true).expect("no delay");
                connections.spawn(script(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Played { address, _playing: playing }
    }

    /// Whether nobody connects for as long as `span`.
    pub(crate) async fn is_left_alone(&self, span: Duration) -> bool {
        tokio::time::timeout(span, self.listener.accept()).await.is_err()
    }
}

/// An app that plays its part by itself.
#[derive(Debug)]
pub(crate) struct Played {
    pub(crate) address: SocketAddr,
    _playing: JoinSet<()>,
}

/// The value of a header in a head, whatever the case of its name.
pub(crate) fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().skip(1).find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("UTF-8")
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(2_000)]).into_owned()
}
