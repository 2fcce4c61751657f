//! The side of a tunnel that is the app's, or the leader's: a connection of its own, or a stream of a shared one.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::upgrade::Upgraded;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::api::io::{Fence, Wire, WireIo};
use crate::api::streams::{Channel, Stream};

/// Where an upstream sends to, and takes from. Cheap to clone.
#[derive(Clone)]
pub(in crate::api) enum Far {
    /// A connection.
    Connection(WireIo),
    /// A stream.
    Stream(Rc<Shared>),
}

/// A stream that has become a tunnel.
pub(in crate::api) struct Shared {
    io: RefCell<Channel>,
    fence: Option<Fence>,
    /// Its share of the connection.
    _stream: Stream,
}

impl Far {
    /// A connection that speaks HTTP no more, after `early` has been read from it.
    pub(in crate::api) fn connection(wire: Rc<Wire>, early: Bytes) -> Self {
        wire.lay_bare();
        wire.unread(early);
        Self::Connection(WireIo(wire))
    }

    /// A stream behind `fence`.
    pub(in crate::api) fn stream(upgraded: Upgraded, stream: Stream, fence: Option<Fence>) -> Self {
        Self::Stream(Rc::new(Shared { io: RefCell::new(Channel::new(upgraded)), fence, _stream: stream }))
    }

    /// Whether it is one of many on a connection, which goes on without it.
    pub(super) fn is_stream(&self) -> bool {
        matches!(self, Self::Stream(_))
    }

    /// Whether it ends by a reset when it is dropped, as far as it can.
    pub(super) fn reset_at_drop(&self, resets: bool) {
        match self {
            Self::Connection(io) => io.0.reset_at_drop(resets),
            // The library ends it, where its connection is not cut.
            Self::Stream(_) => {}
        }
    }

    /// Whether the upstream can reset it.
    pub(super) fn knows_resets(&self) -> bool {
        match self {
            Self::Connection(io) => io.0.knows_resets(),
            Self::Stream(_) => true,
        }
    }

    /// Whether it belongs to a tenure that is over.
    pub(super) fn is_fenced_off(&self) -> bool {
        match self {
            Self::Connection(io) => io.0.is_fenced_off(),
            Self::Stream(channel) => channel.fence.as_ref().is_some_and(|fence| fence.check().is_err()),
        }
    }
}

/// Calls a method of whichever an upstream has.
macro_rules! delegate {
    ($far:expr, $io:ident => $call:expr) => {
        match $far.get_mut() {
            Far::Connection(io) => {
                let $io = Pin::new(io);
                $call
            }
            Far::Stream(channel) => {
                let mut io = channel.io.borrow_mut();
                let $io = Pin::new(&mut *io);
                $call
            }
        }
    };
}

impl AsyncRead for Far {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self, io => io.poll_read(cx, buf))
    }
}

impl AsyncWrite for Far {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self, io => io.poll_write(cx, buf))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, io => io.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self, io => io.poll_shutdown(cx))
    }
}
