//! One connection between two nodes for many requests at once, so that one system call carries many of them.
//!
//! A replica asks for it with an HTTP/1.1 upgrade to `bellwether-mux` at [`PATH`]; what follows the 101 is HTTP/2 with
//! prior knowledge (RFC 9113 §3.3). A leader that answers anything but 101 is spoken to in HTTP/1.1 alone, so that any
//! server can be one; 421 asks for another try, at another worker ([`Seats`]). Only requests without a body whose exchange
//! may be repeated go over it: where a shared connection breaks, none of its requests can tell whether it was executed. Nor
//! do those whose answers are known to be long ([`LargeAnswers`]).
//!
//! A slow reader cannot keep the others waiting: the connection's window has room for a full stream window of each of
//! the [`STREAMS`] that may be open at once.

mod client;
mod large;
mod seats;
mod server;

use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};

use crate::api::headers::wants_upgrade;
use crate::api::streams::Shape;

pub(super) use client::{MOST, Mux};
pub(super) use large::LargeAnswers;
pub(super) use seats::{Seat, Seats};
pub(super) use server::{accept, serve};

/// Where a node asks for it.
const PATH: &str = "/_bellwether/mux";
/// What it asks to upgrade to.
const PROTOCOL: HeaderValue = HeaderValue::from_static("bellwether-mux");

/// How a worker that has its share of such connections answers; another may take this one.
const ELSEWHERE: StatusCode = StatusCode::MISDIRECTED_REQUEST;

/// What is more than so many requests at once goes over connections of its own, or over another shared one if it must.
const STREAMS: u32 = 256;
const STREAM_WINDOW: u32 = 256 * 1024;
const SHAPE: Shape = Shape {
    streams: STREAMS,
    stream_window: STREAM_WINDOW,
    connection_window: STREAMS * STREAM_WINDOW,
    frame: 64 * 1024,
    // What many clients take back at once is no flood of the node that serves them.
    resets: 4_096,
};

/// Whether a request asks for such a connection.
pub(super) fn is_asked_for(head: &Parts) -> bool {
    head.uri.path() == PATH
        && head.method == Method::GET
        && wants_upgrade(head.version, &head.headers)
        && head.headers.get(UPGRADE).is_some_and(|protocol| protocol == PROTOCOL)
}

/// What asks for an upgrade, and what agrees to it.
fn name_protocol(headers: &mut HeaderMap) {
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, PROTOCOL);
}
