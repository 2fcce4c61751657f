//! When to try again for a key that was free and yet not to be had.
//!
//! Consul keeps a key back for a while after its holder's session ended, the lock-delay. Nothing announces its end, so
//! whoever waits has to try again at the right moment. How long it is the holder's session said, which is gone; nodes of
//! one election are set alike, so ours is a good guess.

use std::time::Duration;

use tokio::time::Instant;

/// From one try to the next when the guess was wrong.
const LEAST_PAUSE: Duration = Duration::from_millis(25);

#[derive(Debug)]
pub(super) struct Delay {
    lock_delay: Duration,
    ttl: Duration,
    /// Since when a free key is known to be kept back.
    since: Option<Instant>,
    /// Whether the key or our session had changed in the middle of an attempt.
    was_late: bool,
}

impl Delay {
    pub(super) fn new(lock_delay: Duration, ttl: Duration) -> Self {
        Self { lock_delay, ttl, since: None, was_late: false }
    }

    /// The key was free, and not to be had. True the first time.
    pub(super) fn holds_back(&mut self, now: Instant) -> bool {
        let is_news = self.since.is_none();
        self.since.get_or_insert(now);
        is_news
    }

    /// The key was free, and then no longer as it was seen.
    pub(super) fn came_late(&mut self) {
        self.was_late = true;
    }

    /// The key is in somebody's hands.
    pub(super) fn is_over(&mut self) {
        (self.since, self.was_late) = (None, false);
    }

    /// How long to wait before the next try for a key that is free; nothing where there is no reason to try again before
    /// it changes.
    pub(super) fn pause(&mut self, now: Instant) -> Option<Duration> {
        if std::mem::take(&mut self.was_late) {
            return Some(Duration::ZERO);
        }
        let guess = self.since? + self.lock_delay;
        Some((guess - now).max(LEAST_PAUSE).max(self.lock_delay / 16).max(self.ttl / 100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_key_that_is_kept_back_is_tried_for_when_it_should_be_free_and_then_often() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut delay = Delay::new(second, second * 10);
        assert_eq!(delay.pause(start), None);
        assert!(delay.holds_back(start));
        assert!(!delay.holds_back(start + second / 2), "it is kept back all along");
        assert_eq!(delay.pause(start + second / 2), Some(second / 2));
        assert_eq!(delay.pause(start + second), Some(Duration::from_millis(100)));
        delay.is_over();
        assert_eq!(delay.pause(start), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_that_changed_in_the_middle_is_tried_for_once_more() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut delay = Delay::new(second, second * 10);
        delay.came_late();
        assert_eq!((delay.pause(start), delay.pause(start)), (Some(Duration::ZERO), None));
    }
}
