//! Every duration of the election, derived from its one knob, the TTL.

use std::time::Duration;

use crate::duration::words;

/// The election's durations for one TTL.
///
/// ```
/// use std::time::Duration;
/// use bellwether::replication::Timing;
///
/// let timing = Timing::new(Duration::from_secs(6))?;
/// assert_eq!(timing.renew_every(), Duration::from_secs(2));
/// assert_eq!(timing.call_timeout(), Duration::from_millis(2_250));
/// assert_eq!(timing.margin(), Duration::from_millis(600));
/// # Ok::<(), bellwether::replication::TimingError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    ttl: Duration,
}

/// Why a TTL cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimingError {
    /// Zero, or so short that a renewal could not be retried within it.
    #[error("a TTL of {} is too short: the least is {}", words(*.0), words(Timing::LEAST_TTL))]
    TooShort(Duration),
    /// So long that a crashed primary would be waited for longer than anybody means.
    #[error("a TTL of {} is too long: the most is {}", words(*.0), words(Timing::MOST_TTL))]
    TooLong(Duration),
}

impl Timing {
    /// Below this, scheduling noise alone loses a lock.
    pub const LEAST_TTL: Duration = Duration::from_millis(500);
    /// Consul's limit, and long enough for anybody.
    pub const MOST_TTL: Duration = Duration::from_secs(24 * 60 * 60);

    /// The durations for a lock that outlives a silent holder by `ttl`.
    ///
    /// # Errors
    /// [`TimingError`] when `ttl` lies outside [`LEAST_TTL`](Self::LEAST_TTL) to [`MOST_TTL`](Self::MOST_TTL).
    pub fn new(ttl: Duration) -> Result<Self, TimingError> {
        match ttl {
            ttl if ttl < Self::LEAST_TTL => Err(TimingError::TooShort(ttl)),
            ttl if ttl > Self::MOST_TTL => Err(TimingError::TooLong(ttl)),
            ttl => Ok(Self { ttl }),
        }
    }

    /// The durations for the TTL that a store granted, whatever was asked.
    pub fn granted(ttl: Duration) -> Self {
        Self { ttl }
    }

    /// How long the lock outlives a silent holder.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }

    /// From the sending of one renewal to the next; also how long a waiting candidate sleeps at most.
    pub fn renew_every(&self) -> Duration {
        self.ttl / 3
    }

    /// How long one call to the store may take: longer than the answers of any store that is fit to be renewed at three
    /// times in a TTL, and short enough that a renewal which was lost on its way leaves time for a second one.
    pub fn call_timeout(&self) -> Duration {
        self.ttl * 3 / 8
    }

    /// How long a candidate that is leaving may take to say so. The store forgets it by itself.
    pub fn leave_timeout(&self) -> Duration {
        self.ttl / 6
    }

    /// From a failed call to the next try while a lease is running out.
    pub fn retry_after(&self) -> Duration {
        self.ttl / 24
    }

    /// How much earlier than the store a primary counts its lease as over.
    pub fn margin(&self) -> Duration {
        self.ttl / 10
    }

    /// How long a primary may serve after the sending of a call that the store then confirmed.
    pub fn serve_for(&self) -> Duration {
        self.ttl - self.margin()
    }

    /// How long a candidate that resigned leaves the lock to the others.
    pub fn stand_aside(&self) -> Duration {
        self.ttl
    }

    /// How long a request should be held: long enough for one crash and one more try.
    pub fn hold_timeout(&self) -> Duration {
        self.ttl * 2 + Duration::from_secs(5)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_renewal_can_be_retried_within_the_lease() {
        for millis in [500, 1_000, 10_000, 86_400_000] {
            let timing = Timing::new(Duration::from_millis(millis)).unwrap();
            let second_try = timing.renew_every() + timing.call_timeout() + timing.retry_after();
            assert!(second_try + timing.ttl() / 8 < timing.serve_for(), "{millis}");
        }
    }

    #[test]
    fn an_answer_that_takes_three_tenths_of_the_ttl_is_waited_for() {
        let timing = Timing::new(Duration::from_secs(3)).unwrap();
        assert!(Duration::from_millis(900) + timing.ttl() / 15 < timing.call_timeout());
    }

    #[test]
    fn impossible_ttls_are_refused_with_the_number_to_use() {
        let short = Timing::new(Duration::ZERO).unwrap_err().to_string();
        assert!(short.contains("500ms"), "{short}");
        let long = Timing::new(Duration::from_secs(90_000)).unwrap_err().to_string();
        assert!(long.contains("1day"), "{long}");
    }
}
