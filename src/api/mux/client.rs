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
use crate::api::pool::{self, Greeting, Pool, Sending};
use crate::api::streams::{Lane, Sent};
use crate::api::tunnel::Far;

/// How soon another one is opened where none could be.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times it is asked for before that: enough to come upon the one worker of many that has room.
const KNOCKS: usize = 100;

/// How many there may be: more than one only for requests that can go over no other connection.
pub(in crate::api) const MOST: usize = 16;

/// One worker's shared connections to one leader, if there are any.
pub(in crate::api) struct Mux {
    limits: Limits,
    state: RefCell<State>,
    /// Notified when an opening has come to an end.
    settled: Notify,
}

struct State {
    lanes: Vec<Lane>,
    next: Next,
}

/// What is to become of a wish for another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    /// None is to be opened before the instant.
    After(Instant),
    Opening,
    /// The leader does not know what that is.
    Unknown,
}

impl State {
    /// The connection for a request: the first that has room. One that `insists` gets the emptiest of those that are full
    /// rather than none, when there can be no more.
    fn lane(&mut self, insists: bool) -> Option<&mut Lane> {
        if let Some(index) = self.lanes.iter().position(Lane::has_room) {
            return self.lanes.get_mut(index);
        }
        if !insists || self.may_grow() {
            return None;
        }
        self.lanes.iter_mut().filter(|lane| !lane.is_closed()).min_by_key(|lane| lane.load())
    }

    /// Whether there may be one more: soon, or now.
    fn may_grow(&self) -> bool {
        let may_open = match self.next {
            Next::After(until) => Instant::now() >= until,
            Next::Opening => true,
            Next::Unknown => false,
        };
        may_open && self.lanes.iter().filter(|lane| !lane.is_closed()).count() < MOST
    }
}

impl Mux {
    pub(in crate::api) fn new(limits: Limits) -> Self {
        let state = State { lanes: Vec::new(), next: Next::After(Instant::now()) };
        Self { limits, state: RefCell::new(state), settled: Notify::new() }
    }

    /// Whether a request may go over it at all: nothing is lost when its exchange breaks.
    pub(in crate::api) fn takes(request: &Request<RequestBody>) -> bool {
        matches!(request.body(), RequestBody::Empty)
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && !request.headers().contains_key(UPGRADE)
    }

    /// Sends a request over a connection that has room, if there is one; one that `insists` waits for room where there can
    /// be no more connections.
    pub(in crate::api) async fn send(&self, mut request: Request<RequestBody>, insists: bool) -> Sent {
        let sending = match self.state.borrow_mut().lane(insists) {
            Some(lane) => {
                // What asks the app for trailers is meant for this hop too, and HTTP/2 has no `Connection` to say so.
                request.headers_mut().remove(CONNECTION);
                lane.send(request)
            }
            None => return Sent::Unsent(request),
        };
        sending.await
    }

    /// Whether somebody is to open one; the caller then does. Only a request that `insists` is worth one beside others.
    pub(in crate::api) fn wants_opening(&self, insists: bool) -> bool {
        let state = &mut *self.state.borrow_mut();
        if state.next == Next::Opening {
            return false;
        }
        state.lanes.retain(|lane| !lane.is_closed());
        let lacks = if insists { !state.lanes.iter().any(Lane::has_room) } else { state.lanes.is_empty() };
        let wanted = lacks && state.may_grow();
        if wanted {
            state.next = Next::Opening;
        }
        wanted
    }

    /// Opens a connection at `host`, where `greet` may refuse whoever is there, and serves it until it ends. Dropped, it cuts
    /// off whatever runs on it.
    ///
    /// # Errors
    /// When none could be opened.
    pub(in crate::api) async fn run(
        &self,
        pool: &Rc<Pool>,
        host: HeaderValue,
        greet: impl AsyncFn(&mut Greeting<'_>) -> io::Result<()>,
    ) -> io::Result<()> {
        let opened = match self.ask(pool, host, greet).await {
            Ok(Some(carrier)) => self.begin(carrier).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let (next, running) = match opened {
            Ok(Some((lane, running))) if !pool.is_retired() => {
                self.state.borrow_mut().lanes.push(lane);
                (Next::After(Instant::now()), Ok(Some(running)))
            }
            Ok(None) => {
                debug!("the leader takes one request at a time on each connection");
                (Next::Unknown, Ok(None))
            }
            Ok(Some(_)) => (Next::After(Instant::now() + PAUSE), Ok(None)),
            Err(error) => (Next::After(Instant::now() + PAUSE), Err(error)),
        };
        self.state.borrow_mut().next = next;
        self.settled.notify_waiters();
        if let Some(running) = running? {
            running.await;
        }
        Ok(())
    }

    /// Waits while one is being opened; false where none is.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(in crate::api) async fn settles(&self) -> bool {
        let mut settled = pin!(self.settled.notified());
        settled.as_mut().enable();
        let opening = self.state.borrow().next == Next::Opening;
        if opening {
            // Whoever opens it may have been cut off.
            timeout(self.limits.connect_timeout * 2, settled).await.ok();
        }
        opening
    }

    async fn begin(&self, carrier: Carrier) -> io::Result<(Lane, impl Future<Output = ()> + use<>)> {
        let Some((Far::Connection(io), _notice)) = carrier.into_tunnel().await else { return Err(io::ErrorKind::ConnectionReset.into()) };
        Lane::open(&io.0, SHAPE, &self.limits).await
    }

    /// Asks for it, at one worker of the leader after the other; `None` where the leader does not agree.
    async fn ask(
        &self,
        pool: &Rc<Pool>,
        host: HeaderValue,
        greet: impl AsyncFn(&mut Greeting<'_>) -> io::Result<()>,
    ) -> io::Result<Option<Carrier>> {
        let terms = Sending { repeatable: true, fresh: true, upgrades: false };
        for _ in 0..KNOCKS {
            let asked = timeout(self.limits.connect_timeout, pool.send(question(host.clone()), terms, || true, &greet));
            let (answer, carrier) = match asked.await? {
                pool::Sent::Answered(answer, carrier) => (answer, carrier),
                pool::Sent::Unsent(_, unsent) => return Err(unsent.into()),
                pool::Sent::Refused(_) | pool::Sent::Lost { .. } => return Err(io::ErrorKind::NotConnected.into()),
            };
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
        self.state.borrow().next == Next::Unknown
    }

    /// Takes no more requests; those on the connections may finish.
    pub(in crate::api) fn retire(&self) {
        self.state.borrow_mut().lanes.clear();
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
