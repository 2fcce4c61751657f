//! The one clock that decides about leases: monotonic, and counting the time that the machine was suspended.
//!
//! [`tokio::time::Instant`] stands still while a machine sleeps, so a resumed primary would think its lease young.
//! What it misses is the difference between Linux's `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`, which only a suspend
//! changes. Adding it to tokio's instant keeps tests in paused time exact. No wall clock is ever read.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The present instant, later by all suspended time since the first call of this function.
pub fn now() -> Instant {
    static AT_START: OnceLock<Duration> = OnceLock::new();
    let asleep = asleep();
    let since_start = asleep.saturating_sub(*AT_START.get_or_init(|| asleep));
    Instant::now() + since_start
}

/// How long the machine has been suspended since it booted.
///
/// Monotonic is read first: being preempted between the two makes the answer too large, so a deadline seem nearer.
fn asleep() -> Duration {
    let monotonic = duration(clock_gettime(ClockId::Monotonic));
    duration(clock_gettime(ClockId::Boottime)).saturating_sub(monotonic)
}

fn duration(time: rustix::time::Timespec) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_is_obeyed() {
        let before = now();
        tokio::time::advance(Duration::from_secs(5)).await;
        let passed = now() - before;
        assert!(passed >= Duration::from_secs(5) && passed < Duration::from_secs(6), "{passed:?}");
    }
}
