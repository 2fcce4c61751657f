//! Answers HTTP: local routes by itself, everything else from its app as primary or through the leader as replica.
//!
//! The data plane is one single-threaded runtime per worker. Each worker has its own listener, its own upstream
//! connections and its own counters; on the path of a request the workers share nothing but the role cell. Which handler
//! serves a request, `primary` or `replica`, is read from that cell once per request; while there is neither, the
//! request waits in the `hold`.
//!
//! This room reads roles and never changes one: a header of a request can only get that request refused.

mod accept;
pub mod access;
mod admin;
mod ahead;
mod body;
mod carrier;
pub mod client;
mod debt;
mod dial;
mod dispatch;
mod due;
mod engine;
pub mod error;
mod feed;
mod fenced;
mod forward;
mod gate;
mod handshake;
mod headers;
mod hold;
mod info;
mod io;
mod lanes;
pub mod ledger;
mod link;
pub mod listener;
mod local;
mod metrics;
mod mux;
mod page;
mod piece;
mod plane;
mod pool;
mod preface;
mod primary;
mod redirect;
mod replica;
mod route;
mod server;
mod session;
mod status;
mod streams;
mod tunnel;
mod uploads;
mod verb;
mod worker;

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use ipnet::IpNet;

use crate::cluster::Upstream;
use crate::node::Node;
use crate::replication::RoleWatch;
use crate::tls::{self, Tls};

pub use access::AccessLog;
pub use admin::{Token, TokenError};
pub use engine::Engine;
pub use error::{Failure, Reason, Verdict};
pub use ledger::{Ledger, Totals};
pub use listener::{AdminSocket, BindError, Bound, Listen, ListenError, bind, bind_admin};
pub use local::{Local, LocalConfig};
pub use plane::Plane;
pub use route::{LocalRoutes, LocalRoutesError};
pub use status::{ElectionStatus, Identity, Status};

/// What the data plane is told once, at start.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients and other nodes reach this node. At least one.
    pub listen: Vec<Listen>,
    /// The app; none answers 503 `no-upstream`. Only the first is used so far.
    pub upstream: Vec<Upstream>,
    /// How long a request may wait for a primary, counted from when it first had to.
    pub hold_timeout: Duration,
    /// How many requests may wait at once, over all workers.
    pub hold_requests: usize,
    /// How many bytes of heads and kept bodies may wait at once, over all workers.
    pub hold_bytes: usize,
    /// The election's TTL: what `Retry-After` promises, and the scale of how long a deposed leader is waited for.
    pub ttl: Duration,
    /// How many connections of clients may be open at once, over all workers; a few more are for other nodes and for the
    /// node's own routes.
    pub max_connections: usize,
    /// What a replica does with requests for the primary.
    pub forward: Forward,
    /// Data-plane threads.
    pub workers: NonZeroUsize,
    /// Whether clients may speak HTTP/2, and apps behind TLS.
    pub http2: bool,
    /// Whose `X-Forwarded-*` is believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether the app is told by `Forwarded`, too, where requests come from.
    pub forwarded: bool,
    /// TLS on the TCP addresses, and with the other nodes.
    pub tls: Option<Tls>,
    /// TLS with the app, where it speaks it.
    pub to_app: Option<tls::Client>,
    /// What one request may cost.
    pub limits: Limits,
}

impl Config {
    /// Whether what `peer` says about the client it serves is believed.
    pub(crate) fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_proxies.iter().any(|network| network.contains(&peer))
    }
}

/// What a replica does with requests for the primary.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Forward {
    /// It passes them on.
    #[default]
    Proxy,
    /// It tells clients where the primary is.
    Redirect,
}

/// Neither of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a replica's way is `proxy` or `redirect`")]
pub struct ForwardError;

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Self, ForwardError> {
        match text {
            "proxy" => Ok(Self::Proxy),
            "redirect" => Ok(Self::Redirect),
            _ => Err(ForwardError),
        }
    }
}

/// Limits of a single request or connection; the same on every hop.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest head of a request or an answer, in bytes, before what other nodes add to it.
    pub head_bytes: usize,
    /// The most header lines of a request, before what a replica adds to them.
    pub head_lines: usize,
    /// The most header lines of an answer, before what a primary adds to them.
    pub answer_lines: usize,
    /// How long a client may take to send a head, and how long its connection may idle.
    pub head_timeout: Duration,
    /// How long a client may let its side of an exchange rest while this node waits for it; `None` for as long as it likes.
    pub body_idle_timeout: Option<Duration>,
    /// How long reaching an upstream may take.
    pub connect_timeout: Duration,
    /// How long the app may take from having the whole request to the head of its answer; `None` for as long as the client waits.
    pub answer_timeout: Option<Duration>,
    /// How long an upstream connection may idle before it is closed rather than used; shorter than the app's own limit.
    pub idle_timeout: Duration,
}

impl Limits {
    /// The same between nodes: with room for what one adds, so that no head passes one hop and fails at the next, and with all
    /// the time that answers take, which is for the node to bound that speaks to the app.
    pub(crate) fn after_a_hop(self) -> Self {
        Self {
            head_bytes: self.head_bytes + 4 * 1024,
            head_lines: self.head_lines + 16,
            answer_lines: self.answer_lines + 16,
            answer_timeout: None,
            ..self
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            head_lines: 100,
            answer_lines: 256,
            head_timeout: Duration::from_secs(30),
            body_idle_timeout: Some(Duration::from_secs(300)),
            connect_timeout: Duration::from_secs(1),
            answer_timeout: None,
            idle_timeout: Duration::from_secs(4),
        }
    }
}

/// What the data plane shares with the rest of the process.
#[derive(Clone)]
pub struct Shared {
    /// Who this node is to the others; a lone primary is nobody to anybody.
    pub node: Option<Node>,
    /// The election's name, which a leader must confirm before anything is forwarded to it.
    pub service: String,
    /// The role cell.
    pub roles: RoleWatch,
    /// What this node answers by itself.
    pub local: Arc<dyn LocalApi>,
    /// Where requests are written down, if they are.
    pub access: Option<AccessLog>,
}

/// What a node answers by itself and never forwards.
#[async_trait]
pub trait LocalApi: Send + Sync {
    /// Whether this node answers the request itself. Asked for every request, so it allocates nothing.
    fn claims(&self, method: &Method, path: &str) -> bool;

    /// The answer to a request that [`claims`](Self::claims) accepted, or to any that came to the admin listener. Never fails, and
    /// bounds every wait itself.
    async fn answer(&self, request: &Parts, right: Right) -> Response<Bytes>;
}

/// What the way a request came in entitles it to, before any token is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// It came to a listener that everybody can reach.
    None,
    /// It came to the admin listener.
    AdminListener,
    /// It came over TLS from somebody with a certificate that was asked for and found good.
    Certificate,
}

#[cfg(test)]
mod tests;
