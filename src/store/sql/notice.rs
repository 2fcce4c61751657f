//! How one hears of a change between two looks at the row.

use std::time::Duration;

use async_trait::async_trait;

use crate::store::Takeover;

/// What a database announces of its own accord. A notice is only a hint: the row decides.
#[async_trait]
pub(in crate::store) trait Notices: Send + Sync + 'static {
    /// The pause before the next look at a row of this TTL, while nobody announces a change.
    fn next_look(&self, ttl: Duration) -> Duration {
        Takeover::next_look(ttl)
    }

    /// Waits for `pause`, or until the database announces a change, and says whether it did.
    async fn hint(&self, pause: Duration) -> bool {
        tokio::time::sleep(pause).await;
        false
    }

    /// A change was found that nobody had announced.
    async fn unannounced(&self) {}
}

/// Where nobody announces anything.
impl Notices for () {}
