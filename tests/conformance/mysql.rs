//! The store in MariaDB: a real server for each test.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::Lock;
use sqlx::Row;
use tokio::sync::Mutex;

use crate::harness::Harness;
use crate::mariadb_server::Mariadb;
use crate::sql_rig::lock_at;
use crate::suite::conformance;

struct OnMariadb {
    url: String,
    server: Mutex<Mariadb>,
}

#[async_trait]
impl Harness for OnMariadb {
    async fn start() -> Self {
        let server = Mariadb::start().await;
        let store = Self { url: server.url(), server: Mutex::new(server) };
        let first = Node::new("127.0.0.1:9".parse().expect("an address"));
        store.lock(&first, store.ttl() * 30).leader().await.expect("the table is made");
        store
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        lock_at(&self.url, &[], node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn delete_record(&self) {
        self.server.lock().await.query("DELETE FROM leader_leases WHERE component = 'default'").await;
    }

    async fn write_foreign(&self) {
        let foreign = "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
            VALUES ('default', 'web-1-0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77', '2026-01-01 00:00:00', '2026-01-01 00:00:30', 7)";
        self.server.lock().await.query(foreign).await;
    }

    async fn dump(&self) -> String {
        let rows = self
            .server
            .lock()
            .await
            .query(
                "SELECT concat_ws(' ', id, component, holder_id, acquired_at, expires_at, version) FROM leader_leases ORDER BY component",
            )
            .await;
        rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        server.stop();
        server.restart().await;
    }
}

conformance!(OnMariadb);
