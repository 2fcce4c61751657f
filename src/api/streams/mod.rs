//! Connections over which requests go side by side, as HTTP/2 streams (RFC 9113): what clients, other nodes and apps have
//! in common that speak it.

mod announced;
mod channel;
mod client;
mod connect;
mod server;
mod watch;
mod websocket;

use http::Version;
use http::request::Parts;
use hyper::ext::Protocol;
use hyper::rt::Executor;
use tokio_util::task::TaskTracker;

use crate::api::Limits;

pub(super) use announced::Announced;
pub(super) use channel::Channel;
pub(super) use client::{Lane, Sent, Stream};
pub(super) use connect::{Connect, asks_for_websocket};
pub(super) use server::serve;

/// What one connection may have under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// How many requests at once.
    pub(super) streams: u32,
    /// How much of one body before its reader has taken it, in bytes.
    pub(super) stream_window: u32,
    /// How much of all bodies.
    pub(super) connection_window: u32,
    /// The most of a body in one piece.
    pub(super) frame: u32,
    /// How many requests may be taken back at once, before the library takes it for an error or a flood.
    pub(super) resets: usize,
}

impl Shape {
    /// A client's connection: as much as a browser or a gRPC client uses, so that one client cannot take up a node.
    pub(super) const CLIENT: Self =
        Self { streams: 128, stream_window: 256 * 1024, connection_window: 1024 * 1024, frame: 16 * 1024, resets: 1_000 };
    /// The connection of a proxy that is trusted: what its many clients take back at once is no flood.
    pub(super) const PROXY: Self = Self { resets: 4_096, ..Self::CLIENT };
}

/// The version of HTTP that a request came in. One for a WebSocket over a stream names another, as it was turned into an upgrade.
pub(super) fn version(head: &Parts) -> Version {
    if head.extensions.get::<Protocol>().is_some() { Version::HTTP_2 } else { head.version }
}

/// What is asked for over a stream that is to become a tunnel: anything else is refused.
const WEBSOCKET: &str = "websocket";

/// What a field takes beyond its name and value, as HTTP/2 counts (RFC 9113 §6.5.2).
const FIELD_OVERHEAD: usize = 32;

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

/// Runs what the library has to do beside a connection, on the connection's own account.
#[derive(Clone, Debug)]
struct Tasks(TaskTracker);

impl<F: Future<Output = ()> + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.0.spawn_local(task);
    }
}
