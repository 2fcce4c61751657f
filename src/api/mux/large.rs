//! Which answers are too large for a shared connection.
//!
//! HTTP/2 gathers each piece of a body before it hands it on, which a long body pays for and a short one does not. How long
//! an answer is, only its head says, and then it is on its way; so a worker remembers the paths whose latest answers were
//! long, and the next requests for them go over connections of their own.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};

use http::header::CONTENT_LENGTH;
use http::{Request, Response};

/// From how many bytes on an answer is large.
const LARGE: u64 = 32 * 1024;
/// How many paths are remembered at most; two that fall on the same place take turns.
const PLACES: usize = 1024;

/// The paths whose latest answers were large.
pub(in crate::api) struct LargeAnswers {
    hasher: RandomState,
    /// The mark of the path that is remembered in each place, 0 for none.
    places: Box<[Cell<u32>]>,
}

/// A path, as it is remembered.
#[derive(Clone, Copy)]
pub(in crate::api) struct Mark {
    place: usize,
    mark: u32,
}

impl LargeAnswers {
    pub(in crate::api) fn new() -> Self {
        Self { hasher: RandomState::new(), places: vec![Cell::new(0); PLACES].into() }
    }

    pub(in crate::api) fn mark<B>(&self, request: &Request<B>) -> Mark {
        let [high, low] = split(self.hasher.hash_one(request.uri().path()));
        Mark { place: low as usize % PLACES, mark: high.max(1) }
    }

    /// Whether the latest answer for the path was large, as far as is remembered.
    pub(in crate::api) fn expects(&self, Mark { place, mark }: Mark) -> bool {
        self.places[place].get() == mark
    }

    /// Notes how long an answer is, where it says so.
    pub(in crate::api) fn note<B>(&self, mark: Mark, answer: &Response<B>) {
        let length = answer.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length >= LARGE) {
            self.places[mark.place].set(mark.mark);
        } else if self.expects(mark) {
            self.places[mark.place].set(0);
        }
    }
}

fn split(hash: u64) -> [u32; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "it is to be cut in two")]
    [(hash >> 32) as u32, hash as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(length: &'static str) -> Response<()> {
        Response::builder().header(CONTENT_LENGTH, length).body(()).unwrap()
    }

    #[test]
    fn the_latest_answer_counts() {
        let large = LargeAnswers::new();
        let [page, image] = ["/page?n=1", "/image"].map(|path| large.mark(&Request::get(path).body(()).unwrap()));
        large.note(page, &answer("32767"));
        large.note(image, &answer("32768"));
        assert_eq!([page, image].map(|mark| large.expects(mark)), [false, true]);
        assert!(large.expects(large.mark(&Request::get("/image?again").body(()).unwrap())), "the query is no part of it");

        large.note(image, &Response::new(()));
        assert!(!large.expects(image), "an answer that does not say is not taken for a long one");
    }
}
