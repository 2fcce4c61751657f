//! How each kind of store lets the next one in after a holder fell silent: the facts that failovers are planned with.
//!
//! They are what the stores' own documents say and what was measured, at the settings that a server comes with. Where the
//! server's settings decide, only the server knows: whoever has been granted a lease should believe that instead.

use std::ops::Range;
use std::time::Duration;

use super::options::StoreOptions;
use super::url::{Scheme, StoreUrl};
use crate::duration::words;

/// What a kind of store makes of a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Takeover {
    /// Which clock says that a lease is over.
    pub clock: &'static str,
    /// The TTLs that its server keeps at the settings it comes with.
    pub usual: Usual,
    /// How many TTLs after its last renewal a silent holder's lock is free.
    pub lasts: u32,
    /// What always comes on top of that.
    pub delay: Duration,
    /// What may come on top of that, from nothing up to this.
    pub late: Duration,
    /// Whether nobody is told when a lease runs out, so that those who wait look again and again.
    pub is_polled: bool,
}

/// The TTLs that a server keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Usual {
    /// The least.
    pub least: Duration,
    /// The most.
    pub most: Duration,
    /// Whether any other is refused, rather than moved to the nearest that it keeps.
    pub refuses: bool,
    /// Which of the server's settings say so, and how they come.
    pub set_by: Option<&'static str>,
}

impl Usual {
    /// Whatever the driver allows, the server keeps.
    const ANY: Self = Self { least: Duration::ZERO, most: Duration::MAX, refuses: false, set_by: None };

    /// What the server makes of a TTL.
    ///
    /// # Errors
    /// The nearest that it keeps, where it refuses this one.
    pub fn granted(&self, ttl: Duration) -> Result<Duration, Duration> {
        match ttl.clamp(self.least, self.most) {
            nearest if self.refuses && nearest != ttl => Err(nearest),
            nearest => Ok(nearest),
        }
    }
}

impl Takeover {
    /// When a silent holder's lock is free, in words.
    pub fn expiry(&self) -> String {
        let mut text = match self.lasts {
            1 => "one TTL after its last renewal".to_owned(),
            many => format!("{many} TTLs after its last renewal"),
        };
        if !self.delay.is_zero() {
            text += &format!(" and {} of lock delay", words(self.delay));
        }
        if !self.late.is_zero() {
            text += &format!(", up to {} late", words(self.late));
        }
        text
    }

    /// The pause before a driver looks again, whose store tells nobody of a change: of another length each time, so that nodes
    /// do not look in step.
    pub fn next_look(ttl: Duration) -> Duration {
        look_every(ttl).mul_f64(JITTER.start + fastrand::f64() * (JITTER.end - JITTER.start))
    }

    /// The longest that a node which waits for a lock goes without looking at it; nothing where it is told.
    pub fn look_every(&self, ttl: Duration) -> Duration {
        if self.is_polled { look_every(ttl).mul_f64(JITTER.end) } else { Duration::ZERO }
    }

    /// The same on the average.
    pub fn looks_usually_every(&self, ttl: Duration) -> Duration {
        if self.is_polled { look_every(ttl) } else { Duration::ZERO }
    }
}

impl StoreUrl {
    /// What this kind of store makes of a TTL, with these options.
    pub fn takeover(&self, options: &StoreOptions) -> Takeover {
        let exact = |clock| Takeover { clock, usual: Usual::ANY, lasts: 1, delay: Duration::ZERO, late: Duration::ZERO, is_polled: false };
        let usual = |least, most, refuses, set_by| {
            let (least, most) = (Duration::from_secs(least), Duration::from_secs(most));
            Usual { least, most, refuses, set_by: Some(set_by) }
        };
        match self.kind() {
            Scheme::Consul => Takeover {
                usual: usual(10, 24 * 60 * 60, true, "session_ttl_min, 10s by default"),
                lasts: 2,
                delay: options.lock_delay(),
                ..exact("the Consul leader's clock")
            },
            // The lessor looks for leases that ran out every half second.
            Scheme::Etcd => Takeover {
                usual: usual(2, 9_000_000_000, false, "1.5 × its --election-timeout, 1s by default, in whole seconds"),
                late: Duration::from_millis(500),
                ..exact("the etcd leader's clock")
            },
            Scheme::Kubernetes => exact("each waiting node's own clock, from when it saw the record change"),
            Scheme::Memory => exact("this process's clock"),
            Scheme::Mysql | Scheme::Postgres => Takeover { is_polled: true, ..exact("the database's clock, inside each statement") },
            Scheme::Sqlite => Takeover { is_polled: true, ..exact("the clock of the one machine") },
            // Sessions are looked at once a tick.
            Scheme::ZooKeeper => Takeover {
                usual: usual(4, 40, false, "minSessionTimeout and maxSessionTimeout, 2 and 20 ticks of 2s by default"),
                late: Duration::from_secs(2),
                ..exact("the ZooKeeper leader's clock")
            },
        }
    }
}

/// Often enough that a takeover is noticed within a small part of the TTL.
fn look_every(ttl: Duration) -> Duration {
    (ttl / 20).clamp(Duration::from_millis(25), Duration::from_millis(100))
}

const JITTER: Range<f64> = 0.75..1.25;

#[cfg(test)]
mod tests {
    use super::*;

    fn takeover(url: &str, options: &[&str]) -> Takeover {
        let options = options.iter().map(|option| option.parse().unwrap());
        url.parse::<StoreUrl>().unwrap().takeover(&StoreOptions::new(options).unwrap())
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn a_server_refuses_a_ttl_or_moves_it() {
        for (url, asked, granted) in [
            ("consul://h", secs(9), Err(secs(10))),
            ("consul://h", secs(10), Ok(secs(10))),
            ("consul://h", secs(100_000), Err(secs(86_400))),
            ("etcd://h", secs(1), Ok(secs(2))),
            ("etcd://h", secs(3), Ok(secs(3))),
            ("zk://h", secs(1), Ok(secs(4))),
            ("zk://h", secs(60), Ok(secs(40))),
            ("kubernetes://n", secs(1), Ok(secs(1))),
            ("postgres://u@h/d", Duration::from_millis(500), Ok(Duration::from_millis(500))),
        ] {
            assert_eq!(takeover(url, &[]).usual.granted(asked), granted, "{url} {asked:?}");
        }
    }

    #[test]
    fn consul_keeps_a_lock_for_twice_its_ttl_and_its_delay() {
        let (usual, none) = (takeover("consul://h", &[]), takeover("consul://h", &["lock-delay=0s"]));
        assert_eq!((usual.lasts, usual.delay), (2, secs(1)));
        assert_eq!((none.lasts, none.delay), (2, Duration::ZERO));
    }

    #[test]
    fn who_is_not_told_looks_more_often_than_anybody_minds() {
        let sqlite = takeover("sqlite:///x.db", &[]);
        for (ttl, most) in [(500, 31), (10_000, 125), (600_000, 125)] {
            assert_eq!(sqlite.look_every(Duration::from_millis(ttl)).as_millis(), most, "{ttl}");
        }
        for url in ["etcd://h", "zk://h", "consul://h", "kubernetes://n"] {
            assert_eq!(takeover(url, &[]).look_every(secs(10)), Duration::ZERO, "{url}");
        }
    }
}
