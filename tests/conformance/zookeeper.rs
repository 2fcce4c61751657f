//! The store in ZooKeeper: a real server, shared by the tests that run at the same time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, StoreOptions, StoreUrl};
use serde_json::json;
use tokio::sync::Mutex;

use crate::harness::Harness;
use crate::kazoo::Kazoo;
use crate::rig;
use crate::suite::conformance;
use crate::zookeeper_server::ZooKeeper;

/// The server of all tests that are running; it ends with the last of them.
static SHARED: Mutex<Weak<Mutex<ZooKeeper>>> = Mutex::const_new(Weak::new());

struct OnZooKeeper {
    server: Arc<Mutex<ZooKeeper>>,
    hand: Kazoo,
    url: StoreUrl,
    service: String,
}

impl OnZooKeeper {
    async fn on(server: Arc<Mutex<ZooKeeper>>) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (url, address) = {
            let server = server.lock().await;
            (server.url().parse().expect("a store URL"), server.address(0))
        };
        let service = format!("suite-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { server, hand: Kazoo::start(address), url, service }
    }

    fn folder(&self) -> String {
        format!("/bellwether/{}/leader", self.service)
    }
}

#[async_trait]
impl Harness for OnZooKeeper {
    async fn start() -> Self {
        let mut shared = SHARED.lock().await;
        let server = match shared.upgrade() {
            Some(server) => server,
            None => Arc::new(Mutex::new(ZooKeeper::start(1, "").await)),
        };
        *shared = Arc::downgrade(&server);
        drop(shared);
        Self::on(server).await
    }

    async fn start_alone() -> Self {
        Self::on(Arc::new(Mutex::new(ZooKeeper::start(1, "").await))).await
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        rig::open(&self.url, &self.service, &StoreOptions::default(), node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// ZooKeeper looks for sessions that ran out once a tick.
    fn slack(&self) -> Duration {
        Duration::from_secs(3)
    }

    async fn delete_record(&self) {
        self.hand.delete_leader(&self.folder()).await;
    }

    /// Takes part in the election, but with something that is no address.
    async fn write_foreign(&self) {
        let node = format!("{}/_c_stranger-latch-", self.folder());
        self.hand.command::<String>(json!(["create", node, "{\"not\":\"ours\"}", true, true])).await;
    }

    async fn dump(&self) -> String {
        format!("{:?}", self.hand.line(&self.folder()).await)
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        server.stop(0);
        server.restart(0).await;
    }
}

conformance!(OnZooKeeper);
