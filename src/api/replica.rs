//! The replica handler: passes requests to the leader, and sends them elsewhere when it turns out to be none.
//!
//! A [`Link`] is how one worker reaches one leader in one tenure; how it does so is nobody else's business. Today that is
//! a pool of connections of its own. Before the first request of a tenure, the leader is asked who it is, so that a wrong
//! `--advertise` never delivers requests to a stranger (B80) or to ourselves (B67).

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::header::{HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::api::body::RequestBody;
use crate::api::error::{Failure, Reason};
use crate::api::forward::{Attempt, Exchange};
use crate::api::headers::{EPOCH, HOP, Hop, Origin, REFUSED};
use crate::api::hold::Cause;
use crate::api::pool::{Greeting, Lease, Pool, Sending, Sent, Unsent};
use crate::api::primary::because;
use crate::api::{Limits, Shared};
use crate::cluster::Upstream;
use crate::node::BootId;
use crate::replication::Role;
use crate::store::Leader;

/// How long requests that run at a leader may go on after another one was elected, unless half a TTL is less.
const GRACE: Duration = Duration::from_secs(2);
/// The longest self-description of a node that is read.
const INTRODUCTION: usize = 16 * 1024;

/// The leaders that one worker forwards to: the present one, and those that requests still run at.
pub(super) struct Links {
    boot: BootId,
    limits: Limits,
    grace: Duration,
    current: RefCell<Option<Rc<Link>>>,
    leaving: RefCell<Vec<(Instant, Rc<Link>)>>,
}

impl Links {
    pub(super) fn new(boot: BootId, limits: Limits, ttl: Duration) -> Self {
        Self { boot, limits, grace: GRACE.min(ttl / 2), current: RefCell::default(), leaving: RefCell::default() }
    }

    /// The link to `leader`, made at its first request. No other leader gets another request.
    fn to(&self, leader: &Leader) -> Rc<Link> {
        if let Some(link) = self.current.borrow().as_ref().filter(|link| link.leader == *leader) {
            return Rc::clone(link);
        }
        self.keep_only(Some(leader));
        let link = self.returning(leader).unwrap_or_else(|| Rc::new(Link::new(leader.clone(), self.boot, self.limits)));
        *self.current.borrow_mut() = Some(Rc::clone(&link));
        link
    }

    /// A leader that was out of sight for a moment, in the same tenure.
    fn returning(&self, leader: &Leader) -> Option<Rc<Link>> {
        let mut leaving = self.leaving.borrow_mut();
        let index = leaving.iter().position(|(_, link)| link.leader == *leader)?;
        let (_, link) = leaving.swap_remove(index);
        link.pool.revive();
        Some(link)
    }

    /// Closes what is idle at any other leader (B77). What runs there gets a moment to finish: a leader that is frozen
    /// never would.
    pub(super) fn keep_only(&self, leader: Option<&Leader>) {
        let gone = self.current.borrow_mut().take_if(|link| Some(&link.leader) != leader);
        if let Some(link) = gone {
            link.pool.retire();
            self.leaving.borrow_mut().push((Instant::now() + self.grace, link));
        }
    }

    pub(super) fn sweep(&self) {
        if let Some(link) = &*self.current.borrow() {
            link.pool.sweep();
        }
        let now = Instant::now();
        self.leaving.borrow_mut().retain(|(until, link)| {
            if now >= *until {
                debug!(leader = %link.leader.address, "cutting what still runs at a former leader");
                link.pool.cut();
            }
            now < *until && !link.pool.is_over()
        });
    }
}

/// How one worker reaches one leader in one tenure.
struct Link {
    leader: Leader,
    pool: Rc<Pool>,
    hop: HeaderValue,
    host: HeaderValue,
    /// The leader has said who it is.
    known: Cell<bool>,
}

/// How a request fared at the leader.
enum Exchanged {
    Answered(Response<Incoming>, Lease),
    /// It is not the primary, or not yet, and said so before its app could see anything.
    Refused(String),
    /// It was not reached; nothing has left this node.
    Unreached(Request<RequestBody>, io::Error),
    /// It is somebody else; nothing but a question has left this node.
    Stranger(Request<RequestBody>, Stranger),
    /// It took the request and was lost.
    Lost(hyper::Error),
}

impl Link {
    fn new(leader: Leader, boot: BootId, limits: Limits) -> Self {
        let upstream = Upstream::Http { host: leader.address.host().to_owned(), port: leader.address.port() };
        let hop = Hop { sender: boot, epoch: leader.epoch }.to_value();
        let host = HeaderValue::from_str(leader.address.as_str()).expect("an address is visible ASCII");
        Self { leader, pool: Pool::new(upstream, limits), hop, host, known: Cell::new(false) }
    }

    async fn exchange(&self, request: Request<RequestBody>, shared: &Shared, boot: BootId) -> Exchanged {
        let follows = || shared.roles.current().leader() == Some(&self.leader);
        let greet = async |leader: &mut Greeting<'_>| self.meet(leader, shared, boot).await;
        // Our own listeners keep idle connections for longer than we do, so that even what must not be repeated can go
        // out on an old one.
        match self.pool.send(request, Sending { repeatable: true, fresh: false }, follows, greet).await {
            Sent::Answered(answer, lease) => match refusal(&answer) {
                Some(refused) => Exchanged::Refused(refused),
                None => Exchanged::Answered(answer, lease),
            },
            Sent::Unsent(request, Unsent::Forbidden) => {
                Exchanged::Unreached(request, io::Error::new(io::ErrorKind::ConnectionAborted, "it is no longer the leader"))
            }
            Sent::Unsent(request, Unsent::Dial(error)) => match error.downcast::<Stranger>() {
                Ok(stranger) => Exchanged::Stranger(request, stranger),
                Err(error) => Exchanged::Unreached(request, error),
            },
            Sent::Lost { error, .. } => Exchanged::Lost(error),
        }
    }

    /// Asks a leader who it is, once in its tenure.
    async fn meet(&self, leader: &mut Greeting<'_>, shared: &Shared, boot: BootId) -> io::Result<()> {
        if self.known.get() {
            return Ok(());
        }
        let mut question = Request::new(RequestBody::Empty);
        *question.method_mut() = Method::GET;
        *question.uri_mut() = Uri::from_static("/_bellwether/leader");
        question.headers_mut().insert(HOST, self.host.clone());
        let answer = leader.ask(question).await.map_err(io::Error::other)?;
        let introduction = Limited::new(answer.into_body(), INTRODUCTION).collect().await.map_err(io::Error::other)?.to_bytes();
        leader.settle().await.map_err(|_| io::Error::other(Stranger::Other(shared.service.clone())))?;
        let somebody: Introduction =
            serde_json::from_slice(&introduction).map_err(|_| io::Error::other(Stranger::Other(shared.service.clone())))?;
        if somebody.service != shared.service {
            return Err(io::Error::other(Stranger::Other(shared.service.clone())));
        }
        if somebody.id == boot.to_string() {
            return Err(io::Error::other(Stranger::Ourselves));
        }
        self.known.set(true);
        Ok(())
    }
}

/// What of a node's `/_bellwether/leader` says who it is.
#[derive(Deserialize)]
struct Introduction {
    service: String,
    id: String,
}

/// Who answers at a leader's address instead of the leader.
#[derive(Debug, thiserror::Error)]
enum Stranger {
    /// Something else, or a node of another election.
    #[error("is not a node of election {0}: check its --advertise")]
    Other(String),
    /// This very node.
    #[error("is this node itself, which is not the primary")]
    Ourselves,
}

/// Why a leader refused the request before its app saw it.
fn refusal(answer: &Response<Incoming>) -> Option<String> {
    let refused = answer.headers().get(REFUSED)?;
    (answer.status() == StatusCode::SERVICE_UNAVAILABLE).then(|| refused.to_str().unwrap_or("superseded").to_owned())
}

/// Passes a request to `leader`.
pub(super) async fn forward(mut exchange: Exchange, leader: &Leader) -> Attempt {
    let core = exchange.core();
    let seen = Role::Replica(leader.clone());
    if core.shared.node.as_ref().is_some_and(|node| node.address == leader.address) {
        let message = format!("the leader's record points at this node, {}, which is not the primary", leader.address);
        return Attempt::Again(exchange, Cause::Trouble { seen, message });
    }
    let link = core.links.to(leader);
    if exchange.troubles > 0 {
        exchange.head.headers.remove(EPOCH);
    }
    exchange.head.headers.insert(HOP, link.hop.clone());
    let Some(request) = exchange.next_request(true) else {
        let failure = exchange.fail(Reason::Superseded, "the leader changed, and the request's body is too long to be sent again");
        return Attempt::Failed(exchange, failure);
    };
    match link.exchange(request, &core.shared, core.boot).await {
        Exchanged::Answered(answer, lease) => exchange.answer(answer, lease, Origin::Leader, |_| {}).await,
        Exchanged::Refused(reason) => {
            let message = format!("{} refused the request: {reason}", leader.address);
            if !exchange.is_whole() {
                let failure = exchange.fail(Reason::Superseded, format!("{message}, and its body is too long to be sent again"));
                return Attempt::Failed(exchange, failure);
            }
            Attempt::Again(exchange, Cause::Trouble { seen, message })
        }
        Exchanged::Unreached(request, error) => {
            debug!(%error, leader = %leader.address, "the leader was not reached");
            exchange.put_back(request);
            let message = format!("the leader {} cannot be reached: {error}", leader.address);
            Attempt::Again(exchange, Cause::Trouble { seen, message })
        }
        Exchanged::Stranger(request, stranger) => {
            exchange.put_back(request);
            let message = format!("{} {stranger}", leader.address);
            match stranger {
                Stranger::Ourselves => Attempt::Again(exchange, Cause::Trouble { seen, message }),
                Stranger::Other(_) => {
                    warn!(leader = %leader.address, service = core.shared.service, "the leader's address belongs to somebody else");
                    let failure = exchange.fail(Reason::UpstreamFailed, message);
                    Attempt::Failed(exchange, failure)
                }
            }
        }
        Exchanged::Lost(_) if exchange.is_broken_off() => Attempt::Left,
        Exchanged::Lost(error) => {
            debug!(%error, leader = %leader.address, "the leader was lost in the middle of an exchange");
            exchange.maybe_sent = true;
            let message = format!("the leader {} broke the exchange: {}", leader.address, because(&error));
            if exchange.terms.repeatable && exchange.is_whole() {
                return Attempt::Again(exchange, Cause::Trouble { seen, message });
            }
            Attempt::Failed(exchange, Failure::maybe_executed(Reason::UpstreamFailed, message))
        }
    }
}
