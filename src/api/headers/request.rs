//! Makes a client's head ready to be forwarded.

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use http::request::Parts;
use http::uri::Uri;
use http::{HeaderMap, Method, Version};

use super::Peer;
use super::forwarded::{FORWARDED_FOR, FORWARDED_HOST, FORWARDED_PROTO, add_forwarded, add_via, extend_forwarded};
use super::hop::{HOP, Hop};
use super::host::is_host;
use super::max_forwards;
use super::strip::{Kept, has_token, is_about_the_way, is_always_hop_by_hop, is_ours, strip, wants_upgrade};
use super::target::{one_authority, origin_form};
use crate::api::Limits;
use crate::api::error::{Failure, Reason};
use crate::api::page::{Taste, names_html};
use crate::api::streams;

/// Says that a request is worth sending again when its exchange broke.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// What a held request takes besides its head: its tasks, its socket buffers, this program's own records.
const FIXED_BYTES: usize = 1024;

/// What a request asks of the proxy itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Terms {
    /// The client wants to leave HTTP for another protocol.
    pub(in crate::api) upgrade: bool,
    /// The client waits for a 100 before it sends its body.
    pub(in crate::api) expects_continue: bool,
    /// The client speaks HTTP/2 and takes trailers, as gRPC does, which does not announce them; in HTTP/1.1 they would be lost.
    pub(in crate::api) needs_http2: bool,
    /// How the client would read an error of ours.
    pub(in crate::api) taste: Taste,
    /// Another node forwarded the request.
    pub(in crate::api) hop: Option<Hop>,
    /// A broken exchange may be repeated: the method is safe, or the client said so.
    pub(in crate::api) repeatable: bool,
    /// How much memory the head takes, roughly.
    pub(in crate::api) bytes: usize,
}

/// Makes a client's head ready to be forwarded, and tells what the client asked for.
///
/// # Errors
/// A [`Failure`] where the request must not be passed on.
pub(in crate::api) fn prepare(head: &mut Parts, peer: &Peer, limits: &Limits) -> Result<Terms, Failure> {
    let found = Found::in_request(&head.headers);
    let hop = if found.ours && peer.may_be_node() { Hop::from_headers(&head.headers) } else { None };
    if hop.is_none() && (found.bytes + target_bytes(&head.uri) > limits.head_bytes || found.lines > limits.head_lines) {
        return Err(Failure::not_sent(Reason::TooLarge, "the request head has too many lines or bytes"));
    }
    if !found.framed_clearly {
        return Err(Failure::not_sent(Reason::BadRequest, "the only Transfer-Encoding of a request that is passed on is `chunked`"));
    }
    if found.padded {
        return Err(Failure::not_sent(Reason::BadRequest, "a field's value begins or ends with a space (RFC 9113 §8.2.1)"));
    }
    if found.hosts > 1 {
        return Err(Failure::not_sent(Reason::BadRequest, "the request names more than one Host"));
    }
    // What came to another node as HTTP/1.0 is passed on as HTTP/1.1, and may have none.
    if found.hosts == 0 && head.version == Version::HTTP_11 && hop.is_none() {
        return Err(Failure::not_sent(Reason::BadRequest, "the request names no Host (RFC 9112 §3.2)"));
    }
    let received = streams::version(head);
    if received == Version::HTTP_2 && hop.is_none() {
        one_authority(head)?;
    }
    if !head.headers.get(HOST).is_none_or(|host| is_host(host.as_bytes())) {
        return Err(Failure::not_sent(Reason::BadRequest, "the request's Host is no host"));
    }
    let taste = if found.names_html { Taste::of(&head.headers) } else { Taste::Json };
    let upgrade = wants_upgrade(head.version, &head.headers);
    let trailers = found.hop_by_hop && has_token(&head.headers, &TE, "trailers");
    let believed = peer.is_believed(hop);
    let keep = Kept { upgrade, forwarded: believed };
    if found.hop_by_hop || (found.ours && hop.is_none()) || (found.forwarded && !keep.forwarded) {
        strip(&mut head.headers, keep);
    } else if found.ours {
        // Another node adds its field last, so removing it moves no other.
        head.headers.remove(HOP);
        if head.headers.keys().any(is_ours) {
            strip(&mut head.headers, keep);
        }
    }
    origin_form(head)?;
    if head.version == Version::HTTP_2 && found.cookies > 1 {
        join_cookies(&mut head.headers);
    }
    let needs_http2 = head.version == Version::HTTP_2 && trailers;
    head.version = Version::HTTP_11;
    if upgrade {
        head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else if trailers {
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if hop.is_none() && max_forwards::is_limited(head) {
        max_forwards::count(&mut head.headers);
    }
    let repeatable = head.method.is_safe() || head.headers.contains_key(IDEMPOTENCY_KEY);
    // RFC 9110 §7.6.3: nodes of one service under one name are one entry, however many a request came through.
    if hop.is_none() || !head.headers.contains_key(VIA) {
        add_via(&mut head.headers, received);
    }
    if peer.is_listed() || found.standard && believed {
        extend_forwarded(&mut head.headers, peer);
    }
    add_forwarded(&mut head.headers, peer, believed);
    Ok(Terms {
        upgrade,
        expects_continue: found.expects_continue,
        needs_http2,
        taste,
        hop,
        repeatable,
        bytes: found.bytes + target_bytes(&head.uri) + FIXED_BYTES,
    })
}

/// Says in HTTP/1.1 that a request has a body of unknown length, which HTTP/2 says by its frames: of a GET or a HEAD the library
/// would take that for nothing, and leave it out.
pub(in crate::api) fn frame_body(head: &mut Parts) {
    if matches!(head.method, Method::GET | Method::HEAD) && !head.headers.contains_key(CONTENT_LENGTH) {
        head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

fn target_bytes(target: &Uri) -> usize {
    target.path_and_query().map_or(0, |target| target.as_str().len())
}

/// What one pass over a head finds.
struct Found {
    bytes: usize,
    lines: usize,
    hosts: usize,
    cookies: usize,
    hop_by_hop: bool,
    ours: bool,
    expects_continue: bool,
    names_html: bool,
    /// There is at most one `Transfer-Encoding`, and it is `chunked`: any other is read in more than one way.
    framed_clearly: bool,
    encodings: usize,
    /// There are `X-Forwarded-*` besides the three that are always set here, or there is `Forwarded`.
    forwarded: bool,
    /// There is `Forwarded`.
    standard: bool,
    /// A value begins or ends with what is no part of it. Only HTTP/2 can say that; in HTTP/1.1 it belongs to the line.
    padded: bool,
}

impl Found {
    fn in_request(headers: &HeaderMap) -> Self {
        let mut found = Self {
            bytes: 0,
            lines: headers.len(),
            hosts: 0,
            cookies: 0,
            hop_by_hop: false,
            ours: false,
            expects_continue: false,
            names_html: false,
            framed_clearly: true,
            encodings: 0,
            forwarded: false,
            standard: false,
            padded: false,
        };
        for (name, value) in headers {
            found.bytes += name.as_str().len() + value.len() + b": \r\n".len();
            found.padded |=
                [value.as_bytes().first(), value.as_bytes().last()].into_iter().flatten().any(|end| matches!(end, b' ' | b'\t'));
            match *name {
                HOST => found.hosts += 1,
                COOKIE => found.cookies += 1,
                ACCEPT => found.names_html |= names_html(value),
                CONNECTION | TE | UPGRADE => found.hop_by_hop = true,
                EXPECT => found.expects_continue |= value.as_bytes().eq_ignore_ascii_case(b"100-continue"),
                TRANSFER_ENCODING => {
                    found.encodings += 1;
                    found.framed_clearly &= found.encodings == 1 && value.as_bytes().eq_ignore_ascii_case(b"chunked");
                }
                FORWARDED => (found.forwarded, found.standard) = (true, true),
                _ if is_ours(name) => found.ours = true,
                _ if is_about_the_way(name) => {
                    found.forwarded |= *name != FORWARDED_FOR && *name != FORWARDED_PROTO && *name != FORWARDED_HOST;
                }
                _ => found.hop_by_hop |= is_always_hop_by_hop(name),
            }
        }
        found
    }
}

/// Puts the cookies into the one field that HTTP/1.1 has for them; over HTTP/2 each may have its own (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let cookies = HeaderValue::from_bytes(&cookies.join(&b"; "[..])).expect("what joins values is visible ASCII");
    headers.insert(COOKIE, cookies);
}
