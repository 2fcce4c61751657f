//! A TCP stream below TLS, read in large pieces where much is coming.
//!
//! The TLS library asks for 4 KiB at a time, which makes five system calls of each record of a long body. So once such a
//! question was answered in full, as much as has come is read at once and handed out from memory; as soon as nothing more
//! is there the memory goes, so that an idle connection has none.

use std::io::{self, IoSlice, Read};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at once: two records of TLS.
const AHEAD: usize = 32 * 1024;

/// A TCP stream that may have been read ahead.
#[derive(Debug)]
pub(super) struct Ahead {
    pub(super) tcp: TcpStream,
    /// There while much is coming.
    buffer: Option<Box<Buffer>>,
    /// The latest question was answered in full.
    much: bool,
}

#[derive(Debug)]
struct Buffer {
    bytes: [u8; AHEAD],
    taken: usize,
    filled: usize,
}

impl Ahead {
    pub(super) fn new(tcp: TcpStream) -> Self {
        Self { tcp, buffer: None, much: false }
    }

    /// Whether something was read that nobody has asked for yet.
    pub(super) fn has_more(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.taken < buffer.filled)
    }

    /// Hands out what was read ahead, up to `most` bytes, to `take`.
    fn hand_out<T>(&mut self, most: usize, take: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let buffer = self.buffer.as_mut().filter(|buffer| buffer.taken < buffer.filled)?;
        let end = buffer.filled.min(buffer.taken + most);
        let taken = take(&buffer.bytes[buffer.taken..end]);
        buffer.taken = end;
        Some(taken)
    }
}

/// Without waiting, and asking the system itself: the runtime need not know yet of what has come.
impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len();
        let handed = self.hand_out(most, |bytes| {
            into[..bytes.len()].copy_from_slice(bytes);
            bytes.len()
        });
        handed.map_or_else(|| (&*SockRef::from(&self.tcp)).read(into), Ok)
    }
}

impl AsyncRead for Ahead {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.has_more() && this.much {
            let buffer = this.buffer.get_or_insert_with(|| Box::new(Buffer { bytes: [0; AHEAD], taken: 0, filled: 0 }));
            let mut room = ReadBuf::new(&mut buffer.bytes);
            let read = Pin::new(&mut this.tcp).poll_read(cx, &mut room);
            (buffer.taken, buffer.filled) = (0, room.filled().len());
            if !matches!(read, Poll::Ready(Ok(()))) || buffer.filled == 0 {
                (this.buffer, this.much) = (None, false);
                return read;
            }
        }
        if this.hand_out(into.remaining(), |bytes| into.put_slice(bytes)).is_some() {
            return Poll::Ready(Ok(()));
        }
        ready!(Pin::new(&mut this.tcp).poll_read(cx, into))?;
        this.much = into.remaining() == 0;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Ahead {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(cx, bytes)
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn whatever_the_pieces_all_comes_in_its_order_and_no_memory_is_kept() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut ahead = Ahead::new(listener.accept().await.unwrap().0);
        let sent = (0..1_000_000_u32).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect::<Vec<_>>();
        let send = async {
            for piece in sent.chunks(70_001) {
                sender.write_all(piece).await.unwrap();
            }
        };
        let read = async {
            let mut read = Vec::new();
            let mut was_ahead = false;
            for (turn, size) in [4096, 1, 100, 4096, 16_000].into_iter().cycle().enumerate() {
                if read.len() == sent.len() {
                    break;
                }
                let mut piece = vec![0; size];
                // Now and then as somebody does who does not wait.
                let at_once = if turn % 3 == 0 { Read::read(&mut ahead, &mut piece).ok() } else { None };
                let length = match at_once {
                    Some(length) => length,
                    None => AsyncReadExt::read(&mut ahead, &mut piece).await.unwrap(),
                };
                was_ahead |= ahead.has_more();
                read.extend_from_slice(&piece[..length]);
            }
            assert!(was_ahead, "nothing was ever read ahead");
            read
        };
        let (read, ()) = timeout(Duration::from_secs(20), async { tokio::join!(read, send) }).await.unwrap();
        assert!(read == sent);
        let idle = timeout(Duration::from_millis(1), AsyncReadExt::read(&mut ahead, &mut [0; 4096])).await;
        assert!(idle.is_err() && ahead.buffer.is_none());
    }
}
