//! What the other end of a connection says first: its SETTINGS (RFC 9113 §3.4), read in passing.
//!
//! An app may be asked for a WebSocket over a stream only once it has said that it takes such requests (RFC 8441 §3). The
//! library knows whether it has, and keeps to itself whether it has said anything yet. What is said later is not looked at:
//! an app that changes its mind is asked on its next connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::watch;

use crate::api::io::WireIo;

/// What is known of the other end since its first frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Announced {
    /// Whether it takes an extended CONNECT.
    pub(in crate::api) extended_connect: bool,
    /// How many streams it lets be open at once, if it says.
    pub(in crate::api) streams: Option<u32>,
}

/// Hears of it. Closed without a word when the connection ends before its first frame, or begins with another.
pub(super) type Hearing = watch::Receiver<Option<Announced>>;

/// A connection that listens to the first frame which is read from it, and passes everything on.
#[derive(Debug)]
pub(super) struct Listening {
    io: WireIo,
    first: Option<First>,
}

/// The first frame, as far as it has come.
#[derive(Debug)]
struct First {
    heard: Vec<u8>,
    tell: watch::Sender<Option<Announced>>,
}

impl Listening {
    pub(super) fn new(io: WireIo) -> (Self, Hearing) {
        let (tell, hearing) = watch::channel(None);
        (Self { io, first: Some(First { heard: Vec::new(), tell }) }, hearing)
    }
}

impl First {
    /// Takes in what has come. Tells whether there is nothing more to wait for.
    fn take_in(&mut self, bytes: &[u8]) -> bool {
        self.heard.extend_from_slice(bytes);
        match parse(&self.heard) {
            Parsed::Unfinished => false,
            Parsed::Settings(announced) => {
                self.tell.send_replace(Some(announced));
                true
            }
            Parsed::Other => true,
        }
    }
}

/// What the beginning of a connection turns out to be.
#[derive(PartialEq, Eq, Debug)]
enum Parsed {
    Unfinished,
    Settings(Announced),
    /// Not what it has to be: the library ends the connection.
    Other,
}

/// Octets before each payload (RFC 9113 §4.1), and the type of the frame that comes first.
const HEAD: usize = 9;
const SETTINGS: u8 = 4;
/// Octets of one setting, and the two that matter (RFC 9113 §6.5.2, RFC 8441 §3).
const SETTING: usize = 6;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// More than anybody has settings.
const LONGEST: usize = 4 * 1024;

fn parse(heard: &[u8]) -> Parsed {
    let Some((head, payload)) = heard.split_first_chunk::<HEAD>() else { return Parsed::Unfinished };
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    if head[3] != SETTINGS || length > LONGEST {
        return Parsed::Other;
    }
    let Some(payload) = payload.get(..length) else { return Parsed::Unfinished };
    let mut announced = Announced { extended_connect: false, streams: None };
    let (settings, _) = payload.as_chunks::<SETTING>();
    for [name @ .., a, b, c, d] in settings {
        let value = u32::from_be_bytes([*a, *b, *c, *d]);
        match u16::from_be_bytes(*name) {
            MAX_CONCURRENT_STREAMS => announced.streams = Some(value),
            ENABLE_CONNECT_PROTOCOL => announced.extended_connect = value == 1,
            _ => {}
        }
    }
    Parsed::Settings(announced)
}

impl AsyncRead for Listening {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        if let Some(first) = &mut this.first
            && first.take_in(&buf.filled()[before..])
        {
            this.first = None;
        }
        read
    }
}

impl AsyncWrite for Listening {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, settings: &[(u16, u32)]) -> Vec<u8> {
        let payload: Vec<u8> = settings.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, 0, 0, 0, 0, 0], &payload].concat()
    }

    #[test]
    fn settings_are_heard_however_they_come() {
        let whole = [frame(SETTINGS, &[(4, 65_535), (3, 7), (8, 1)]), b"what follows".to_vec()].concat();
        let (tell, hearing) = watch::channel(None);
        let mut first = First { heard: Vec::new(), tell };
        let needed = whole.iter().position(|byte| first.take_in(&[*byte])).unwrap() + 1;
        assert_eq!(needed, HEAD + 3 * SETTING, "not before its end, and not after it");
        assert_eq!(*hearing.borrow(), Some(Announced { extended_connect: true, streams: Some(7) }));
        assert_eq!(parse(&whole), Parsed::Settings(Announced { extended_connect: true, streams: Some(7) }));
    }

    #[test]
    fn an_end_that_says_nothing_of_it_takes_none() {
        for settings in [&[][..], &[(8, 0)], &[(8, 2)], &[(9, 1)]] {
            let Parsed::Settings(announced) = parse(&frame(SETTINGS, settings)) else { panic!("{settings:?}") };
            assert!(!announced.extended_connect, "{settings:?}");
        }
    }

    #[test]
    fn another_beginning_tells_nothing() {
        for beginning in [frame(6, &[(8, 1)]), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![0xff; HEAD]] {
            assert_eq!(parse(&beginning), Parsed::Other, "{beginning:?}");
        }
    }
}
