//! A socket that its connection shares with whoever serves a request on it.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use socket2::TcpKeepalive;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tracing::debug;

use super::lines::Lines;
use super::{Fence, Socket};

/// How long a connection is silent before the peer's host is asked for a sign of life, and how often from then on.
const ALIVE_AFTER: Duration = Duration::from_secs(15);
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// What is in pieces but no longer than this goes out in one piece: the plain system call costs less than the vectored
/// one, by more than it takes to copy a small head and its body together.
const SMALL_WRITE: usize = 1024;

/// A socket and what its users on one thread know about it.
#[derive(Debug)]
pub(in crate::api) struct Wire {
    socket: RefCell<Socket>,
    /// What was read before whoever is to read it was known.
    early: RefCell<Bytes>,
    end: Cell<End>,
    /// Whether the end of what the peer sends has been come upon.
    at_end: Cell<bool>,
    writing: Cell<Writing>,
    /// Who waits behind a write that was forgiven.
    forgiven: RefCell<Option<Waker>>,
    fence: Option<Fence>,
    /// Whether something waits until the peer reads on.
    unsent: Cell<bool>,
    /// How many writes have been taken, in part at least.
    taken: Cell<u32>,
    /// What has been read of a request's head, while one is what is read.
    head: Cell<Option<Lines>>,
}

/// Whether a reader is told that the peer has stopped sending. While it is not, the end reads as "nothing yet".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Shown,
    Hidden,
    /// Until everything written so far has left: a reader that sees the end drops what is still to be written.
    HiddenUntilFlushed,
}

/// What a writer is told of a connection that broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Writing {
    /// That it broke.
    Plain,
    /// Nothing: the peer may have answered before it closed, and the reader comes upon that answer, or upon the error.
    Forgiving,
    /// The connection broke already.
    Over,
}

impl Wire {
    /// A client's connection.
    pub(in crate::api) fn to_client(socket: Socket) -> Rc<Self> {
        Self::new(socket, Writing::Plain, None)
    }

    /// A connection to an upstream, which may answer before it has read a request to its end, and close.
    pub(in crate::api) fn to_upstream(socket: Socket, fence: Option<Fence>) -> Rc<Self> {
        Self::new(socket, Writing::Forgiving, fence)
    }

    fn new(socket: Socket, writing: Writing, fence: Option<Fence>) -> Rc<Self> {
        Rc::new(Self {
            socket: RefCell::new(socket),
            early: RefCell::default(),
            end: Cell::new(End::Shown),
            at_end: Cell::default(),
            writing: Cell::new(writing),
            forgiven: RefCell::default(),
            fence,
            unsent: Cell::default(),
            taken: Cell::default(),
            head: Cell::default(),
        })
    }

    /// Puts back what was read, for the next reader.
    pub(in crate::api) fn unread(&self, early: Bytes) {
        *self.early.borrow_mut() = early;
    }

    /// Says that what is read from now on is the head of a request, unless it is one already.
    pub(in crate::api) fn expect_head(&self) {
        self.head.set(Some(self.head.get().unwrap_or_default()));
    }

    /// Says that the head has been read, and tells how its lines ended, if nothing else was read before it was known that
    /// it is one.
    pub(in crate::api) fn end_head(&self) -> Lines {
        self.head.take().unwrap_or_default()
    }

    /// Whether something waits until the peer reads on.
    pub(in crate::api) fn has_unsent(&self) -> bool {
        self.unsent.get()
    }

    /// Rises whenever the peer, or the system for it, has taken something.
    pub(in crate::api) fn taken(&self) -> u32 {
        self.taken.get()
    }

    /// Hides the end of what the peer sends.
    pub(in crate::api) fn hide_end(&self) {
        self.end.set(End::Hidden);
    }

    /// Shows the end again, once nothing written is in the way.
    pub(in crate::api) fn show_end_when_flushed(&self) {
        if self.end.get() == End::Hidden {
            self.end.set(End::HiddenUntilFlushed);
        }
    }

    /// Makes the connection a plain one for a tunnel, which shows every end and every error.
    pub(in crate::api) fn lay_bare(&self) {
        self.end.set(End::Shown);
        self.stop_forgiving();
    }

    /// Tells the writer of every error from now on, and of one that was kept from it: nobody reads any more who would come
    /// upon it, and a write that waits for a broken connection would wait for ever.
    pub(in crate::api) fn stop_forgiving(&self) {
        self.writing.set(Writing::Plain);
        let writer = self.forgiven.take();
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Whether it belongs to a tenure that is over.
    pub(in crate::api) fn is_fenced_off(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.check().is_err())
    }

    /// Ends the connection under whoever uses it.
    pub(in crate::api) fn sever(&self) {
        let socket = self.socket.borrow();
        // One that the peer has closed already cannot be shut down.
        socket.system().shutdown(Shutdown::Both).ok();
    }

    /// Whether the connection ends by a reset when it is dropped, also with its process: an end would say that there was no
    /// more to say. What has not left by then is lost. Unix sockets know no resets, and end.
    pub(in crate::api) fn reset_at_drop(&self, resets: bool) {
        let socket = self.socket.borrow();
        if let Err(error) = socket.system().set_linger(resets.then_some(Duration::ZERO)) {
            debug!(%error, "the end of a connection may look like another");
        }
    }

    /// Whether its peer can reset it. A unix socket says that it was reset where its peer has ended with something unread.
    pub(in crate::api) fn knows_resets(&self) -> bool {
        !self.socket.borrow().is_unix()
    }

    /// Has the system find out when the peer's host is gone, as nobody else does on a connection that may be silent for long.
    pub(in crate::api) fn keep_alive(&self) {
        let socket = self.socket.borrow();
        if socket.is_unix() {
            return;
        }
        let keepalive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(3);
        if let Err(error) = socket.system().set_tcp_keepalive(&keepalive) {
            debug!(%error, "a connection goes without keep-alive probes");
        }
    }

    /// Whether the peer can no longer be answered, as far as the system, or TLS, has said. A peer that only closed its sending
    /// side counts as gone, as everywhere in this proxy, unless its end is hidden.
    pub(in crate::api) fn is_abandoned(&self) -> bool {
        let Ok(ready) = self.socket.borrow().readiness() else { return true };
        if self.end.get() == End::Shown { ready.is_read_closed() || self.at_end.get() } else { ready.is_write_closed() }
    }

    /// Which address is at the other end, where it is one of the network and still connected.
    pub(in crate::api) fn peer(&self) -> Option<SocketAddr> {
        self.socket.borrow().system().peer_addr().ok()?.as_socket()
    }

    /// Whether HTTP/2 was agreed on when hands were shaken.
    pub(in crate::api) fn chose_http2(&self) -> bool {
        self.socket.borrow().chose_http2()
    }

    /// Whether something has come that nobody has read. Asks the system, which may know of it before the runtime does.
    pub(in crate::api) fn has_input(&self) -> bool {
        !self.early.borrow().is_empty() || self.socket.borrow_mut().has_input()
    }

    /// Whether an idle connection was closed, or sent what nobody asked for. Asks the system, so that an end that the
    /// runtime has not seen yet is noticed.
    pub(in crate::api) fn is_stale(&self) -> bool {
        self.socket.borrow_mut().is_stale()
    }
}

impl Drop for Wire {
    /// A connection to an upstream that is let go between its messages, or in the middle of a request, is not cut off as
    /// far as TLS is concerned: HTTP says where a request ends. Whatever else is dropped is cut off, and must look like it.
    ///
    /// An upstream that takes nothing would come upon the end only behind what waits for it, and learns of a reset at once.
    fn drop(&mut self) {
        let is_http_upstream = self.writing.get() == Writing::Forgiving;
        if is_http_upstream && self.has_unsent() {
            self.reset_at_drop(true);
        } else if is_http_upstream && !self.is_fenced_off() {
            self.socket.get_mut().bid_farewell();
        }
    }
}

/// A [`Wire`] to read from and write to.
#[derive(Clone, Debug)]
pub(in crate::api) struct WireIo(pub(in crate::api) Rc<Wire>);

impl WireIo {
    fn with<T>(&self, call: impl FnOnce(Pin<&mut Socket>) -> T) -> T {
        call(Pin::new(&mut *self.0.socket.borrow_mut()))
    }

    fn write<T>(
        &self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Socket>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Some(fence) = &self.0.fence {
            fence.check()?;
        }
        if self.0.writing.get() != Writing::Over {
            let written = self.with(|socket| write(socket, cx));
            self.0.unsent.set(written.is_pending());
            self.0.taken.set(self.0.taken.get().wrapping_add(u32::from(written.is_ready())));
            match written {
                // A broken connection is always readable, so whoever reads is woken.
                Poll::Ready(Err(_)) if self.0.writing.get() == Writing::Forgiving => self.0.writing.set(Writing::Over),
                written => return written,
            }
        }
        *self.0.forgiven.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }

    /// What comes next, the early part of it first.
    fn poll_next(&self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut early = self.0.early.borrow_mut();
        if !early.is_empty() {
            let length = early.len().min(buf.remaining());
            buf.put_slice(&early.split_to(length));
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let read = self.with(|socket| socket.poll_read(cx, buf));
        let at_end = matches!(read, Poll::Ready(Ok(()))) && buf.filled().len() == before;
        if at_end || matches!(read, Poll::Ready(Err(_))) {
            self.0.at_end.set(true);
            self.0.stop_forgiving();
        }
        if at_end && self.0.end.get() != End::Shown { Poll::Pending } else { read }
    }

    /// Sends what TLS has kept of what was written; all that is said of a write holds here, too.
    fn flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.0.socket.borrow().keeps_unsent() {
            return Poll::Ready(Ok(()));
        }
        self.write(cx, |socket, cx| socket.poll_flush(cx))
    }
}

impl AsyncRead for WireIo {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = self.poll_next(cx, buf);
        if let Some(lines) = self.0.head.get() {
            self.0.head.set(Some(lines.and(&buf.filled()[before..])));
        }
        read
    }
}

impl AsyncWrite for WireIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.write(cx, |socket, cx| socket.poll_write(cx, buf))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let mut small = [0; SMALL_WRITE];
        match gather(bufs, &mut small) {
            Some(whole) => self.write(cx, |socket, cx| socket.poll_write(cx, whole)),
            None => self.write(cx, |socket, cx| socket.poll_write_vectored(cx, bufs)),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The library asks for it when all it had has been written.
        let flushed = self.flush(cx);
        if flushed.is_ready() && self.0.end.get() == End::HiddenUntilFlushed {
            self.0.end.set(End::Shown);
            // Whoever was told "nothing yet" in place of the end is told nothing else by the system.
            cx.waker().wake_by_ref();
        }
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // An end says something, too, and TLS sends what it has kept before it says so.
        if let Some(fence) = &self.0.fence {
            fence.check()?;
        }
        self.with(|socket| socket.poll_shutdown(cx))
    }
}

/// Puts pieces together, if there is room for all of them.
fn gather<'a>(pieces: &[IoSlice<'_>], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut length = 0;
    for piece in pieces {
        room.get_mut(length..length + piece.len())?.copy_from_slice(piece);
        length += piece.len();
    }
    Some(&room[..length])
}
