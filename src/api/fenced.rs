//! A connection to the app that is asked a question of this node's own, and belongs to a tenure as those of clients' requests do.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::api::io::Fence;

/// A stream on which nothing is said any more once its tenure, if it has one, is over. It is the lowest there is, so that this
/// holds for what TLS says by itself, too.
#[derive(Debug)]
pub(super) struct Fenced<S> {
    stream: S,
    fence: Option<Fence>,
}

impl<S> Fenced<S> {
    pub(super) fn new(stream: S, fence: Option<Fence>) -> Self {
        Self { stream, fence }
    }

    fn check(&self) -> io::Result<()> {
        self.fence.as_ref().map_or(Ok(()), Fence::check)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Fenced<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Fenced<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, pieces: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
