//! The one clock that decides about leases: monotonic, and counting the time that the machine was suspended.
//!
//! [`tokio::time::Instant`] stands still while a machine sleeps, so a resumed primary would think its lease young.
//! What it misses is the difference between Linux's `CLOCK_BOOTTIME` and `CLOCK_MONOTONIC`, which only a suspend
//! changes. Adding it to tokio's instant keeps tests in paused time exact. No wall clock is ever read.

use std::sync::OnceLock;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// How far apart the readings of the two clocks may be: far below the margin of any lease.
const TIGHT: Duration = Duration::from_micros(200);

/// How often the clocks are read again when this thread was interrupted in between.
const TRIES: usize = 16;

/// The present instant, later by all suspended time since the first call of this function.
pub fn now() -> Instant {
    static AT_START: OnceLock<Duration> = OnceLock::new();
    let asleep = asleep(|clock| duration(clock_gettime(clock)));
    let since_start = asleep.saturating_sub(*AT_START.get_or_init(|| asleep));
    // No suspend is as short as what the two readings differ by anyway.
    Instant::now() + Duration::from_millis(since_start.as_millis().try_into().unwrap_or(u64::MAX))
}

/// How long the machine has been suspended since it booted.
///
/// A thread that is interrupted between the two clocks would take the interruption for a suspend. When that happens to the
/// instant that a deadline is counted from, the deadline comes to lie too late by as much; so such a reading does not count.
fn asleep(mut read: impl FnMut(ClockId) -> Duration) -> Duration {
    let mut tightest = (Duration::MAX, Duration::ZERO);
    for _ in 0..TRIES {
        let before = read(ClockId::Monotonic);
        let asleep = read(ClockId::Boottime).saturating_sub(before);
        let took = read(ClockId::Monotonic).saturating_sub(before);
        tightest = tightest.min((took, asleep));
        if took <= TIGHT {
            break;
        }
    }
    tightest.1
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

    #[test]
    fn an_interruption_between_the_clocks_is_no_suspend() {
        let suspended = Duration::from_secs(7);
        for interrupted_before in 0..7 {
            let (mut time, mut readings) = (Duration::from_secs(100), 0);
            let asleep = asleep(|clock| {
                time += if readings == interrupted_before { Duration::from_millis(300) } else { Duration::from_nanos(50) };
                readings += 1;
                if clock == ClockId::Boottime { time + suspended } else { time }
            });
            assert!(
                asleep >= suspended && asleep <= suspended + TIGHT,
                "{asleep:?} with an interruption before reading {interrupted_before}"
            );
        }
    }
}
