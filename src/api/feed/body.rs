//! One attempt to send a client's body.

use std::fmt;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::Feed;

/// What one attempt sends.
pub(in crate::api) enum RequestBody {
    /// The request has no body.
    Empty,
    /// The request's body, from its beginning.
    Feed {
        /// Where it comes from.
        feed: Rc<Feed>,
        /// Which attempt this is.
        turn: u32,
        /// Which remembered piece comes next.
        next: usize,
        /// Whether the trailers are out.
        trailers_sent: bool,
    },
}

impl RequestBody {
    /// Where it comes from.
    pub(in crate::api) fn feed(&self) -> Option<&Rc<Feed>> {
        match self {
            Self::Empty => None,
            Self::Feed { feed, .. } => Some(feed),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Self::Feed { feed, turn, next, trailers_sent } = self.get_mut() else { return Poll::Ready(None) };
        let state = &mut *feed.state.borrow_mut();
        if state.turn != *turn {
            return Poll::Ready(Some(Err(BodyError::Revoked)));
        }
        if let Some(go_ahead) = &feed.go_ahead
            && go_ahead.poll_given(cx, &mut state.patience).is_pending()
        {
            state.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        if let Some(piece) = state.kept.get(*next) {
            *next += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece.clone()))));
        }
        if state.given_up {
            return Poll::Ready(Some(Err(BodyError::GivenUp)));
        }
        let Poll::Ready(piece) = state.poll_source(cx, false) else {
            state.reader = Some(cx.waker().clone());
            state.begin_to_wait(feed);
            return Poll::Pending;
        };
        state.waited = None;
        state.note_length(feed);
        match piece {
            Some(piece) => {
                *next = state.kept.len();
                Poll::Ready(Some(piece.map(Frame::data)))
            }
            None if *trailers_sent => Poll::Ready(None),
            None => {
                *trailers_sent = true;
                Poll::Ready(state.trailers.clone().map(|trailers| Ok(Frame::trailers(trailers))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Feed { feed, turn, next, .. } => {
                let state = feed.state.borrow();
                state.turn == *turn && *next >= state.kept.len() && state.source.is_end_stream()
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        let Self::Feed { feed, next, .. } = self else { return SizeHint::with_exact(0) };
        let state = feed.state.borrow();
        let kept: usize = state.kept.iter().skip(*next).map(Bytes::len).sum();
        match state.source.size_hint().exact() {
            Some(rest) => SizeHint::with_exact(rest + kept as u64),
            None => SizeHint::default(),
        }
    }
}

/// Why a request's body ends before its end.
#[derive(Debug)]
pub(in crate::api) enum BodyError {
    /// The client's connection broke, or what it sent was no body.
    Client(hyper::Error),
    /// The attempt was given up.
    Revoked,
    /// The client took too long.
    GivenUp,
}

impl fmt::Display for BodyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Client(_) => "the client broke off its request body",
            Self::Revoked => "the attempt was given up",
            Self::GivenUp => "the client did not go on with its request body",
        })
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Client(error) => Some(error),
            Self::Revoked | Self::GivenUp => None,
        }
    }
}
