//! The way of a request: answered here, or served as primary, or forwarded as replica, or held until one of them is possible.

use std::rc::Rc;
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue};
use http::request::Parts;
use http::{Request, Response, StatusCode, Version};
use hyper::body::{Body, Incoming};

use crate::api::accept::TOO_MANY;
use crate::api::access::Entry;
use crate::api::body::ResponseBody;
use crate::api::error::{Failure, Reason, Verdict};
use crate::api::feed::Feed;
use crate::api::forward::{Attempt, Exchange, HiddenEnd, Ticket};
use crate::api::headers::{self, Hop, REFUSED, Refusal};
use crate::api::hold::{self, Cause, Ended};
use crate::api::ledger::Outcome;
use crate::api::page::Taste;
use crate::api::session::{Busy, Session};
use crate::api::{debt, mux, primary, redirect, replica};
use crate::replication::Role;

/// The client is gone, so that its connection is closed without an answer.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client is gone")]
pub(super) struct Gone;

/// Answers one request.
pub(super) async fn serve(session: Busy, request: Request<Incoming>) -> Result<Response<ResponseBody>, Gone> {
    let connection = session.connection();
    let has_a_stream = request.version() == Version::HTTP_2;
    let mut answer = route(session, request, has_a_stream).await?;
    // What is left of a body nobody reads is in the next request's way.
    let ends = !has_a_stream && (connection.core.is_closing() || connection.left_unread());
    if ends && answer.status() != StatusCode::SWITCHING_PROTOCOLS {
        answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(answer)
}

async fn route(session: Busy, request: Request<Incoming>, has_a_stream: bool) -> Result<Response<ResponseBody>, Gone> {
    let core = Rc::clone(&session.core);
    let mut ticket = Ticket::new(Rc::clone(&core));
    let (mut head, body) = request.into_parts();
    let hidden = session.asked_upgrade().then(|| HiddenEnd::new(Rc::clone(&session.wire)));
    if mux::is_asked_for(&head) && session.peer.may_be_node() {
        ticket.end(Outcome::Local);
        return Ok(mux::accept(&session));
    }
    if let Some(log) = &core.shared.access {
        ticket.write_down(Entry::begin(log, &head, session.peer.address()));
    }
    if session.has_bare_lines() {
        let failure = Failure::not_sent(Reason::BadRequest, "a line of the request's head ends by LF without CR (RFC 9112 §2.2)");
        return Ok(refused_head(&session, ticket, failure, &head, body));
    }
    let local = &core.shared.local;
    if local.claims(&head.method, head.uri.path()) {
        let entry = ticket.take_entry();
        // Settled first, so that a look at the counters does not count itself as running.
        ticket.end(Outcome::Local);
        let mut answer = local.answer(&head, session.peer.right()).await;
        session.answers_early(Some(Feed::new(body, false)));
        if let Some(mut entry) = entry {
            entry.note_answer(answer.status(), answer.headers_mut());
            entry.note_bytes(answer.body().len());
            entry.end(Outcome::Local);
        }
        return Ok(answer.map(ResponseBody::Whole));
    }
    let own = headers::final_answer(&head);
    let terms = match headers::prepare(&mut head, &session.peer, &core.config.limits) {
        Ok(terms) => terms,
        Err(failure) => return Ok(refused_head(&session, ticket, failure, &head, body)),
    };
    if terms.hop.is_some() {
        session.comes_from_node();
    }
    if let Some(entry) = ticket.entry() {
        entry.identify(&mut head.headers, session.peer.may_name(terms.hop), terms.hop.is_some());
    }
    if session.is_surplus() {
        session.answers_early(Some(Feed::new(body, false)));
        session.leaves_unread(true);
        return Ok(failed(&session, ticket, Failure::not_sent(Reason::TooManyConnections, TOO_MANY), terms.taste));
    }
    if let Some(mut answer) = own.filter(|_| terms.hop.is_none()) {
        session.answers_early(Some(Feed::new(body, false)));
        if let Some(entry) = ticket.entry() {
            entry.note_answer(answer.status(), answer.headers_mut());
            entry.note_bytes(answer.body().len());
        }
        ticket.end(Outcome::Local);
        return Ok(answer.map(ResponseBody::Whole));
    }
    let feed = (!body.is_end_stream()).then(|| Feed::new(body, terms.expects_continue));
    if let Some(feed) = &feed {
        headers::frame_body(&mut head);
        if !has_a_stream {
            feed.comes_over(session.connection());
        }
    }
    if let (Some(feed), Some(debtors)) = (&feed, &core.debtors)
        && terms.hop.is_none()
        && debt::is_owed(&head.headers)
    {
        // What another node passes on, that node waits for.
        feed.is_owed_to(debtors);
    }
    let (deadline, held) = (None, Duration::ZERO);
    let exchange = Exchange { session, ticket, head, feed, terms, hidden, deadline, held, troubles: 0, maybe_sent: false };
    pursue(Box::new(exchange)).await
}

/// Tries a request against the role of the moment until something comes of it.
async fn pursue(mut exchange: Box<Exchange>) -> Result<Response<ResponseBody>, Gone> {
    let core = exchange.core();
    loop {
        // A drain that does not see this request counted is seen by it in the role.
        exchange.ticket.begin_serving();
        let role = core.shared.roles.current();
        if let Some(refusal) = exchange.terms.hop.and_then(|hop| refuse(hop, &role, &exchange)) {
            return Ok(refused(exchange, refusal));
        }
        let attempt = match &role {
            Role::Primary { epoch, .. } => primary::serve(exchange, *epoch).await,
            Role::Replica(leader) => {
                if let Some(location) = redirect::location(&exchange, leader) {
                    return Ok(redirect::answer(exchange, location, leader));
                }
                exchange.ticket.end_serving();
                replica::forward(exchange, leader).await
            }
            Role::Electing | Role::SteppingDown { .. } => Attempt::Again(exchange, Cause::NoPrimary),
        };
        let cause;
        (exchange, cause) = match attempt {
            Attempt::Answered(answer) => return Ok(answer),
            Attempt::Left => return Err(Gone),
            Attempt::Failed(exchange, failure) => return Ok(give_up(exchange, failure)),
            Attempt::Again(exchange, cause) => (exchange, cause),
        };
        exchange.ticket.end_serving();
        if exchange.terms.hop.is_some() {
            // Where a forwarded request waits is its sender's choice.
            continue;
        }
        match Box::pin(hold::wait(&mut exchange, &role, &cause)).await {
            Ok(()) => exchange.troubles += 1,
            Err(Ended::Left) => return Err(Gone),
            Err(Ended::Failed(failure)) => return Ok(give_up(exchange, failure)),
        }
    }
}

/// Why a request that another node forwarded must not be served here.
fn refuse(hop: Hop, role: &Role, exchange: &Exchange) -> Option<Failure> {
    if hop.sender == exchange.session.core.boot {
        return Some(Failure::not_sent(Reason::Loop, "the request has come round to the node that forwarded it"));
    }
    match role {
        Role::Primary { epoch, .. } if *epoch >= hop.epoch => None,
        Role::Primary { epoch, .. } => {
            let message = format!("this node's tenure {epoch} is over: a later one, {}, has begun", hop.epoch);
            Some(exchange.fail(Reason::Superseded, message))
        }
        Role::Electing | Role::Replica(_) | Role::SteppingDown { .. } => {
            Some(exchange.fail(Reason::Superseded, format!("this node is {}, not the primary", role.name())))
        }
    }
}

/// Tells the node that forwarded a request to keep it, without having read any of its body.
fn refused(exchange: Box<Exchange>, failure: Failure) -> Response<ResponseBody> {
    let refusal = (failure.reason == Reason::Superseded).then(|| Refusal { may_be_executed: failure.verdict == Verdict::MaybeExecuted });
    let mut answer = give_up(exchange, failure);
    if let Some(refusal) = refusal {
        answer.headers_mut().insert(REFUSED, refusal.to_value());
    }
    answer
}

/// Refuses a head for what it says. Who says what can be read in several ways is not listened to any further.
fn refused_head(session: &Session, ticket: Ticket, failure: Failure, head: &Parts, body: Incoming) -> Response<ResponseBody> {
    session.answers_early(Some(Feed::new(body, false)));
    session.leaves_unread(true);
    failed(session, ticket, failure, Taste::of(&head.headers))
}

fn give_up(mut exchange: Box<Exchange>, failure: Failure) -> Response<ResponseBody> {
    exchange.session.answers_early(exchange.feed.take());
    let mut answer = failed(&exchange.session, exchange.ticket, failure, exchange.terms.taste);
    if !exchange.held.is_zero() {
        headers::add_held(answer.headers_mut(), exchange.held);
    }
    answer
}

fn failed(session: &Session, mut ticket: Ticket, failure: Failure, taste: Taste) -> Response<ResponseBody> {
    let core = &session.core;
    let (reason, verdict) = (failure.reason, failure.verdict);
    let standing = core.standing();
    let mut answer = failure.into_response(&standing, taste);
    if let Some(entry) = ticket.entry() {
        entry.note_answer(answer.status(), answer.headers_mut());
        entry.note_failure(verdict, standing.epoch);
        entry.note_bytes(answer.body().len());
    }
    ticket.end(Outcome::Failed(reason));
    answer.map(ResponseBody::Whole)
}
