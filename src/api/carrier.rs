//! What an answer comes over, until it has ended.

use crate::api::pool::Lease;
use crate::api::streams;
use crate::api::tunnel::{Far, Notice};

/// What an answer comes over, until it has ended.
pub(super) enum Carrier {
    /// A connection of its own.
    Connection(Lease),
    /// A stream of a shared one.
    Stream(streams::Stream),
    /// A stream that has become a tunnel.
    Tunnel(Box<(Far, Notice)>),
}

impl Carrier {
    /// Lets it carry the next one, once the answer has been read to its end.
    pub(super) fn give_back(self) {
        match self {
            Self::Connection(lease) => lease.give_back(),
            Self::Stream(stream) => drop(stream),
            Self::Tunnel(tunnel) => drop(tunnel),
        }
    }

    /// What it has become after its upstream has switched protocols, and what says when that must end.
    pub(super) async fn into_tunnel(self) -> Option<(Far, Notice)> {
        match self {
            Self::Connection(lease) => {
                let (wire, early, notice) = lease.into_tunnel().await?;
                Some((Far::connection(wire, early), notice))
            }
            Self::Tunnel(tunnel) => Some(*tunnel),
            // There is no switch of protocols over HTTP/2 (RFC 9113 §8.6).
            Self::Stream(_) => None,
        }
    }
}
