//! Whatever two ends say to each other, frames or not: no byte is lost sight of, and where a frame ends does not depend on how
//! the bytes come.

use super::frames::Frames;
use crate::api::tests::fuzz::Fuzz;

const WORDS: &[&[u8]] = &[
    b"\x81\x05hello",
    b"\x89\x00",
    b"\x8a\x80abcd",
    b"\x88\x02\x03\xe8",
    b"\x82\x7e\x00\x05hello",
    b"\x82\xfe\x00\x02maskhi",
    b"\x82\x7f\x00\x00\x00\x00\x00\x00\x00\x02hi",
    b"\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x01\x00",
    b"\x00\x7d",
];

/// The ends of whole frames, read by the book and all at once; `None` behind a header that no frame can have.
fn ends(bytes: &[u8]) -> (Vec<usize>, bool) {
    let (mut ends, mut at) = (Vec::new(), 0_u128);
    let byte = |at: u128| usize::try_from(at).ok().and_then(|at| bytes.get(at)).copied();
    loop {
        let Some(second) = byte(at + 1) else { return (ends, true) };
        let width = match second & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mut length = if width == 0 { u128::from(second & 0x7f) } else { 0 };
        for index in 0..width {
            let Some(next) = byte(at + 2 + index) else { return (ends, true) };
            length = length << 8 | u128::from(next);
            if width == 8 && length >> 7 != 0 && index == 0 {
                return (ends, false);
            }
        }
        at += 2 + width + if second & 0x80 != 0 { 4 } else { 0 } + length;
        if at > bytes.len() as u128 {
            return (ends, true);
        }
        ends.push(at as usize);
    }
}

#[test]
fn whatever_comes_the_ends_of_frames_are_found() {
    let mut fuzz = Fuzz::of("frames", WORDS, 20_000);
    while let Some(case) = fuzz.next_case() {
        let bytes = &case.input;
        let (expected, sane) = ends(bytes);
        let (mut frames, mut found, mut at) = (Frames::default(), Vec::new(), 0);
        while at < bytes.len() {
            // Pieces of all sizes, the same for the same input.
            let piece = &bytes[at..bytes.len().min(at + 1 + (at * 7 + bytes.len()) % 31)];
            let taken = frames.follow_one(piece);
            assert!(0 < taken && taken <= piece.len());
            at += taken;
            if frames.is_between() {
                found.push(at);
            }
        }
        assert_eq!(found, expected);
        assert!(sane || !frames.is_between(), "nothing may be put in where frames are none");
        let mut whole = Frames::default();
        whole.follow(bytes);
        assert_eq!((whole.is_between(), whole.closes(), whole.is_closed()), (frames.is_between(), frames.closes(), frames.is_closed()));
    }
}
