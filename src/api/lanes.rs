//! One worker's connections to an app that speaks HTTP/2: because its URL says so, or as long as it chooses to when it shakes
//! hands.
//!
//! What it chose on the newest connection is what is expected of the next one. A connection on which it chooses HTTP/1.1 is
//! handed back, for the pool to go on with, and the other way round.
//!
//! Another one is opened when all are full, so that calls which last, as those of gRPC may, keep nobody waiting; those that
//! carry nothing for a while are closed. WebSockets, which last by their nature, have connections of their own, as many as
//! they need; an app takes them over HTTP/2 only if it has said so.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::request::Parts;
use http::uri::{Authority, Scheme, Uri};
use http::{Request, Version};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api::Limits;
use crate::api::carrier::Carrier;
use crate::api::error::Reason;
use crate::api::feed::RequestBody;
use crate::api::io::Wire;
use crate::api::pool::{Pool, Sent, Unsent};
use crate::api::streams::{self, Announced, Connect, Lane, Shape, asks_for_websocket};
use crate::cluster::Upstream;

/// What one connection may have under way: no body waits for another's reader.
const SHAPE: Shape =
    Shape { streams: 100, stream_window: 256 * 1024, connection_window: 100 * 256 * 1024, frame: 16 * 1024, resets: 1_000 };
/// How many connections there may be for requests; beyond that, they wait for a place on one.
const MOST: usize = 32;
/// How long a request may wait for its turn to open one.
const LONGEST_QUEUE: Duration = Duration::from_secs(30);
/// How many times a request is taken off connections that turned out to be closed.
const TRIES: usize = 3;
/// What those are told who ask for a WebSocket in vain.
const TAKES_NONE: &str = "the app takes no WebSockets over HTTP/2, as it does not announce SETTINGS_ENABLE_CONNECT_PROTOCOL (RFC 8441): \
                          have it do so, or give --upstream an http:// address of it";

/// What a request is to lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// An answer.
    Answer,
    /// A WebSocket, which HTTP/2 has a way of its own for (RFC 8441).
    WebSocket,
    /// Another protocol, of which HTTP/2 knows nothing (RFC 9113 §8.6).
    Upgrade,
}

impl Aim {
    /// What a request is to lead to that may ask for an upgrade.
    pub(super) fn of(head: &Parts, upgrades: bool) -> Self {
        match upgrades {
            false => Self::Answer,
            true if asks_for_websocket(head) => Self::WebSocket,
            true => Self::Upgrade,
        }
    }
}

/// Connections to one app, for as long as one tenure lasts.
pub(super) struct Lanes {
    /// Opens them and ends them.
    pool: Rc<Pool>,
    limits: Limits,
    requests: Road,
    websockets: Road,
    /// How the app is reached by name.
    scheme: Scheme,
    /// And by which, where a client has named none that HTTP/2 can say.
    authority: Authority,
    /// Whether the app speaks HTTP/2, as far as its newest connection tells.
    spoken: Cell<bool>,
}

impl Lanes {
    pub(super) fn new(pool: Rc<Pool>, limits: Limits) -> Self {
        let scheme = if matches!(pool.upstream(), Upstream::Https { .. }) { Scheme::HTTPS } else { Scheme::HTTP };
        let authority = pool.upstream().authority().parse().unwrap_or_else(|_| Authority::from_static("localhost"));
        let [requests, websockets] = [false, true].map(Road::new);
        Self { pool, limits, requests, websockets, scheme, authority, spoken: Cell::new(true) }
    }

    /// Whether a request is to go over them. One that asks for an upgrade is not, where the app has a choice, but for a
    /// WebSocket that it may take.
    pub(super) fn are_for(&self, aim: Aim) -> bool {
        let over_http2 = || match aim {
            Aim::Answer => true,
            Aim::WebSocket => !(self.has_choice() && self.takes_no_websockets()),
            Aim::Upgrade => !self.has_choice(),
        };
        self.spoken.get() && over_http2()
    }

    /// Whether the app can be spoken to in HTTP/1.1 as well.
    fn has_choice(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// Whether the app takes no WebSockets over HTTP/2, or rather has not said that it does, as far as is known: it has none,
    /// and has spoken last on a connection for requests.
    fn takes_no_websockets(&self) -> bool {
        !self.websockets.is_open() && self.requests.announced().is_some_and(|announced| !announced.extended_connect)
    }

    /// Goes on with a connection on which the app has chosen what was not expected, and expects it from then on.
    ///
    /// # Errors
    /// When the connection breaks at once.
    pub(super) async fn learn_from(&self, wire: Rc<Wire>) -> io::Result<()> {
        self.spoken.set(wire.chose_http2());
        if !wire.chose_http2() {
            self.pool.adopt(wire).await
        } else if self.requests.lane().is_none() {
            let lane = self.begin(&wire).await?;
            self.requests.take(lane);
            Ok(())
        } else {
            Ok(())
        }
    }

    /// Sends a request and waits for the head of its answer. Opening a connection is bounded in time, and the answer where there
    /// is a limit; else it is the caller's to bound. `allowed` is asked again when a connection had to be waited for.
    pub(super) async fn send(&self, request: Request<RequestBody>, aim: Aim, allowed: impl Fn() -> bool) -> Sent {
        match aim {
            Aim::Answer | Aim::Upgrade => self.send_over(&self.requests, self.as_http2(request), allowed).await,
            Aim::WebSocket => Box::pin(self.send_for_websocket(request, allowed)).await,
        }
    }

    /// The same for a request for a WebSocket, whose agreement comes back as one to an upgrade.
    async fn send_for_websocket(&self, mut request: Request<RequestBody>, allowed: impl Fn() -> bool) -> Sent {
        // Whether the app takes any is to be known first.
        if let Err(unsent) = self.prepare(&self.websockets, &allowed).await {
            return Sent::Unsent(request, unsent);
        }
        let connect = match Connect::turn(&mut request) {
            Ok(connect) => connect,
            Err(why) => return Sent::Unsent(request, Unsent::Unfit(Reason::BadRequest, why)),
        };
        match self.send_over(&self.websockets, self.as_http2(request), allowed).await {
            Sent::Answered(mut answer, Carrier::Stream(stream)) => {
                let carrier = match connect.turn_back(&mut answer).await {
                    Some(upgraded) => Carrier::Tunnel(Box::new(self.pool.tunnel(upgraded, stream))),
                    None => Carrier::Stream(stream),
                };
                Sent::Answered(answer, carrier)
            }
            other => other,
        }
    }

    async fn send_over(&self, road: &Road, mut request: Request<RequestBody>, allowed: impl Fn() -> bool) -> Sent {
        let feed = self.pool.feed_of(&request);
        for _ in 0..TRIES {
            if let Err(unsent) = self.prepare(road, &allowed).await {
                return Sent::Unsent(request, unsent);
            }
            let (reused, sending) = match road.lane() {
                Some(mut lane) => (lane.was_used(), lane.send(request)),
                None => continue,
            };
            let sent = match self.pool.in_time(feed.clone(), sending).await {
                Ok(sent) => sent,
                Err(late) => return Sent::Lost { loss: late, reused },
            };
            match sent {
                streams::Sent::Answered(answer, stream) => return Sent::Answered(answer, Carrier::Stream(stream)),
                streams::Sent::Unsent(unsent) => request = unsent,
                streams::Sent::Refused(error) => return Sent::Refused(error),
                streams::Sent::Lost(error) => return Sent::Lost { loss: error.into(), reused },
            }
        }
        Sent::Unsent(request, Unsent::Dial(io::ErrorKind::ConnectionReset.into()))
    }

    /// A request as HTTP/2 says it: where it goes is in its target (RFC 9113 §8.3.1), and nothing is about the connection.
    fn as_http2(&self, mut request: Request<RequestBody>) -> Request<RequestBody> {
        let headers = request.headers_mut();
        for about_the_connection in [CONNECTION, UPGRADE, TRANSFER_ENCODING] {
            headers.remove(about_the_connection);
        }
        let host = headers.remove(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
        let mut target = std::mem::take(request.uri_mut()).into_parts();
        target.scheme = Some(self.scheme.clone());
        target.authority = Some(host.unwrap_or_else(|| self.authority.clone()));
        // `*` is the target of a request about the server itself, and no path.
        target.path_and_query = target.path_and_query.filter(|path| path != "*").or_else(|| "/".parse().ok());
        *request.uri_mut() = Uri::from_parts(target).unwrap_or_default();
        *request.version_mut() = Version::HTTP_2;
        request
    }

    /// Sees to it that there is a connection for the next request.
    async fn prepare(&self, road: &Road, allowed: impl Fn() -> bool) -> Result<(), Unsent> {
        if road.lane().is_some() {
            return Ok(());
        }
        self.open(road).await?;
        if allowed() { Ok(()) } else { Err(Unsent::Forbidden) }
    }

    /// Opens a connection, unless somebody else has done so while this had to wait for its turn, or has failed.
    async fn open(&self, road: &Road) -> Result<(), Unsent> {
        let failures = road.failures.get();
        let _turn = timeout(LONGEST_QUEUE, road.opening.acquire()).await.map_err(|_| late("it took too long to open a connection"))?;
        if road.lane().is_some() {
            return Ok(());
        }
        road.fails_as_since(failures)?;
        match self.open_for(road).await {
            Err(Unsent::Dial(error)) => Err(road.fails(error).into()),
            other => other,
        }
    }

    async fn open_for(&self, road: &Road) -> Result<(), Unsent> {
        if !self.spoken.get() {
            return Err(Unsent::OtherVersion(None));
        }
        if road.is_for_websockets && self.takes_no_websockets() {
            return Err(self.unfit_for_websockets());
        }
        let wire = self.pool.connect(false).await?;
        if self.has_choice() && !wire.chose_http2() {
            return Err(Unsent::OtherVersion(Some(wire)));
        }
        let lane = self.begin(&wire).await?;
        if road.is_for_websockets {
            let announced = lane.announced().ok_or_else(|| late("it did not say in time what it takes over HTTP/2"))?;
            if !announced.extended_connect {
                if self.requests.lane().is_none() {
                    self.requests.take(lane);
                }
                return Err(self.unfit_for_websockets());
            }
        }
        road.take(lane);
        Ok(())
    }

    /// Why an app is not asked for a WebSocket over HTTP/2: it is in HTTP/1.1 where it has the choice.
    fn unfit_for_websockets(&self) -> Unsent {
        if self.has_choice() { Unsent::OtherVersion(None) } else { Unsent::Unfit(Reason::UpstreamFailed, TAKES_NONE) }
    }

    /// Begins to speak HTTP/2, and hears what the app says of itself. One that says nothing in time may be as slow to answer,
    /// which is for clients to wait for.
    async fn begin(&self, wire: &Rc<Wire>) -> io::Result<Lane> {
        let (lane, running) = Lane::open(wire, SHAPE, &self.limits).await?;
        if self.pool.is_retired() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the upstream was given up"));
        }
        self.pool.spawn(running);
        match timeout(self.limits.connect_timeout, lane.hear()).await {
            Ok(heard) => drop(heard?),
            Err(_) if lane.announced().is_none() => {}
            Err(_) => return Err(late("it lets no request be made (SETTINGS_MAX_CONCURRENT_STREAMS is 0)")),
        }
        Ok(lane)
    }

    /// Closes connections that have carried nothing for too long; called now and then.
    pub(super) fn sweep(&self) {
        for road in [&self.requests, &self.websockets] {
            road.lanes.borrow_mut().retain_mut(|lane| !lane.is_closed() && lane.idles() <= self.limits.idle_timeout);
        }
    }
}

fn late(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Connections for what goes side by side: requests, or WebSockets.
struct Road {
    /// In the order in which they were opened.
    lanes: RefCell<Vec<Lane>>,
    opening: Semaphore,
    /// How often that has failed, and how it did last.
    failures: Cell<u64>,
    failure: RefCell<Option<Arc<io::Error>>>,
    is_for_websockets: bool,
}

impl Road {
    fn new(is_for_websockets: bool) -> Self {
        Self {
            lanes: RefCell::default(),
            opening: Semaphore::new(1),
            failures: Cell::default(),
            failure: RefCell::default(),
            is_for_websockets,
        }
    }

    /// The connection for the next request: the first that has room, so that the others may come to carry nothing. None when one
    /// is to be opened.
    fn lane(&self) -> Option<RefMut<'_, Lane>> {
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|lane| !lane.is_closed());
        let is_full = lanes.len() >= MOST && !self.is_for_websockets;
        RefMut::filter_map(lanes, |lanes| match lanes.iter().position(Lane::has_room) {
            Some(index) => lanes.get_mut(index),
            None => lanes.iter_mut().min_by_key(|lane| lane.load()).filter(|_| is_full),
        })
        .ok()
    }

    fn take(&self, lane: Lane) {
        self.lanes.borrow_mut().push(lane);
    }

    fn is_open(&self) -> bool {
        self.lanes.borrow().iter().any(|lane| !lane.is_closed())
    }

    /// What the app has said of itself on the newest connection on which it has said anything.
    fn announced(&self) -> Option<Announced> {
        self.lanes.borrow().iter().rev().filter(|lane| !lane.is_closed()).find_map(Lane::announced)
    }

    /// Notes that none could be opened, which is also the answer to those that wait for their turn.
    fn fails(&self, error: io::Error) -> io::Error {
        let error = Arc::new(error);
        self.failures.set(self.failures.get() + 1);
        self.failure.replace(Some(Arc::clone(&error)));
        io::Error::new(error.kind(), error)
    }

    /// Fails if there have been more failures than so many, as the last of them did.
    fn fails_as_since(&self, failures: u64) -> io::Result<()> {
        match &*self.failure.borrow() {
            Some(error) if self.failures.get() > failures => Err(io::Error::new(error.kind(), Arc::clone(error))),
            Some(_) | None => Ok(()),
        }
    }
}
