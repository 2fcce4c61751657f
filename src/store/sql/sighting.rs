//! A second clock beside the database's, which may be set, or be another machine's from now on.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::row::Row;
use crate::clock;

/// The last state of the row that this process has seen alive, and how long it then had left on the monotonic clock.
///
/// Were the wall clock set forward by more than a TTL, every lease would look expired at once, and a second primary
/// would begin while the first still serves. A lease that was seen alive is therefore over only when both clocks say
/// so; while the wall clock is left alone, they say so at the same time.
#[derive(Default)]
pub(super) struct Sightings {
    last: Mutex<Option<Sighting>>,
}

struct Sighting {
    version: i64,
    expires_at: String,
    until: Instant,
}

impl Sightings {
    /// How long the holder of `row`, which was read just now, is still to be believed; nothing if it is over.
    pub(super) fn left(&self, row: &Row) -> Option<Duration> {
        let now = clock::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let by_database = row.left.and_then(|left| u64::try_from(left).ok()).map(Duration::from_millis);
        match &*last {
            Some(seen) if seen.version == row.version && seen.expires_at == row.expires_at => {
                let by_us = seen.until.saturating_duration_since(now);
                by_database.or((!by_us.is_zero()).then_some(by_us))
            }
            Some(_) | None => {
                *last = by_database.map(|left| Sighting { version: row.version, expires_at: row.expires_at.clone(), until: now + left });
                by_database
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(version: i64, expires_at: &str, left: i64) -> Row {
        Row { component: String::new(), holder_id: String::new(), version, expires_at: expires_at.to_owned(), left: Some(left) }
    }

    #[tokio::test(start_paused = true)]
    async fn a_wall_clock_that_is_set_forward_ends_no_lease_that_was_seen_alive() {
        let sightings = Sightings::default();
        assert_eq!(sightings.left(&row(1, "12:00:10", 10_000)), Some(Duration::from_secs(10)));
        tokio::time::advance(Duration::from_secs(4)).await;
        // An hour later, the database says; four seconds, we know.
        let left = sightings.left(&row(1, "12:00:10", -3_594_000)).expect("six seconds are left");
        assert!(left > Duration::from_secs(5) && left <= Duration::from_secs(6), "{left:?}");
        tokio::time::advance(Duration::from_millis(6_001)).await;
        assert_eq!(sightings.left(&row(1, "12:00:10", -3_600_001)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_given_back_is_over_at_once() {
        let sightings = Sightings::default();
        sightings.left(&row(1, "12:00:10", 10_000));
        assert_eq!(sightings.left(&row(1, "11:59:59", -1_000)), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_was_never_seen_alive_is_over_when_the_database_says_so() {
        let sightings = Sightings::default();
        assert_eq!(sightings.left(&row(1, "12:00:10", -1)), None);
        assert_eq!(sightings.left(&row(2, "12:00:20", 0)), Some(Duration::ZERO));
        assert_eq!(sightings.left(&row(3, "12:00:20", -1)), None, "another tenure than the one that was seen");
    }
}
