//! What concerns one hop alone, or this node alone, and is passed on to nobody (RFC 9110 §7.6.1).

use std::collections::HashSet;

use http::header::{CONNECTION, CONTENT_LENGTH, FORWARDED, HOST, HeaderName, TRAILER, TRANSFER_ENCODING, UPGRADE};
use http::{HeaderMap, Version};

/// What [`strip`] leaves where it is.
#[derive(Clone, Copy)]
pub(super) struct Kept {
    pub(super) upgrade: bool,
    /// `X-Forwarded-*` and `Forwarded`.
    pub(super) forwarded: bool,
}

/// Removes what is for this hop alone, and whatever claims to be ours. The rest keeps its order.
pub(super) fn strip(headers: &mut HeaderMap, keep: Kept) {
    // A set, because the list is the client's to write, and may be long.
    let nominated: HashSet<HeaderName> = tokens(headers, &CONNECTION)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .filter(|name| !is_essential(name) && headers.contains_key(name))
        .collect();
    let mut kept = HeaderMap::with_capacity(headers.len() + 8);
    let mut current = None;
    for (name, value) in headers.drain() {
        current = name.or(current);
        let name = current.as_ref().expect("the first field of a map has its name");
        let is_kept = if *name == UPGRADE { keep.upgrade } else { !is_always_hop_by_hop(name) && !nominated.contains(name) };
        if is_kept && !is_ours(name) && (keep.forwarded || !is_about_the_way(name)) {
            kept.append(name.clone(), value);
        }
    }
    *headers = kept;
}

/// Removes from a client's trailers what it could not have said in its head either: an app may read both as one.
pub(in crate::api) fn prune_trailers(trailers: &mut HeaderMap) {
    let refused = |name: &HeaderName| is_ours(name) || is_about_the_way(name) || is_always_hop_by_hop(name);
    let names: Vec<HeaderName> = trailers.keys().filter(|name| refused(name)).cloned().collect();
    for name in names {
        trailers.remove(name);
    }
}

pub(super) fn is_ours(name: &HeaderName) -> bool {
    is_of(name, "bellwether-")
}

pub(super) fn is_about_the_way(name: &HeaderName) -> bool {
    *name == FORWARDED || is_of(name, "x-forwarded-")
}

/// Whether a name begins like that, with dashes or underscores: CGI, and whoever follows it, makes one variable of both.
fn is_of(name: &HeaderName, family: &str) -> bool {
    let (name, family) = (name.as_str().as_bytes(), family.as_bytes());
    let is_like = |(byte, wanted): (&u8, &u8)| byte == wanted || (*byte == b'_' && *wanted == b'-');
    name.len() >= family.len() && name.iter().zip(family).all(is_like)
}

/// Fields that concern one hop even where `Connection` does not name them (RFC 9110 §7.6.1).
pub(super) fn is_always_hop_by_hop(name: &HeaderName) -> bool {
    // The settings of an upgrade to HTTP/2 are for whoever it is asked of (RFC 7540 §3.2.1). An app that were told them by a
    // client that does not name them in `Connection` could agree, and serve what nobody looks at any more.
    matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "http2-settings")
}

/// Fields that `Connection` cannot remove: they frame the message or say where it goes.
fn is_essential(name: &HeaderName) -> bool {
    matches!(*name, HOST | CONTENT_LENGTH | TRANSFER_ENCODING | TRAILER)
}

/// Whether a request, as it came in, asks for another protocol. A client that does may stop sending right after it.
pub(in crate::api) fn wants_upgrade(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11 && headers.contains_key(UPGRADE) && has_token(headers, &CONNECTION, "upgrade")
}

/// Whether a message is the last on its connection.
pub(in crate::api) fn closes(headers: &HeaderMap) -> bool {
    has_token(headers, &CONNECTION, "close")
}

/// The comma-separated tokens of all lines of a field.
pub(super) fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

pub(super) fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}
