//! What serving as primary and forwarding as replica have in common: a request on its way, and its answer on the way back.

use std::rc::Rc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;
use tokio::time::Instant;
use tracing::debug;

use crate::api::access::Entry;
use crate::api::body::ResponseBody;
use crate::api::carrier::Carrier;
use crate::api::error::{Failure, Reason, Verdict};
use crate::api::feed::{Feed, RequestBody};
use crate::api::headers::{self, Origin, Terms};
use crate::api::hold::Cause;
use crate::api::io::Wire;
use crate::api::ledger::Outcome;
use crate::api::session::{Busy, Next};
use crate::api::tunnel::Tunnel;
use crate::api::worker::Core;

/// A request of a client, from its head to its outcome. Kept in a box: each future on its way would have room for it, all
/// of it is moved where a request begins, and each connection keeps that.
pub(super) struct Exchange {
    pub(super) session: Busy,
    pub(super) ticket: Ticket,
    pub(super) head: Parts,
    pub(super) feed: Option<Rc<Feed>>,
    pub(super) terms: Terms,
    pub(super) hidden: Option<HiddenEnd>,
    /// When the request is given up, once it had to wait.
    pub(super) deadline: Option<Instant>,
    /// How long it has waited.
    pub(super) held: Duration,
    /// How often it met trouble on its way.
    pub(super) troubles: u32,
    /// An attempt may have reached the app.
    pub(super) maybe_sent: bool,
}

/// What came of handing a request to an upstream.
#[expect(clippy::large_enum_variant, reason = "nearly all of them are answers")]
pub(super) enum Attempt {
    /// The answer, ready for the client.
    Answered(Response<ResponseBody>),
    /// An error of our own.
    Failed(Box<Exchange>, Failure),
    /// Nothing came of it, and it may be tried again.
    Again(Box<Exchange>, Cause),
    /// The client is gone, and with it the request.
    Left,
}

impl Exchange {
    pub(super) fn core(&self) -> Rc<Core> {
        Rc::clone(&self.session.core)
    }

    /// The request for one attempt. With `again`, enough is kept to make another one, if the body is short enough.
    /// `None` when the body's beginning is gone.
    pub(super) fn next_request(&mut self, again: bool) -> Option<Request<RequestBody>> {
        let body = match &self.feed {
            None => RequestBody::Empty,
            Some(feed) => feed.next_turn(again)?,
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.head.method.clone();
        *request.uri_mut() = self.head.uri.clone();
        *request.headers_mut() = if again { self.head.headers.clone() } else { std::mem::take(&mut self.head.headers) };
        if let Some(go_ahead) = self.feed.as_ref().and_then(|feed| feed.go_ahead()) {
            hyper::ext::on_informational(&mut request, move |informational| {
                if informational.status() == StatusCode::CONTINUE {
                    go_ahead.give();
                }
            });
        }
        Some(request)
    }

    /// Takes back a request that was not sent, unless it was a copy.
    pub(super) fn put_back(&mut self, request: Request<RequestBody>) {
        if self.head.headers.is_empty() {
            self.head.headers = request.into_parts().0.headers;
        }
    }

    /// Whether another attempt could send the request as it came.
    pub(super) fn is_whole(&self) -> bool {
        self.feed.as_ref().is_none_or(|feed| feed.is_whole())
    }

    /// Whether the client broke off its request.
    pub(super) fn is_broken_off(&self) -> bool {
        self.feed.as_ref().is_some_and(|feed| feed.is_broken())
    }

    /// How a request ends whose body broke off: its client has left, or what it sent is no body.
    pub(super) fn broken_off(self: Box<Self>) -> Attempt {
        if self.session.wire.is_abandoned() {
            return Attempt::Left;
        }
        if self.feed.as_ref().is_some_and(|feed| feed.is_given_up()) {
            let message = "nothing more came of the request's body in time, and what had come was passed on";
            return Attempt::Failed(self, Failure::maybe_executed(Reason::RequestTimeout, message));
        }
        let failure =
            Failure::maybe_executed(Reason::BadRequest, "the request's body is malformed, and was passed on as far as it was not");
        Attempt::Failed(self, failure)
    }

    /// An error of our own, with the verdict on everything that was tried.
    pub(super) fn fail(&self, reason: Reason, message: impl Into<String>) -> Failure {
        let verdict = if self.maybe_sent { Verdict::MaybeExecuted } else { Verdict::NotSent };
        Failure { reason, verdict, message: message.into() }
    }

    /// Turns an upstream's answer into ours. `sign` adds what is said in our name.
    pub(super) async fn answer(
        mut self: Box<Self>,
        answer: Response<Incoming>,
        carrier: Carrier,
        origin: Origin,
        sign: impl FnOnce(&mut HeaderMap),
    ) -> Attempt {
        let (mut head, body) = answer.into_parts();
        if let Some(feed) = &self.feed {
            // From here on the two may take turns as they like.
            feed.forgive();
        }
        let switches = head.status == StatusCode::SWITCHING_PROTOCOLS;
        if switches && !self.terms.upgrade {
            let failure = Failure::maybe_executed(Reason::UpstreamFailed, "the app switched protocols though nobody asked it to");
            return Attempt::Failed(self, failure);
        }
        if let Some(feed) = &self.feed
            && feed.is_unfinished()
            && (feed.is_awaited() || headers::closes(&head.headers))
        {
            // Nobody will read the rest of the request, so the client's connection ends with this answer, which says so.
            self.session.leaves_unread(true);
        }
        if let Err(headers::OddFraming) = headers::relay(head.status, &mut head.headers, origin) {
            let failure = Failure::maybe_executed(Reason::UpstreamFailed, "the app's answer has a length that can be read in several ways");
            return Attempt::Failed(self, failure);
        }
        sign(&mut head.headers);
        if !self.held.is_zero() {
            headers::add_held(&mut head.headers, self.held);
        }
        self.ticket.note_answer(head.status, &mut head.headers);
        head.version = Version::HTTP_11;
        if head.status.canonical_reason().is_none() && head.extensions.get::<ReasonPhrase>().is_none() {
            // Without a phrase the library makes one up.
            head.extensions.insert(ReasonPhrase::from_static(b""));
        }
        let body = if switches {
            let Some((upstream, notice)) = Box::pin(carrier.into_tunnel()).await else {
                let failure = Failure::maybe_executed(Reason::UpstreamFailed, "the app's connection broke at its switch of protocols");
                return Attempt::Failed(self, failure);
            };
            let websocket = is_websocket(&head.headers);
            let Self { session, ticket, hidden, .. } = *self;
            session.becomes(Next::Tunnel(Tunnel { upstream, origin, notice, websocket, ticket, hidden }));
            ResponseBody::empty()
        } else {
            let Self { session, ticket, feed, hidden, .. } = *self;
            let tail = Tail { session, ticket, carrier, feed, _hidden: hidden };
            stream(&head.headers, body, tail)
        };
        Attempt::Answered(Response::from_parts(head, body))
    }
}

/// Whether a switch of protocols is one to WebSocket.
fn is_websocket(headers: &HeaderMap) -> bool {
    headers.get(http::header::UPGRADE).is_some_and(|protocol| protocol.as_bytes().eq_ignore_ascii_case(b"websocket"))
}

fn stream(headers: &HeaderMap, body: Incoming, tail: Tail) -> ResponseBody {
    if !http_body::Body::is_end_stream(&body) {
        return ResponseBody::Stream(body, Some(tail));
    }
    tail.finish();
    let stated = headers.get(http::header::CONTENT_LENGTH);
    match stated.and_then(|length| length.to_str().ok()?.parse().ok()) {
        Some(length) => ResponseBody::Bodiless(length),
        None => ResponseBody::empty(),
    }
}

/// What is settled when an answer ends. Dropped before that, it counts the client as gone and closes the upstream's
/// connection, so that the app learns of it at once (B99).
pub(super) struct Tail {
    session: Busy,
    ticket: Ticket,
    carrier: Carrier,
    feed: Option<Rc<Feed>>,
    _hidden: Option<HiddenEnd>,
}

impl Tail {
    /// A piece of the answer has been handed on.
    pub(super) fn note_bytes(&mut self, bytes: usize) {
        if let Some(entry) = self.ticket.entry() {
            entry.note_bytes(bytes);
        }
    }

    /// The answer was read to its end.
    pub(super) fn finish(self) {
        if let Some(feed) = self.feed {
            if feed.is_awaited() {
                // Refused before the client sent its body: nobody will ever ask for it.
                feed.revoke();
            }
            self.session.hears_out(Some(feed));
        }
        self.carrier.give_back();
        self.ticket.end(Outcome::Answered);
    }

    /// The upstream broke off its answer.
    pub(super) fn cut(self, error: &hyper::Error) {
        debug!(%error, "an answer broke off");
        let client_left = self.feed.as_ref().is_some_and(|feed| feed.is_broken());
        self.ticket.end(if client_left { Outcome::Left } else { Outcome::Cut });
    }
}

/// Hides from the library that a client stopped sending, as long as this lives and until what was written has left.
pub(super) struct HiddenEnd(Rc<Wire>);

impl HiddenEnd {
    pub(super) fn new(wire: Rc<Wire>) -> Self {
        wire.hide_end();
        Self(wire)
    }
}

impl Drop for HiddenEnd {
    fn drop(&mut self) {
        self.0.show_end_when_flushed();
    }
}

/// Counts one request: accepted when made, ended exactly once. Dropped without an outcome, its client has left, or its
/// worker cut it off at the end of its time.
pub(super) struct Ticket {
    core: Rc<Core>,
    serving: bool,
    held_since: Option<Instant>,
    ended: bool,
    /// What is written down of the request, if anything is.
    entry: Option<Box<Entry>>,
}

impl Ticket {
    pub(super) fn new(core: Rc<Core>) -> Self {
        core.sheet.accept();
        Self { core, serving: false, held_since: None, ended: false, entry: None }
    }

    /// Who counts it.
    pub(super) fn core(&self) -> Rc<Core> {
        Rc::clone(&self.core)
    }

    /// From now on, what is known of the request is taken down.
    pub(super) fn write_down(&mut self, entry: Box<Entry>) {
        self.entry = Some(entry);
    }

    /// What is taken down of the request.
    pub(super) fn entry(&mut self) -> Option<&mut Entry> {
        self.entry.as_deref_mut()
    }

    /// The same, for whoever ends it.
    pub(super) fn take_entry(&mut self) -> Option<Box<Entry>> {
        self.entry.take()
    }

    /// Takes down the head of the answer, if anything is taken down.
    pub(super) fn note_answer(&mut self, status: StatusCode, headers: &mut HeaderMap) {
        if let Some(entry) = self.entry() {
            entry.note_answer(status, headers);
        }
    }

    /// To be called before the role is read that lets the primary handler serve.
    pub(super) fn begin_serving(&mut self) {
        if !self.serving {
            self.serving = true;
            self.core.sheet.begin_serving();
        }
    }

    pub(super) fn end_serving(&mut self) {
        if std::mem::take(&mut self.serving) {
            self.core.sheet.end_serving();
        }
    }

    pub(super) fn hold(&mut self) {
        if self.held_since.is_none() {
            self.held_since = Some(Instant::now());
            self.core.sheet.hold();
        }
    }

    /// Ends a wait, and tells how long it was.
    pub(super) fn resume(&mut self) -> Duration {
        let Some(since) = self.held_since.take() else { return Duration::ZERO };
        let waited = since.elapsed();
        self.core.sheet.resume(waited);
        if let Some(entry) = self.entry() {
            entry.note_wait(waited);
        }
        waited
    }

    pub(super) fn end(mut self, outcome: Outcome) {
        self.settle(outcome);
    }

    fn settle(&mut self, outcome: Outcome) {
        if !std::mem::replace(&mut self.ended, true) {
            self.resume();
            self.core.sheet.end(outcome);
            self.end_serving();
            if let Some(entry) = self.entry.take() {
                entry.end(outcome);
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.settle(self.core.outcome_of_dropped());
    }
}
