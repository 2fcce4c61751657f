//! What an answer comes over, until it has ended.

use std::rc::Rc;

use bytes::Bytes;

use crate::api::io::Wire;
use crate::api::pool::Lease;
use crate::api::streams;
use crate::api::tunnel::Notice;

/// What an answer comes over, until it has ended.
pub(super) enum Carrier {
    /// A connection of its own.
    Connection(Lease),
    /// A stream of a shared one.
    Stream(streams::Stream),
}

impl Carrier {
    /// Lets it carry the next one, once the answer has been read to its end.
    pub(super) fn give_back(self) {
        match self {
            Self::Connection(lease) => lease.give_back(),
            Self::Stream(stream) => drop(stream),
        }
    }

    /// The bare connection, after its upstream has switched protocols, with what was read beyond the switch; and what
    /// says when it must end.
    pub(super) async fn into_tunnel(self) -> Option<(Rc<Wire>, Bytes, Notice)> {
        match self {
            Self::Connection(lease) => lease.into_tunnel().await,
            // Nothing that asks for an upgrade goes over a shared connection.
            Self::Stream(_) => None,
        }
    }
}
