//! One worker's connections to an app that speaks HTTP/2.
//!
//! Another one is opened when all are full, so that calls which last, as those of gRPC may, keep nobody waiting.

use std::cell::{RefCell, RefMut};
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
use crate::api::pool::{Pool, Sent, Unsent};
use crate::api::streams::{self, Lane, Shape};

/// What one connection may have under way: no body waits for another's reader.
const SHAPE: Shape = Shape { streams: 100, stream_window: 256 * 1024, connection_window: 100 * 256 * 1024, frame: 16 * 1024 };
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
}

impl Lanes {
    pub(super) fn new(pool: Rc<Pool>, limits: Limits) -> Self {
        Self { pool, limits, lanes: RefCell::default(), opening: Semaphore::new(1) }
    }

    /// Sends a request and waits for the head of its answer. Only opening a connection is bounded in time; the answer is
    /// the caller's to bound. `allowed` is asked again when a connection had to be waited for.
    pub(super) async fn send(&self, request: Request<RequestBody>, allowed: impl Fn() -> bool) -> Sent {
        let mut request = as_http2(request);
        for _ in 0..TRIES {
            if self.lane().is_none() {
                match self.open().await {
                    Ok(()) if allowed() => {}
                    Ok(()) => return Sent::Unsent(request, Unsent::Forbidden),
                    Err(error) => return Sent::Unsent(request, Unsent::Dial(error)),
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
    async fn open(&self) -> io::Result<()> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long to open a connection");
        let _turn = timeout(LONGEST_QUEUE, self.opening.acquire()).await.map_err(late)?;
        if self.lane().is_some() {
            return Ok(());
        }
        let wire = self.pool.connect().await?;
        let (lane, running) = Lane::open(&wire, SHAPE, &self.limits).await?;
        if self.pool.is_retired() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the upstream was given up"));
        }
        self.pool.spawn(running);
        self.lanes.borrow_mut().push(lane);
        Ok(())
    }
}

/// A request as HTTP/2 says it: where it goes is in its target (RFC 9113 §8.3.1), and nothing is about the connection.
fn as_http2(mut request: Request<RequestBody>) -> Request<RequestBody> {
    let headers = request.headers_mut();
    for about_the_connection in [CONNECTION, UPGRADE, TRANSFER_ENCODING] {
        headers.remove(about_the_connection);
    }
    let authority = headers.get(HOST).and_then(|host| Authority::try_from(host.as_bytes()).ok());
    if let Some(authority) = authority {
        headers.remove(HOST);
        let mut target = std::mem::take(request.uri_mut()).into_parts();
        target.scheme = Some(Scheme::HTTP);
        target.authority = Some(authority);
        // `*` is the target of a request about the server itself, and no path.
        target.path_and_query = target.path_and_query.filter(|path| path != "*").or_else(|| "/".parse().ok());
        *request.uri_mut() = Uri::from_parts(target).unwrap_or_default();
    }
    *request.version_mut() = Version::HTTP_2;
    request
}
