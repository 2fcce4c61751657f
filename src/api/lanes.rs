//! One worker's connections to an app that speaks HTTP/2: because its URL says so, or as long as it chooses to when it shakes
//! hands.
//!
//! What it chose on the newest connection is what is expected of the next one. A connection on which it chooses HTTP/1.1 is
//! handed back, for the pool to go on with, and the other way round.
//!
//! Another one is opened when all are full, so that calls which last, as those of gRPC may, keep nobody waiting.

use std::cell::{Cell, RefCell, RefMut};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HOST, TRANSFER_ENCODING, UPGRADE};
use http::uri::{Authority, Scheme, Uri};
use http::{Request, Version};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::api::Limits;
use crate::api::carrier::Carrier;
use crate::api::feed::RequestBody;
use crate::api::io::Wire;
use crate::api::pool::{Pool, Sent, Unsent};
use crate::api::streams::{self, Lane, Shape};
use crate::cluster::Upstream;

/// What one connection may have under way: no body waits for another's reader.
const SHAPE: Shape =
    Shape { streams: 100, stream_window: 256 * 1024, connection_window: 100 * 256 * 1024, frame: 16 * 1024, resets: 1_000 };
/// How many connections there may be; beyond that, requests wait for a place on one.
const MOST: usize = 32;
/// How long a request may wait for its turn to open one.
const LONGEST_QUEUE: Duration = Duration::from_secs(30);
/// How many times a request is taken off connections that turned out to be closed.
const TRIES: usize = 3;

/// Connections to one app, for as long as one tenure lasts.
pub(super) struct Lanes {
    /// Opens them and ends them.
    pool: Rc<Pool>,
    limits: Limits,
    lanes: RefCell<Vec<Lane>>,
    opening: Semaphore,
    /// How the app is reached by name.
    scheme: Scheme,
    /// Whether the app speaks HTTP/2, as far as its newest connection tells.
    spoken: Cell<bool>,
}

impl Lanes {
    pub(super) fn new(pool: Rc<Pool>, limits: Limits) -> Self {
        let scheme = if matches!(pool.upstream(), Upstream::Https { .. }) { Scheme::HTTPS } else { Scheme::HTTP };
        Self { pool, limits, lanes: RefCell::default(), opening: Semaphore::new(1), scheme, spoken: Cell::new(true) }
    }

    /// Whether a request is to go over them. One that asks for an upgrade is not, where the app has a choice.
    pub(super) fn are_for(&self, upgrades: bool) -> bool {
        self.spoken.get() && !(upgrades && self.scheme == Scheme::HTTPS)
    }

    /// Goes on with a connection on which the app has chosen what was not expected, and expects it from then on.
    ///
    /// # Errors
    /// When the connection breaks at once.
    pub(super) async fn learn_from(&self, wire: Rc<Wire>) -> io::Result<()> {
        self.spoken.set(wire.chose_http2());
        if !wire.chose_http2() {
            self.pool.adopt(wire).await
        } else if self.lane().is_none() {
            self.begin(&wire).await
        } else {
            Ok(())
        }
    }

    /// Sends a request and waits for the head of its answer. Only opening a connection is bounded in time; the answer is
    /// the caller's to bound. `allowed` is asked again when a connection had to be waited for.
    pub(super) async fn send(&self, request: Request<RequestBody>, allowed: impl Fn() -> bool) -> Sent {
        let mut request = as_http2(request, &self.scheme);
        for _ in 0..TRIES {
            if self.lane().is_none() {
                match self.open().await {
                    Ok(()) if allowed() => {}
                    Ok(()) => return Sent::Unsent(request, Unsent::Forbidden),
                    Err(unsent) => return Sent::Unsent(request, unsent),
                }
            }
            let (reused, sending) = match self.lane() {
                Some(mut lane) => (lane.was_used(), lane.send(request)),
                None => continue,
            };
            match sending.await {
                streams::Sent::Answered(answer, stream) => return Sent::Answered(answer, Carrier::Stream(stream)),
                streams::Sent::Unsent(unsent) => request = unsent,
                streams::Sent::Refused(error) => return Sent::Refused(error),
                streams::Sent::Lost(error) => return Sent::Lost { error, reused },
            }
        }
        Sent::Unsent(request, Unsent::Dial(io::ErrorKind::ConnectionReset.into()))
    }

    /// The connection for the next request; none when one is to be opened.
    fn lane(&self) -> Option<RefMut<'_, Lane>> {
        let mut lanes = self.lanes.borrow_mut();
        lanes.retain(|lane| !lane.is_closed());
        let is_full = lanes.len() >= MOST;
        RefMut::filter_map(lanes, |lanes| lanes.iter_mut().min_by_key(|lane| lane.load()).filter(|lane| is_full || lane.has_room())).ok()
    }

    /// Opens a connection, unless somebody else has done so while this had to wait for its turn.
    async fn open(&self) -> Result<(), Unsent> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long to open a connection");
        let _turn = timeout(LONGEST_QUEUE, self.opening.acquire()).await.map_err(late)?;
        if self.lane().is_some() {
            return Ok(());
        }
        if !self.spoken.get() {
            return Err(Unsent::OtherVersion(None));
        }
        let wire = self.pool.connect(false).await?;
        if self.scheme == Scheme::HTTPS && !wire.chose_http2() {
            return Err(Unsent::OtherVersion(Some(wire)));
        }
        Ok(self.begin(&wire).await?)
    }

    /// Begins to speak HTTP/2.
    async fn begin(&self, wire: &Rc<Wire>) -> io::Result<()> {
        let (lane, running) = Lane::open(wire, SHAPE, &self.limits).await?;
        if self.pool.is_retired() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the upstream was given up"));
        }
        self.pool.spawn(running);
        self.lanes.borrow_mut().push(lane);
        Ok(())
    }
}

/// A request as HTTP/2 says it: where it goes is in its target (RFC 9113 §8.3.1), and nothing is about the connection.
fn as_http2(mut request: Request<RequestBody>, scheme: &Scheme) -> Request<RequestBody> {
    let headers = request.headers_mut();
    for about_the_connection in [CONNECTION, UPGRADE, TRANSFER_ENCODING] {
        headers.remove(about_the_connection);
    }
    let authority = headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    if let Some(authority) = authority {
        headers.remove(HOST);
        let mut target = std::mem::take(request.uri_mut()).into_parts();
        target.scheme = Some(scheme.clone());
        target.authority = Some(authority);
        // `*` is the target of a request about the server itself, and no path.
        target.path_and_query = target.path_and_query.filter(|path| path != "*").or_else(|| "/".parse().ok());
        *request.uri_mut() = Uri::from_parts(target).unwrap_or_default();
    }
    *request.version_mut() = Version::HTTP_2;
    request
}
