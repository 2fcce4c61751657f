//! What the tests of the Kubernetes driver alone have in common.

use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::store::{Lock, LockConfig, OpenError, StoreOption, StoreOptions, StoreUrl};
use serde_json::{Value, json};

use crate::kubernetes_server::{Kubernetes, NAMESPACE};

/// The service of these tests.
pub(crate) const SERVICE: &str = "web";

/// What a busy machine may add to anything.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

/// A TTL that outlives any test, however slow the machine.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(120);

pub(crate) fn node(port: u16) -> Node {
    Node::new(format!("127.0.0.1:{port}").parse().expect("an address"))
}

/// The lock of a node of its own, which shows the server's token.
pub(crate) fn lock(server: &Kubernetes, port: u16, ttl: Duration) -> Arc<dyn Lock> {
    lock_at(&server.kubeconfig(), &node(port), ttl)
}

/// The lock of `node` by way of this kubeconfig.
pub(crate) fn lock_at(kubeconfig: &str, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
    lock_with(NAMESPACE, &[format!("kubeconfig={kubeconfig}")], node, ttl).expect("open a lock")
}

/// The lock of `node` in a namespace, with these store options.
pub(crate) fn lock_with(namespace: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let url: StoreUrl = format!("kubernetes://{namespace}").parse().expect("a store URL");
    let options = options.iter().map(|option| option.parse::<StoreOption>().expect("a store option"));
    let options = StoreOptions::new(options).expect("options that come once");
    let election = url.election(SERVICE).expect("a service's name");
    url.open(&options, LockConfig { election, node: node.clone(), ttl, call_timeout: ttl / 6 })
}

/// A field of the lease's spec.
pub(crate) fn spec(server: &Kubernetes, field: &str) -> Value {
    server.lease(SERVICE).unwrap_or_else(|| json!({}))["spec"][field].clone()
}
