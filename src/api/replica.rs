//! The replica handler: passes requests to the leader, and tells those that may be tried elsewhere from those that may not.

use http::{Response, StatusCode};
use hyper::body::Incoming;
use tracing::{debug, warn};

use crate::api::error::{Failure, PRIMARY, Reason};
use crate::api::forward::{Attempt, Exchange};
use crate::api::headers::{EPOCH, HOP, Origin};
use crate::api::hold::Cause;
use crate::api::link::{Exchanged, Stranger};
use crate::api::primary::broken;
use crate::store::Leader;

/// Passes a request to `leader`.
pub(super) async fn forward(mut exchange: Box<Exchange>, leader: &Leader) -> Attempt {
    let core = exchange.core();
    let again = |exchange, message| Attempt::Again(exchange, Cause::Trouble(message));
    if core.shared.node.as_ref().is_some_and(|node| node.address == leader.address) {
        return again(exchange, format!("the leader's record points at this node, {}, which is not the primary", leader.address));
    }
    let link = core.links.to(leader);
    if let Some(trouble) = link.trouble() {
        return again(exchange, trouble);
    }
    if exchange.troubles > 0 {
        exchange.head.headers.remove(EPOCH);
    }
    exchange.head.headers.insert(HOP, link.hop.clone());
    let Some(request) = exchange.next_request(true) else {
        let failure = exchange.fail(Reason::Superseded, "the leader changed, and the request's body is too long to be sent again");
        return Attempt::Failed(exchange, failure);
    };
    match link.exchange(request, exchange.terms.needs_http2, &core).await {
        Exchanged::Answered(answer, _) if exchange.maybe_sent && is_an_error_of_the_leader(&answer) => {
            // It knows nothing of the attempts before it, so what it says of them is not to be passed on.
            let message = format!("an earlier attempt was lost with its primary, and {} now answers {}", leader.address, answer.status());
            Attempt::Failed(exchange, Failure::maybe_executed(Reason::UpstreamFailed, message))
        }
        Exchanged::Answered(answer, lease) => exchange.answer(answer, lease, Origin::Leader, |_| {}).await,
        Exchanged::Refused(refusal) => {
            let message = format!("{} refused the request: it is not the primary", leader.address);
            link.has_trouble(message.clone(), &core);
            exchange.maybe_sent |= refusal.may_be_executed;
            if exchange.is_whole() && (exchange.terms.repeatable || !refusal.may_be_executed) {
                return again(exchange, message);
            }
            let why = match exchange.is_whole() {
                true => "the app may have executed it, so it is not sent again",
                false => "its body is too long to be sent again",
            };
            let failure = exchange.fail(Reason::Superseded, format!("{message}, and {why}"));
            Attempt::Failed(exchange, failure)
        }
        Exchanged::Unreached(request, error) => {
            debug!(%error, leader = %leader.address, "the leader was not reached");
            exchange.put_back(request);
            let message = format!("the leader {} cannot be reached: {error}", leader.address);
            link.has_trouble(message.clone(), &core);
            again(exchange, message)
        }
        Exchanged::Unshared(request, error) => {
            debug!(%error, leader = %leader.address, "no shared connection took a request");
            // One that is gone is a copy, if its body could be kept.
            if let Some(request) = request {
                exchange.put_back(request);
            }
            let message = format!("the leader {} did not take the request: {error}", leader.address);
            if exchange.is_whole() {
                return again(exchange, message);
            }
            let failure = exchange.fail(Reason::UpstreamFailed, format!("{message}, and its body is too long to be sent again"));
            Attempt::Failed(exchange, failure)
        }
        Exchanged::Stranger(request, stranger) => {
            exchange.put_back(request);
            let message = format!("{} {stranger}", leader.address);
            match stranger {
                Stranger::Ourselves => again(exchange, message),
                Stranger::Other(_) | Stranger::SpeaksTls | Stranger::Untrusted(_) => {
                    if link.warns() {
                        warn!(leader = %leader.address, service = core.shared.service, why = message, "the leader's address belongs to somebody else");
                    }
                    let failure = exchange.fail(Reason::UpstreamFailed, message);
                    Attempt::Failed(exchange, failure)
                }
            }
        }
        Exchanged::Lost(_) if exchange.is_broken_off() => exchange.broken_off(),
        Exchanged::Lost(loss) => {
            debug!(?loss, leader = %leader.address, "the leader was lost in the middle of an exchange");
            exchange.maybe_sent = true;
            let message = broken(&format!("the leader {}", leader.address), &loss, "it has fallen silent, or another one leads");
            if exchange.terms.repeatable && exchange.is_whole() {
                return again(exchange, message);
            }
            Attempt::Failed(exchange, Failure::maybe_executed(Reason::UpstreamFailed, message))
        }
    }
}

/// Whether an answer is the leader's own error, and not its app's. Not where it says itself that the request may have been
/// executed, as it does of an app that took too long.
fn is_an_error_of_the_leader(answer: &Response<Incoming>) -> bool {
    let headers = answer.headers();
    let fails = (answer.status().is_client_error() || answer.status().is_server_error()) && answer.status() != StatusCode::GATEWAY_TIMEOUT;
    fails && headers.contains_key(PRIMARY) && !headers.contains_key(EPOCH)
}
