//! The store in memory, in paused time.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, Memory};

use crate::harness::Harness;
use crate::suite::conformance;

struct InMemory(Memory);

#[async_trait]
impl Harness for InMemory {
    async fn start() -> Self {
        Self(Memory::new(0))
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        self.0.lock(node, ttl)
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(3)
    }

    fn slack(&self) -> Duration {
        Duration::from_millis(1)
    }

    async fn delete_record(&self) {
        self.0.delete_record();
    }

    async fn write_foreign(&self) {
        self.0.write_foreign(b"{\"not\":\"ours\"}");
    }

    async fn dump(&self) -> String {
        format!("{:?}", self.0.value())
    }

    async fn restart(&self) {
        self.0.stop();
        tokio::time::sleep(self.ttl() / 10).await;
        self.0.start();
    }
}

conformance!(InMemory, start_paused = true);
