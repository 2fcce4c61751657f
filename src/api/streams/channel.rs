//! A stream that has become a tunnel, to read from and write to.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that has become a tunnel. The library reads one that its other end has reset as one that has ended; but whoever writes
/// there is told.
pub(in crate::api) struct Channel {
    io: TokioIo<Upgraded>,
    /// Whether it was read to its end, of whichever kind.
    ends: bool,
}

impl Channel {
    pub(in crate::api) fn new(upgraded: Upgraded) -> Self {
        Self { io: TokioIo::new(upgraded), ends: false }
    }
}

/// Whether the other end wants to hear no more, but means no harm (RFC 9113 §8.1).
fn means_no_harm(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|error| error.source()).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.and_then(h2::Error::reason) == Some(h2::Reason::NO_ERROR)
}

/// Whoever wants to hear no more is like one whose connection was closed for what is sent: what it has said before that is to be
/// read to its end.
fn as_of_a_connection(error: io::Error) -> io::Error {
    if means_no_harm(&error) { io::Error::new(io::ErrorKind::BrokenPipe, error) } else { error }
}

impl AsyncRead for Channel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(cx, buf)).map_err(as_of_a_connection)?;
        if buf.filled().len() > before {
            return Poll::Ready(Ok(()));
        }
        if !std::mem::replace(&mut self.ends, true) {
            // The task that writes was woken by the same news, and has its turn first.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        match Pin::new(&mut self.io).poll_flush(cx) {
            Poll::Ready(Err(error)) if !means_no_harm(&error) => Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionReset, error))),
            Poll::Ready(_) | Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Channel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes).map_err(as_of_a_connection)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx).map_err(as_of_a_connection)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx).map_err(as_of_a_connection)
    }
}
