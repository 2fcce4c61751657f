//! What clients send: streamed, and remembered as far as it may have to be sent again.
//!
//! A client's body lives in a [`Feed`], which outlives the attempts to send it. Each attempt gets a [`RequestBody`] that
//! starts at the beginning, as long as everything read so far is still remembered, which is at most [`KEPT`] bytes. A
//! body is sent whole or not at all (B90), and not before its client was told to go on (B85).

mod body;
mod go_ahead;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::Body;
use hyper::body::Incoming;
use tokio::time::{Sleep, timeout};

use crate::api::debt::Debtors;
use crate::api::headers::prune_trailers;
use crate::api::piece::poll_piece;
use crate::api::session::Session;

use body::Reader;

pub(super) use body::{BodyError, RequestBody};
pub(super) use go_ahead::GoAhead;

/// How much of a body is remembered so that it can be sent again.
const KEPT: usize = 64 * 1024;

/// How much of a body is heard out for nobody: more than most clients have on their way when they are answered.
const HEARD_OUT: usize = 256 * 1024;
/// And for how long.
const HEARING: Duration = Duration::from_secs(2);

/// How far a body has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Progress {
    read: usize,
    /// Whether its reader waits for the client to go on.
    pub(super) is_clients_turn: bool,
}

/// A client's body, which can be sent more than once while it is short enough to be remembered.
pub(super) struct Feed {
    state: RefCell<State>,
    go_ahead: Option<Arc<GoAhead>>,
}

struct State {
    source: Incoming,
    source_ended: bool,
    /// Everything read so far, while `whole`.
    kept: Vec<Bytes>,
    kept_bytes: usize,
    whole: bool,
    /// Whether what is read from now on is remembered.
    keeps: bool,
    trailers: Option<HeaderMap>,
    /// The client's side broke.
    broken: bool,
    /// Which [`RequestBody`] may read; every other one has been revoked.
    turn: u32,
    reader: Option<Waker>,
    /// How many attempts have not let go of it yet.
    readers: usize,
    /// Who waits until none is left.
    heir: Option<Waker>,
    patience: Option<Pin<Box<Sleep>>>,
    /// How much has been read.
    read: usize,
    /// The connection that the rest comes over, until somebody looks after it.
    session: Option<Rc<Session>>,
    /// Who is told when somebody waits for the client, as long as the client owes the rest.
    owed_to: Option<Rc<Debtors>>,
    enrolled: bool,
    /// For how many sweeps the client has been waited for, if it is.
    waited: Option<u32>,
    /// The client was waited for for too long.
    given_up: bool,
}

impl Feed {
    /// Takes over a client's body. It is not touched before somebody reads; with `expects_continue`, not before an
    /// upstream agreed either, because the library sends the client its 100 at the first touch.
    pub(super) fn new(source: Incoming, expects_continue: bool) -> Rc<Self> {
        let state = State {
            source,
            source_ended: false,
            kept: Vec::new(),
            kept_bytes: 0,
            whole: true,
            keeps: true,
            trailers: None,
            broken: false,
            turn: 0,
            reader: None,
            readers: 0,
            heir: None,
            patience: None,
            read: 0,
            session: None,
            owed_to: None,
            enrolled: false,
            waited: None,
            given_up: false,
        };
        Rc::new(Self { state: RefCell::new(state), go_ahead: expects_continue.then(Arc::default) })
    }

    /// The body from its beginning, for one attempt; the one before it can read no more. `None` when the beginning is
    /// gone. With `keeps`, there may be another attempt.
    pub(super) fn next_turn(self: &Rc<Self>, keeps: bool) -> Option<RequestBody> {
        let mut state = self.state.borrow_mut();
        if !state.whole {
            return None;
        }
        state.revoke();
        state.keeps = keeps;
        state.readers += 1;
        Some(RequestBody::Feed(Reader::new(self, state.turn)))
    }

    /// Whether another attempt could send all of it.
    pub(super) fn is_whole(&self) -> bool {
        self.state.borrow().whole
    }

    /// Takes the body away from whoever reads it.
    pub(super) fn revoke(&self) {
        self.state.borrow_mut().revoke();
    }

    /// Whether the client has still to send some of it.
    pub(super) fn is_unfinished(&self) -> bool {
        let state = self.state.borrow();
        !state.source_ended && !state.source.is_end_stream()
    }

    /// How far it has come.
    pub(super) fn progress(&self) -> Progress {
        let state = self.state.borrow();
        Progress { read: state.read, is_clients_turn: state.waited.is_some() }
    }

    /// Whether the client's side of the body broke: the client has left.
    pub(super) fn is_broken(&self) -> bool {
        self.state.borrow().broken
    }

    /// Says that the body has a connection for itself, which nobody reads when nobody reads the body.
    pub(super) fn comes_over(&self, session: Rc<Session>) {
        self.state.borrow_mut().session = Some(session);
    }

    /// Says that the client owes the rest of the body to whoever reads it.
    pub(super) fn is_owed_to(&self, debtors: &Rc<Debtors>) {
        self.state.borrow_mut().owed_to = Some(Rc::clone(debtors));
    }

    /// Lets the client take its time from now on.
    pub(super) fn forgive(&self) {
        self.state.borrow_mut().owed_to = None;
    }

    /// Whether the client was waited for for too long.
    pub(super) fn is_given_up(&self) -> bool {
        self.state.borrow().given_up
    }

    /// Gives the body up when the client has been waited for at more than `most` sweeps in a row, of which this is one.
    /// Tells whether another look is wanted.
    pub(super) fn look(&self, most: u32) -> bool {
        let mut state = self.state.borrow_mut();
        if state.owed_to.is_none() || state.source_ended || state.broken {
            return false;
        }
        let Some(waited) = &mut state.waited else { return true };
        *waited += 1;
        if *waited <= most {
            return true;
        }
        state.given_up = true;
        state.broken = true;
        if let Some(reader) = state.reader.take() {
            reader.wake();
        }
        false
    }

    /// What opens the way for the body of a client that waits for a 100.
    pub(super) fn go_ahead(&self) -> Option<Arc<GoAhead>> {
        self.go_ahead.clone()
    }

    /// Whether the client still waits for a 100.
    pub(super) fn is_awaited(&self) -> bool {
        self.go_ahead.as_ref().is_some_and(|go_ahead| !go_ahead.is_given())
    }

    /// Notes that an attempt has let go of it.
    fn loses_reader(&self) {
        let mut state = self.state.borrow_mut();
        state.readers -= 1;
        if state.readers == 0
            && let Some(heir) = state.heir.take()
        {
            heir.wake();
        }
    }

    /// Reads what is left of it for nobody once all attempts have let go of it, within limits.
    pub(super) async fn hear_out(self: Rc<Self>) {
        let mut heard = 0;
        let rest = poll_fn(|cx| {
            let mut state = self.state.borrow_mut();
            if state.readers > 0 {
                state.heir = Some(cx.waker().clone());
                return Poll::Pending;
            }
            state.keeps = false;
            while heard < HEARD_OUT
                && let Some(Ok(piece)) = ready!(state.poll_source(cx, false))
            {
                heard += piece.len();
            }
            Poll::Ready(())
        });
        timeout(HEARING, rest).await.ok();
    }

    /// Reads ahead and remembers, up to [`KEPT`]: ready when there is no more to read ahead. Tells `read` of each piece's
    /// length, which says whether there is room for another. Never touches the body of a client that waits for a 100.
    pub(super) fn poll_ahead(&self, cx: &mut Context<'_>, read: &mut impl FnMut(usize) -> bool) -> Poll<()> {
        if self.is_awaited() {
            return Poll::Ready(());
        }
        let mut state = self.state.borrow_mut();
        state.keeps = true;
        while state.whole && !state.source_ended && !state.broken && state.kept_bytes < KEPT {
            match ready!(state.poll_source(cx, true)) {
                Some(Ok(piece)) => {
                    if !read(piece.len()) {
                        return Poll::Ready(());
                    }
                }
                Some(Err(_)) | None => break,
            }
        }
        Poll::Ready(())
    }
}

impl State {
    fn revoke(&mut self) {
        self.turn = self.turn.wrapping_add(1);
        self.patience = None;
        self.waited = None;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }

    /// Somebody waits for the client.
    fn begin_to_wait(&mut self, feed: &Rc<Feed>) {
        self.waited.get_or_insert(0);
        let Some(debtors) = &self.owed_to else { return };
        if !std::mem::replace(&mut self.enrolled, true) {
            debtors.enrol(feed);
        }
    }

    /// A body that is too long for the buffers on its way may be stuck there.
    fn note_length(&mut self, feed: &Rc<Feed>) {
        if self.read > KEPT
            && let Some(session) = self.session.take()
        {
            session.core.uploads.enrol(feed, &session);
        }
    }

    /// The next piece from the client, remembered if it fits.
    fn poll_source(&mut self, cx: &mut Context<'_>, ahead: bool) -> Poll<Option<Result<Bytes, BodyError>>> {
        if self.source_ended {
            return Poll::Ready(None);
        }
        match ready!(poll_piece(&mut self.source, cx)) {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => {
                    self.read = self.read.saturating_add(piece.len());
                    self.keep(&piece, ahead);
                    Poll::Ready(Some(Ok(piece)))
                }
                Err(frame) => {
                    self.source_ended = true;
                    self.trailers = frame.into_trailers().ok();
                    self.trailers.iter_mut().for_each(prune_trailers);
                    Poll::Ready(None)
                }
            },
            Some(Err(error)) => {
                self.broken = true;
                Poll::Ready(Some(Err(BodyError::Client(error))))
            }
            None => {
                self.source_ended = true;
                Poll::Ready(None)
            }
        }
    }

    /// Remembers a piece, or gives up remembering. What was read ahead is nowhere else yet, so it may pass the limit by
    /// less than one piece.
    fn keep(&mut self, piece: &Bytes, ahead: bool) {
        if !self.whole {
            return;
        }
        if !self.keeps || (!ahead && self.kept_bytes + piece.len() > KEPT) {
            self.whole = false;
            self.kept = Vec::new();
            self.kept_bytes = 0;
            return;
        }
        self.kept_bytes += piece.len();
        self.kept.push(piece.clone());
    }
}

#[cfg(test)]
mod tests;
