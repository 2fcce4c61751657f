//! Our own errors: one sentence for people, one reason and one verdict for programs.
//!
//! A handler says what went wrong; this module alone turns it into a status and a body, so that every error looks alike.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::api::page::{Report, Taste};
use crate::node::Address;
use crate::replication::Role;

/// Names the primary that answered, or is believed.
pub const PRIMARY: HeaderName = HeaderName::from_static("bellwether-primary");

/// What went wrong on the way, for whoever runs other intermediaries (RFC 9209).
const PROXY_STATUS: HeaderName = HeaderName::from_static("proxy-status");

/// A request that this node could not have answered, and what the client may conclude from it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// What kind of failure; decides the status.
    pub reason: Reason,
    /// Whether the app can have seen the request.
    pub verdict: Verdict,
    /// One sentence for people.
    pub message: String,
}

/// Why a request failed; the contract with programs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reason {
    /// Malformed or ambiguous.
    BadRequest,
    /// A verb without the right to it.
    Forbidden,
    /// The head exceeds a limit.
    TooLarge,
    /// The app or the primary broke the exchange.
    UpstreamFailed,
    /// No primary came up in time.
    NoPrimary,
    /// Too many requests are waiting for a primary already.
    HoldFull,
    /// The primary has no app.
    NoUpstream,
    /// This node is no longer, or not yet, the primary that the sender took it for.
    Superseded,
    /// No answer in time.
    UpstreamTimeout,
    /// The request came round.
    Loop,
    /// The client did not go on with its request.
    RequestTimeout,
    /// As many clients are connected as may be.
    TooManyConnections,
}

impl Reason {
    /// The reason as programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::BadRequest => "bad-request",
            Self::Forbidden => "forbidden",
            Self::TooLarge => "too-large",
            Self::UpstreamFailed => "upstream-failed",
            Self::NoPrimary => "no-primary",
            Self::HoldFull => "hold-full",
            Self::NoUpstream => "no-upstream",
            Self::Superseded => "superseded",
            Self::UpstreamTimeout => "upstream-timeout",
            Self::Loop => "loop",
            Self::RequestTimeout => "request-timeout",
            Self::TooManyConnections => "too-many-connections",
        }
    }

    /// The same as a registered type of error (RFC 9209 §2.3).
    fn proxy_error(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Self::UpstreamFailed, Verdict::MaybeExecuted) => "connection_terminated",
            (Self::UpstreamFailed, Verdict::NotSent) | (Self::NoPrimary | Self::Superseded, _) => "destination_unavailable",
            (Self::HoldFull | Self::TooManyConnections, _) => "connection_limit_reached",
            (Self::NoUpstream, _) => "destination_not_found",
            (Self::UpstreamTimeout, _) => "http_response_timeout",
            (Self::Loop, _) => "proxy_loop_detected",
            (Self::BadRequest | Self::TooLarge | Self::RequestTimeout, _) => "http_request_error",
            (Self::Forbidden, _) => "http_request_denied",
        }
    }

    /// The status that goes with it.
    pub fn status(self) -> StatusCode {
        match self {
            Self::BadRequest => StatusCode::BAD_REQUEST,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::TooLarge => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            Self::UpstreamFailed => StatusCode::BAD_GATEWAY,
            Self::NoPrimary | Self::HoldFull | Self::NoUpstream | Self::Superseded | Self::TooManyConnections => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
            Self::Loop => StatusCode::LOOP_DETECTED,
            Self::RequestTimeout => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Whether the app can have seen a request that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It cannot: sending the request again is safe.
    NotSent,
    /// It can, and may have acted on it.
    MaybeExecuted,
}

impl Verdict {
    /// The verdict as programs read it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotSent => "not-sent",
            Self::MaybeExecuted => "maybe-executed",
        }
    }
}

impl Failure {
    /// A failure of a request that the app has not seen.
    pub fn not_sent(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, verdict: Verdict::NotSent, message: message.into() }
    }

    /// A failure of a request that the app may have acted on.
    pub fn maybe_executed(reason: Reason, message: impl Into<String>) -> Self {
        Self { reason, verdict: Verdict::MaybeExecuted, message: message.into() }
    }

    /// The answer to the client.
    pub(super) fn into_response(self, standing: &Standing, taste: Taste) -> Response<Bytes> {
        let complaint = Complaint {
            status: self.reason.status(),
            reason: self.reason.as_str(),
            verdict: self.verdict,
            message: &self.message,
            proxy_error: self.reason.proxy_error(self.verdict),
        };
        complaint.into_response(standing, taste)
    }

    /// The answer as bytes, to whoever did not get as far as a request: HTTP/1.1, and the last thing said.
    pub(super) fn into_last_words(self, standing: &Standing) -> Vec<u8> {
        let answer = self.into_response(standing, Taste::Json);
        let mut words = format!("HTTP/1.1 {}\r\n", answer.status()).into_bytes();
        for (name, value) in answer.headers() {
            words.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        words.extend(format!("content-length: {}\r\nconnection: close\r\n\r\n", answer.body().len()).bytes());
        words.extend(answer.body());
        words
    }
}

/// What each error of this node says besides what went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Standing {
    /// Who answered, or is believed to be primary.
    pub(super) primary: Option<Address>,
    /// That primary's epoch, 0 where none is known.
    pub(super) epoch: u64,
    /// When a primary can be expected, where there is none that serves.
    pub(super) retry_after: Duration,
}

impl Standing {
    /// That of a node in `role` which is reached at `own`.
    pub(super) fn of(role: &Role, own: Option<&Address>, retry_after: Duration) -> Self {
        let (primary, epoch) = role.primary(own);
        Self { primary: primary.cloned(), epoch: epoch.0, retry_after }
    }
}

/// An error of ours, from whichever part of the node.
#[derive(Clone, Copy, Debug)]
pub(super) struct Complaint<'a> {
    pub(super) status: StatusCode,
    /// For programs.
    pub(super) reason: &'a str,
    pub(super) verdict: Verdict,
    /// One sentence for people.
    pub(super) message: &'a str,
    /// What it is to whoever runs other intermediaries: a registered type of error (RFC 9209 §2.3).
    pub(super) proxy_error: &'static str,
}

impl Complaint<'_> {
    /// The answer to the client: what all errors have in common.
    pub(super) fn into_response(self, standing: &Standing, taste: Taste) -> Response<Bytes> {
        let report = Report {
            message: self.message,
            reason: self.reason,
            verdict: self.verdict.as_str(),
            primary: standing.primary.as_ref().map_or("", Address::as_str),
            epoch: standing.epoch,
        };
        let mut response = report.into_response(self.status, taste);
        let headers = response.headers_mut();
        let visible = |text: &str| HeaderValue::from_str(text).expect("addresses and registered names are visible ASCII");
        headers.insert(PROXY_STATUS, visible(&format!("bellwether; error={}", self.proxy_error)));
        if let Some(primary) = &standing.primary {
            headers.insert(PRIMARY, visible(primary.as_str()));
        }
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = standing.retry_after.as_secs_f64().ceil().max(1.0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds as u64));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing(primary: Option<&str>, epoch: u64) -> Standing {
        Standing { primary: primary.map(|primary| primary.parse().unwrap()), epoch, retry_after: Duration::from_millis(1_500) }
    }

    #[test]
    fn an_error_says_everything_a_client_needs() {
        let failure = Failure::not_sent(Reason::NoPrimary, "no primary for 25 s");
        let response = failure.into_response(&standing(Some("10.0.0.1:4000"), 7), Taste::Json);
        assert_eq!(response.status(), 503);
        assert_eq!(response.headers()["retry-after"], "2");
        assert_eq!(response.headers()["bellwether-primary"], "10.0.0.1:4000");
        assert_eq!(response.headers()["proxy-status"], "bellwether; error=destination_unavailable");
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        let expected = serde_json::json!({
            "message": "no primary for 25 s", "reason": "no-primary", "verdict": "not-sent", "primary": "10.0.0.1:4000", "epoch": 7
        });
        assert_eq!(json, expected);
    }

    #[test]
    fn only_a_503_promises_a_time() {
        let failure = Failure::maybe_executed(Reason::UpstreamFailed, "the app closed the connection");
        let response = failure.into_response(&standing(None, 0), Taste::Json);
        assert_eq!(response.status(), 502);
        assert!(response.headers().get(RETRY_AFTER).is_none());
        assert_eq!(response.headers()["proxy-status"], "bellwether; error=connection_terminated");
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!((json["primary"].as_str(), json["epoch"].as_u64()), (Some(""), Some(0)));
        assert_eq!(json["verdict"], "maybe-executed");
    }

    #[test]
    fn last_words_say_the_same_as_every_other_error() {
        let words = Failure::not_sent(Reason::TooManyConnections, "no room").into_last_words(&standing(Some("10.0.0.1:4000"), 7));
        let (head, body) = std::str::from_utf8(&words).unwrap().split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        let length = format!("content-length: {}", body.len());
        for line in ["bellwether-primary: 10.0.0.1:4000", "retry-after: 2", &length, "connection: close"] {
            assert!(head.lines().any(|said| said == line), "{line}: {head}");
        }
        let json: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!((&json["primary"], &json["epoch"]), (&"10.0.0.1:4000".into(), &7.into()));
    }
}
