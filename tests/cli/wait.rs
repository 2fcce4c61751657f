//! Waiting for a state: with a reason and a limit, and never for time.

use std::fmt::Debug;
use std::time::Duration;

use tokio::time::Instant;

/// Longer than anything here takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// From one look to the next.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Returns what `probe` found once it is `Ok`.
///
/// # Panics
/// After [`PATIENCE`], with `reason` and the last `Err`.
pub(crate) fn wait_for<R, L: Debug>(reason: &str, mut probe: impl FnMut() -> Result<R, L>) -> R {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match probe() {
            Ok(found) => return found,
            Err(last) if Instant::now() >= deadline => panic!("waited {PATIENCE:?} in vain for {reason}; last seen: {last:?}"),
            Err(_) => std::thread::sleep(LOOK_EVERY),
        }
    }
}
