//! What one client does with the streams of its connection: whether it takes its answers, each by itself, and how often it
//! takes a request back.
//!
//! The library takes a piece of an answer over whole once the client has room for any of it, and asks for the next one when it
//! has room again. A piece that stays is one the client does not take, however well the connection does: its stream is reset, and
//! what it kept of an app is free again. The last piece cannot be seen to stay. By then the app is free, and what is kept is that
//! piece, until the stream ends or its connection does, as every idle one has to. Requests that are taken back cost the app more than the client (CVE-2023-44487), and the
//! library counts only those that it had not handed over yet; so there is a budget for all of them. A proxy that is trusted
//! has none: thousands of clients may leave at once behind it, and it is there to count what each of them does.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use tokio::sync::Notify;
use tokio::task_local;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::api::body::ResponseBody;
use crate::api::ledger::Outcome;
use crate::api::worker::Core;

/// How many requests a client may take back at once: more than one that gives up all it waits for does, several times over.
const BUDGET: u32 = 1_000;
/// How many more with each sweep of the worker, two of which make a second.
const REFILL: u32 = 50;

task_local! {
    /// The stream that a task is about.
    static STREAM: Rc<Stream>;
}

/// The streams of one connection.
pub(super) struct Watch {
    core: Rc<Core>,
    limit: Option<Duration>,
    streams: RefCell<Vec<Weak<Stream>>>,
    /// How many of them there may be before those that have ended are forgotten.
    crowd: usize,
    /// Whether requests that are taken back are counted.
    counts: bool,
    budget: Cell<u32>,
    /// The sweep up to which it was refilled.
    refilled: Cell<u32>,
    /// Notified when it is used up.
    spent: Notify,
}

/// One stream, with what its client has been sent.
#[derive(Default)]
struct Stream {
    /// A piece of the answer is there, and not yet all on its way.
    owed: Cell<bool>,
    /// How many pieces there were.
    pieces: Cell<u32>,
    /// Since when at least one of them has been owed, and how many there had been.
    still_since: Cell<Option<(Instant, u32)>>,
    /// A request is being answered, and the answer has not come to its end.
    due: Cell<bool>,
    /// Notified when it is to be reset.
    cut: Notify,
}

impl Watch {
    /// Watches over a connection of `most` streams, each of which may stand still for as long as `limit`. Requests that are taken
    /// back are counted if it `counts`.
    pub(super) fn new(core: &Rc<Core>, limit: Option<Duration>, most: u32, counts: bool) -> Rc<Self> {
        Rc::new(Self {
            core: Rc::clone(core),
            limit,
            streams: RefCell::default(),
            crowd: most as usize * 2,
            counts,
            budget: Cell::new(BUDGET),
            refilled: Cell::new(core.sweep()),
            spent: Notify::new(),
        })
    }

    /// Returns when the client has taken too many requests back.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn is_spent(&self) {
        self.spent.notified().await;
    }

    /// Resets streams that have stood still for too long. Tells after how long another look is due.
    pub(super) fn look(&self) -> Option<Duration> {
        let limit = self.limit?;
        let mut due = limit;
        self.streams.borrow_mut().retain(|stream| {
            let Some(stream) = stream.upgrade() else { return false };
            let left = stream.look(limit);
            if left.is_zero() {
                stream.cut.notify_one();
                return false;
            }
            due = due.min(left);
            true
        });
        Some(due)
    }

    fn enrol(&self, stream: &Rc<Stream>) {
        let mut streams = self.streams.borrow_mut();
        if streams.len() >= self.crowd {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        streams.push(Rc::downgrade(stream));
    }

    /// Counts a request that was taken back.
    fn spend(&self) {
        let now = self.core.sweep();
        let more = now.wrapping_sub(self.refilled.replace(now)).saturating_mul(REFILL);
        let left = self.budget.get().saturating_add(more).min(BUDGET);
        self.budget.set(left.saturating_sub(1));
        if left == 0 {
            self.spent.notify_one();
        }
    }

    /// The stream of a task that is about to begin: what begins in the middle of another task is about the same one.
    fn stream(&self) -> Rc<Stream> {
        STREAM.try_with(Rc::clone).unwrap_or_else(|_| {
            let stream = Rc::new(Stream::default());
            self.enrol(&stream);
            stream
        })
    }

    /// Runs what the library does for a stream, until that ends or the stream is to be reset.
    async fn run(self: Rc<Self>, stream: Rc<Stream>, task: impl Future<Output = ()>) {
        let mut running = pin!(Some(STREAM.scope(Rc::clone(&stream), task)));
        tokio::select! {
            biased;
            () = stream.cut.notified() => self.core.drop_as(Outcome::Stalled, || running.set(None)),
            () = running.as_mut().as_pin_mut().expect("it is there until it is cut") => if stream.due.get() && self.counts {
                self.spend();
            },
        }
    }
}

impl Stream {
    /// How long it may still stand still.
    fn look(&self, limit: Duration) -> Duration {
        let pieces = self.pieces.get();
        let still_since = match self.still_since.get() {
            _ if !self.owed.get() => None,
            Some((since, before)) if before == pieces => Some((since, before)),
            _ => Some((Instant::now(), pieces)),
        };
        self.still_since.set(still_since);
        still_since.map_or(limit, |(since, _)| limit.saturating_sub(since.elapsed()))
    }
}

/// Says that the present task is about a request, and that from now on an answer is due.
pub(super) fn begin() {
    STREAM.try_with(|stream| stream.due.set(true)).ok();
}

/// What resets a stream that has become a tunnel: it ends by itself otherwise.
pub(super) struct Reset(Option<Rc<Stream>>);

impl Reset {
    /// That of the stream that the present task is about.
    pub(super) fn of_this_stream() -> Self {
        Self(STREAM.try_with(Rc::clone).ok())
    }

    /// Takes the stream from the library as soon as it wants to go on with it. Whoever holds a part of it lets go as well.
    pub(super) fn at_once(self) {
        if let Some(stream) = self.0 {
            stream.cut.notify_one();
        }
    }
}

/// Runs what the library has to do for the streams of a connection.
#[derive(Clone)]
pub(super) struct Runner {
    pub(super) tasks: TaskTracker,
    /// Where somebody watches over them.
    pub(super) watch: Option<Rc<Watch>>,
}

impl<F: Future<Output = ()> + 'static> Executor<F> for Runner {
    fn execute(&self, task: F) {
        match &self.watch {
            Some(watch) => drop(self.tasks.spawn_local(Rc::clone(watch).run(watch.stream(), task))),
            None => drop(self.tasks.spawn_local(task)),
        }
    }
}

/// An answer's body, which notes on its stream how it is taken.
pub(super) struct Watched {
    body: ResponseBody,
    stream: Option<Rc<Stream>>,
}

impl Watched {
    /// The body of the answer to the stream that the present task is about.
    pub(super) fn new(body: ResponseBody) -> Self {
        let stream = STREAM.try_with(Rc::clone).ok();
        if let Some(stream) = &stream {
            stream.due.set(!body.is_end_stream());
        }
        Self { body, stream }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Some(stream) = &self.stream {
            let owed = matches!(&polled, Poll::Ready(Some(Ok(_))));
            // Nothing follows trailers, and the library does not ask whether anything does.
            let is_last = matches!(&polled, Poll::Ready(Some(Ok(frame))) if frame.is_trailers());
            stream.owed.set(owed);
            stream.pieces.set(stream.pieces.get().wrapping_add(u32::from(owed)));
            stream.due.set(polled.is_pending() || owed && !is_last && !self.body.is_end_stream());
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
