//! Nodes on loopback whose role the test decides.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};

use super::{HOLD, Raw, SOON, TestApp, until};
use crate::api::{AccessLog, Config, Forward, Ledger, Limits, Listen, LocalApi, Plane, Right, Shared, Totals, bind};
use crate::clock;
use crate::cluster::Upstream;
use crate::node::{BootId, Node};
use crate::replication::{Role, RolePublisher, RoleWatch};
use crate::store::{Epoch, Leader};

/// A node on loopback.
pub(in crate::api) struct TestNode {
    pub(in crate::api) plane: Plane,
    pub(in crate::api) address: SocketAddr,
    pub(in crate::api) node: Node,
    roles: RolePublisher,
}

impl TestNode {
    /// A node that is electing, in front of `app`.
    pub(in crate::api) fn start(app: Option<&TestApp>) -> Self {
        Self::with(app, |_| {})
    }

    pub(in crate::api) fn with(app: Option<&TestApp>, change: impl FnOnce(&mut Config)) -> Self {
        Self::member("default", app.map(|app| app.upstream()), change)
    }

    pub(in crate::api) fn member(service: &str, upstream: Option<Upstream>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Self::config(upstream);
        change(&mut config);
        Self::run(service, &config, None)
    }

    /// The same, with an access log.
    pub(in crate::api) fn logging(app: &TestApp, access: AccessLog, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Self::config(Some(app.upstream()));
        change(&mut config);
        Self::run("default", &config, Some(access))
    }

    pub(in crate::api) fn config(upstream: Option<Upstream>) -> Config {
        Config {
            listen: vec![Listen::Tcp("127.0.0.1:0".parse().unwrap())],
            upstream: upstream.into_iter().collect(),
            hold_timeout: HOLD,
            hold_requests: 100,
            hold_bytes: 1024 * 1024,
            ttl: Duration::from_secs(2),
            max_connections: 10_000,
            forward: Forward::Proxy,
            workers: NonZeroUsize::MIN,
            http2: true,
            trusted_proxies: Vec::new(),
            forwarded: false,
            tls: None,
            to_app: None,
            // Reaching a node of the same test may take as long as the machine likes.
            limits: Limits { connect_timeout: SOON, ..Limits::default() },
        }
    }

    fn run(service: &str, config: &Config, access: Option<AccessLog>) -> Self {
        let bound = bind(config).unwrap();
        let address = bound.addresses().iter().find_map(|listen| match listen {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        });
        let address = address.unwrap();
        let node = Node::new(address.to_string().parse().unwrap());
        let (roles, watch) = RolePublisher::new();
        let local = Arc::new(Introduction { service: service.to_owned(), id: node.boot, roles: watch.clone() });
        let shared = Shared { node: Some(node.clone()), service: service.to_owned(), roles: watch, local, access };
        let plane = bound.serve(shared).unwrap();
        Self { plane, address, node, roles }
    }

    pub(in crate::api) fn lead(&self, epoch: u64) {
        self.lead_for(epoch, Duration::from_secs(3_600));
    }

    pub(in crate::api) fn lead_for(&self, epoch: u64, time: Duration) {
        self.roles.publish(Role::Primary { epoch: Epoch(epoch), deadline: clock::now() + time });
    }

    pub(in crate::api) fn step_down(&self, epoch: u64) {
        self.roles.publish(Role::SteppingDown { epoch: Epoch(epoch), deadline: clock::now() + Duration::from_secs(3_600) });
    }

    pub(in crate::api) fn elect(&self) {
        self.roles.publish(Role::Electing);
    }

    pub(in crate::api) fn follow(&self, leader: &Self, epoch: u64) {
        self.follow_address(&leader.node.address.to_string(), epoch);
    }

    pub(in crate::api) fn follow_address(&self, address: &str, epoch: u64) {
        self.roles.publish(Role::Replica(Leader { address: address.parse().unwrap(), epoch: Epoch(epoch) }));
    }

    pub(in crate::api) async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    pub(in crate::api) fn totals(&self) -> Totals {
        balanced(&self.plane.ledger())
    }

    /// Waits until the counters say what is expected of them.
    pub(in crate::api) async fn until(&self, reason: &str, wanted: impl Fn(&Totals) -> bool) {
        until(reason, || wanted(&self.totals())).await;
    }
}

/// Totals, whose sum is checked at every look.
fn balanced(ledger: &Ledger) -> Totals {
    let totals = ledger.totals();
    let ended: u64 = totals.outcomes.iter().map(|(_, count)| count).sum();
    assert_eq!(totals.accepted, ended + totals.held + totals.running, "{totals:?}");
    totals
}

pub(in crate::api) fn outcome(totals: &Totals, name: &str) -> u64 {
    totals.outcomes.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no outcome {name}")).1
}

/// Two nodes, the second forwarding to the first.
pub(in crate::api) fn chain(app: &TestApp) -> (TestNode, TestNode) {
    let primary = TestNode::start(Some(app));
    let replica = TestNode::start(None);
    primary.lead(1);
    replica.follow(&primary, 1);
    (primary, replica)
}

/// The local routes that the plane itself relies on.
struct Introduction {
    service: String,
    id: BootId,
    roles: RoleWatch,
}

#[async_trait]
impl LocalApi for Introduction {
    fn claims(&self, _method: &Method, path: &str) -> bool {
        path == "/_ping" || path.starts_with("/_bellwether/")
    }

    async fn answer(&self, request: &Parts, _right: Right) -> Response<Bytes> {
        match request.uri.path() {
            "/_ping" => Response::new(Bytes::from_static(b"OK")),
            _ => {
                let role = self.roles.current();
                let (name, epoch) = (role.name(), role.tenure().map_or(0, |epoch| epoch.0));
                let json = serde_json::json!({ "service": self.service, "id": self.id.to_string(), "role": name, "epoch": epoch });
                Response::new(json.to_string().into())
            }
        }
    }
}
