//! The store in Kubernetes: an API server for each test, in this process.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, StoreOptions, StoreUrl};
use serde_json::json;
use tokio::sync::Mutex;

use crate::harness::Harness;
use crate::kubernetes_server::{Kubernetes, NAMESPACE, lease_name};
use crate::rig;
use crate::suite::conformance;

const SERVICE: &str = "suite";

struct OnKubernetes {
    url: StoreUrl,
    options: StoreOptions,
    server: Mutex<Kubernetes>,
}

#[async_trait]
impl Harness for OnKubernetes {
    async fn start() -> Self {
        let server = Kubernetes::start().await;
        let options = StoreOptions::new([format!("kubeconfig={}", server.kubeconfig()).parse().expect("an option")]).expect("options");
        Self { url: server.url().parse().expect("a store URL"), options, server: Mutex::new(server) }
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        rig::open(&self.url, SERVICE, &self.options, node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(20)
    }

    async fn delete_record(&self) {
        self.server.lock().await.delete(SERVICE);
    }

    /// What client-go's leader election writes in a Pod of its own.
    async fn write_foreign(&self) {
        let time = "2026-01-02T03:04:05.000000Z";
        let lease = json!({
            "metadata": { "name": lease_name(SERVICE) },
            "spec": {
                "holderIdentity": "web-7d9c5b_0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77",
                "leaseDurationSeconds": 600, "acquireTime": time, "renewTime": time, "leaseTransitions": 3,
            },
        });
        let (code, answer) = self.server.lock().await.objects(|objects| objects.create(NAMESPACE, lease));
        assert_eq!(code, 201, "{answer}");
    }

    async fn dump(&self) -> String {
        format!("{:?}", self.server.lock().await.lease(SERVICE))
    }

    async fn restart(&self) {
        self.server.lock().await.restart().await;
    }
}

conformance!(OnKubernetes);
