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

use std::io::Cursor;
use std::rc::Rc;

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio_util::task::TaskTracker;

use crate::api::Limits;
use crate::api::headers::wants_upgrade;
use crate::api::io::{Wire, WireIo};

pub(super) use client::{Mux, Muxed, Stream};
pub(super) use large::LargeAnswers;
pub(super) use seats::{Seat, Seats};
pub(super) use server::{accept, serve};

/// Where a node asks for it.
const PATH: &str = "/_bellwether/mux";
/// What it asks to upgrade to.
const PROTOCOL: HeaderValue = HeaderValue::from_static("bellwether-mux");

/// How a worker that has its share of such connections answers; another may take this one.
const ELSEWHERE: StatusCode = StatusCode::MISDIRECTED_REQUEST;

/// How many requests may be on one connection at once; what is more goes over connections of its own.
const STREAMS: u32 = 256;
/// How much of an answer may be under way before its client has taken it.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = STREAMS * STREAM_WINDOW;
/// The most of a body in one piece.
const FRAME: u32 = 64 * 1024;
/// What a field takes beyond its name and value, as HTTP/2 counts (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

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

/// The longest head, as HTTP/2 counts.
fn head_size(bytes: usize, lines: usize) -> u32 {
    u32::try_from(bytes + lines * FIELD_OVERHEAD).unwrap_or(u32::MAX)
}

fn longest_request(limits: &Limits) -> u32 {
    head_size(limits.head_bytes, limits.head_lines)
}

fn longest_answer(limits: &Limits) -> u32 {
    head_size(limits.head_bytes, limits.answer_lines)
}

/// The connection from its switch of protocols on, `early` being what was read beyond it.
fn switched(wire: &Rc<Wire>, early: Bytes) -> impl AsyncRead + AsyncWrite + Unpin + use<> {
    wire.lay_bare();
    wire.keep_alive();
    let io = WireIo(Rc::clone(wire));
    tokio::io::join(Cursor::new(early).chain(io.clone()), io)
}

/// Runs what the library has to do beside a connection, on the connection's own account.
#[derive(Clone, Debug)]
struct Tasks(TaskTracker);

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn_local(task);
    }
}
