//! The replica's end.

use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, StatusCode, Uri};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::{ELSEWHERE, PATH, SHAPE, name_protocol};
use crate::api::Limits;
use crate::api::carrier::Carrier;
use crate::api::feed::RequestBody;
use crate::api::pool::{self, Pool, Sending};
use crate::api::streams::{Lane, Sent};

/// How soon another one is opened where none could be.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times it is asked for before that: enough to come upon the one worker of many that has room.
const KNOCKS: usize = 100;

/// One worker's shared connection to one leader, if there is one.
pub(in crate::api) struct Mux {
    limits: Limits,
    state: RefCell<State>,
    /// Notified when an opening has come to an end.
    settled: Notify,
}

enum State {
    /// There is none, and none is to be opened before the instant.
    Closed(Instant),
    Opening,
    Open(Lane),
    /// The leader does not know what that is.
    Unknown,
}

impl Mux {
    pub(in crate::api) fn new(limits: Limits) -> Self {
        Self { limits, state: RefCell::new(State::Closed(Instant::now())), settled: Notify::new() }
    }

    /// Whether a request may go over it at all: nothing is lost when its exchange breaks.
    pub(in crate::api) fn takes(request: &Request<RequestBody>) -> bool {
        matches!(request.body(), RequestBody::Empty)
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && !request.headers().contains_key(UPGRADE)
    }

    /// Sends a request over the connection, if there is one and it has room; one that `insists` waits for room.
    pub(in crate::api) async fn send(&self, mut request: Request<RequestBody>, insists: bool) -> Sent {
        let sending = match &mut *self.state.borrow_mut() {
            State::Open(lane) if lane.has_room() || (insists && !lane.is_closed()) => {
                // What asks the app for trailers is meant for this hop too, and HTTP/2 has no `Connection` to say so.
                request.headers_mut().remove(CONNECTION);
                lane.send(request)
            }
            State::Open(_) | State::Closed(_) | State::Opening | State::Unknown => return Sent::Unsent(request),
        };
        sending.await
    }

    /// Whether somebody is to open it; the caller then does.
    pub(in crate::api) fn wants_opening(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let wanted = match &*state {
            State::Closed(until) => Instant::now() >= *until,
            State::Open(lane) => lane.is_closed(),
            State::Opening | State::Unknown => false,
        };
        if wanted {
            *state = State::Opening;
        }
        wanted
    }

    /// Opens the connection at `host` and serves it until it ends. Dropped, it cuts off whatever runs on it.
    pub(in crate::api) async fn run(&self, pool: &Rc<Pool>, host: HeaderValue) {
        let opened = self.open(pool, host).await;
        let (state, running) = match opened {
            Ok(Some((lane, running))) if !pool.is_retired() => (State::Open(lane), Some(running)),
            Ok(None) => {
                debug!("the leader takes one request at a time on each connection");
                (State::Unknown, None)
            }
            Ok(Some(_)) | Err(_) => (State::Closed(Instant::now() + PAUSE), None),
        };
        *self.state.borrow_mut() = state;
        self.settled.notify_waiters();
        if let Some(running) = running {
            running.await;
        }
    }

    /// Waits while it is being opened.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(in crate::api) async fn settles(&self) {
        let mut settled = pin!(self.settled.notified());
        settled.as_mut().enable();
        if matches!(*self.state.borrow(), State::Opening) {
            // Whoever opens it may have been cut off.
            timeout(self.limits.connect_timeout * 2, settled).await.ok();
        }
    }

    /// `None` where the leader does not agree.
    async fn open(&self, pool: &Rc<Pool>, host: HeaderValue) -> io::Result<Option<(Lane, impl Future<Output = ()> + use<>)>> {
        let Some(carrier) = self.ask(pool, host).await? else { return Ok(None) };
        let Some((wire, early, _cut)) = carrier.into_tunnel().await else { return Err(io::ErrorKind::ConnectionReset.into()) };
        wire.lay_bare();
        wire.unread(early);
        Lane::open(&wire, SHAPE, &self.limits).await.map(Some)
    }

    /// Asks for it, at one worker of the leader after the other.
    async fn ask(&self, pool: &Rc<Pool>, host: HeaderValue) -> io::Result<Option<Carrier>> {
        let terms = Sending { repeatable: true, fresh: true, upgrades: false };
        for _ in 0..KNOCKS {
            let asked = timeout(self.limits.connect_timeout, pool.send(question(host.clone()), terms, || true, async |_| Ok(())));
            let pool::Sent::Answered(answer, carrier) = asked.await? else { return Err(io::ErrorKind::NotConnected.into()) };
            match answer.status() {
                StatusCode::SWITCHING_PROTOCOLS => return Ok(Some(carrier)),
                ELSEWHERE => {}
                _ => return Ok(None),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Whether the leader does not know what that is.
    pub(in crate::api) fn is_unknown(&self) -> bool {
        matches!(*self.state.borrow(), State::Unknown)
    }

    /// Takes no more requests; those on the connection may finish.
    pub(in crate::api) fn retire(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, State::Open(_)) {
            *state = State::Closed(Instant::now());
        }
    }
}

/// What asks a leader for a shared connection.
fn question(host: HeaderValue) -> Request<RequestBody> {
    let mut question = Request::new(RequestBody::Empty);
    *question.uri_mut() = Uri::from_static(PATH);
    question.headers_mut().insert(HOST, host);
    name_protocol(question.headers_mut());
    question
}
