//! What the app is told about who asked, and how the request came.

use http::header::{FORWARDED, HOST, HeaderName, HeaderValue, VIA};
use http::{HeaderMap, Version};

use super::Peer;

pub(in crate::api) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Tells the app who asked (added after stripping, so that no client can have it removed).
pub(super) fn add_forwarded(headers: &mut HeaderMap, peer: &Peer, believed: bool) {
    if believed {
        if let Some(address) = peer.address() {
            headers.append(FORWARDED_FOR, address.clone());
        }
    } else {
        match peer.address() {
            Some(address) => drop(headers.insert(FORWARDED_FOR, address.clone())),
            None => drop(headers.remove(FORWARDED_FOR)),
        }
    }
    if !believed || !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, HeaderValue::from_static(peer.scheme()));
    }
    if !believed || !headers.contains_key(FORWARDED_HOST) {
        match headers.get(HOST).cloned() {
            Some(host) => drop(headers.insert(FORWARDED_HOST, host)),
            None => drop(headers.remove(FORWARDED_HOST)),
        }
    }
}

/// Goes on with the list that a proxy before this one has begun (RFC 7239), so that it does not end there.
pub(super) fn extend_forwarded(headers: &mut HeaderMap, peer: &Peer) {
    let Some(address) = peer.address().and_then(|address| address.to_str().ok()) else { return };
    let address = if address.contains(':') { format!("\"[{address}]\"") } else { address.to_owned() };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).map_or_else(String::new, |host| format!(";host=\"{host}\""));
    let element = format!("for={address}{host};proto={}", peer.scheme());
    headers.append(FORWARDED, HeaderValue::from_str(&element).expect("an address and a host are visible ASCII"));
}

/// Says that the request, which was `received` in that version, came through this service.
pub(super) fn add_via(headers: &mut HeaderMap, received: Version) {
    let via = match received {
        Version::HTTP_2 => "2 bellwether",
        Version::HTTP_10 => "1.0 bellwether",
        _ => "1.1 bellwether",
    };
    headers.append(VIA, HeaderValue::from_static(via));
}
