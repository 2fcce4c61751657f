//! What a failover costs, from the TTL that a store granted and the way in which that kind of store ends a lease.

use std::time::Duration;

use super::Timing;
use crate::store::Takeover;

/// How long a service has no primary, and what the election asks of its store.
///
/// The worst case is that of a store which answers within a twelfth of the TTL, as any that is not in trouble does: for each of
/// the two calls on the way, the last renewal and the takeover. Of the store's own failover it knows nothing.
///
/// ```
/// use std::time::Duration;
/// use bellwether::{replication::Plan, store::{StoreOptions, StoreUrl}};
///
/// let store = "etcd://10.0.0.7:2379".parse::<StoreUrl>()?;
/// let plan = Plan::new(Duration::from_secs(6), &store.takeover(&StoreOptions::default()), Duration::from_secs(10));
/// assert_eq!(plan.crash.typical, Duration::from_millis(5_300));
/// assert_eq!(plan.crash.worst, Duration::from_millis(7_500));
/// assert_eq!(plan.planned.worst, Duration::from_millis(11_300));
/// # Ok::<(), bellwether::store::UrlError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Plan {
    /// The TTL that it holds for.
    pub ttl: Duration,
    /// From the end of the primary's process, or of its way to the store, until the next primary serves.
    pub crash: Estimate,
    /// From a planned stop of the primary until the next one serves. Running requests are waited for first: none in the
    /// typical case, as long as they may take in the worst.
    pub planned: Estimate,
    /// How long after its last renewal a primary that cannot reach the store still serves.
    pub serves_for: Duration,
    /// How long the store may be silent without anybody noticing.
    pub rides_out: Duration,
    /// Calls for each second that each node makes: the primary's renewals, or a waiting node's attempts.
    pub renewals_per_second: f64,
    /// Looks for each second that each node makes besides, where the store tells nobody of a change.
    pub looks_per_second: f64,
}

/// A duration that varies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Estimate {
    /// What to expect.
    pub typical: Duration,
    /// What not to exceed.
    pub worst: Duration,
}

/// How long what still runs gets to end after the drain's own time.
const CUT: Duration = super::candidate::CUT_GRACE;

impl Plan {
    /// A failover where the store keeps `ttl`, and running requests get `drain` to end.
    pub fn new(ttl: Duration, takeover: &Takeover, drain: Duration) -> Self {
        let timing = Timing::granted(ttl);
        let (look, two_calls) = (takeover.look_every(ttl), ttl / 6);
        let longest = ttl * takeover.lasts + takeover.delay;
        let per_second = |every: Duration| if every.is_zero() { 0.0 } else { 1.0 / every.as_secs_f64() };
        Self {
            ttl,
            crash: Estimate {
                // In the middle between two renewals.
                typical: longest - timing.renew_every() / 2 + takeover.late / 2 + look / 2,
                worst: longest + takeover.late + look + two_calls,
            }
            .rounded(),
            planned: Estimate { typical: look / 2, worst: drain + CUT + look + two_calls }.rounded(),
            serves_for: timing.serve_for(),
            // From the renewal that was due next, if it is swallowed, until just before it is tried again.
            rides_out: ttl * 2 / 5,
            renewals_per_second: per_second(timing.renew_every()),
            looks_per_second: per_second(takeover.looks_usually_every(ttl)),
        }
    }

    /// How long a request must be held so that no crash fails it: as long as a crash can take, and as long as it can take
    /// to learn that a lost host does not answer.
    pub fn hold(&self, connect_timeout: Duration) -> Duration {
        self.crash.worst + connect_timeout
    }
}

impl Estimate {
    /// Up to the next tenth of a second: more would be a precision that nobody has.
    fn rounded(self) -> Self {
        let up = |duration: Duration| Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).div_ceil(100) * 100);
        Self { typical: up(self.typical), worst: up(self.worst) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{StoreOptions, StoreUrl};

    fn plan(url: &str, ttl: u64) -> Plan {
        let takeover = url.parse::<StoreUrl>().unwrap().takeover(&StoreOptions::default());
        Plan::new(Duration::from_secs(ttl), &takeover, Duration::from_secs(10))
    }

    #[test]
    fn each_store_adds_its_own() {
        for (url, ttl, typical, worst) in [
            ("memory:", 6, 5_000, 7_000),
            ("sqlite:///x.db", 6, 5_100, 7_200),
            ("etcd://h", 6, 5_300, 7_500),
            ("zk://h", 6, 6_000, 9_000),
            ("consul://h", 12, 23_000, 27_000),
            ("kubernetes://n", 15, 12_500, 17_500),
        ] {
            let crash = plan(url, ttl).crash;
            assert_eq!((crash.typical.as_millis(), crash.worst.as_millis()), (typical, worst), "{url}");
        }
    }

    #[test]
    fn a_planned_stop_waits_for_what_runs_and_for_no_ttl() {
        let planned = plan("etcd://h", 3_600).planned;
        assert_eq!(planned.typical, Duration::ZERO);
        let planned = plan("sqlite:///x.db", 6).planned;
        assert_eq!((planned.typical.as_millis(), planned.worst.as_millis()), (100, 11_400));
    }

    #[test]
    fn the_hold_of_the_default_lasts_for_a_crash() {
        for (url, ttl) in
            [("memory:", 10), ("sqlite:///x.db", 1), ("etcd://h", 2), ("zk://h", 4), ("consul://h", 10), ("kubernetes://n", 15)]
        {
            let timing = Timing::new(Duration::from_secs(ttl)).unwrap();
            let needed = plan(url, ttl).hold(Duration::from_secs(1));
            assert!(timing.hold_timeout() >= needed, "{url}: {needed:?}");
        }
    }

    #[test]
    fn the_store_is_asked_three_times_a_ttl() {
        let plan = plan("sqlite:///x.db", 6);
        assert_eq!((plan.renewals_per_second, plan.looks_per_second), (0.5, 10.0));
        assert!(plan.rides_out < plan.serves_for && plan.serves_for < plan.ttl);
    }
}
