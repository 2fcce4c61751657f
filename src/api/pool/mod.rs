//! One worker's connections to one upstream.
//!
//! Idle connections are used last in, first out, and only while they are young; the surplus ages and is closed. A
//! connection that the upstream closed meanwhile never costs a client an error, as long as nothing of its request can
//! have been processed (B88): the library gives back what it has not sent, and a request that must not be repeated goes
//! out only on a connection that was used a moment ago and is not closed by the system's account, or on a new one.
//!
//! Dialling resolves names each time, tries every address (B78), and is limited in time and in how much of it happens at
//! once, so that a thousand held requests do not become a thousand connections.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::sync::{Semaphore, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::trace;

use crate::api::Limits;
use crate::api::carrier::Carrier;
use crate::api::dial::Way;
use crate::api::due::{Due, in_time};
use crate::api::error::Reason;
use crate::api::feed::{Feed, RequestBody};
use crate::api::io::{Fence, Wire, WireIo};
use crate::api::server::BUFFER;
use crate::api::streams::Stream;
use crate::api::tunnel::{Far, Notice};
use crate::cluster::Upstream;

/// How many connections one worker may be opening to one upstream at the same time.
const DIALS: usize = 32;
/// How long a request may wait for its turn to open one: a full hold that is let go of at once takes a while.
const LONGEST_QUEUE: Duration = Duration::from_secs(30);
/// How long a connection may have been idle to be trusted with a request that must not be repeated.
const FRESH: Duration = Duration::from_millis(500);
/// How long it is remembered that an upstream closes connections sooner than that; it then gets a new one for each such request.
const HASTE: Duration = Duration::from_secs(600);

/// Connections to one upstream, for as long as one role lasts.
pub(super) struct Pool {
    way: Way,
    limits: Limits,
    fence: Option<Fence>,
    idle: RefCell<Vec<Idle>>,
    /// Everything that drives a connection; ends with the pool.
    connections: RefCell<JoinSet<()>>,
    dials: Semaphore,
    /// The answers that are waited for, where that has a limit.
    due: Option<Due>,
    retired: Cell<bool>,
    /// Until when the upstream counts as one that closes connections which were used a moment ago.
    hasty_until: Cell<Option<Instant>>,
    notice: Notice,
}

struct Idle {
    connection: Connection,
    since: Instant,
    /// Whether a request has gone over it.
    used: bool,
}

struct Connection {
    sender: SendRequest<RequestBody>,
    wire: Rc<Wire>,
    /// Comes when the connection stops speaking HTTP: what it had read of the next protocol.
    leftover: oneshot::Receiver<Bytes>,
    driver: Driver,
}

/// What moves a connection's bytes; dropped, it stops at once and closes the connection, whatever it was about to write.
struct Driver(Option<AbortHandle>);

impl Driver {
    /// Lets it finish by itself.
    fn let_go(mut self) {
        self.0 = None;
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(driver) = self.0.take() {
            driver.abort();
        }
    }
}

/// A connection in the hands of one exchange.
pub(super) struct Lease {
    connection: Connection,
    pool: Rc<Pool>,
    reused: bool,
}

/// How an exchange on one connection went.
pub(super) enum Sent {
    /// The answer's head came, and its body is on its way over the connection.
    Answered(Response<Incoming>, Carrier),
    /// Nothing of the request has left this node; here it is again.
    Unsent(Request<RequestBody>, Unsent),
    /// The exchange ended before an answer.
    Lost {
        /// How.
        loss: Loss,
        /// Whether it had been used before, so that it may just have been at its end.
        reused: bool,
    },
    /// The upstream says that it has processed nothing of the request (RFC 9113 §8.7), which is gone.
    Refused(hyper::Error),
}

/// How an exchange ended without an answer.
#[derive(Debug)]
pub(super) enum Loss {
    /// Its connection or its stream broke.
    Broken(hyper::Error),
    /// This node gave it up: the answer did not begin within that time.
    Late(Duration),
}

impl From<hyper::Error> for Loss {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error)
    }
}

/// What a request may be sent on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sending {
    /// Should the exchange break, the caller may send the request again.
    pub(super) repeatable: bool,
    /// Only a new connection will do.
    pub(super) fresh: bool,
    /// It asks for an upgrade, of which HTTP/2 knows nothing: an upstream that may choose is not let to.
    pub(super) upgrades: bool,
}

/// Why a request did not leave.
#[derive(Debug)]
pub(super) enum Unsent {
    /// No connection could be had.
    Dial(io::Error),
    /// While one was being opened, the request lost its right to be sent.
    Forbidden,
    /// The upstream has chosen the other version of HTTP, on the connection that is here unless somebody has it already.
    OtherVersion(Option<Rc<Wire>>),
    /// It cannot be asked this.
    Unfit(Reason, &'static str),
}

impl From<io::Error> for Unsent {
    fn from(error: io::Error) -> Self {
        Self::Dial(error)
    }
}

impl From<Unsent> for io::Error {
    fn from(unsent: Unsent) -> Self {
        match unsent {
            Unsent::Dial(error) => error,
            Unsent::Forbidden => Self::new(io::ErrorKind::ConnectionAborted, "nothing may be sent to it any more"),
            Unsent::OtherVersion(_) => Self::new(io::ErrorKind::InvalidData, "it speaks another version of HTTP"),
            Unsent::Unfit(_, why) => Self::new(io::ErrorKind::Unsupported, why),
        }
    }
}

/// How many times a request is taken off connections that turned out to be closed, before a new one is opened.
const STALE_TRIES: usize = 3;

impl Pool {
    /// A pool without a connection yet; what goes out on them stays behind `fence`.
    pub(super) fn new(way: impl Into<Way>, limits: Limits, fence: Option<Fence>) -> Rc<Self> {
        Rc::new(Self {
            way: way.into(),
            limits,
            fence,
            idle: RefCell::default(),
            connections: RefCell::default(),
            dials: Semaphore::new(DIALS),
            due: limits.answer_timeout.map(Due::new),
            retired: Cell::new(false),
            hasty_until: Cell::default(),
            notice: Notice::default(),
        })
    }

    pub(super) fn upstream(&self) -> &Upstream {
        self.way.upstream()
    }

    /// Whether the upstream may be one that speaks HTTP/2.
    pub(super) fn may_be_http2(&self) -> bool {
        self.way.may_be_http2()
    }

    /// Sends a request and waits for the head of its answer. Opening a connection is bounded in time, and the answer where there
    /// is a limit; else it is the caller's to bound.
    ///
    /// `allowed` is asked again when a connection had to be waited for; `greet` may refuse a new connection before
    /// anything is sent on it.
    pub(super) async fn send(
        self: &Rc<Self>,
        mut request: Request<RequestBody>,
        terms: Sending,
        allowed: impl Fn() -> bool,
        greet: impl AsyncFn(&mut Greeting<'_>) -> io::Result<()>,
    ) -> Sent {
        let mut idle_tries = if terms.fresh { 0 } else { STALE_TRIES };
        loop {
            let idle = if idle_tries > 0 { self.take_idle(terms.repeatable) } else { None };
            idle_tries = idle_tries.saturating_sub(1);
            let mut lease = match idle {
                Some(lease) => lease,
                None => match Box::pin(self.open(terms, &greet)).await {
                    Err(unsent) => return Sent::Unsent(request, unsent),
                    Ok(_) if !allowed() => return Sent::Unsent(request, Unsent::Forbidden),
                    Ok(lease) => lease,
                },
            };
            let feed = self.feed_of(&request);
            let answered = match self.in_time(feed, lease.connection.sender.try_send_request(request)).await {
                Ok(answered) => answered,
                Err(late) => return Sent::Lost { loss: late, reused: lease.reused },
            };
            match answered {
                Ok(answer) => return Sent::Answered(answer, Carrier::Connection(lease)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) if lease.reused => request = unsent,
                    Some(unsent) => {
                        let closed = io::Error::new(io::ErrorKind::ConnectionReset, error.into_error());
                        return Sent::Unsent(unsent, Unsent::Dial(closed));
                    }
                    None => {
                        if lease.reused {
                            self.learn_haste();
                        }
                        return Sent::Lost { loss: error.into_error().into(), reused: lease.reused };
                    }
                },
            }
        }
    }

    /// The body of a request, where it must be known whether the upstream has it.
    pub(super) fn feed_of(&self, request: &Request<RequestBody>) -> Option<Rc<Feed>> {
        self.due.as_ref().and_then(|_| request.body().feed().cloned())
    }

    /// Waits for the head of an answer to a request with the body `feed`, as long as it may take; then gives the exchange up.
    pub(super) fn in_time<T>(&self, feed: Option<Rc<Feed>>, answer: impl Future<Output = T>) -> impl Future<Output = Result<T, Loss>> {
        in_time(self.due.as_ref(), feed, answer)
    }

    /// Notes that a connection ended which had been used a moment ago: the next may as well end under a request.
    fn learn_haste(&self) {
        self.hasty_until.set(Some(Instant::now() + HASTE));
    }

    fn is_hasty(&self) -> bool {
        self.hasty_until.get().is_some_and(|until| Instant::now() < until)
    }

    fn take_idle(self: &Rc<Self>, repeatable: bool) -> Option<Lease> {
        if !repeatable && self.is_hasty() {
            return None;
        }
        let mut all = self.idle.borrow_mut();
        while let Some(Idle { connection, since, used }) = all.pop() {
            let age = since.elapsed();
            if age > self.limits.idle_timeout {
                // It was the youngest.
                all.clear();
                return None;
            }
            if !connection.sender.is_ready() || (!repeatable && connection.wire.is_stale()) {
                if age <= FRESH {
                    self.learn_haste();
                }
                continue;
            }
            if !repeatable && (age > FRESH || self.is_hasty()) {
                continue;
            }
            return Some(Lease { connection, pool: Rc::clone(self), reused: used });
        }
        None
    }

    /// Opens a connection, or takes one that became idle while this had to wait for its turn.
    async fn open(self: &Rc<Self>, terms: Sending, greet: &impl AsyncFn(&mut Greeting<'_>) -> io::Result<()>) -> Result<Lease, Unsent> {
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it took too long to open a connection");
        let _turn = match self.dials.try_acquire() {
            Ok(turn) => turn,
            Err(_) => {
                let turn = timeout(LONGEST_QUEUE, self.dials.acquire()).await.map_err(late)?;
                if let Some(lease) = Some(terms).filter(|terms| !terms.fresh).and_then(|terms| self.take_idle(terms.repeatable)) {
                    return Ok(lease);
                }
                turn.expect("the semaphore is never closed")
            }
        };
        let wire = self.connect(terms.upgrades).await?;
        if wire.chose_http2() {
            return Err(Unsent::OtherVersion(Some(wire)));
        }
        let deadline = Instant::now() + self.limits.connect_timeout;
        let connection = self.begin(wire).await?;
        let mut lease = Lease { connection, pool: Rc::clone(self), reused: false };
        let greeted = timeout_at(deadline, greet(&mut Greeting(&mut lease.connection))).await.map_err(late);
        greeted.and_then(|greeted| greeted).inspect_err(|_| self.way.doubt())?;
        Ok(lease)
    }

    /// A new connection on which nothing has been said yet, and HTTP/2 will not be with `http1_only`.
    pub(super) async fn connect(&self, http1_only: bool) -> io::Result<Rc<Wire>> {
        let socket = self.way.dial(Instant::now() + self.limits.connect_timeout, http1_only).await?;
        Ok(Wire::to_upstream(socket, self.fence.clone()))
    }

    /// Begins to speak HTTP/1.1.
    async fn begin(&self, wire: Rc<Wire>) -> io::Result<Connection> {
        let (sender, driver) = builder(&self.limits).handshake(TokioIo::new(WireIo(Rc::clone(&wire)))).await.map_err(io::Error::other)?;
        if self.retired.get() {
            // What was cut while this was under way must not come to life behind it.
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the upstream was given up"));
        }
        let (leftover_out, leftover) = oneshot::channel();
        let driver = Driver(Some(self.spawn(drive(driver, leftover_out))));
        Ok(Connection { sender, wire, leftover, driver })
    }

    /// Takes over a new connection, opened for somebody else, on which the upstream has chosen HTTP/1.1.
    pub(super) async fn adopt(&self, wire: Rc<Wire>) -> io::Result<()> {
        let mut connection = self.begin(wire).await?;
        // Until then it counts as one that was closed.
        connection.sender.ready().await.map_err(io::Error::other)?;
        if !self.is_retired() {
            // Whoever takes it cannot know that it was closed meanwhile, as with one that was used.
            self.idle.borrow_mut().push(Idle { connection, since: Instant::now(), used: true });
        }
        Ok(())
    }

    /// Opens a connection, asks what `greet` asks, and keeps it for later.
    pub(super) async fn visit(self: &Rc<Self>, greet: impl AsyncFn(&mut Greeting<'_>) -> io::Result<()>) -> io::Result<()> {
        Ok(self.open(Sending { repeatable: true, fresh: true, upgrades: false }, &greet).await.map(Lease::give_back)?)
    }

    /// Runs something that ends with the pool at the latest.
    pub(super) fn spawn(&self, driver: impl Future<Output = ()> + 'static) -> AbortHandle {
        let mut connections = self.connections.borrow_mut();
        while connections.try_join_next().is_some() {}
        connections.spawn_local(driver)
    }

    /// Closes connections that have been idle for too long, and gives up exchanges whose answers are late; called now and then.
    pub(super) fn sweep(&self) {
        self.due.iter().for_each(Due::sweep);
        self.idle.borrow_mut().retain(|idle| idle.since.elapsed() <= self.limits.idle_timeout && idle.connection.sender.is_ready());
        let mut connections = self.connections.borrow_mut();
        while connections.try_join_next().is_some() {}
    }

    /// Opens and keeps no more connections; those in use may finish.
    pub(super) fn retire(&self) {
        self.retired.set(true);
        self.idle.borrow_mut().clear();
    }

    /// Whether it opens no more connections.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.get()
    }

    /// Takes a retirement back.
    pub(super) fn revive(&self) {
        self.retired.set(false);
    }

    /// What a stream of one of its connections has become: behind its fence, and told when that must end.
    pub(super) fn tunnel(&self, upgraded: Upgraded, stream: Stream) -> (Far, Notice) {
        (Far::stream(upgraded, stream, self.fence.clone()), self.notice.clone())
    }

    /// Ends every connection, whatever runs on it.
    pub(super) fn cut(&self) {
        self.retire();
        self.connections.borrow_mut().abort_all();
        self.notice.cut.cancel();
    }

    /// Has those tunnels end that can be told to.
    pub(super) fn tell(&self) {
        self.notice.told.cancel();
    }
}

/// A new connection on which nothing has been said yet.
pub(super) struct Greeting<'a>(&'a mut Connection);

impl Greeting<'_> {
    /// Sends a request of our own and waits until the connection can take the next one.
    pub(super) async fn ask(&mut self, request: Request<RequestBody>) -> Result<Response<Incoming>, hyper::Error> {
        self.0.sender.send_request(request).await
    }

    /// Waits until the answer has been read to its end.
    pub(super) async fn settle(&mut self) -> Result<(), hyper::Error> {
        self.0.sender.ready().await
    }

    /// Which address it leads to.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        self.0.wire.peer()
    }
}

impl Lease {
    /// Gives the connection back once the answer has been read to its end. One that is not ready then, because it still
    /// sends the request or because its upstream asked to close it, is let go.
    pub(super) fn give_back(self) {
        if self.connection.sender.is_ready() {
            if !self.pool.retired.get() {
                self.pool.idle.borrow_mut().push(Idle { connection: self.connection, since: Instant::now(), used: true });
            }
        } else {
            // The upstream may go on reading what is still sent, or break the connection, of which nobody else would hear.
            self.connection.wire.stop_forgiving();
            self.connection.driver.let_go();
        }
    }

    /// The bare connection, after its upstream has switched protocols, with what was read beyond the switch; and what
    /// says when it must end.
    pub(super) async fn into_tunnel(self) -> Option<(Rc<Wire>, Bytes, Notice)> {
        let leftover = self.connection.leftover.await.ok()?;
        Some((self.connection.wire, leftover, self.pool.notice.clone()))
    }
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.max_headers(limits.answer_lines).max_header_size(limits.head_bytes).max_buf_size(limits.head_bytes.max(BUFFER));
    builder
}

/// Moves the bytes of one connection until it ends. What broke it is told to the exchange that ran on it.
async fn drive(mut driver: http1::Connection<TokioIo<WireIo>, RequestBody>, leftover: oneshot::Sender<Bytes>) {
    match (&mut driver).await {
        Ok(()) => drop(leftover.send(driver.into_parts().read_buf)),
        Err(error) => trace!(%error, "upstream connection broke"),
    }
}

#[cfg(test)]
mod tests;
