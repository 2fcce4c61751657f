//! What the app is told about who asked, and how the request came.

use http::header::{FORWARDED, HOST, HeaderName, HeaderValue, VIA};
use http::{HeaderMap, Version};

use super::Peer;

pub(in crate::api) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(super) const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub(super) const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What an element of `Forwarded` is long besides the address and the host.
const ELEMENT: usize = "for=\"[]\";host=\"\";proto=https".len();

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

/// Adds an element to the list of where the request has come from (RFC 7239): as each proxy on its way does, in a line of its own
/// behind those that are believed.
pub(super) fn extend_forwarded(headers: &mut HeaderMap, peer: &Peer) {
    // RFC 7239 §6.3: who has no address, at a unix socket, is unknown.
    let address = peer.address().and_then(|address| address.to_str().ok()).unwrap_or("unknown");
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    // One allocation, which becomes the value.
    let mut element = String::with_capacity(address.len() + host.map_or(0, str::len) + ELEMENT);
    // RFC 7239 §6: an IPv6 address has brackets, and with those or a colon it has to be quoted.
    let [before, behind] = if address.contains(':') { ["\"[", "]\""] } else { ["", ""] };
    for part in ["for=", before, address, behind] {
        element.push_str(part);
    }
    if let Some(host) = host {
        for part in [";host=\"", host, "\""] {
            element.push_str(part);
        }
    }
    for part in [";proto=", peer.scheme()] {
        element.push_str(part);
    }
    headers.append(FORWARDED, HeaderValue::try_from(element).expect("an address and a host are visible ASCII"));
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
