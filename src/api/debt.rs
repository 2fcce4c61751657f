//! What clients owe, and for how long they may owe it: the rest of a body that is being waited for, and the taking of an
//! answer that is being sent. A client that owes nothing may be silent for as long as it likes, as on event streams, long
//! polls and tunnels.
//!
//! No request has a timer for it. Bodies are looked at by the worker's sweep, and only those that have been waited for;
//! answers by the one timer that their connection has anyway.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use http::HeaderMap;
use http::header::CONTENT_TYPE;
use tokio::time::Instant;

use crate::api::feed::Feed;
use crate::api::io::Wire;
use crate::api::worker::SWEEP_EVERY;

/// The bodies of one worker whose clients may owe the rest of them.
pub(super) struct Debtors {
    most_sweeps: u32,
    feeds: RefCell<Vec<Weak<Feed>>>,
}

impl Debtors {
    pub(super) fn new(limit: Duration) -> Rc<Self> {
        Rc::new(Self { most_sweeps: sweeps(limit), feeds: RefCell::default() })
    }

    /// Looks at a body from now on, until it is dropped or owed no more.
    pub(super) fn enrol(&self, feed: &Rc<Feed>) {
        self.feeds.borrow_mut().push(Rc::downgrade(feed));
    }

    /// Gives up the bodies that have been waited for for too long.
    pub(super) fn sweep(&self) {
        self.feeds.borrow_mut().retain(|feed| feed.upgrade().is_some_and(|feed| feed.look(self.most_sweeps)));
    }
}

/// How many sweeps there may be before a limit that has begun is over: the first of them may come at once.
pub(super) fn sweeps(limit: Duration) -> u32 {
    let sweeps = limit.as_millis().div_ceil(SWEEP_EVERY.as_millis());
    u32::try_from(sweeps).unwrap_or(u32::MAX).saturating_add(1)
}

/// Whether a client owes the body that it has begun: not where body and answer are streams of messages, each sent when there
/// is something to say.
pub(super) fn is_owed(headers: &HeaderMap) -> bool {
    !headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a client takes what it is sent, as far as a look now and then can tell.
pub(super) struct Taking {
    limit: Option<Duration>,
    /// Since when at least it has taken nothing, and how much it had taken by then.
    still_since: Option<(Instant, u32)>,
}

impl Taking {
    pub(super) fn new(limit: Option<Duration>) -> Self {
        Self { limit, still_since: None }
    }

    /// The limit, if there is one.
    pub(super) fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// After how long another look is due, if one ever is; zero when the client has taken nothing for too long.
    pub(super) fn look(&mut self, wire: &Wire) -> Option<Duration> {
        let limit = self.limit?;
        let taken = wire.taken();
        self.still_since = match self.still_since {
            _ if !wire.has_unsent() => None,
            Some((since, before)) if before == taken => Some((since, before)),
            _ => Some((Instant::now(), taken)),
        };
        Some(self.still_since.map_or(limit, |(since, _)| limit.saturating_sub(since.elapsed())))
    }
}
