//! One direction of a tunnel.
//!
//! All tunnels of a worker read into one chunk of memory, which is at nobody's disposal while anybody waits: what cannot be
//! passed on at once is copied out of it. So a tunnel without news costs no buffer, and one whose reader is slow costs a
//! chunk at most. Where a pump can be dropped while it waits, it can be used again: nothing of what was read is lost.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;

use super::frames::Frames;
use crate::api::worker::Core;

/// How much is read at a time.
pub(in crate::api) const CHUNK: usize = 16 * 1024;

/// Whose connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Client,
    Upstream,
}

/// A side that broke, and how.
pub(super) type Broken = (Side, io::Error);

/// Where bytes come from.
pub(super) struct Source<R> {
    io: R,
    side: Side,
    core: Rc<Core>,
    /// Of a WebSocket.
    frames: Option<Frames>,
    /// How many bytes have come.
    bytes: Rc<Cell<u64>>,
    ended: bool,
}

/// Where they go.
pub(super) struct Sink<W> {
    pub(super) io: W,
    side: Side,
    /// What was read and not yet taken, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    /// Whether it was told that nothing follows.
    pub(super) ended: bool,
}

/// One direction.
pub(super) struct Pump<R, W> {
    pub(super) source: Source<R>,
    pub(super) sink: Sink<W>,
    pub(super) goodbyes: Rc<Goodbyes>,
}

/// Whose Close frames have been passed on.
#[derive(Default)]
pub(super) struct Goodbyes {
    /// Whose was the first.
    first: Cell<Option<Side>>,
    exchanged: Cell<bool>,
    /// Notified when the other's has been, too.
    pub(super) exchange: Notify,
}

impl Goodbyes {
    fn note(&self, side: Side) {
        let first = self.first.get().unwrap_or(side);
        self.first.set(Some(first));
        if first != side && !self.exchanged.replace(true) {
            self.exchange.notify_one();
        }
    }

    /// Whether nothing is left to be said.
    pub(super) fn are_exchanged(&self) -> bool {
        self.exchanged.get()
    }

    /// Whether the client was the first to say it.
    pub(super) fn are_begun_by_client(&self) -> bool {
        self.first.get() == Some(Side::Client)
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Pump<R, W> {
    /// Whether more can come this way.
    pub(super) fn is_open(&self) -> bool {
        !self.source.ended && !self.source.closes()
    }

    /// Passes everything on until the source has ended, which is not passed on.
    ///
    /// # Errors
    /// When one of the sides breaks.
    ///
    /// # Cancel safety
    /// May be dropped at any time, and called again.
    pub(super) async fn pass(&mut self) -> Result<(), Broken> {
        while !self.source.ended {
            self.sink.deliver().await?;
            if self.source.is_closed() {
                self.goodbyes.note(self.source.side);
            }
            let Self { source, sink, .. } = self;
            poll_fn(|cx| {
                source.poll_read(cx, |source, cx, bytes| {
                    source.follow(bytes);
                    sink.take(cx, bytes)
                })
            })
            .await?;
        }
        self.sink.deliver().await
    }

    /// Passes the rest of a frame on that has begun, if one has, and then `frame`, after which nothing may follow.
    ///
    /// # Errors
    /// When one of the sides breaks, or the source ends in the middle of a frame.
    pub(super) async fn put_in(&mut self, frame: &[u8]) -> Result<(), Broken> {
        let Self { source, sink, .. } = self;
        while !source.is_between() {
            sink.deliver().await?;
            let is_whole = poll_fn(|cx| {
                source.poll_read(cx, |source, cx, bytes| {
                    let rest = source.follow_one(bytes);
                    sink.take(cx, &bytes[..bytes.len() - rest.len()])?;
                    source.follow(rest);
                    Ok(!rest.is_empty())
                })
            })
            .await?;
            if is_whole {
                break;
            }
            if source.ended {
                return Err((source.side, io::ErrorKind::UnexpectedEof.into()));
            }
        }
        sink.put(frame).await
    }
}

impl<R: AsyncRead + Unpin> Source<R> {
    /// A side of which `bytes` are counted; of a WebSocket with `frames`.
    pub(super) fn new(io: R, side: Side, core: &Rc<Core>, bytes: &Rc<Cell<u64>>, frames: Option<Frames>) -> Self {
        Self { io, side, core: Rc::clone(core), frames, bytes: Rc::clone(bytes), ended: false }
    }

    /// Whether a frame may be put in behind what has come.
    pub(super) fn is_between(&self) -> bool {
        self.frames.as_ref().is_some_and(Frames::is_between)
    }

    /// Whether a Close frame has come, or begun to.
    pub(super) fn closes(&self) -> bool {
        self.frames.as_ref().is_some_and(Frames::closes)
    }

    /// Whether a Close frame has come to its end.
    pub(super) fn is_closed(&self) -> bool {
        self.frames.as_ref().is_some_and(Frames::is_closed)
    }

    /// Takes what comes and lets it go, until a Close frame has come or the end.
    ///
    /// # Errors
    /// When the side breaks.
    pub(super) async fn discard_to_close(&mut self) -> Result<(), Broken> {
        while !self.ended && !self.is_closed() {
            self.discard().await?;
        }
        Ok(())
    }

    /// The same until the end.
    ///
    /// # Errors
    /// When the side breaks.
    pub(super) async fn discard_all(&mut self) -> Result<(), Broken> {
        while !self.ended {
            self.discard().await?;
        }
        Ok(())
    }

    async fn discard(&mut self) -> Result<(), Broken> {
        poll_fn(|cx| {
            self.poll_read(cx, |source, _, bytes| {
                source.follow(bytes);
                Ok(())
            })
        })
        .await
    }

    /// Reads once, and hands what was read to `take` at once.
    fn poll_read<T>(
        &mut self,
        cx: &mut Context<'_>,
        take: impl FnOnce(&mut Self, &mut Context<'_>, &[u8]) -> Result<T, Broken>,
    ) -> Poll<Result<T, Broken>> {
        let core = Rc::clone(&self.core);
        let mut chunk = core.chunk.borrow_mut();
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buffer)).map_err(|error| (self.side, error))?;
        let read = buffer.filled();
        self.ended = read.is_empty();
        self.bytes.set(self.bytes.get() + read.len() as u64);
        Poll::Ready(take(self, cx, read))
    }

    fn follow(&mut self, bytes: &[u8]) {
        if let Some(frames) = &mut self.frames {
            frames.follow(bytes);
        }
    }

    /// What comes behind the end of the present frame.
    fn follow_one<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let taken = self.frames.as_mut().map_or(bytes.len(), |frames| frames.follow_one(bytes));
        &bytes[taken..]
    }
}

impl<W: AsyncWrite + Unpin> Sink<W> {
    pub(super) fn new(io: W, side: Side) -> Self {
        Self { io, side, pending: Vec::new(), sent: 0, ended: false }
    }

    /// Passes on what can be passed on at once, and keeps the rest.
    fn take(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<(), Broken> {
        if bytes.is_empty() {
            return Ok(());
        }
        let taken = match Pin::new(&mut self.io).poll_write(cx, bytes) {
            Poll::Ready(written) => written.map_err(|error| (self.side, error))?,
            Poll::Pending => 0,
        };
        self.pending.extend_from_slice(&bytes[taken..]);
        Ok(())
    }

    /// Passes on what was kept, now: the next piece may be long in coming.
    async fn deliver(&mut self) -> Result<(), Broken> {
        let Self { io, pending, sent, .. } = self;
        let delivered = async {
            while *sent < pending.len() {
                match io.write(&pending[*sent..]).await? {
                    0 => return Err(io::ErrorKind::WriteZero.into()),
                    taken => *sent += taken,
                }
            }
            if *sent > 0 {
                (*pending, *sent) = (Vec::new(), 0);
            }
            io.flush().await
        };
        delivered.await.map_err(|error| (self.side, error))
    }

    /// Passes on what was kept, and then `bytes`.
    pub(super) async fn put(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        self.pending.extend_from_slice(bytes);
        self.deliver().await
    }

    /// Says that nothing follows, once.
    pub(super) async fn end(&mut self) -> Result<(), Broken> {
        if !self.ended {
            self.io.shutdown().await.map_err(|error| (self.side, error))?;
            self.ended = true;
        }
        Ok(())
    }
}
