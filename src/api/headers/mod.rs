//! What a proxy owes to the heads it passes on: RFC 9110 §7.6, and the `Bellwether-*` fields of our own.
//!
//! Every other field is passed on as it came, in its order and with its duplicates, its name in lower case. Where nothing
//! has to go, nothing is moved: the field map is rebuilt only when a field in it is for this hop alone.

mod answer;
mod forwarded;
mod hop;
mod host;
mod max_forwards;
mod peer;
mod request;
mod strip;
mod target;

use std::time::Duration;

use http::HeaderMap;
use http::header::HeaderName;

pub(super) use answer::{OddFraming, Origin, add_held, relay};
pub(super) use forwarded::FORWARDED_FOR;
pub(super) use hop::{HOP, Hop, REFUSED, Refusal};
pub(super) use max_forwards::final_answer;
pub(super) use peer::Peer;
pub(super) use request::{Terms, frame_body, prepare};
use strip::tokens;
pub(super) use strip::{closes, prune_trailers, wants_upgrade};

/// The fencing token, on requests to the app and on every forwarded answer.
pub(super) const EPOCH: HeaderName = HeaderName::from_static("bellwether-epoch");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// How long a client is willing to wait: `Prefer: wait=N` (RFC 7240 §4.3).
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    tokens(headers, &PREFER)
        .filter_map(|preference| preference.split(';').next())
        .filter_map(|preference| preference.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
        .and_then(|(_, seconds)| seconds.trim().trim_matches('"').parse().ok())
        .map(Duration::from_secs)
}

#[cfg(test)]
mod tests;
