//! FRAMES: HTTP/2 frame by frame (RFC 9113 §4), right ones and wrong ones, and what comes back.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::place::{Duplex, Place};
use super::within;

pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
pub(crate) const PADDED: u8 = 0x8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// How long the node may take for whatever a test awaits of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A frame, as it goes over the wire.
pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// SETTINGS with these pairs.
pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = pairs.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, payload)
}

/// Fields as HPACK has them at its simplest: literal, never indexed, no Huffman code (RFC 7541 §6.2.2).
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        block.push(0);
        for text in [name, value] {
            block.extend(length(text.len()));
            block.extend(text.bytes());
        }
    }
    block
}

/// A length with a prefix of seven bits (RFC 7541 §5.1).
fn length(length: usize) -> Vec<u8> {
    if length < 0x7f {
        return vec![length as u8];
    }
    let (mut rest, mut bytes) = (length - 0x7f, vec![0x7f]);
    while rest >= 0x80 {
        bytes.push((rest % 0x80) as u8 | 0x80);
        rest /= 0x80;
    }
    bytes.push(rest as u8);
    bytes
}

/// The fields of a good request, and these.
pub(crate) fn get<'a>(path: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "service"), (":path", path)];
    block(&[&fields[..], more].concat())
}

/// A frame that came.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of a RST_STREAM or GOAWAY.
    pub(crate) fn code(&self) -> Option<u32> {
        let at = match self.kind {
            RST_STREAM => 0,
            GOAWAY => 4,
            _ => return None,
        };
        Some(u32::from_be_bytes(self.payload.get(at..at + 4)?.try_into().ok()?))
    }

    /// The status of an answer, which HPACK has as one byte, or as digits behind an indexed name.
    pub(crate) fn status(&self) -> Option<u16> {
        if self.kind != HEADERS {
            return None;
        }
        const INDEXED: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
        match *self.payload.first()? {
            byte @ 0x88..=0x8e => Some(INDEXED[usize::from(byte - 0x88)]),
            // Literal, with the name `:status`.
            0x08 | 0x18 | 0x48 => digits(self.payload.get(1..)?),
            _ => None,
        }
    }
}

/// Three digits, plain or in the Huffman code, where 0 to 2 have five bits and the others six (RFC 7541, appendix B).
fn digits(text: &[u8]) -> Option<u16> {
    let (&length, text) = text.split_first()?;
    let text = text.get(..usize::from(length & 0x7f))?;
    if length & 0x80 == 0 {
        return std::str::from_utf8(text).ok()?.parse().ok();
    }
    let bits = text.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (32 - 8 * text.len());
    let (number, _) = (0..3).fold((0, bits), |(number, bits), _| {
        let five = bits >> 27;
        if five <= 2 { (number * 10 + five, bits << 5) } else { (number * 10 + (bits >> 26) - 22, bits << 6) }
    });
    u16::try_from(number).ok()
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Frames {
    stream: Box<dyn Duplex>,
    unread: Vec<u8>,
}

impl Frames {
    /// Connects, agrees on HTTP/2 if over TLS, and sends what every connection begins with.
    pub(crate) async fn begin(place: &Place) -> Self {
        Self::begin_with(place, &settings(&[])).await
    }

    /// The same, with other first frames.
    pub(crate) async fn begin_with(place: &Place, first: &[u8]) -> Self {
        let mut connection = Self::connect(place).await;
        connection.send([PREFACE, first].concat()).await;
        connection
    }

    /// Connects.
    pub(crate) async fn connect(place: &Place) -> Self {
        let stream = within("connecting", PATIENCE, place.for_http2().connect()).await.expect("a connection");
        Self { stream, unread: Vec::new() }
    }

    /// Sends bytes. A node that has ended the connection does not read them.
    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = async {
            self.stream.write_all(bytes.as_ref()).await?;
            self.stream.flush().await
        };
        within("sending", PATIENCE, sent).await.ok();
    }

    /// The next frame; none at the end of the connection, however that comes.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        within("a frame", PATIENCE, self.next_whenever()).await
    }

    async fn next_whenever(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, end)) = parse(&self.unread, 0) {
                self.unread.drain(..end);
                return Some(frame);
            }
            if !matches!(self.stream.read_buf(&mut self.unread).await, Ok(1..)) {
                return None;
            }
        }
    }

    /// The next frame that `wanted` takes; none when the connection ends before.
    pub(crate) async fn find(&mut self, wanted: impl Fn(&Frame) -> bool) -> Option<Frame> {
        loop {
            match self.next().await {
                Some(frame) if wanted(&frame) => return Some(frame),
                Some(_) => {}
                None => return None,
            }
        }
    }

    /// Sends `bytes` again and again, at most `times`, reading what comes meanwhile, until the node ends the connection.
    /// Gives the code with which it did, and how often the bytes were sent.
    pub(crate) async fn flood(&mut self, bytes: &[u8], times: usize) -> (Option<u32>, usize) {
        let (mut reader, mut writer) = tokio::io::split(&mut self.stream);
        let mut sent = 0;
        let mut said = std::mem::take(&mut self.unread);
        let writing = async {
            while sent < times && writer.write_all(bytes).await.is_ok() {
                sent += 1;
            }
            writer.flush().await.ok();
            // What it has to say of all that may still be on its way.
            writer.write_all(&frame(PING, 0, 0, b"the last")).await.ok();
            writer.flush().await.ok();
            std::future::pending::<()>().await;
        };
        let reading = async {
            let mut from = 0;
            loop {
                while let Some((frame, next)) = parse(&said, from) {
                    if frame.kind == GOAWAY {
                        return frame.code();
                    }
                    if frame.kind == PING && frame.payload == b"the last" {
                        return None;
                    }
                    from = next;
                }
                said.drain(..from);
                from = 0;
                if !matches!(reader.read_buf(&mut said).await, Ok(1..)) {
                    return None;
                }
            }
        };
        let code = tokio::select! {
            code = within("the end of a flood", PATIENCE * 3, reading) => code,
            () = writing => None,
        };
        (code, sent)
    }
}

/// The frame at `from`, and where the next begins.
fn parse(bytes: &[u8], from: usize) -> Option<(Frame, usize)> {
    let head = bytes.get(from..from + 9)?;
    let end = from + 9 + u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    let payload = bytes.get(from + 9..end)?.to_vec();
    let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    Some((Frame { kind: head[3], flags: head[4], stream, payload }, end))
}
