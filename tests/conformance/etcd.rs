//! The store in etcd: a real server for each test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, StoreOptions, StoreUrl};
use tokio::sync::Mutex;

use crate::etcd_server::Etcd;
use crate::harness::Harness;
use crate::rig;
use crate::suite::conformance;

const PLACE: &str = "bellwether/suite/leader/";

struct OnEtcd {
    url: StoreUrl,
    server: Mutex<Etcd>,
    /// The lease of whoever wrote the foreign record.
    stranger: Mutex<Option<String>>,
}

#[async_trait]
impl Harness for OnEtcd {
    async fn start() -> Self {
        let etcd = Etcd::start().await;
        let url = etcd.url().parse().expect("a store URL");
        Self { url, server: Mutex::new(etcd), stranger: Mutex::new(None) }
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        rig::open(&self.url, "suite", &StoreOptions::default(), node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// etcd looks for leases that ran out every half second; the rest is for the machine.
    fn slack(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// The leader's record, or the end of the stranger that wrote a foreign one.
    async fn delete_record(&self) {
        let etcd = self.server.lock().await;
        if let Some(stranger) = self.stranger.lock().await.take() {
            etcd.etcdctl(&["lease", "revoke", &stranger]).await;
            return;
        }
        let oldest = etcd.etcdctl(&["get", "--prefix", PLACE, "--sort-by=CREATE", "--order=ASCEND", "--limit=1", "--keys-only"]).await;
        assert_eq!(etcd.etcdctl(&["del", oldest.trim()]).await.trim(), "1", "there was a record to delete");
    }

    /// Takes part in the election as `etcdctl elect` does, but with something that is no address.
    async fn write_foreign(&self) {
        let etcd = self.server.lock().await;
        let granted = etcd.etcdctl(&["lease", "grant", "60"]).await;
        // A candidate's key has the number without the zeros that are printed here.
        let lease = granted.split_whitespace().nth(1).expect("lease ID granted with TTL(60s)").trim_start_matches('0').to_owned();
        etcd.etcdctl(&["put", &format!("--lease={lease}"), &format!("{PLACE}{lease}"), "{\"not\":\"ours\"}"]).await;
        *self.stranger.lock().await = Some(lease);
    }

    async fn dump(&self) -> String {
        let found = self.server.lock().await.etcdctl(&["get", "--prefix", PLACE, "--write-out=json"]).await;
        let found: serde_json::Value = serde_json::from_str(&found).expect("JSON of etcdctl");
        found["kvs"].to_string()
    }

    async fn restart(&self) {
        let mut etcd = self.server.lock().await;
        etcd.stop(0).await;
        etcd.restart(0).await;
    }
}

conformance!(OnEtcd);
