//! The three kinds of socket, and what the system and TLS know of one.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::ops::DerefMut;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf, Ready};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsStream;
use tokio_rustls::rustls::{ConnectionCommon, IoState};

use crate::api::ahead::Ahead;
use crate::tls;

/// A stream socket of any kind.
#[derive(Debug)]
pub(in crate::api) enum Socket {
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
    /// The system's socket below.
    pub(super) fn system(&self) -> SockRef<'_> {
        below!(self, stream => SockRef::from(stream))
    }

    /// Whether it has a file for its address, and no network below it.
    pub(super) fn is_unix(&self) -> bool {
        matches!(self, Self::Unix(_))
    }

    /// Whether HTTP/2 was agreed on when hands were shaken.
    pub(super) fn chose_http2(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2),
        }
    }

    /// What the system has reported about the socket, without asking it.
    pub(super) fn readiness(&self) -> io::Result<Ready> {
        let interest = Interest::READABLE.add(Interest::WRITABLE);
        below!(self, stream => stream.ready(interest).now_or_never()).unwrap_or(Ok(Ready::EMPTY))
    }

    /// The next byte that could be read, left where it is: `Ok(0)` at the end, `WouldBlock` when there is none yet.
    pub(super) fn peek(&self) -> io::Result<usize> {
        let mut byte = [MaybeUninit::uninit()];
        below!(self, stream => SockRef::from(stream).peek(&mut byte))
    }

    /// Whether a reader has something to read, as far as can be told without taking anything from the system: under TLS
    /// it may turn out to be nothing for a reader.
    pub(super) fn has_input(&mut self) -> bool {
        let taken_in = match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => secured!(stream, tcp, tls => {
                tcp.has_more() || tls.process_new_packets().is_ok_and(|now| now.plaintext_bytes_to_read() > 0)
            }),
        };
        taken_in || matches!(self.peek(), Ok(1..))
    }

    /// Whether a reader would find an end, an error, or bytes.
    pub(super) fn is_stale(&mut self) -> bool {
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
    pub(super) fn keeps_unsent(&self) -> bool {
        match self {
            Self::Tcp(_) | Self::Unix(_) => false,
            Self::Tls(stream) => stream.get_ref().1.wants_write(),
        }
    }

    /// Says the last thing there is to say, as far as that needs no waiting; under TLS, where it would be no word of TLS,
    /// nothing.
    pub(in crate::api) fn turn_away(&self, words: &[u8]) {
        let mut heard = [MaybeUninit::uninit(); 4 * 1024];
        match self {
            Self::Tcp(stream) => last_words(&SockRef::from(stream), words, &mut heard),
            Self::Unix(stream) => last_words(&SockRef::from(stream), words, &mut heard),
            Self::Tls(_) => {}
        }
    }

    /// Tells the other end that nothing is missing: what TLS says before the system does (RFC 8446 §6.1). Only as far as
    /// that needs no waiting.
    pub(super) fn bid_farewell(&mut self) {
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
