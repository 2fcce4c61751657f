//! What the suite needs of a store beyond its contract: clients to play with, and what operators do behind their backs.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::replication::Timing;
use bellwether::store::Lock;

/// How long a candidate waits for one call.
pub(crate) fn call_timeout(ttl: Duration) -> Duration {
    Timing::granted(ttl).call_timeout()
}

/// One real store with one election that no other test uses.
#[async_trait]
pub(crate) trait Harness: Sized + Send + Sync {
    /// A store that other tests may share, with an election of its own.
    async fn start() -> Self;

    /// A store that this test may stop.
    async fn start_alone() -> Self {
        Self::start().await
    }

    /// A client of its own, as if in a process of its own.
    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock>;

    /// A TTL that the store can keep, as short as tests would like it.
    fn ttl(&self) -> Duration;

    /// How much later than its TTL a silent holder's lock may be free on a busy machine.
    fn slack(&self) -> Duration;

    /// Deletes the leader's record as an operator would, with the store's own means.
    async fn delete_record(&self);

    /// Puts something into the record's place that is no election record.
    async fn write_foreign(&self);

    /// All that lies in the record's place, in any form that shows every change.
    async fn dump(&self) -> String;

    /// Takes the store away for a moment; clients must find it again by themselves.
    async fn restart(&self);
}
