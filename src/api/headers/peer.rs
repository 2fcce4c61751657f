//! Who is at the other end of a client's connection, and what follows from that.

use std::net::IpAddr;

use http::header::HeaderValue;

use super::Hop;
use crate::api::handshake::Channel;
use crate::api::{Config, Right};
use crate::tls::Shown;

/// Who is at the other end of a client's connection, as the app is told.
#[derive(Clone, Debug)]
pub(in crate::api) struct Peer {
    /// The address for `X-Forwarded-For`; a unix socket has none.
    address: Option<HeaderValue>,
    /// Whether the peer's own `X-Forwarded-*` and `Forwarded` are kept.
    trusted: bool,
    /// Whether the app is told of it by `Forwarded` in any case, and not only where that goes on with a list.
    listed: bool,
    channel: Channel,
}

impl Peer {
    pub(in crate::api) fn new(address: Option<IpAddr>, config: &Config) -> Self {
        // An IPv4 client of a dual-stack listener is known by its IPv4 address.
        let address = address.map(|ip| ip.to_canonical());
        Self {
            trusted: address.is_some_and(|ip| config.trusts(ip)),
            listed: config.forwarded,
            address: address.map(|ip| HeaderValue::from_str(&ip.to_string()).expect("an address is visible ASCII")),
            channel: Channel::Plain,
        }
    }

    /// The same, known to be at the other end of such a channel.
    pub(in crate::api) fn over(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }

    /// What it may ask of this node, as far as that depends on how it came.
    pub(in crate::api) fn right(&self) -> Right {
        match self.channel {
            Channel::Plain | Channel::Secured(Shown::Nothing) => Right::None,
            Channel::Secured(Shown::Client | Shown::Node) => Right::Certificate,
        }
    }

    /// Whether it is a proxy whose word is taken, which passes on what many clients want.
    pub(in crate::api) fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Its address, as the app is told; a unix socket has none.
    pub(in crate::api) fn address(&self) -> Option<&HeaderValue> {
        self.address.as_ref()
    }

    /// Whether the name that a request has been given is taken over. Less hangs on it than on where the request comes from.
    pub(in crate::api) fn may_name(&self, hop: Option<Hop>) -> bool {
        self.trusted || (hop.is_some() && self.may_be_node())
    }

    /// Whether it can be another node: a certificate that is for a client alone tells otherwise.
    pub(in crate::api) fn may_be_node(&self) -> bool {
        self.channel != Channel::Secured(Shown::Client)
    }

    /// Whether what it says about the client of a request is believed. A node says it only of what it forwards, and a
    /// user's certificate makes nobody a node.
    pub(super) fn is_believed(&self, hop: Option<Hop>) -> bool {
        self.trusted || (hop.is_some() && self.channel == Channel::Secured(Shown::Node))
    }

    /// Whether its requests begin a list of where they come from, if there is none to go on with.
    pub(super) fn is_listed(&self) -> bool {
        self.listed
    }

    /// What the scheme of its requests' URLs is.
    pub(super) fn scheme(&self) -> &'static str {
        match self.channel {
            Channel::Plain => "http",
            Channel::Secured(_) => "https",
        }
    }
}
