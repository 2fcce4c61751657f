//! Waiting for a state: with a reason and a limit, and never for time.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns what `probe` found once it is `Ok`.
///
/// # Panics
/// After `limit`, with `reason` and the last `Err`.
pub(crate) async fn wait_for<R, L: Debug>(reason: &str, limit: Duration, mut probe: impl AsyncFnMut() -> Result<R, L>) -> R {
    let deadline = Instant::now() + limit;
    loop {
        match probe().await {
            Ok(found) => return found,
            Err(last) if Instant::now() >= deadline => panic!("waited {limit:?} in vain for {reason}; last seen: {last:?}"),
            Err(_) => sleep(LOOK_EVERY).await,
        }
    }
}
