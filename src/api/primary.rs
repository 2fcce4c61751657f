//! The primary handler: passes requests to the app, under the number of the tenure that serves them.
//!
//! Every connection to the app belongs to one tenure. When the tenure is over they are all cut, whatever runs on them:
//! work that went on would be work of a node that is no longer primary.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{HOST, HeaderValue};
use tokio::time::{Instant, sleep};
use tracing::debug;

use crate::api::Limits;
use crate::api::dial::Way;
use crate::api::error::{Failure, PRIMARY, Reason};
use crate::api::forward::{Attempt, Exchange};
use crate::api::headers::{EPOCH, HOP, Origin};
use crate::api::hold::Cause;
use crate::api::io::{Fence, Wire};
use crate::api::lanes::{Aim, Lanes};
use crate::api::pool::{Loss, Pool, Sending, Sent, Unsent};
use crate::duration::words;
use crate::node::Node;
use crate::replication::{Role, RoleWatch};
use crate::store::Epoch;

/// How long a request keeps trying to reach an app that refuses connections: about what a restart of its socket takes.
const REACH_FOR: Duration = Duration::from_millis(250);
/// From one such try to the next.
const REACH_EVERY: Duration = Duration::from_millis(40);
/// How often an app may change its mind about the version of HTTP before a request gets its moment to be reached in.
const FICKLE: u32 = 3;

/// The app behind this node, as one worker reaches it.
pub(super) struct App {
    way: Option<Way>,
    host: HeaderValue,
    primary: Option<HeaderValue>,
    limits: Limits,
    roles: RoleWatch,
    tenure: RefCell<Option<Rc<Tenure>>>,
}

/// What belongs to one tenure of this node.
struct Tenure {
    epoch: Epoch,
    epoch_value: HeaderValue,
    pool: Rc<Pool>,
    /// Where the app may speak HTTP/2.
    lanes: Option<Lanes>,
}

impl Tenure {
    /// Goes on with a connection on which the app has chosen another version of HTTP than the one before, if there is one.
    async fn learn_from(&self, wire: Option<Rc<Wire>>) -> io::Result<()> {
        match (&self.lanes, wire) {
            (Some(lanes), Some(wire)) => lanes.learn_from(wire).await,
            (None, _) | (_, None) => Ok(()),
        }
    }
}

impl App {
    pub(super) fn new(way: Option<Way>, node: Option<&Node>, limits: Limits, roles: RoleWatch) -> Self {
        let host = way.as_ref().map_or_else(|| "localhost".to_owned(), |way| way.upstream().authority());
        let visible = |text: &str| HeaderValue::from_str(text).expect("an address is visible ASCII");
        let primary = node.map(|node| visible(node.address.as_str()));
        Self { host: visible(&host), way, primary, limits, roles, tenure: RefCell::default() }
    }

    /// What belongs to the tenure, made at its first request. Every other tenure is over.
    fn tenure(&self, epoch: Epoch) -> Option<Rc<Tenure>> {
        let mut current = self.tenure.borrow_mut();
        if let Some(tenure) = current.as_ref().filter(|tenure| tenure.epoch == epoch) {
            return Some(Rc::clone(tenure));
        }
        let fence = Fence { roles: self.roles.clone(), epoch };
        let pool = Pool::new(self.way.clone()?, self.limits, Some(fence));
        let lanes = pool.may_be_http2().then(|| Lanes::new(Rc::clone(&pool), self.limits));
        let tenure = Rc::new(Tenure { epoch, epoch_value: HeaderValue::from(epoch.0), pool, lanes });
        if let Some(over) = current.replace(Rc::clone(&tenure)) {
            over.pool.cut();
        }
        Some(tenure)
    }

    /// Cuts whatever runs under any other tenure.
    pub(super) fn keep_only(&self, epoch: Option<Epoch>) {
        let over = self.tenure.borrow_mut().take_if(|tenure| Some(tenure.epoch) != epoch);
        if let Some(over) = over {
            debug!(epoch = %over.epoch, "cutting what runs under a tenure that is over");
            over.pool.cut();
        }
    }

    /// Has those tunnels end that can be told to: the tenure is about to.
    pub(super) fn tell(&self) {
        if let Some(tenure) = &*self.tenure.borrow() {
            tenure.pool.tell();
        }
    }

    pub(super) fn sweep(&self) {
        if let Some(tenure) = &*self.tenure.borrow() {
            tenure.pool.sweep();
            tenure.lanes.iter().for_each(Lanes::sweep);
        }
    }
}

/// Passes a request to the app under `epoch`.
pub(super) async fn serve(mut exchange: Box<Exchange>, epoch: Epoch) -> Attempt {
    let core = exchange.core();
    let app = &core.app;
    if exchange.troubles > 0 {
        exchange.head.headers.remove(HOP);
    }
    if !exchange.head.headers.contains_key(HOST) {
        exchange.head.headers.insert(HOST, app.host.clone());
    }
    let serves = || matches!(core.shared.roles.current(), Role::Primary { epoch: now, .. } if now == epoch);
    let (repeatable, upgrades) = (exchange.terms.repeatable, exchange.terms.upgrade);
    let aim = Aim::of(&exchange.head, upgrades);
    let mut fresh = false;
    let mut reaching_since = None;
    let mut learned = 0;
    loop {
        let Some(tenure) = app.tenure(epoch) else {
            let failure = exchange.fail(Reason::NoUpstream, "this primary has no app: start it with --upstream");
            return Attempt::Failed(exchange, failure);
        };
        exchange.head.headers.insert(EPOCH, tenure.epoch_value.clone());
        let lanes = tenure.lanes.as_ref().filter(|lanes| lanes.are_for(aim));
        // Over HTTP/2 the app may say that it has processed nothing of a request.
        let Some(request) = exchange.next_request(repeatable || lanes.is_some()) else {
            let failure = exchange.fail(Reason::UpstreamFailed, "the request's body is too long to be sent again");
            return Attempt::Failed(exchange, failure);
        };
        let sent = match lanes {
            Some(lanes) => Box::pin(lanes.send(request, aim, serves)).await,
            None => tenure.pool.send(request, Sending { repeatable, fresh, upgrades }, serves, async |_| Ok(())).await,
        };
        match sent {
            Sent::Answered(answer, carrier) => {
                let sign = |headers: &mut HeaderMap| {
                    headers.insert(EPOCH, tenure.epoch_value.clone());
                    if let Some(primary) = &app.primary {
                        headers.insert(PRIMARY, primary.clone());
                    }
                };
                return exchange.answer(answer, carrier, Origin::App, sign).await;
            }
            Sent::Unsent(request, unsent) => {
                exchange.put_back(request);
                if !serves() {
                    return Attempt::Again(exchange, Cause::NoPrimary);
                }
                let since = *reaching_since.get_or_insert_with(Instant::now);
                let error = match unsent {
                    Unsent::OtherVersion(wire) if learned < FICKLE => {
                        learned += 1;
                        match Box::pin(tenure.learn_from(wire)).await {
                            Ok(()) => continue,
                            Err(error) => Some(error),
                        }
                    }
                    Unsent::Unfit(reason, why) => {
                        let failure = exchange.fail(reason, why);
                        return Attempt::Failed(exchange, failure);
                    }
                    Unsent::Dial(_) | Unsent::OtherVersion(_) => Some(unsent.into()),
                    Unsent::Forbidden => None,
                };
                if let Some(error) = error
                    && since.elapsed() >= REACH_FOR
                {
                    let message = format!("the app at {} cannot be reached: {error}", tenure.pool.upstream());
                    let failure = exchange.fail(Reason::UpstreamFailed, message);
                    return Attempt::Failed(exchange, failure);
                }
                sleep(REACH_EVERY).await;
            }
            Sent::Refused(error) => {
                let since = *reaching_since.get_or_insert_with(Instant::now);
                if serves() && (since.elapsed() >= REACH_FOR || !exchange.is_whole()) {
                    let message = format!("the app at {} takes no more requests: {}", tenure.pool.upstream(), because(&error));
                    let failure = exchange.fail(Reason::UpstreamFailed, message);
                    return Attempt::Failed(exchange, failure);
                }
                sleep(REACH_EVERY).await;
            }
            Sent::Lost { .. } if exchange.is_broken_off() => return exchange.broken_off(),
            Sent::Lost { loss, reused } => {
                debug!(?loss, reused, "the app gave no answer");
                exchange.maybe_sent = true;
                let (reason, again) = match loss {
                    // Once: what breaks every exchange would break any number of them, and may be executed each time.
                    Loss::Broken(_) => (Reason::UpstreamFailed, (reused && !fresh) || !serves()),
                    // Not even a safe one: its client has waited for as long as it was to, and an app that is slow gets no
                    // faster by being asked twice.
                    Loss::Late(_) => (Reason::UpstreamTimeout, false),
                };
                if !(again && repeatable && exchange.is_whole()) {
                    let app = format!("the app at {}", tenure.pool.upstream());
                    let message = broken(&app, &loss, "the tenure that it ran under has ended");
                    return Attempt::Failed(exchange, Failure::maybe_executed(reason, message));
                }
                fresh = true;
            }
        }
        // Nothing may be begun under a tenure that ended meanwhile.
        if !serves() {
            return Attempt::Again(exchange, Cause::NoPrimary);
        }
    }
}

/// Who ended an exchange without an answer, and why: `peer`, or this node itself, and then because of `why_cut`.
pub(super) fn broken(peer: &str, loss: &Loss, why_cut: &str) -> String {
    let error = match loss {
        Loss::Broken(error) => error,
        Loss::Late(limit) => return format!("{peer} did not begin to answer within {}", words(*limit)),
    };
    if error.is_canceled() || error.is_user() {
        return format!("the exchange with {peer} was cut off: {why_cut}");
    }
    format!("{peer} broke the exchange: {}", because(error))
}

/// What the library means by an error that brought no answer, in words for those who run the app.
pub(super) fn because(error: &hyper::Error) -> String {
    if error.is_incomplete_message() {
        return "it closed the connection without an answer".to_owned();
    }
    if error.is_parse_too_large() {
        return "the head of its answer is too long".to_owned();
    }
    if error.is_parse() {
        return format!("its answer is not HTTP/1.1: {error}");
    }
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
