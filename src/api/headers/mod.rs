//! What a proxy owes to the heads it passes on: RFC 9110 §7.6, and the `Bellwether-*` fields of our own.
//!
//! Every other field is passed on as it came, in its order and with its duplicates, its name in lower case. Where nothing
//! has to go, nothing is moved: the field map is rebuilt only when a field in it is for this hop alone.

mod host;

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use http::header::{
    ACCEPT, CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, FORWARDED, HOST, HeaderName, HeaderValue, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    VIA,
};
use http::request::Parts;
use http::uri::Uri;
use http::{HeaderMap, Method, StatusCode, Version};

use crate::api::error::{Failure, Reason};
use crate::api::handshake::Channel;
use crate::api::page::{Taste, names_html};
use crate::api::streams;
use crate::api::{Config, Limits, Right};
use crate::node::BootId;
use crate::store::Epoch;
use crate::tls::Shown;
use host::is_host;

/// The fencing token, on requests to the app and on every forwarded answer.
pub(super) const EPOCH: HeaderName = HeaderName::from_static("bellwether-epoch");
/// Who forwarded a request, and under which epoch; see [`Hop`].
pub(super) const HOP: HeaderName = HeaderName::from_static("bellwether-hop");
/// Tells a replica that its leader refused the request, see [`Refusal`]. Never reaches a client.
pub(super) const REFUSED: HeaderName = HeaderName::from_static("bellwether-refused");
/// Says that a request is worth sending again when its exchange broke.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
pub(super) const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// What a replica tells the node it forwards to: `BOOT-ID;epoch=N`, the sender in 16 hexadecimal digits and the epoch
/// it believes in decimal. Anything else in the field is dropped, as it can only come from a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hop {
    pub(super) sender: BootId,
    pub(super) epoch: Epoch,
}

impl Hop {
    pub(super) fn to_value(self) -> HeaderValue {
        HeaderValue::from_str(&self.to_string()).expect("digits are visible ASCII")
    }

    fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(HOP).iter();
        let (value, another) = (values.next()?, values.next());
        if another.is_some() { None } else { value.to_str().ok()?.parse().ok() }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{};epoch={}", self.sender, self.epoch)
    }
}

impl FromStr for Hop {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (sender, epoch) = text.split_once(";epoch=").ok_or(())?;
        let hexadecimal = sender.len() == 16 && sender.bytes().all(|byte| byte.is_ascii_hexdigit());
        let decimal = !epoch.is_empty() && epoch.bytes().all(|byte| byte.is_ascii_digit());
        if !hexadecimal || !decimal {
            return Err(());
        }
        Ok(Self { sender: sender.parse().map_err(|_| ())?, epoch: Epoch(epoch.parse().map_err(|_| ())?) })
    }
}

/// Why a node sends a request back to the one that forwarded it: it is not, or no longer, the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Refusal {
    /// The app may have seen it all the same, under a tenure that ended meanwhile.
    pub(super) may_be_executed: bool,
}

impl Refusal {
    const UNSEEN: HeaderValue = HeaderValue::from_static("superseded");
    const SEEN: HeaderValue = HeaderValue::from_static("superseded; maybe-executed");

    pub(super) fn to_value(self) -> HeaderValue {
        if self.may_be_executed { Self::SEEN } else { Self::UNSEEN }
    }

    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        headers.get(REFUSED).map(|value| Self { may_be_executed: *value == Self::SEEN })
    }
}

/// Who is at the other end of a client's connection, as the app is told.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    /// The address for `X-Forwarded-For`; a unix socket has none.
    address: Option<HeaderValue>,
    /// Whether the peer's own `X-Forwarded-*` and `Forwarded` are kept.
    trusted: bool,
    channel: Channel,
}

impl Peer {
    pub(super) fn new(address: Option<std::net::IpAddr>, config: &Config) -> Self {
        // An IPv4 client of a dual-stack listener is known by its IPv4 address.
        let address = address.map(|ip| ip.to_canonical());
        Self {
            trusted: address.is_some_and(|ip| config.trusts(ip)),
            address: address.map(|ip| HeaderValue::from_str(&ip.to_string()).expect("an address is visible ASCII")),
            channel: Channel::Plain,
        }
    }

    /// The same, known to be at the other end of such a channel.
    pub(super) fn over(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }

    /// What it may ask of this node, as far as that depends on how it came.
    pub(super) fn right(&self) -> Right {
        match self.channel {
            Channel::Plain | Channel::Secured(Shown::Nothing) => Right::None,
            Channel::Secured(Shown::Client | Shown::Node) => Right::Certificate,
        }
    }

    /// Whether it is a proxy whose word is taken, which passes on what many clients want.
    pub(super) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Its address, as the app is told; a unix socket has none.
    pub(super) fn address(&self) -> Option<&HeaderValue> {
        self.address.as_ref()
    }

    /// Whether the name that a request has been given is taken over. Less hangs on it than on where the request comes from.
    pub(super) fn may_name(&self, hop: Option<Hop>) -> bool {
        self.trusted || (hop.is_some() && self.may_be_node())
    }

    /// Whether it can be another node: a certificate that is for a client alone tells otherwise.
    pub(super) fn may_be_node(&self) -> bool {
        self.channel != Channel::Secured(Shown::Client)
    }

    /// Whether what it says about the client of a request is believed. A node says it only of what it forwards, and a
    /// user's certificate makes nobody a node.
    fn is_believed(&self, hop: Option<Hop>) -> bool {
        self.trusted || (hop.is_some() && self.channel == Channel::Secured(Shown::Node))
    }

    fn scheme(&self) -> HeaderValue {
        match self.channel {
            Channel::Plain => HeaderValue::from_static("http"),
            Channel::Secured(_) => HeaderValue::from_static("https"),
        }
    }
}

/// What a request asks of the proxy itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    /// The client wants to leave HTTP for another protocol.
    pub(super) upgrade: bool,
    /// The client waits for a 100 before it sends its body.
    pub(super) expects_continue: bool,
    /// The client speaks HTTP/2 and takes trailers, as gRPC does, which does not announce them; in HTTP/1.1 they would be lost.
    pub(super) needs_http2: bool,
    /// How the client would read an error of ours.
    pub(super) taste: Taste,
    /// Another node forwarded the request.
    pub(super) hop: Option<Hop>,
    /// A broken exchange may be repeated: the method is safe, or the client said so.
    pub(super) repeatable: bool,
    /// How much memory the head takes, roughly.
    pub(super) bytes: usize,
}

/// Whether a request, as it came in, asks for another protocol. A client that does may stop sending right after it.
pub(super) fn wants_upgrade(version: Version, headers: &HeaderMap) -> bool {
    version == Version::HTTP_11 && headers.contains_key(UPGRADE) && has_token(headers, &CONNECTION, "upgrade")
}

/// Makes a client's head ready to be forwarded, and tells what the client asked for.
///
/// # Errors
/// A [`Failure`] where the request must not be passed on.
pub(super) fn prepare(head: &mut Parts, peer: &Peer, limits: &Limits) -> Result<Terms, Failure> {
    let found = Found::in_request(&head.headers);
    let hop = if found.ours { Hop::from_headers(&head.headers) } else { None };
    if hop.is_none() && (found.bytes + target_bytes(&head.uri) > limits.head_bytes || found.lines > limits.head_lines) {
        return Err(Failure::not_sent(Reason::TooLarge, "the request head has too many lines or bytes"));
    }
    if !found.framed_clearly {
        return Err(Failure::not_sent(Reason::BadRequest, "the only Transfer-Encoding of a request that is passed on is `chunked`"));
    }
    if found.hosts > 1 {
        return Err(Failure::not_sent(Reason::BadRequest, "the request names more than one Host"));
    }
    // What came to another node as HTTP/1.0 is passed on as HTTP/1.1, and may have none.
    if found.hosts == 0 && head.version == Version::HTTP_11 && hop.is_none() {
        return Err(Failure::not_sent(Reason::BadRequest, "the request names no Host (RFC 9112 §3.2)"));
    }
    if head.version == Version::HTTP_2 && hop.is_none() {
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
    let received = streams::version(head);
    head.version = Version::HTTP_11;
    if upgrade {
        head.headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    } else if trailers {
        head.headers.insert(CONNECTION, HeaderValue::from_static("te"));
        head.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    let repeatable = head.method.is_safe() || head.headers.contains_key(IDEMPOTENCY_KEY);
    // RFC 9110 §7.6.3: nodes of one service under one name are one entry, however many a request came through.
    if hop.is_none() || !head.headers.contains_key(VIA) {
        let via = match received {
            Version::HTTP_2 => "2 bellwether",
            Version::HTTP_10 => "1.0 bellwether",
            _ => "1.1 bellwether",
        };
        head.headers.append(VIA, HeaderValue::from_static(via));
    }
    if found.standard && believed {
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

fn target_bytes(target: &Uri) -> usize {
    target.path_and_query().map_or(0, |target| target.as_str().len())
}

/// What a held request takes besides its head: its tasks, its socket buffers, this program's own records.
const FIXED_BYTES: usize = 1024;

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
        };
        for (name, value) in headers {
            found.bytes += name.as_str().len() + value.len() + b": \r\n".len();
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

fn is_ours(name: &HeaderName) -> bool {
    name.as_str().starts_with("bellwether-")
}

fn is_about_the_way(name: &HeaderName) -> bool {
    *name == FORWARDED || name.as_str().starts_with("x-forwarded-")
}

/// Says in HTTP/1.1 that a request has a body of unknown length, which HTTP/2 says by its frames: of a GET or a HEAD the library
/// would take that for nothing, and leave it out.
pub(super) fn frame_body(head: &mut Parts) {
    if matches!(head.method, Method::GET | Method::HEAD) && !head.headers.contains_key(CONTENT_LENGTH) {
        head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
}

/// Removes from a client's trailers what it could not have said in its head either: an app may read both as one.
pub(super) fn prune_trailers(trailers: &mut HeaderMap) {
    let refused = |name: &HeaderName| is_ours(name) || is_about_the_way(name) || is_always_hop_by_hop(name);
    let names: Vec<HeaderName> = trailers.keys().filter(|name| refused(name)).cloned().collect();
    for name in names {
        trailers.remove(name);
    }
}

/// Fields that concern one hop even where `Connection` does not name them (RFC 9110 §7.6.1).
fn is_always_hop_by_hop(name: &HeaderName) -> bool {
    // The settings of an upgrade to HTTP/2 are for whoever it is asked of (RFC 7540 §3.2.1). An app that were told them by a
    // client that does not name them in `Connection` could agree, and serve what nobody looks at any more.
    matches!(name.as_str(), "connection" | "keep-alive" | "proxy-connection" | "te" | "upgrade" | "http2-settings")
}

/// Fields that `Connection` cannot remove: they frame the message or say where it goes.
fn is_essential(name: &HeaderName) -> bool {
    matches!(*name, HOST | CONTENT_LENGTH | TRANSFER_ENCODING | TRAILER)
}

/// What [`strip`] leaves where it is.
#[derive(Clone, Copy)]
struct Kept {
    upgrade: bool,
    /// `X-Forwarded-*` and `Forwarded`.
    forwarded: bool,
}

/// Removes what is for this hop alone, and whatever claims to be ours. The rest keeps its order.
fn strip(headers: &mut HeaderMap, keep: Kept) {
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

/// Whether a message is the last on its connection.
pub(super) fn closes(headers: &HeaderMap) -> bool {
    has_token(headers, &CONNECTION, "close")
}

/// The comma-separated tokens of all lines of a field.
fn tokens<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(',')).map(str::trim)
}

fn has_token(headers: &HeaderMap, name: &HeaderName, wanted: &str) -> bool {
    tokens(headers, name).any(|token| token.eq_ignore_ascii_case(wanted))
}

/// Puts the cookies into the one field that HTTP/1.1 has for them; over HTTP/2 each may have its own (RFC 9113 §8.2.3).
fn join_cookies(headers: &mut HeaderMap) {
    let cookies: Vec<&[u8]> = headers.get_all(COOKIE).iter().map(HeaderValue::as_bytes).collect();
    let cookies = HeaderValue::from_bytes(&cookies.join(&b"; "[..])).expect("what joins values is visible ASCII");
    headers.insert(COOKIE, cookies);
}

/// Refuses a request over HTTP/2 that does not say where it goes, or says two things about it (RFC 9113 §8.3.1): what looks at
/// the one and what serves by the other would differ.
fn one_authority(head: &Parts) -> Result<(), Failure> {
    let message = match (head.uri.authority(), head.headers.get(HOST)) {
        (None, None) => "the request names neither an :authority nor a Host (RFC 9113 §8.3.1)",
        (Some(authority), Some(host)) if !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) => {
            "the request's :authority and its Host differ (RFC 9113 §8.3.1)"
        }
        (_, _) => return Ok(()),
    };
    Err(Failure::not_sent(Reason::BadRequest, message))
}

/// Turns `GET http://host/path` into `GET /path` for that host (RFC 9112 §3.2.2). Every other target stays as it is.
fn origin_form(head: &mut Parts) -> Result<(), Failure> {
    if head.method == Method::CONNECT {
        return Err(Failure::not_sent(Reason::BadRequest, "CONNECT is for forward proxies: this node only passes requests on to its app"));
    }
    if head.uri.path() == "*" && head.method != Method::OPTIONS {
        return Err(Failure::not_sent(Reason::BadRequest, "only OPTIONS is asked of a server as a whole, by * (RFC 9112 §3.2.4)"));
    }
    let Some(authority) = head.uri.authority() else { return Ok(()) };
    let Some(target) = head.uri.path_and_query().filter(|_| head.uri.scheme().is_some()) else {
        return Err(Failure::not_sent(Reason::BadRequest, "the request target is neither a path nor a URL"));
    };
    let host = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_user, host)| host);
    let host = Some(host).filter(|host| is_host(host.as_bytes())).and_then(|host| HeaderValue::from_str(host).ok());
    let host = host.ok_or_else(|| Failure::not_sent(Reason::BadRequest, "the request target names no usable host"))?;
    head.headers.insert(HOST, host);
    // The path of a URL that has none, or only a fragment, is written as nothing once it stands alone.
    head.uri = if target.as_str() == "/" { Uri::from_static("/") } else { Uri::from(target.clone()) };
    Ok(())
}

/// Tells the app who asked (added after stripping, so that no client can have it removed).
fn add_forwarded(headers: &mut HeaderMap, peer: &Peer, believed: bool) {
    if believed {
        if let Some(address) = &peer.address {
            headers.append(FORWARDED_FOR, address.clone());
        }
    } else {
        match &peer.address {
            Some(address) => drop(headers.insert(FORWARDED_FOR, address.clone())),
            None => drop(headers.remove(FORWARDED_FOR)),
        }
    }
    if !believed || !headers.contains_key(FORWARDED_PROTO) {
        headers.insert(FORWARDED_PROTO, peer.scheme());
    }
    if !believed || !headers.contains_key(FORWARDED_HOST) {
        match headers.get(HOST).cloned() {
            Some(host) => drop(headers.insert(FORWARDED_HOST, host)),
            None => drop(headers.remove(FORWARDED_HOST)),
        }
    }
}

/// Goes on with the list that a proxy before this one has begun (RFC 7239), so that it does not end there.
fn extend_forwarded(headers: &mut HeaderMap, peer: &Peer) {
    let Some(address) = peer.address.as_ref().and_then(|address| address.to_str().ok()) else { return };
    let address = if address.contains(':') { format!("\"[{address}]\"") } else { address.to_owned() };
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).map_or_else(String::new, |host| format!(";host=\"{host}\""));
    let scheme = if peer.channel == Channel::Plain { "http" } else { "https" };
    let element = format!("for={address}{host};proto={scheme}");
    headers.append(FORWARDED, HeaderValue::from_str(&element).expect("an address and a host are visible ASCII"));
}

/// How long a client is willing to wait: `Prefer: wait=N` (RFC 7240 §4.3).
pub(super) fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    tokens(headers, &PREFER)
        .filter_map(|preference| preference.split(';').next())
        .filter_map(|preference| preference.split_once('='))
        .find(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
        .and_then(|(_, seconds)| seconds.trim().trim_matches('"').parse().ok())
        .map(Duration::from_secs)
}

/// Whom an answer comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// The app, which may say nothing in our name.
    App,
    /// The leader, whose `Bellwether-*` are passed on.
    Leader,
}

/// An answer whose end the two sides of this node could see at different places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct OddFraming;

/// Makes an answer's head ready to be passed on. A 101 keeps what it says about the switch.
///
/// # Errors
/// When what it says of its length cannot be passed on: anything but one number, or one single `chunked`. The library reads a
/// list of equal numbers and the outermost of several encodings, and would then frame as that what is framed otherwise.
pub(super) fn relay(status: StatusCode, headers: &mut HeaderMap, origin: Origin) -> Result<(), OddFraming> {
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
pub(super) fn add_held(headers: &mut HeaderMap, held: Duration) {
    let millis = held.as_secs_f64() * 1_000.0;
    let value = format!("held;dur={millis:.1}");
    headers.append(SERVER_TIMING, HeaderValue::from_str(&value).expect("a number is visible ASCII"));
}

#[cfg(test)]
mod tests;
