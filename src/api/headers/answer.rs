//! Makes an answer's head ready to be passed on.

use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, StatusCode};

use super::hop::REFUSED;
use super::strip::{Kept, is_always_hop_by_hop, is_ours, strip};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Whom an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) enum Origin {
    /// The app, which may say nothing in our name.
    App,
    /// The leader, whose `Bellwether-*` are passed on.
    Leader,
}

/// An answer whose end the two sides of this node could see at different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct OddFraming;

/// Makes an answer's head ready to be passed on. A 101 keeps what it says about the switch.
///
/// # Errors
/// When what it says of its length cannot be passed on: anything but one number, or one single `chunked`. The library reads a
/// list of equal numbers and the outermost of several encodings, and would then frame as that what is framed otherwise.
pub(in crate::api) fn relay(status: StatusCode, headers: &mut HeaderMap, origin: Origin) -> Result<(), OddFraming> {
    let (mut hop_by_hop, mut encodings, mut is_odd) = (false, 0, false);
    for (name, value) in headers.iter() {
        hop_by_hop |= match *name {
            CONNECTION | TE | UPGRADE => true,
            CONTENT_LENGTH => {
                is_odd |= !value.as_bytes().iter().all(u8::is_ascii_digit);
                false
            }
            TRANSFER_ENCODING => {
                encodings += 1;
                is_odd |= encodings > 1 || !value.as_bytes().eq_ignore_ascii_case(b"chunked");
                false
            }
            _ if is_ours(name) => origin == Origin::App || *name == REFUSED,
            _ => is_always_hop_by_hop(name),
        };
    }
    if is_odd {
        return Err(OddFraming);
    }
    if hop_by_hop {
        strip_answer(status, headers, origin);
    }
    if encodings > 0 {
        // RFC 9112 §6.3: the encoding frames the body, so a length beside it is wrong.
        headers.remove(CONTENT_LENGTH);
    }
    Ok(())
}

fn strip_answer(status: StatusCode, headers: &mut HeaderMap, origin: Origin) {
    let ours: Vec<(HeaderName, HeaderValue)> = match origin {
        Origin::App => Vec::new(),
        Origin::Leader => {
            let passed_on = |name: &HeaderName| is_ours(name) && *name != REFUSED;
            headers.iter().filter(|(name, _)| passed_on(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
        }
    };
    // A 426 names the protocols that would do (RFC 9110 §15.5.22).
    let names_protocols = matches!(status, StatusCode::SWITCHING_PROTOCOLS | StatusCode::UPGRADE_REQUIRED);
    let keep_upgrade = names_protocols && headers.contains_key(UPGRADE);
    strip(headers, Kept { upgrade: keep_upgrade, forwarded: true });
    headers.extend(ours.into_iter().map(|(name, value)| (Some(name), value)));
    if keep_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
}

/// Says on an answer how long its request was held.
pub(in crate::api) fn add_held(headers: &mut HeaderMap, held: Duration) {
    let millis = held.as_secs_f64() * 1_000.0;
    let value = format!("held;dur={millis:.1}");
    headers.append(SERVER_TIMING, HeaderValue::from_str(&value).expect("a number is visible ASCII"));
}
