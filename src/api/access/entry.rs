//! What is known of a request, gathered on its way.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::AccessLog;
use crate::api::error::Verdict;
use crate::api::headers::{EPOCH, FORWARDED_FOR};
use crate::api::ledger::Outcome;
use crate::api::streams;

/// Names a request in the logs of everybody it comes through.
pub(super) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest name that is taken over.
const LONGEST_ID: usize = 128;

/// One request.
#[derive(Debug)]
pub(in crate::api) struct Entry {
    log: AccessLog,
    began: Instant,
    pub(super) id: HeaderValue,
    pub(super) client: Option<HeaderValue>,
    /// Whether another node passed it on.
    pub(super) from_node: bool,
    pub(super) method: Method,
    pub(super) target: Uri,
    pub(super) version: Version,
    /// `None` where the client got no head.
    pub(super) status: Option<StatusCode>,
    /// Of the answer's body, or of what went to the client through a tunnel.
    pub(super) bytes: u64,
    /// Of what came from the client through a tunnel; `None` where there was none.
    pub(super) received: Option<u64>,
    pub(super) outcome: Outcome,
    pub(super) verdict: Option<Verdict>,
    pub(super) epoch: u64,
    /// How long it waited for a primary.
    pub(super) held: Duration,
    /// From its head to the head of its answer.
    pub(super) head: Option<Duration>,
    /// From its head to its end.
    pub(super) total: Duration,
}

impl Entry {
    /// A request whose head was read just now.
    pub(in crate::api) fn begin(log: &AccessLog, head: &Parts, client: Option<&HeaderValue>) -> Box<Self> {
        Box::new(Self {
            log: log.clone(),
            began: Instant::now(),
            id: fresh_id(),
            client: client.cloned(),
            from_node: false,
            method: head.method.clone(),
            target: head.uri.clone(),
            version: streams::version(head),
            status: None,
            bytes: 0,
            received: None,
            outcome: Outcome::Left,
            verdict: None,
            epoch: 0,
            held: Duration::ZERO,
            head: None,
            total: Duration::ZERO,
        })
    }

    /// Settles its name, which its sender chose if that is believed, and tells the app; and takes down whom the app is told it
    /// comes from.
    pub(in crate::api) fn identify(&mut self, headers: &mut HeaderMap, believed: bool, from_node: bool) {
        self.from_node = from_node;
        if let Some(given) = headers.get(REQUEST_ID).filter(|id| believed && is_id(id)) {
            self.id = given.clone();
        }
        headers.insert(REQUEST_ID, self.id.clone());
        self.client = headers.get(FORWARDED_FOR).cloned().or(self.client.take());
    }

    /// Takes down the head of its answer, and tells the client its name.
    pub(in crate::api) fn note_answer(&mut self, status: StatusCode, headers: &mut HeaderMap) {
        self.head = Some(self.began.elapsed());
        self.status = Some(status);
        let epoch = headers.get(EPOCH).and_then(|epoch| epoch.to_str().ok()?.parse().ok());
        self.epoch = epoch.unwrap_or(self.epoch);
        headers.insert(REQUEST_ID, self.id.clone());
    }

    /// Takes down that it failed.
    pub(in crate::api) fn note_failure(&mut self, verdict: Verdict, epoch: u64) {
        self.verdict = Some(verdict);
        self.epoch = epoch;
    }

    /// Counts a piece of the answer's body.
    pub(in crate::api) fn note_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Takes down what went through its tunnel.
    pub(in crate::api) fn note_tunnel(&mut self, received: u64, sent: u64) {
        self.received = Some(received);
        self.bytes = sent;
    }

    /// Counts a wait.
    pub(in crate::api) fn note_wait(&mut self, waited: Duration) {
        self.held += waited;
    }

    /// Hands it in.
    pub(in crate::api) fn end(mut self: Box<Self>, outcome: Outcome) {
        self.outcome = outcome;
        self.total = self.began.elapsed();
        let log = self.log.clone();
        log.hand_in(self);
    }
}

fn fresh_id() -> HeaderValue {
    HeaderValue::from_str(&format!("{:032x}", fastrand::u128(..))).expect("digits are visible ASCII")
}

/// Whether a name can stand in a line without being taken for anything else.
fn is_id(id: &HeaderValue) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:+/=@~".contains(byte);
    !id.is_empty() && id.len() <= LONGEST_ID && id.as_bytes().iter().all(plain)
}
