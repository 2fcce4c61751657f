//! The replica's end.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::{CONNECTION_WINDOW, ELSEWHERE, FRAME, PATH, STREAM_WINDOW, STREAMS, Tasks, longest_answer, name_protocol, switched};
use crate::api::Limits;
use crate::api::feed::RequestBody;
use crate::api::io::Wire;
use crate::api::pool::{Lease, Pool, Sending, Sent};

/// How soon another one is opened where none could be.
const PAUSE: Duration = Duration::from_secs(1);
/// How many times it is asked for before that: enough to come upon the one worker of many that has room.
const KNOCKS: usize = 100;

/// One worker's shared connection to one leader, if there is one.
pub(in crate::api) struct Mux {
    limits: Limits,
    state: RefCell<State>,
}

enum State {
    /// There is none, and none is to be opened before the instant.
    Closed(Instant),
    Opening,
    Open(Open),
    /// The leader does not know what that is.
    Unknown,
}

struct Open {
    sender: SendRequest<RequestBody>,
    /// How many requests are on it.
    streams: Rc<Cell<u32>>,
}

/// A request's share of the connection, until its answer has ended.
pub(in crate::api) struct Stream(Rc<Cell<u32>>);

impl Stream {
    fn new(streams: &Rc<Cell<u32>>) -> Self {
        streams.set(streams.get() + 1);
        Self(Rc::clone(streams))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How a request fared on the shared connection.
pub(in crate::api) enum Muxed {
    Answered(Response<Incoming>, Stream),
    /// It cannot go there; here it is again.
    Unsent(Request<RequestBody>),
    /// The connection broke, or the leader gave the request up.
    Lost(hyper::Error),
}

impl Mux {
    pub(in crate::api) fn new(limits: Limits) -> Self {
        Self { limits, state: RefCell::new(State::Closed(Instant::now())) }
    }

    /// Whether a request may go over it at all: nothing is lost when its exchange breaks.
    pub(in crate::api) fn takes(request: &Request<RequestBody>) -> bool {
        matches!(request.body(), RequestBody::Empty)
            && matches!(*request.method(), Method::GET | Method::HEAD)
            && !request.headers().contains_key(UPGRADE)
    }

    /// Sends a request over the connection, if there is one and it has room.
    pub(in crate::api) async fn send(&self, mut request: Request<RequestBody>) -> Muxed {
        let Some((sending, stream)) = self.with_room(|open| {
            // What asks the app for trailers is meant for this hop too, and HTTP/2 has no `Connection` to say so.
            request.headers_mut().remove(CONNECTION);
            let request = std::mem::replace(&mut request, Request::new(RequestBody::Empty));
            (open.sender.try_send_request(request), Stream::new(&open.streams))
        }) else {
            return Muxed::Unsent(request);
        };
        match sending.await {
            Ok(answer) => Muxed::Answered(answer, stream),
            Err(mut error) => match error.take_message() {
                Some(request) => Muxed::Unsent(request),
                None => Muxed::Lost(error.into_error()),
            },
        }
    }

    fn with_room<T>(&self, send: impl FnOnce(&mut Open) -> T) -> Option<T> {
        match &mut *self.state.borrow_mut() {
            State::Open(open) if !open.sender.is_closed() && open.streams.get() < STREAMS => Some(send(open)),
            State::Open(_) | State::Closed(_) | State::Opening | State::Unknown => None,
        }
    }

    /// Whether somebody is to open it; the caller then does.
    pub(in crate::api) fn wants_opening(&self) -> bool {
        let mut state = self.state.borrow_mut();
        let wanted = match &*state {
            State::Closed(until) => Instant::now() >= *until,
            State::Open(open) => open.sender.is_closed(),
            State::Opening | State::Unknown => false,
        };
        if wanted {
            *state = State::Opening;
        }
        wanted
    }

    /// Opens the connection at `host` and serves it until it ends. Dropped, it cuts off whatever runs on it.
    pub(in crate::api) async fn run(&self, pool: &Rc<Pool>, host: HeaderValue) {
        let (sender, running) = match self.open(pool, host).await {
            Ok(Some(opened)) if !pool.is_retired() => opened,
            Ok(None) => {
                debug!("the leader takes one request at a time on each connection");
                *self.state.borrow_mut() = State::Unknown;
                return;
            }
            Ok(Some(_)) | Err(_) => {
                *self.state.borrow_mut() = State::Closed(Instant::now() + PAUSE);
                return;
            }
        };
        *self.state.borrow_mut() = State::Open(Open { sender, streams: Rc::default() });
        running.await;
    }

    /// `None` where the leader does not agree.
    async fn open(
        &self,
        pool: &Rc<Pool>,
        host: HeaderValue,
    ) -> io::Result<Option<(SendRequest<RequestBody>, impl Future<Output = ()> + use<>)>> {
        let Some(lease) = self.ask(pool, host).await? else { return Ok(None) };
        let Some((wire, early, _cut)) = lease.into_tunnel().await else { return Err(io::ErrorKind::ConnectionReset.into()) };
        let tasks = TaskTracker::new();
        let mut builder = http2::Builder::new(Tasks(tasks.clone()));
        builder
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .initial_max_send_streams(STREAMS as usize)
            .max_frame_size(FRAME)
            .max_header_list_size(longest_answer(&self.limits));
        let severed = Severed(Rc::clone(&wire));
        let (sender, connection) = builder.handshake(TokioIo::new(switched(&wire, early))).await.map_err(io::Error::other)?;
        let running = async move {
            let _severed = severed;
            if let Err(error) = connection.await {
                debug!(%error, "the shared connection to the leader broke");
            }
            // It takes no more requests; those that are on it may finish.
            tasks.close();
            tasks.wait().await;
        };
        Ok(Some((sender, running)))
    }

    /// Asks for it, at one worker of the leader after the other.
    async fn ask(&self, pool: &Rc<Pool>, host: HeaderValue) -> io::Result<Option<Lease>> {
        let terms = Sending { repeatable: true, fresh: true };
        for _ in 0..KNOCKS {
            let asked = timeout(self.limits.connect_timeout, pool.send(question(host.clone()), terms, || true, async |_| Ok(())));
            let Sent::Answered(answer, lease) = asked.await? else { return Err(io::ErrorKind::NotConnected.into()) };
            match answer.status() {
                StatusCode::SWITCHING_PROTOCOLS => return Ok(Some(lease)),
                ELSEWHERE => {}
                _ => return Ok(None),
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Takes no more requests; those on the connection may finish.
    pub(in crate::api) fn retire(&self) {
        let mut state = self.state.borrow_mut();
        if matches!(*state, State::Open(_)) {
            *state = State::Closed(Instant::now());
        }
    }
}

/// Cuts a connection off when dropped, whatever still runs on it.
struct Severed(Rc<Wire>);

impl Drop for Severed {
    fn drop(&mut self) {
        self.0.sever();
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
