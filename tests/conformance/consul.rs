//! The store in Consul: a real server for each test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, StoreOptions, StoreUrl};
use serde_json::json;
use tokio::sync::Mutex;

use crate::consul_server::Consul;
use crate::harness::Harness;
use crate::rig;
use crate::suite::conformance;

const KEY: &str = "bellwether/suite/leader";
const LOCK_DELAY: Duration = Duration::from_secs(1);

struct OnConsul {
    url: StoreUrl,
    server: Mutex<Consul>,
}

impl OnConsul {
    fn on(server: Consul) -> Self {
        Self { url: server.url().parse().expect("a store URL"), server: Mutex::new(server) }
    }
}

#[async_trait]
impl Harness for OnConsul {
    async fn start() -> Self {
        Self::on(Consul::start_with(true, &json!({"session_ttl_min": "1s"})).await)
    }

    /// With its data on disk.
    async fn start_alone() -> Self {
        Self::on(Consul::start().await)
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        rig::open(&self.url, "suite", &StoreOptions::default(), node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// Consul keeps a silent session for up to twice its TTL, and the key for the lock-delay after that.
    fn slack(&self) -> Duration {
        self.ttl() + LOCK_DELAY + Duration::from_secs(3)
    }

    async fn delete_record(&self) {
        self.server.lock().await.delete(KEY).await;
    }

    async fn write_foreign(&self) {
        let written = self.server.lock().await.api("PUT", &format!("/v1/kv/{KEY}"), "{\"not\":\"ours\"}").await;
        assert_eq!(written, (200, "true".to_owned()));
    }

    async fn dump(&self) -> String {
        format!("{:?}", self.server.lock().await.key(KEY).await)
    }

    async fn restart(&self) {
        let mut consul = self.server.lock().await;
        consul.stop().await;
        consul.restart().await;
    }
}

conformance!(OnConsul);
