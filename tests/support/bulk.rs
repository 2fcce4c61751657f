//! Much in either direction, whose every byte is looked at, and an app that takes and gives it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How much is sent at a time, and the most that is looked at at once.
pub(crate) const PIECE: usize = 64 * 1024;
/// The bytes repeat after so many: a prime, so that nothing that is lost or doubled goes unseen.
const PERIOD: usize = 65_521;

/// What goes one way.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    bytes: Bytes,
    /// How much it is.
    pub(crate) size: u64,
}

impl Pattern {
    pub(crate) fn new(size: u64) -> Self {
        let mut random = fastrand::Rng::with_seed(7);
        let period: Vec<u8> = (0..PERIOD).map(|_| random.u8(..)).collect();
        Self { bytes: period.iter().copied().cycle().take(PERIOD + PIECE).collect(), size }
    }

    /// The piece at `offset`, the last one shorter than the others.
    pub(crate) fn piece(&self, offset: u64) -> Bytes {
        let length = usize::try_from(self.size - offset).expect("a machine of 64 bits").min(PIECE);
        self.slice(offset, length)
    }

    /// All pieces in order.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Bytes> + Send + Sync {
        (0..self.size).step_by(PIECE).map(move |offset| self.piece(offset))
    }

    /// # Panics
    /// When `bytes` are not those at `offset`.
    pub(crate) fn assert_at(&self, offset: u64, bytes: &[u8]) {
        let mut at = offset;
        for piece in bytes.chunks(PIECE) {
            assert!(*piece == *self.slice(at, piece.len()), "not the bytes at {at}");
            at += piece.len() as u64;
        }
    }

    fn slice(&self, offset: u64, length: usize) -> Bytes {
        let begin = usize::try_from(offset % PERIOD as u64).expect("less than a period");
        self.bytes.slice(begin..begin + length)
    }
}

/// An app that answers GET with all of a pattern, and takes it by POST; until it is dropped.
#[derive(Debug)]
pub(crate) struct BulkApp {
    pub(crate) address: SocketAddr,
    pub(crate) pattern: Pattern,
    /// How much it has sent in all, as far as the system has taken it.
    pub(crate) sent: Arc<AtomicU64>,
    _serving: JoinSet<()>,
}

impl BulkApp {
    pub(crate) async fn start(size: u64) -> Self {
        let pattern = Pattern::new(size);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind an app");
        let address = listener.local_addr().expect("an address");
        let (sent, mut serving) = (Arc::<AtomicU64>::default(), JoinSet::new());
        let (counter, served) = (Arc::clone(&sent), pattern.clone());
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(converse(stream, served.clone(), Arc::clone(&counter)));
            }
        });
        Self { address, pattern, sent, _serving: serving }
    }
}

/// One exchange after the other, until the other side ends the connection.
async fn converse(mut stream: TcpStream, pattern: Pattern, sent: Arc<AtomicU64>) {
    let mut heard = Vec::new();
    loop {
        let end = loop {
            if let Some(at) = heard.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut heard).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let rest = heard.split_off(end);
        if heard.starts_with(b"GET ") {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", pattern.size);
            stream.write_all(head.as_bytes()).await.expect("a head is taken");
            for piece in pattern.clone().pieces() {
                if stream.write_all(&piece).await.is_err() {
                    return;
                }
                sent.fetch_add(piece.len() as u64, Ordering::Relaxed);
            }
        } else {
            pattern.assert_at(0, &rest);
            let (mut offset, mut buffer) = (rest.len() as u64, vec![0; 4 * PIECE]);
            while offset < pattern.size {
                let read = stream.read(&mut buffer).await.expect("the body goes on");
                assert!(read > 0, "the body ends after {offset} bytes");
                pattern.assert_at(offset, &buffer[..read]);
                offset += read as u64;
            }
            let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{offset}", offset.to_string().len());
            stream.write_all(answer.as_bytes()).await.expect("the answer is taken");
        }
        heard.clear();
    }
}
