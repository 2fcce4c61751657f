//! Our own errors: one sentence for people, one reason and one verdict for programs.
//!
//! A handler says what went wrong; this module alone turns it into a status and a body, so that every error looks alike.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderName, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};

use crate::api::page::{Report, Taste};
use crate::node::Address;
use crate::store::Epoch;

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

    /// The same as a registered type of error (RFC 9209 §2.3), in our name.
    fn proxy_status(self, verdict: Verdict) -> HeaderValue {
        HeaderValue::from_static(match (self, verdict) {
            (Self::UpstreamFailed, Verdict::MaybeExecuted) => "bellwether; error=connection_terminated",
            (Self::UpstreamFailed, Verdict::NotSent) | (Self::NoPrimary | Self::Superseded, _) => {
                "bellwether; error=destination_unavailable"
            }
            (Self::HoldFull | Self::TooManyConnections, _) => "bellwether; error=connection_limit_reached",
            (Self::NoUpstream, _) => "bellwether; error=destination_not_found",
            (Self::UpstreamTimeout, _) => "bellwether; error=http_response_timeout",
            (Self::Loop, _) => "bellwether; error=proxy_loop_detected",
            (Self::BadRequest | Self::TooLarge | Self::RequestTimeout, _) => "bellwether; error=http_request_error",
            (Self::Forbidden, _) => "bellwether; error=http_request_denied",
        })
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

    /// The answer to the client. `primary` and `epoch` are what this node believes; `retry_after` goes out with each 503.
    pub(super) fn into_response(
        self,
        primary: Option<&Address>,
        epoch: Option<Epoch>,
        retry_after: Duration,
        taste: Taste,
    ) -> Response<Bytes> {
        let status = self.reason.status();
        let report = Report {
            message: &self.message,
            reason: self.reason.as_str(),
            verdict: self.verdict.as_str(),
            primary: primary.map_or("", Address::as_str),
            epoch: epoch.map_or(0, |epoch| epoch.0),
        };
        let mut response = report.into_response(status, taste);
        let headers = response.headers_mut();
        headers.insert(PROXY_STATUS, self.reason.proxy_status(self.verdict));
        if let Some(primary) = primary {
            headers.insert(PRIMARY, HeaderValue::from_str(primary.as_str()).expect("an address is visible ASCII"));
        }
        if status == StatusCode::SERVICE_UNAVAILABLE {
            let seconds = retry_after.as_secs_f64().ceil().max(1.0);
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds as u64));
        }
        response
    }

    /// The answer as bytes, to whoever did not get as far as a request: HTTP/1.1, and the last thing said.
    pub(super) fn into_last_words(self, retry_after: Duration) -> Vec<u8> {
        let answer = self.into_response(None, None, retry_after, Taste::Json);
        let mut words = format!("HTTP/1.1 {}\r\n", answer.status()).into_bytes();
        for (name, value) in answer.headers() {
            words.extend([name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        words.extend(format!("content-length: {}\r\nconnection: close\r\n\r\n", answer.body().len()).bytes());
        words.extend(answer.body());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_everything_a_client_needs() {
        let failure = Failure::not_sent(Reason::NoPrimary, "no primary for 25 s");
        let primary: Address = "10.0.0.1:4000".parse().unwrap();
        let response = failure.into_response(Some(&primary), Some(Epoch(7)), Duration::from_millis(1_500), Taste::Json);
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
        let response = failure.into_response(None, None, Duration::from_secs(10), Taste::Json);
        assert_eq!(response.status(), 502);
        assert!(response.headers().get(RETRY_AFTER).is_none());
        assert_eq!(response.headers()["proxy-status"], "bellwether; error=connection_terminated");
        let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
        assert_eq!((json["primary"].as_str(), json["epoch"].as_u64()), (Some(""), Some(0)));
        assert_eq!(json["verdict"], "maybe-executed");
    }
}
