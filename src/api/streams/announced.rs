//! What the other end of a connection says of itself: its SETTINGS (RFC 9113 §6.5), read in passing.
//!
//! An app may be asked for a WebSocket over a stream only once it has said that it takes such requests (RFC 8441 §3), and
//! for no more at once than it allows. The library knows both, but neither tells whether the app has said anything yet, nor
//! which requests it keeps back.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::api::io::WireIo;

/// What the other end has said last.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(in crate::api) struct Announced {
    /// Whether it takes an extended CONNECT.
    pub(in crate::api) extended_connect: bool,
    /// How many streams it lets be open at once, if it says.
    pub(in crate::api) streams: Option<u32>,
}

/// What is known of the other end, and becomes known.
#[derive(Debug, Default)]
pub(super) struct Hearing {
    announced: Cell<Option<Announced>>,
    /// Nothing more will be heard.
    ended: Cell<bool>,
    news: Notify,
}

impl Hearing {
    /// What the other end has said, if it has.
    pub(super) fn announced(&self) -> Option<Announced> {
        self.announced.get()
    }

    /// Waits until it says what is `wanted`, for as long as that takes. `None` when the connection ends before, or does not begin
    /// as it has to.
    pub(super) async fn until(&self, wanted: impl Fn(&Announced) -> bool) -> Option<Announced> {
        loop {
            let news = self.news.notified();
            let announced = self.announced().filter(&wanted);
            if announced.is_some() || self.ended.get() {
                return announced;
            }
            news.await;
        }
    }

    fn tell(&self, announced: Announced) {
        self.announced.set(Some(announced));
        self.news.notify_waiters();
    }

    fn end(&self) {
        self.ended.set(true);
        self.news.notify_waiters();
    }
}

/// Octets before each payload (RFC 9113 §4.1), the type of the frame that is listened to, and the flag of one that only says
/// that ours was.
const HEAD: usize = 9;
const SETTINGS: u8 = 4;
const ACK: u8 = 1;
/// Octets of one setting, and the two that matter (RFC 9113 §6.5.2, RFC 8441 §3).
const SETTING: usize = 6;
const MAX_CONCURRENT_STREAMS: u16 = 3;
const ENABLE_CONNECT_PROTOCOL: u16 = 8;
/// More than anybody has settings.
const LONGEST: usize = 4 * 1024;

/// Whoever listens to the frames of a connection. When it goes, nothing more will be heard.
#[derive(Debug)]
struct Listener {
    /// The head of the present frame as far as it has come, and the payload if that matters.
    heard: Vec<u8>,
    /// How much is to come of a frame that does not.
    passes: usize,
    hearing: Rc<Hearing>,
}

impl Listener {
    fn new(hearing: &Rc<Hearing>) -> Self {
        Self { heard: Vec::new(), passes: 0, hearing: Rc::clone(hearing) }
    }

    fn listen(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let wanted = match self.heard.first_chunk() {
                _ if self.passes > 0 => self.passes,
                None => HEAD - self.heard.len(),
                Some(head) => HEAD + payload(head) - self.heard.len(),
            };
            let (taken, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.passes > 0 {
                self.passes -= taken.len();
            } else {
                self.heard.extend_from_slice(taken);
                self.judge();
            }
        }
    }

    /// Looks at what has come of a frame, and forgets it if it is whole or does not matter.
    fn judge(&mut self) {
        let Some((head, settings)) = self.heard.split_first_chunk() else { return };
        if head[3] != SETTINGS || head[4] & ACK != 0 || payload(head) > LONGEST {
            if self.hearing.announced().is_none() {
                // Not what a connection begins with: the library ends it.
                self.hearing.end();
            }
            self.passes = payload(head);
        } else if settings.len() == payload(head) {
            self.hearing.tell(self.hearing.announced().unwrap_or_default().and(settings));
        } else {
            return;
        }
        self.heard.clear();
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.hearing.end();
    }
}

/// How long the payload of a frame is.
fn payload(head: &[u8; HEAD]) -> usize {
    u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize
}

impl Announced {
    /// The same after some more `settings`.
    fn and(mut self, settings: &[u8]) -> Self {
        for [name @ .., a, b, c, d] in settings.as_chunks::<SETTING>().0 {
            let value = u32::from_be_bytes([*a, *b, *c, *d]);
            match u16::from_be_bytes(*name) {
                MAX_CONCURRENT_STREAMS => self.streams = Some(value),
                ENABLE_CONNECT_PROTOCOL => self.extended_connect = value == 1,
                _ => {}
            }
        }
        self
    }
}

/// A connection that is listened to, and passes everything on.
#[derive(Debug)]
pub(super) struct Listening {
    io: WireIo,
    listener: Listener,
}

impl Listening {
    pub(super) fn new(io: WireIo) -> (Self, Rc<Hearing>) {
        let hearing = Rc::default();
        (Self { io, listener: Listener::new(&hearing) }, hearing)
    }
}

impl AsyncRead for Listening {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buf);
        this.listener.listen(&buf.filled()[before..]);
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

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags, 0, 0, 0, 0], payload].concat()
    }

    fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
        let payload: Vec<u8> = settings.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        frame(SETTINGS, 0, &payload)
    }

    #[test]
    fn settings_are_heard_however_they_come() {
        let first = settings(&[(4, 65_535), (3, 7), (8, 1)]);
        let between = [frame(SETTINGS, ACK, b""), frame(0, 0, &first), frame(1, 4, b"")].concat();
        let all = [&first[..], &between, &settings(&[(3, 0)]), &settings(&[]), b"\0"].concat();
        for step in [1, 2, 7, 10, all.len()] {
            let hearing = Rc::default();
            let mut listener = Listener::new(&hearing);
            let mut heard = Vec::new();
            for (count, piece) in all.chunks(step).enumerate() {
                listener.listen(piece);
                if heard.last().map(|(_, before)| *before) != Some(hearing.announced()) {
                    heard.push((((count + 1) * step).min(all.len()), hearing.announced()));
                }
            }
            let said = |streams| Some(Announced { extended_connect: true, streams: Some(streams) });
            if step == 1 {
                let later = first.len() + between.len() + HEAD + SETTING;
                assert_eq!(heard, [(1, None), (first.len(), said(7)), (later, said(0))], "not before its end, and not after it");
            }
            assert_eq!(hearing.announced(), said(0), "in steps of {step}");
        }
    }

    #[test]
    fn an_end_that_says_nothing_of_it_takes_none() {
        for said in [&[][..], &[(8, 0)], &[(8, 2)], &[(9, 1)]] {
            let hearing = Rc::default();
            Listener::new(&hearing).listen(&settings(said));
            assert!(!hearing.announced().unwrap().extended_connect, "{said:?}");
        }
    }

    #[tokio::test]
    async fn another_beginning_tells_nothing() {
        let begins = [frame(6, 0, b"12345678"), frame(SETTINGS, ACK, b""), b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![0xff; HEAD]];
        for beginning in begins {
            let hearing = Rc::default();
            let mut listener = Listener::new(&hearing);
            listener.listen(&beginning);
            assert_eq!(hearing.until(|_| true).await, None, "{beginning:?}");
        }
    }

    #[tokio::test]
    async fn whoever_waits_hears_what_is_wanted_or_the_end() {
        let hearing: Rc<Hearing> = Rc::default();
        let mut listener = Listener::new(&hearing);
        let saying = async {
            for streams in [0, 3] {
                listener.listen(&settings(&[(3, streams)]));
                tokio::task::yield_now().await;
            }
            drop(listener);
        };
        let wanted = |streams| hearing.until(move |announced| announced.streams == Some(streams));
        let (three, four, ()) = tokio::join!(wanted(3), wanted(4), saying);
        assert_eq!((three.and_then(|announced| announced.streams), four), (Some(3), None));
    }
}
