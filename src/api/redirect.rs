//! What a replica does with `--forward redirect`: it sends the client to the primary, in place of passing its request on.

use http::header::{CACHE_CONTROL, HeaderValue, LOCATION};
use http::{Response, StatusCode, Uri};

use crate::api::Forward;
use crate::api::body::ResponseBody;
use crate::api::error::PRIMARY;
use crate::api::forward::Exchange;
use crate::api::headers;
use crate::api::ledger::Outcome;
use crate::store::Leader;

/// Where a client of this node finds `leader`; `None` where it is to be passed on all the same. What another node has passed
/// on is never sent elsewhere: that node would pass it on once more, or tell its client of a place it did not ask for.
pub(super) fn location(exchange: &Exchange, leader: &Leader) -> Option<HeaderValue> {
    let core = &exchange.session.core;
    let points_here = core.shared.node.as_ref().is_some_and(|node| node.address == leader.address);
    if core.config.forward == Forward::Proxy || exchange.terms.hop.is_some() || points_here {
        return None;
    }
    let scheme = if core.config.tls.is_some() { "https" } else { "http" };
    target(&exchange.head.uri).and_then(|target| HeaderValue::from_str(&format!("{scheme}://{}{target}", leader.address)).ok())
}

/// The path and the query as they came; `*` is no place.
fn target(uri: &Uri) -> Option<&str> {
    uri.path_and_query().map(|target| target.as_str()).filter(|target| target.starts_with('/'))
}

/// Sends the client there, with the method and the body of its request (RFC 9110 §15.4.8).
pub(super) fn answer(mut exchange: Box<Exchange>, location: HeaderValue, leader: &Leader) -> Response<ResponseBody> {
    exchange.session.answers_early(exchange.feed.take());
    let mut answer = Response::new(ResponseBody::empty());
    *answer.status_mut() = StatusCode::TEMPORARY_REDIRECT;
    let fields = answer.headers_mut();
    fields.insert(LOCATION, location);
    fields.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    fields.insert(PRIMARY, HeaderValue::from_str(leader.address.as_str()).expect("an address is visible ASCII"));
    if !exchange.held.is_zero() {
        headers::add_held(fields, exchange.held);
    }
    exchange.ticket.note_answer(StatusCode::TEMPORARY_REDIRECT, fields);
    exchange.ticket.end(Outcome::Redirected);
    answer
}
