//! How one worker reaches the leader.
//!
//! A [`Link`] is how one worker reaches one leader in one tenure; how it does so is nobody else's business: over one
//! connection that many requests share, where they and the leader can, and else over a pool of connections.

mod links;
mod stranger;

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use http::header::HeaderValue;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use crate::api::Limits;
use crate::api::carrier::Carrier;
use crate::api::dial::Way;
use crate::api::feed::RequestBody;
use crate::api::headers::{Hop, Refusal};
use crate::api::mux::{self, LargeAnswers, Mux};
use crate::api::pool::{Greeting, Loss, Pool, Sending, Sent, Unsent};
use crate::api::primary::because;
use crate::api::streams;
use crate::api::worker::Core;
use crate::backoff::Backoff;
use crate::cluster::Upstream;
use crate::node::BootId;
use crate::store::Leader;
use crate::tls::Tls;

pub(super) use links::Links;
use stranger::Introduction;
pub(super) use stranger::Stranger;

/// How soon a leader that took no request is asked whether it serves; the pause doubles from here
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// up to here.
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// How often the log says that somebody else is at a leader's address.
const WARN_EVERY: Duration = Duration::from_secs(10);
/// How long requests wait without a word from their leader before it is asked whether it is still there.
const SUSPICION: Duration = Duration::from_secs(1);

/// How one worker reaches one leader in one tenure.
pub(super) struct Link {
    leader: Leader,
    pool: Rc<Pool>,
    mux: Mux,
    large: LargeAnswers,
    /// What its requests say about who forwards them.
    pub(super) hop: HeaderValue,
    host: HeaderValue,
    /// The leader has said who it is.
    known: Cell<bool>,
    /// And at which address. Its name may come to stand for another one, where somebody else may be.
    known_at: Cell<Option<SocketAddr>>,
    /// Held while it is asked on behalf of all.
    meeting: Semaphore,
    limits: Limits,
    /// Whether it has to be asked on every connection: only its answer shows that it believes our certificate, and until
    /// then nothing is sent that would be lost.
    asked_always: bool,
    /// When it was last said that somebody else is there.
    warned: Cell<Option<Instant>>,
    /// How many requests wait for the head of their answer.
    waiting: Cell<usize>,
    /// Whether the leader has said anything since it was last looked at.
    heard: Cell<bool>,
    /// Since when it has not, though requests wait.
    silent_since: Cell<Option<Instant>>,
    /// Whether it is being asked if it is still there.
    asking: Cell<bool>,
    /// Why it takes no requests, as long as it does not.
    trouble: RefCell<Option<String>>,
    /// Notified when it takes requests again.
    recovered: Notify,
}

/// How a request fared at the leader.
pub(super) enum Exchanged {
    Answered(Response<Incoming>, Carrier),
    /// It is not the primary, or not yet.
    Refused(Refusal),
    /// It was not reached; nothing has left this node.
    Unreached(Request<RequestBody>, io::Error),
    /// No shared connection took it: none could be had, or the one that it was on went, with the word that nothing was done of it,
    /// and took it along. The leader may be well all the same.
    Unshared(Option<Request<RequestBody>>, io::Error),
    /// It is somebody else; nothing but a question has left this node.
    Stranger(Request<RequestBody>, Stranger),
    /// It took the request and was lost.
    Lost(Loss),
}

impl Exchanged {
    fn answered(answer: Response<Incoming>, carrier: Carrier) -> Self {
        match refusal(&answer) {
            Some(refused) => Self::Refused(refused),
            None => Self::Answered(answer, carrier),
        }
    }
}

impl Link {
    fn new(leader: Leader, boot: BootId, limits: Limits, tls: Option<&Tls>) -> Self {
        let (host, port) = (leader.address.host().to_owned(), leader.address.port());
        let upstream = if tls.is_some() { Upstream::Https { host, port } } else { Upstream::Http { host, port } };
        let way = Way::new(upstream, tls.map(Tls::to_nodes));
        let hop = Hop { sender: boot, epoch: leader.epoch }.to_value();
        let host = HeaderValue::from_str(leader.address.as_str()).expect("an address is visible ASCII");
        let limits = limits.after_a_hop();
        Self {
            leader,
            pool: Pool::new(way, limits, None),
            mux: Mux::new(limits),
            large: LargeAnswers::new(),
            hop,
            host,
            known: Cell::new(false),
            known_at: Cell::default(),
            meeting: Semaphore::new(1),
            limits,
            asked_always: tls.is_some_and(Tls::verifies),
            warned: Cell::new(None),
            waiting: Cell::new(0),
            heard: Cell::new(false),
            silent_since: Cell::new(None),
            asking: Cell::new(false),
            trouble: RefCell::default(),
            recovered: Notify::new(),
        }
    }

    /// Why the leader takes no requests, until it says that it serves.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.borrow().clone()
    }

    /// Notes that the leader takes no requests, and why. From then on it is asked now and then whether it serves, once
    /// for all that wait: a full hold must not become a storm of requests that are refused.
    pub(super) fn has_trouble(self: &Rc<Self>, why: String, core: &Rc<Core>) {
        if self.trouble.replace(Some(why)).is_some() {
            return;
        }
        let (link, core) = (Rc::clone(self), Rc::clone(core));
        let counted = Trouble::new(&core);
        self.pool.spawn(async move {
            let _counted = counted;
            let mut backoff = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
            while !link.pool.is_retired() {
                sleep(backoff.next_pause()).await;
                if link.pool.visit(async |leader: &mut Greeting<'_>| link.ask_to_serve(leader, &core).await).await.is_ok() {
                    break;
                }
            }
            link.trouble.take();
            link.heard.set(true);
            link.recovered.notify_waiters();
        });
    }

    /// Returns when a leader in trouble serves again.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn recovers(&self) {
        let mut recovered = std::pin::pin!(self.recovered.notified());
        recovered.as_mut().enable();
        if self.trouble.borrow().is_some() {
            recovered.await;
        }
    }

    /// Sends a request and waits for the head of its answer, for as long as that takes. One that `needs_http2` goes over a
    /// shared connection, whatever it is.
    pub(super) async fn exchange(self: &Rc<Self>, request: Request<RequestBody>, needs_http2: bool, core: &Rc<Core>) -> Exchanged {
        let _waiting = Waiting::new(&self.waiting);
        let exchanged = if needs_http2 { Box::pin(self.over_mux_only(request, core)).await } else { self.send(request, core).await };
        match &exchanged {
            Exchanged::Answered(..) | Exchanged::Refused(_) | Exchanged::Unshared(None, _) | Exchanged::Lost(_) => self.heard.set(true),
            Exchanged::Unreached(..) | Exchanged::Unshared(Some(_), _) | Exchanged::Stranger(..) => {}
        }
        exchanged
    }

    /// Sends what may share a connection over the shared one, if there is one, and everything else over the pool.
    async fn send(self: &Rc<Self>, request: Request<RequestBody>, core: &Rc<Core>) -> Exchanged {
        if !Mux::takes(&request) {
            return self.over_pool(request, core).await;
        }
        let path = self.large.mark(&request);
        let exchanged = if self.large.expects(path) {
            self.over_pool(request, core).await
        } else {
            match self.over_mux(request, false).await {
                Ok(exchanged) => exchanged,
                Err(request) => {
                    let exchanged = self.over_pool(request, core).await;
                    // Only somebody who is known to be the leader is asked for more.
                    if self.known.get() {
                        self.open_mux(false, core);
                    }
                    exchanged
                }
            }
        };
        if let Exchanged::Answered(answer, _) = &exchanged {
            self.large.note(path, answer);
        }
        exchanged
    }

    /// Sends a request over a shared connection, waiting for one to be opened, and for another where all are full; over the pool
    /// where there can be none.
    async fn over_mux_only(self: &Rc<Self>, request: Request<RequestBody>, core: &Rc<Core>) -> Exchanged {
        let mut request = match self.over_mux(request, true).await {
            Ok(exchanged) => return exchanged,
            Err(request) => request,
        };
        if let Err(error) = self.know(core).await {
            return match Stranger::behind(error) {
                Ok(stranger) => Exchanged::Stranger(request, stranger),
                Err(error) => Exchanged::Unreached(request, error),
            };
        }
        // Others may wait for the same connection, and fill it first.
        for _ in 0..=mux::MOST {
            self.open_mux(true, core);
            let was_opening = self.mux.settles().await;
            request = match self.over_mux(request, true).await {
                Ok(exchanged) => return exchanged,
                Err(request) if self.mux.is_unknown() => return self.over_pool(request, core).await,
                Err(request) => request,
            };
            if !was_opening {
                break;
            }
        }
        Exchanged::Unshared(Some(request), io::Error::other("it gave no connection for HTTP/2"))
    }

    /// Sends a request over the shared connection, if there is one that has room; else here it is again.
    async fn over_mux(&self, request: Request<RequestBody>, insists: bool) -> Result<Exchanged, Request<RequestBody>> {
        Ok(match self.mux.send(request, insists).await {
            streams::Sent::Answered(answer, stream) => Exchanged::answered(answer, Carrier::Stream(stream)),
            streams::Sent::Refused(error) => Exchanged::Unshared(None, io::Error::other(because(&error))),
            streams::Sent::Lost(error) => Exchanged::Lost(error.into()),
            streams::Sent::Unsent(request) => return Err(request),
        })
    }

    /// Opens a shared connection, unless that is under way or done, or has just failed. Where it fails, the leader is asked
    /// whether it serves at all.
    fn open_mux(self: &Rc<Self>, insists: bool, core: &Rc<Core>) {
        if !self.mux.wants_opening(insists) {
            return;
        }
        let (link, core) = (Rc::clone(self), Rc::clone(core));
        self.pool.spawn(async move {
            let greet = async |leader: &mut Greeting<'_>| link.greet(leader, &core).await;
            let Err(error) = link.mux.run(&link.pool, link.host.clone(), greet).await else { return };
            debug!(%error, leader = %link.leader.address, "no shared connection to the leader");
            let serves = link.pool.visit(async |leader: &mut Greeting<'_>| link.ask_to_serve(leader, &core).await).await;
            // Each request is told by itself that somebody else is there.
            if let Err(error) = serves.or_else(|error| Stranger::behind(error).map(drop))
                && !link.pool.is_retired()
            {
                link.has_trouble(format!("the leader {} cannot be reached: {error}", link.leader.address), &core);
            }
        });
    }

    /// Sends a request over a connection that it has for itself.
    async fn over_pool(&self, request: Request<RequestBody>, core: &Core) -> Exchanged {
        let follows = || core.shared.roles.current().leader() == Some(&self.leader);
        let greet = async |leader: &mut Greeting<'_>| self.greet(leader, core).await;
        // Our own listeners keep idle connections for longer than we do, so that even what must not be repeated can go
        // out on an old one.
        match self.pool.send(request, Sending { repeatable: true, fresh: false, upgrades: false }, follows, greet).await {
            Sent::Answered(answer, carrier) => Exchanged::answered(answer, carrier),
            Sent::Unsent(request, Unsent::Forbidden) => {
                Exchanged::Unreached(request, io::Error::new(io::ErrorKind::ConnectionAborted, "it is no longer the leader"))
            }
            Sent::Unsent(request, unsent) => match Stranger::behind(unsent.into()) {
                Ok(stranger) => Exchanged::Stranger(request, stranger),
                Err(error) => Exchanged::Unreached(request, error),
            },
            Sent::Refused(error) => Exchanged::Lost(error.into()),
            Sent::Lost { loss, .. } => Exchanged::Lost(loss),
        }
    }

    /// Asks whoever is at the other end of a new connection who it is, unless that is known.
    async fn greet(&self, leader: &mut Greeting<'_>, core: &Core) -> io::Result<()> {
        let is_known = self.known.get() && leader.peer() == self.known_at.get();
        if is_known && !self.asked_always { Ok(()) } else { self.meet(leader, core).await.map(drop) }
    }

    /// Asks the leader who it is, unless that is known: once for all who would know.
    async fn know(&self, core: &Core) -> io::Result<()> {
        if self.known.get() {
            return Ok(());
        }
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it did not say in time who it is");
        let _turn = timeout(self.limits.connect_timeout * 2, self.meeting.acquire()).await.map_err(late)?;
        if self.known.get() {
            return Ok(());
        }
        self.pool.visit(async |leader: &mut Greeting<'_>| self.meet(leader, core).await.map(drop)).await
    }

    /// Asks a leader who it is, and fails unless it serves.
    async fn ask_to_serve(&self, leader: &mut Greeting<'_>, core: &Core) -> io::Result<()> {
        match self.meet(leader, core).await? {
            Introduction { role, epoch, .. } if role == "primary" && epoch >= self.leader.epoch.0 => Ok(()),
            Introduction { role, .. } => Err(io::Error::other(format!("it is {role}"))),
        }
    }

    /// Asks a leader who it is.
    async fn meet(&self, leader: &mut Greeting<'_>, core: &Core) -> io::Result<Introduction> {
        let somebody = stranger::meet(leader, &self.host, core).await?;
        self.known.set(true);
        self.known_at.set(leader.peer());
        Ok(somebody)
    }

    /// Whether it is to be said in the log that somebody else is there: now and then, not for each request.
    pub(super) fn warns(&self) -> bool {
        let due = self.warned.get().is_none_or(|before| before.elapsed() >= WARN_EVERY);
        if due {
            self.warned.set(Some(Instant::now()));
        }
        due
    }

    /// Whether the leader is lost: requests wait, nothing has come back for two TTLs, and it does not say who it is
    /// when asked. Called now and then; one that only takes long, or is frozen until another is elected, is not lost. It gets
    /// no more requests from when it does not answer, so that no more can be lost with it.
    fn is_lost(self: &Rc<Self>, core: &Rc<Core>) -> bool {
        if self.heard.take() || self.waiting.get() == 0 {
            self.silent_since.set(None);
            return false;
        }
        let since = self.silent_since.get().unwrap_or_else(Instant::now);
        self.silent_since.set(Some(since));
        let ttl = core.config.ttl;
        if since.elapsed() >= SUSPICION.min(ttl) && !self.asking.replace(true) {
            let (link, core) = (Rc::clone(self), Rc::clone(core));
            self.pool.spawn(async move {
                let there = link.pool.visit(async |leader: &mut Greeting<'_>| link.meet(leader, &core).await.map(drop)).await;
                link.asking.set(false);
                match there {
                    Ok(()) => link.heard.set(true),
                    Err(error) => match Stranger::behind(error) {
                        // Each request is told so. There is no use in waiting for somebody else.
                        Ok(stranger) => debug!(leader = %link.leader.address, "{stranger}"),
                        Err(error) => link.has_trouble(format!("the leader {} has fallen silent: {error}", link.leader.address), &core),
                    },
                }
            });
        }
        since.elapsed() > ttl * 2
    }
}

/// Counts a leader that takes no requests, for as long as it is asked whether it does again.
struct Trouble(Rc<Core>);

impl Trouble {
    fn new(core: &Rc<Core>) -> Self {
        core.sheet.begin_trouble();
        Self(Rc::clone(core))
    }
}

impl Drop for Trouble {
    fn drop(&mut self) {
        self.0.sheet.end_trouble();
    }
}

/// Counts a request that waits for the head of its answer.
struct Waiting<'a>(&'a Cell<usize>);

impl<'a> Waiting<'a> {
    fn new(count: &'a Cell<usize>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Whether a leader sent the request back.
fn refusal(answer: &Response<Incoming>) -> Option<Refusal> {
    if answer.status() == StatusCode::SERVICE_UNAVAILABLE { Refusal::from_headers(answer.headers()) } else { None }
}
