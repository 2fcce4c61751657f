//! Sockets — TCP, with or without TLS, or unix — as the HTTP library and the tunnels use them.
//!
//! A [`Wire`] is a socket that its connection shares with whoever serves a request on it, all on one thread. So the
//! server can hide that a client has closed its sending side, which a client that asks for an upgrade may do at once
//! (B86, B132); the hold can ask whether a client is still there; and the pool can ask whether an idle upstream closed.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::DerefMut;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::{ConnectionCommon, IoState};
use tracing::debug;

use crate::api::ahead::Ahead;
use crate::replication::RoleWatch;
use crate::store::Epoch;
use crate::tls;

/// A stream socket of any kind.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
    /// Boxed, as it is many times as large as the others.
    Tls(Box<TlsStream<Ahead>>),
}

/// Calls a method of whichever stream a socket is.
macro_rules! delegate {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
            Socket::Tls($stream) => $call,
        }
    };
}

/// The same for the system's socket below.
macro_rules! below {
    ($socket:expr, $stream:ident => $call:expr) => {
        match $socket {
            Socket::Tcp($stream) => $call,
            Socket::Unix($stream) => $call,
            Socket::Tls(stream) => {
                let $stream = &stream.get_ref().0.tcp;
                $call
            }
        }
    };
}

/// Calls a method of TLS, whichever end of it we are.
macro_rules! secured {
    ($stream:expr, $tcp:ident, $tls:ident => $call:expr) => {
        match &mut **$stream {
            TlsStream::Client(stream) => {
                let ($tcp, $tls) = stream.get_mut();
                $call
            }
            TlsStream::Server(stream) => {
                let ($tcp, $tls) = stream.get_mut();
                $call
            }
        }
    };
}

impl Socket {
    /// What the system has reported about the socket, without asking it.
    fn readiness(&self) -> io::Result<Ready> {
        let interest = Interest::READABLE.add(Interest::WRITABLE);
        below!(self, stream => stream.ready(interest).now_or_never()).unwrap_or(Ok(Ready::EMPTY))
    }

    /// The next byte that could be read, left where it is: `Ok(0)` at the end, `WouldBlock` when there is none yet.
    fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        below!(self, stream => SockRef::from(stream).peek(&mut byte))
    }

    /// Whether a reader has something to read, as far as can be told without taking anything from the system: under TLS
    /// it may turn out to be nothing for a reader.
    fn has_input(&mut self) -> bool {
        let taken_in = match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => secured!(stream, tcp, tls => {
                tcp.has_more() || tls.process_new_packets().is_ok_and(|now| now.plaintext_bytes_to_read() > 0)
            }),
        };
        taken_in || matches!(self.peek(), Ok(1..))
    }

    /// Whether a reader would find an end, an error, or bytes.
    fn is_stale(&mut self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => !matches!(self.peek(), Err(error) if is_nothing_yet(&error)),
            // What TLS has to say for itself, as a server does when it hands out tickets, is nothing for a reader. Nobody
            // misses what is taken in here: it is kept for the reader, and a connection that has any of it is given up.
            Self::Tls(stream) => match secured!(stream, tcp, tls => take_in(tcp, tls)) {
                Ok(now) => now.plaintext_bytes_to_read() > 0 || now.peer_has_closed(),
                Err(_) => true,
            },
        }
    }

    /// Whether TLS keeps something that has been written.
    fn keeps_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.get_ref().1.wants_write(),
        }
    }

    /// Says the last thing there is to say, as far as that needs no waiting; under TLS, where it would be no word of TLS,
    /// nothing.
    pub(super) fn turn_away(&self, words: &[u8]) {
        let mut heard = [MaybeUninit::uninit(); 4 * 1024];
        match self {
            Self::Tcp(stream) => last_words(&SockRef::from(stream), words, &mut heard),
            Self::Unix(stream) => last_words(&SockRef::from(stream), words, &mut heard),
            Self::Tls(_) => {}
        }
    }

    /// Tells the other end that nothing is missing: what TLS says before the system does (RFC 8446 §6.1). Only as far as
    /// that needs no waiting.
    fn bid_farewell(&mut self) {
        if let Self::Tls(stream) = self
            && !stream.get_ref().1.wants_write()
        {
            secured!(stream, tcp, tls => {
                // What has come and was not read would make the system cut the connection. Who has left needs no farewell.
                take_in(tcp, tls).ok();
                tls.send_close_notify();
                tls.write_tls(&mut &*SockRef::from(&tcp.tcp)).ok();
            });
        }
    }
}

/// Says it, and takes what has come meanwhile: closing a socket with something unread in it would cut off what was said.
fn last_words(socket: &SockRef<'_>, words: &[u8], heard: &mut [MaybeUninit<u8>]) {
    // Whoever cannot be told has left.
    socket.send(words).and_then(|_| socket.shutdown(Shutdown::Write)).and_then(|()| socket.recv(heard)).ok();
}

fn is_nothing_yet(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Has TLS take in what has come, and tells where it stands; an error at the end of the connection.
fn take_in<T>(tcp: &mut Ahead, tls: &mut impl DerefMut<Target = ConnectionCommon<T>>) -> io::Result<IoState> {
    let mut now = tls.process_new_packets().map_err(io::Error::other)?;
    while now.plaintext_bytes_to_read() == 0 && !now.peer_has_closed() {
        match tls.read_tls(tcp) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => now = tls.process_new_packets().map_err(io::Error::other)?,
            Err(error) if is_nothing_yet(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(now)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        delegate!(self.get_mut(), stream => Pin::new(stream).poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        delegate!(self.get_mut(), stream => Pin::new(stream).poll_write(cx, buf))
    }

    fn poll_write_vectored(self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        delegate!(self.get_mut(), stream => Pin::new(stream).poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            // The system needs no such hint.
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        delegate!(self.get_mut(), stream => Pin::new(stream).poll_shutdown(cx))
    }
}

/// The tenure that a connection to the app belongs to: nothing is written under one that is over.
///
/// A request that has passed every check may still wait for its turn to be written, and a process may be stopped there for
/// any time. So the role is read once more where there is nothing left to wait for.
#[derive(Clone, Debug)]
pub(super) struct Fence {
    pub(super) roles: RoleWatch,
    pub(super) epoch: Epoch,
}

impl Fence {
    /// Fails once the tenure is over.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.roles.current().tenure() == Some(self.epoch) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the tenure that it belongs to has ended"))
    }
}

/// A socket and what its users on one thread know about it.
#[derive(Debug)]
pub(super) struct Wire {
    socket: RefCell<Socket>,
    /// What was read before whoever is to read it was known.
    early: RefCell<Bytes>,
    end: Cell<End>,
    writing: Cell<Writing>,
    /// Who waits behind a write that was forgiven.
    forgiven: RefCell<Option<Waker>>,
    fence: Option<Fence>,
    /// Whether something waits until the peer reads on.
    unsent: Cell<bool>,
    /// How many writes have been taken, in part at least.
    taken: Cell<u32>,
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
    pub(super) fn to_client(socket: Socket) -> Rc<Self> {
        Self::new(socket, Writing::Plain, None)
    }

    /// A connection to an upstream, which may answer before it has read a request to its end, and close.
    pub(super) fn to_upstream(socket: Socket, fence: Option<Fence>) -> Rc<Self> {
        Self::new(socket, Writing::Forgiving, fence)
    }

    fn new(socket: Socket, writing: Writing, fence: Option<Fence>) -> Rc<Self> {
        Rc::new(Self {
            socket: RefCell::new(socket),
            early: RefCell::default(),
            end: Cell::new(End::Shown),
            writing: Cell::new(writing),
            forgiven: RefCell::default(),
            fence,
            unsent: Cell::default(),
            taken: Cell::default(),
        })
    }

    /// Puts back what was read, for the next reader.
    pub(super) fn unread(&self, early: Bytes) {
        *self.early.borrow_mut() = early;
    }

    /// Whether something waits until the peer reads on.
    pub(super) fn has_unsent(&self) -> bool {
        self.unsent.get()
    }

    /// Rises whenever the peer, or the system for it, has taken something.
    pub(super) fn taken(&self) -> u32 {
        self.taken.get()
    }

    /// Hides the end of what the peer sends.
    pub(super) fn hide_end(&self) {
        self.end.set(End::Hidden);
    }

    /// Shows the end again, once nothing written is in the way.
    pub(super) fn show_end_when_flushed(&self) {
        if self.end.get() == End::Hidden {
            self.end.set(End::HiddenUntilFlushed);
        }
    }

    /// Makes the connection a plain one for a tunnel, which shows every end and every error.
    pub(super) fn lay_bare(&self) {
        self.end.set(End::Shown);
        self.stop_forgiving();
    }

    /// Tells the writer of every error from now on, and of one that was kept from it: nobody reads any more who would come
    /// upon it, and a write that waits for a broken connection would wait for ever.
    pub(super) fn stop_forgiving(&self) {
        self.writing.set(Writing::Plain);
        let writer = self.forgiven.take();
        if let Some(writer) = writer {
            writer.wake();
        }
    }

    /// Whether it belongs to a tenure that is over.
    pub(super) fn is_fenced_off(&self) -> bool {
        self.fence.as_ref().is_some_and(|fence| fence.check().is_err())
    }

    /// Ends the connection under whoever uses it.
    pub(super) fn sever(&self) {
        let socket = self.socket.borrow();
        // One that the peer has closed already cannot be shut down.
        below!(&*socket, stream => SockRef::from(stream).shutdown(Shutdown::Both)).ok();
    }

    /// Whether the connection ends by a reset when it is dropped, also with its process: an end would say that there was no
    /// more to say. What has not left by then is lost. Unix sockets know no resets, and end.
    pub(super) fn reset_at_drop(&self, resets: bool) {
        let socket = self.socket.borrow();
        if let Err(error) = below!(&*socket, stream => SockRef::from(stream).set_linger(resets.then_some(Duration::ZERO))) {
            debug!(%error, "the end of a connection may look like another");
        }
    }

    /// Whether its peer can reset it. A unix socket says that it was reset where its peer has ended with something unread.
    pub(super) fn knows_resets(&self) -> bool {
        !matches!(&*self.socket.borrow(), Socket::Unix(_))
    }

    /// Has the system find out when the peer's host is gone, as nobody else does on a connection that may be silent for long.
    pub(super) fn keep_alive(&self) {
        let socket = self.socket.borrow();
        let stream = match &*socket {
            Socket::Tcp(stream) => stream,
            Socket::Tls(stream) => &stream.get_ref().0.tcp,
            Socket::Unix(_) => return,
        };
        let keepalive = TcpKeepalive::new().with_time(ALIVE_AFTER).with_interval(ALIVE_EVERY).with_retries(3);
        if let Err(error) = SockRef::from(stream).set_tcp_keepalive(&keepalive) {
            debug!(%error, "a connection goes without keep-alive probes");
        }
    }

    /// Whether the peer can no longer be answered, as far as the system has said. A peer that only closed its sending
    /// side counts as gone, as everywhere in this proxy, unless its end is hidden.
    pub(super) fn is_abandoned(&self) -> bool {
        let Ok(ready) = self.socket.borrow().readiness() else { return true };
        if self.end.get() == End::Shown { ready.is_read_closed() } else { ready.is_write_closed() }
    }

    /// Whether HTTP/2 was agreed on when hands were shaken.
    pub(super) fn chose_http2(&self) -> bool {
        match &*self.socket.borrow() {
            Socket::Tcp(_) | Socket::Unix(_) => false,
            Socket::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2),
        }
    }

    /// Whether something has come that nobody has read. Asks the system, which may know of it before the runtime does.
    pub(super) fn has_input(&self) -> bool {
        !self.early.borrow().is_empty() || self.socket.borrow_mut().has_input()
    }

    /// Whether an idle connection was closed, or sent what nobody asked for. Asks the system, so that an end that the
    /// runtime has not seen yet is noticed.
    pub(super) fn is_stale(&self) -> bool {
        self.socket.borrow_mut().is_stale()
    }
}

impl Drop for Wire {
    /// A connection to an upstream that is let go between its messages, or in the middle of a request, is not cut off as
    /// far as TLS is concerned: HTTP says where a request ends. Whatever else is dropped is cut off, and must look like it.
    fn drop(&mut self) {
        let is_http_upstream = self.writing.get() == Writing::Forgiving;
        if is_http_upstream && !self.is_fenced_off() {
            self.socket.get_mut().bid_farewell();
        }
    }
}

/// How long a connection is silent before the peer's host is asked for a sign of life, and how often from then on.
const ALIVE_AFTER: Duration = Duration::from_secs(15);
const ALIVE_EVERY: Duration = Duration::from_secs(5);

/// What is in pieces but no longer than this goes out in one piece: the plain system call costs less than the vectored
/// one, by more than it takes to copy a small head and its body together.
const SMALL_WRITE: usize = 1024;

/// A [`Wire`] to read from and write to.
#[derive(Clone, Debug)]
pub(super) struct WireIo(pub(super) Rc<Wire>);

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
            self.0.stop_forgiving();
        }
        if at_end && self.0.end.get() != End::Shown { Poll::Pending } else { read }
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
