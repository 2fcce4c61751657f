//! Where the frames of a WebSocket begin and end (RFC 6455 §5.2), so that one of our own can be put in between two.
//!
//! Only headers are looked at; payloads are skipped by their length, and nothing is kept or copied. Whether a frame makes
//! sense is its receiver's to judge.

use std::ops::ControlFlow;

/// The bits of a header that matter here.
const OPCODE: u8 = 0x0f;
const CLOSE: u8 = 0x8;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
const LENGTH: u8 = 0x7f;
/// The first byte of a length cannot have this bit.
const TOO_LONG: u8 = 0x80;

/// "Service Restart" in the registry of close codes that RFC 6455 §11.7 sets up: connect again.
const SERVICE_RESTART: u16 = 1012;
/// What goes with it, for people.
const REASON: &[u8] = b"connect again";

/// One direction of a WebSocket, as far as it has been followed.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// How many bytes of a header have come.
    seen: u8,
    /// How many it has, as far as that is known: two at least.
    header: u8,
    /// Of the payload: what is to come.
    left: u64,
    closes: bool,
    closed: bool,
    lost: bool,
}

impl Frames {
    /// Follows all of `bytes`.
    pub(super) fn follow(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            bytes = &bytes[self.follow_one(bytes)..];
        }
    }

    /// Follows `bytes` to the end of the frame that they begin with or go on with; gives how many belong to it.
    pub(super) fn follow_one(&mut self, bytes: &[u8]) -> usize {
        if self.lost {
            return bytes.len();
        }
        let mut taken = 0;
        while self.is_in_header() {
            let Some(byte) = bytes.get(taken) else { return taken };
            taken += 1;
            if self.follow_header(*byte).is_break() {
                self.lost = true;
                return bytes.len();
            }
        }
        let payload = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - taken);
        self.left -= payload as u64;
        if self.left == 0 {
            self.seen = 0;
            self.closed |= self.closes;
        }
        taken + payload
    }

    fn is_in_header(&self) -> bool {
        self.seen == 0 || self.seen < self.header
    }

    /// Breaks where it is no header.
    fn follow_header(&mut self, byte: u8) -> ControlFlow<()> {
        match self.seen {
            0 => {
                self.closes |= byte & OPCODE == CLOSE;
                self.header = 2;
                self.left = 0;
            }
            1 => {
                let (length, mask) = (byte & LENGTH, if byte & MASKED != 0 { 4 } else { 0 });
                self.header = mask
                    + match length {
                        126 => 4,
                        127 => 10,
                        _ => 2,
                    };
                self.left = if length < 126 { length.into() } else { 0 };
            }
            2 if self.length_ends_at() == 10 && byte & TOO_LONG != 0 => return ControlFlow::Break(()),
            seen if seen < self.length_ends_at() => self.left = self.left << 8 | u64::from(byte),
            _mask => {}
        }
        self.seen += 1;
        ControlFlow::Continue(())
    }

    /// Where in the header the length ends: behind its second byte, or behind two or eight more; a mask may follow.
    fn length_ends_at(&self) -> u8 {
        match self.header {
            2 | 6 => 2,
            4 | 8 => 4,
            _ => 10,
        }
    }

    /// Whether a frame may be put in here.
    pub(super) fn is_between(&self) -> bool {
        self.seen == 0 && !self.lost
    }

    /// Whether a Close frame has begun.
    pub(super) fn closes(&self) -> bool {
        self.closes
    }

    /// Whether a Close frame has come to its end, and nothing follows.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// A Close frame that says why a tenure's end closes a WebSocket: as a server sends it, or with a `mask` as a client does.
pub(super) fn close(mask: Option<[u8; 4]>) -> Vec<u8> {
    let payload = [&SERVICE_RESTART.to_be_bytes()[..], REASON].concat();
    let length = u8::try_from(payload.len()).expect("a reason is short");
    match mask {
        None => [&[FINAL | CLOSE, length][..], &payload].concat(),
        Some(mask) => {
            let masked: Vec<u8> = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect();
            [&[FINAL | CLOSE, MASKED | length][..], &mask, &masked].concat()
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame as somebody else would write it.
    fn frame(opcode: u8, mask: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
        let bit = if mask.is_some() { MASKED } else { 0 };
        let mut frame = vec![FINAL | opcode];
        match payload.len() {
            length @ 0..126 => frame.push(bit | length as u8),
            length @ 126..65_536 => {
                frame.push(bit | 126);
                frame.extend((length as u16).to_be_bytes());
            }
            length => {
                frame.push(bit | 127);
                frame.extend((length as u64).to_be_bytes());
            }
        }
        frame.extend(mask.into_iter().flatten());
        frame.extend(payload);
        frame
    }

    fn any_frame() -> impl Strategy<Value = Vec<u8>> {
        let length = prop_oneof![0..4_usize, 124..128_usize, 65_534..65_538_usize, 0..70_000_usize];
        (0..8_u8, any::<Option<[u8; 4]>>(), length, any::<u8>())
            .prop_map(|(opcode, mask, length, byte)| frame(opcode, mask, &vec![byte; length]))
    }

    proptest! {
        #[test]
        fn the_ends_of_frames_are_found_however_the_bytes_are_split(
            all in prop::collection::vec(any_frame(), 1..6),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
        ) {
            let bytes = all.concat();
            let ends: Vec<usize> = all.iter().scan(0, |end, frame| { *end += frame.len(); Some(*end) }).collect();
            let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len())).chain([0, bytes.len()]).collect();
            places.sort_unstable();
            let mut frames = Frames::default();
            let mut stepping = Frames::default();
            let mut found = Vec::new();
            for pair in places.windows(2) {
                let piece = &bytes[pair[0]..pair[1]];
                frames.follow(piece);
                prop_assert_eq!(frames.is_between(), pair[1] == 0 || ends.contains(&pair[1]), "at {}", pair[1]);
                let mut at = pair[0];
                while at < pair[1] {
                    at += stepping.follow_one(&bytes[at..pair[1]]);
                    if stepping.is_between() {
                        found.push(at);
                    }
                }
            }
            prop_assert_eq!(found, ends);
            prop_assert!(!frames.closes());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            let mut taken = 0;
            while taken < bytes.len() {
                let step = frames.follow_one(&bytes[taken..]);
                prop_assert!(step > 0 && taken + step <= bytes.len());
                taken += step;
            }
            let mut whole = Frames::default();
            whole.follow(&bytes);
            prop_assert_eq!(whole.is_between(), frames.is_between());
        }

        #[test]
        fn a_close_frame_is_seen_when_it_begins_and_when_it_is_whole(mask in any::<Option<[u8; 4]>>(), before in any_frame()) {
            let mut frames = Frames::default();
            frames.follow(&before);
            let close = close(mask);
            for (index, byte) in close.iter().enumerate() {
                prop_assert_eq!(frames.closes(), index > 0);
                prop_assert!(!frames.is_closed());
                frames.follow(&[*byte]);
            }
            prop_assert!(frames.is_closed() && frames.is_between());
        }
    }

    #[test]
    fn a_length_that_no_frame_can_have_ends_the_search() {
        let mut frames = Frames::default();
        frames.follow(&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0]);
        frames.follow(&frame(1, None, b"hello"));
        assert!(!frames.is_between());
    }

    #[test]
    fn what_is_put_in_is_a_close_frame_with_the_code_for_a_restart() {
        let mask = [1, 2, 3, 4];
        let payload = [&[0x03, 0xf4][..], b"connect again"].concat();
        assert_eq!(close(None), frame(8, None, &payload));
        let masked: Vec<u8> = payload.iter().enumerate().map(|(index, byte)| byte ^ mask[index % 4]).collect();
        assert_eq!(close(Some(mask)), frame(8, Some(mask), &masked));
    }
}
