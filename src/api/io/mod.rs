//! Sockets — TCP, with or without TLS, or unix — as the HTTP library and the tunnels use them.
//!
//! A [`Wire`] is a socket that its connection shares with whoever serves a request on it, all on one thread. So the
//! server can hide that a client has closed its sending side, which a client that asks for an upgrade may do at once
//! (B86, B132); the hold can ask whether a client is still there; and the pool can ask whether an idle upstream closed.

mod fence;
mod lines;
mod socket;
mod wire;

pub(super) use fence::Fence;
pub(super) use socket::Socket;
pub(super) use wire::{Wire, WireIo};
