//! What the tests of the Kubernetes driver alone have in common.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::store::{Lock, OpenError};
use serde_json::{Value, json};

use crate::kubernetes_server::objects::Objects;
use crate::kubernetes_server::{Kubernetes, NAMESPACE, lease_name};
use crate::rig::{self, SERVICE, node};

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
    rig::lock_with(&format!("kubernetes://{namespace}"), options, node, ttl)
}

/// A field of the lease's spec.
pub(crate) fn spec(server: &Kubernetes, field: &str) -> Value {
    server.lease(SERVICE).unwrap_or_else(|| json!({}))["spec"][field].clone()
}

/// Where `scripts/prepare.sh` puts the Kubernetes client for Python.
pub(crate) const PYTHON_PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/kubernetes-37.0.2");

impl Kubernetes {
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A kubeconfig that leads to this server, and shows the token.
    pub(crate) fn kubeconfig(&self) -> String {
        self.kubeconfig_to(self.address())
    }

    /// The lease of a service, if there is one.
    pub(crate) fn lease(&self, service: &str) -> Option<Value> {
        self.objects(|objects| objects.lease(NAMESPACE, &lease_name(service)).cloned())
    }

    /// Answers everything with this; or works as it should.
    pub(crate) fn answer_with(&self, instead: Option<(u16, &str)>) {
        self.state.rules().instead = instead.map(|(code, text)| (code, text.to_owned()));
    }

    /// What was asked so far: `get by USER` and the like.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.state.rules().requests.clone()
    }

    /// Ends all watches after this long.
    pub(crate) fn watch_for(&self, time: Duration) {
        self.state.rules().watch_for = time;
    }

    /// Ends all watches now.
    pub(crate) fn end_watches(&self) {
        self.state.rules().epoch += 1;
        self.objects(|_| ());
    }

    /// Runs kubectl against this server, with the namespace set.
    pub(crate) fn kubectl(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new("kubectl");
        command.env("KUBECONFIG", self.kubeconfig()).env("HOME", self.folder.path()).kill_on_drop(true);
        command
    }
}

impl Objects {
    /// Forgets all changes so far, as compaction does.
    pub(crate) fn forget(&mut self) {
        self.forgotten = self.version();
        self.changes.clear();
    }
}
