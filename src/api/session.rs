//! One connection of a client, as the requests on it and its end see it.

use std::cell::{Cell, RefCell};
use std::ops::Deref;
use std::rc::Rc;
use std::task::Waker;
use std::time::Duration;

use http::{Request, Version};
use hyper::body::{Body, Incoming};
use tokio_util::task::TaskTracker;

use crate::api::debt::Taking;
use crate::api::feed::Feed;
use crate::api::gate::{Pass, RESERVE_PATIENCE};
use crate::api::headers::{self, Peer};
use crate::api::io::Wire;
use crate::api::mux::Seat;
use crate::api::tunnel::Tunnel;
use crate::api::worker::{Core, SWEEP_EVERY};

/// After how many sweeps without a new request a connection counts as one that is not in use: two seconds at least.
pub(super) const UNUSED_SWEEPS: u32 = 5;

/// One client connection, for the requests that come over it.
pub(super) struct Session {
    pub(super) core: Rc<Core>,
    pub(super) wire: Rc<Wire>,
    pub(super) peer: Peer,
    pass: Rc<Pass>,
    next: RefCell<Option<Next>>,
    asked_upgrade: Cell<bool>,
    /// Whether the latest request's head can be read in more than one way.
    careless: Cell<bool>,
    /// Whether the latest request came in HTTP/1.0, so that its answer may end with the connection.
    is_old: Cell<bool>,
    unread: Cell<bool>,
    /// The worker's sweep during which the newest request came.
    used: Cell<u32>,
    from_node: Cell<bool>,
    /// Whether it is, or becomes, a connection for many requests of another node.
    shared: Cell<bool>,
    /// Whether a request is being answered.
    busy: Cell<bool>,
    /// The last sweep that found the connection at work; while it waits for a head, it stays.
    worked: Cell<u32>,
    /// Whether the client has left unseen by the library, and who is to hear of it.
    left: Cell<bool>,
    driver: RefCell<Option<Waker>>,
    /// What runs on the connection, if this is one of its streams.
    stream_tasks: Option<TaskTracker>,
}

/// What a connection becomes once a 101 is out.
pub(super) enum Next {
    /// Whatever client and app have agreed on.
    Tunnel(Tunnel),
    /// A connection for many requests of another node at once.
    Mux(Seat),
}

impl Session {
    pub(super) fn new(core: &Rc<Core>, wire: &Rc<Wire>, peer: Peer, pass: Rc<Pass>) -> Rc<Self> {
        Self::with(core, wire, peer, pass, None)
    }

    /// The same connection, for a request on a stream of its own; `tasks` are all that runs on it.
    pub(super) fn for_stream(&self, tasks: &TaskTracker) -> Rc<Self> {
        Self::with(&self.core, &self.wire, self.peer.clone(), Rc::clone(&self.pass), Some(tasks.clone()))
    }

    fn with(core: &Rc<Core>, wire: &Rc<Wire>, peer: Peer, pass: Rc<Pass>, tasks: Option<TaskTracker>) -> Rc<Self> {
        Rc::new(Self {
            core: Rc::clone(core),
            wire: Rc::clone(wire),
            peer,
            pass,
            next: RefCell::default(),
            asked_upgrade: Cell::default(),
            careless: Cell::default(),
            is_old: Cell::default(),
            unread: Cell::default(),
            used: Cell::new(core.sweep()),
            from_node: Cell::default(),
            shared: Cell::default(),
            busy: Cell::default(),
            worked: Cell::new(core.sweep()),
            left: Cell::default(),
            driver: RefCell::default(),
            stream_tasks: tasks,
        })
    }

    /// Whether the connection is one too many, which only another node may use for more than a question about this one.
    pub(super) fn is_surplus(&self) -> bool {
        self.pass.is_reserved() && !((self.from_node.get() || self.shared.get()) && self.peer.may_be_node())
    }

    /// Whether it is a connection for many requests of another node.
    pub(super) fn is_shared(&self) -> bool {
        self.shared.get()
    }

    /// Looks after whether the client takes what it is sent. Another node does that for the clients it serves.
    pub(super) fn taking(&self) -> Taking {
        Taking::new(self.core.config.limits.body_idle_timeout.filter(|_| !self.shared.get()))
    }

    /// How long a head may take to come, and how long the connection may idle.
    pub(super) fn head_timeout(&self) -> Duration {
        let limit = self.core.config.limits.head_timeout;
        if self.is_surplus() { limit.min(RESERVE_PATIENCE) } else { limit }
    }

    /// Names who drives the connection, and ends it when [`has_left`](Self::has_left).
    pub(super) fn is_driven_by(&self, driver: &Waker) {
        *self.driver.borrow_mut() = Some(driver.clone());
    }

    /// Says that the client has left.
    pub(super) fn leave(&self) {
        self.left.set(true);
        if let Some(driver) = &*self.driver.borrow() {
            driver.wake_by_ref();
        }
    }

    /// Whether the client has left, and its connection is to end at once.
    pub(super) fn has_left(&self) -> bool {
        self.left.get()
    }

    /// Says what takes the connection over once the 101 is out.
    pub(super) fn becomes(&self, next: Next) {
        self.shared.set(matches!(next, Next::Mux(_)));
        *self.next.borrow_mut() = Some(next);
    }

    /// What takes the connection over, if anything does.
    pub(super) fn next(&self) -> Option<Next> {
        self.next.take()
    }

    /// Says whether the latest request was answered before its body had been read.
    pub(super) fn leaves_unread(&self, unread: bool) {
        self.unread.set(unread);
    }

    /// Answers the latest request without the rest of its body, which nobody is to read any more.
    pub(super) fn answers_early(&self, rest: Option<Rc<Feed>>) {
        if let Some(rest) = &rest {
            rest.revoke();
        }
        self.hears_out(rest);
    }

    /// Hears out what is left of the latest request's body, if it came over a stream, once nobody else reads it, and for a moment:
    /// the library resets the stream of an early answer (RFC 9113 §8.1), and some clients, curl 7.88 for one, then lose the answer.
    pub(super) fn hears_out(&self, rest: Option<Rc<Feed>>) {
        let rest = rest.filter(|rest| rest.is_unfinished());
        self.leaves_unread(rest.is_some());
        if let (Some(rest), Some(tasks)) = (rest, &self.stream_tasks) {
            tasks.spawn_local(rest.hear_out());
        }
    }

    /// Whether the latest request was answered before its body had been read.
    pub(super) fn left_unread(&self) -> bool {
        self.unread.get()
    }

    /// Notes what must be known before the library looks at the socket again: a client that asks for an upgrade may
    /// have closed its sending side already.
    pub(super) fn note(&self, request: &Request<Incoming>) {
        let upgrade = headers::wants_upgrade(request.version(), request.headers());
        if upgrade {
            self.wire.hide_end();
        }
        self.asked_upgrade.set(upgrade);
        self.is_old.set(request.version() == Version::HTTP_10);
        self.careless.set(self.wire.end_head().are_bare());
        if request.body().is_end_stream() && !upgrade {
            self.wire.expect_head();
        }
        self.unread.set(false);
        self.used.set(self.core.sweep());
    }

    /// Whether a line of the latest request's head ended by LF alone.
    pub(super) fn has_bare_lines(&self) -> bool {
        self.careless.get()
    }

    /// Whether whoever sent the latest request knows of no other end of an answer without a length than the connection's.
    pub(super) fn knows_no_chunks(&self) -> bool {
        self.is_old.get()
    }

    /// Whether the latest request asked for an upgrade.
    pub(super) fn asked_upgrade(&self) -> bool {
        self.asked_upgrade.get()
    }

    /// Notes that another node is at the other end.
    pub(super) fn comes_from_node(&self) {
        self.from_node.set(true);
    }

    /// Notes whether the connection is at work, or waits for a head.
    pub(super) fn look(&self) {
        if self.busy.get() || self.wire.has_unsent() {
            self.worked.set(self.core.sweep());
        }
    }

    /// For how long, at least, no request has been there nor anything to be sent.
    pub(super) fn waited(&self) -> Duration {
        SWEEP_EVERY * self.core.sweep().wrapping_sub(self.worked.get()).saturating_sub(1)
    }

    /// Whether the connection has to end as soon as nothing runs on it.
    ///
    /// A request that meets a closing connection may have been executed, as far as its sender can know. So while the node
    /// is closing, a connection in use is told so with its next answer, and only one that is not in use ends without:
    /// it will hardly be used at this very moment. Another node, which may send on any of its connections, is given the
    /// time to learn of the next leader and to close them by itself.
    pub(super) fn is_to_end(&self) -> bool {
        let Some(closing_since) = self.core.closing_since() else { return false };
        let unused_since = if self.from_node.get() { closing_since.max(self.used.get()) } else { self.used.get() };
        self.core.sweep().wrapping_sub(unused_since) >= UNUSED_SWEEPS && !self.wire.has_input()
    }
}

/// A request that is being answered, for as long as that takes.
pub(super) struct Busy(Rc<Session>);

impl Busy {
    pub(super) fn new(session: &Rc<Session>) -> Self {
        session.busy.set(true);
        Self(Rc::clone(session))
    }

    /// The connection, which stays when the request is over.
    pub(super) fn connection(&self) -> Rc<Session> {
        Rc::clone(&self.0)
    }
}

impl Deref for Busy {
    type Target = Session;

    fn deref(&self) -> &Session {
        &self.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.look();
        self.0.busy.set(false);
        // What is left of a body may contain anything.
        if self.0.stream_tasks.is_none() && !self.0.left_unread() {
            self.0.wire.expect_head();
        }
    }
}
