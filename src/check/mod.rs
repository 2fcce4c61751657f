//! Does a store keep the promises that the election needs? Asked of the store itself, in a scratch place of its own.
//!
//! Everything goes through [`Lock`](crate::store::Lock) and [`Lease`](crate::store::Lease), so whatever opens as a lock can be
//! checked. A promise is shown kept or broken by what the store does, never by what it says of itself; what stays unknown
//! because the store gave no decision counts as broken. No election that anybody uses is touched.

mod call;
mod finding;
mod hold;
mod order;
mod scratch;
mod wake;

use std::time::Duration;

use crate::duration::words;
use crate::replication::Timing;
use crate::store::Takeover;

use finding::{Flaw, Proof};

pub use finding::{Finding, Verdict};
pub use scratch::{AskError, Scratch};

/// The shortest TTL that expiry is watched with: with less, a busy machine looks like a broken store.
const CALM_TTL: Duration = Duration::from_secs(2);

/// One check of one store.
#[derive(Debug)]
pub struct Check<'a> {
    scratch: &'a Scratch,
    takeover: Takeover,
    wanted: Timing,
}

impl<'a> Check<'a> {
    /// A check in `scratch` of a store that is expected to behave like `takeover`, for an election timed as `wanted`.
    pub fn new(scratch: &'a Scratch, takeover: Takeover, wanted: Timing) -> Self {
        Self { scratch, takeover, wanted }
    }

    /// Tries one promise after the other, reports each as soon as it is known, and leaves the scratch place empty. True when
    /// an election would be safe at this store.
    ///
    /// # Cancel safety
    /// May be dropped; then [`Scratch::abandon`] is the caller's to call.
    pub async fn run(&self, report: impl FnMut(&Finding)) -> bool {
        let mut findings = Findings { report, safe: true };
        let reached = findings.judge("answers", self.answers().await);
        if reached && let Some(ttl) = self.smallest(&mut findings).await {
            // Where no expiry is waited for, none is to come in between.
            let (scratch, long) = (self.scratch, ttl * 10);
            findings.judge("compare-and-set", order::one_of_many_wins(scratch, long).await);
            findings.judge("identity", order::a_process_knows_its_own(scratch, long).await);
            findings.judge("epochs", order::epochs_rise(scratch, long).await);
            findings.judge("renewal", hold::a_renewed_lease_lasts(scratch, ttl, &self.takeover).await);
            let (expiry, loss) = hold::a_silent_holder_loses(scratch, ttl, &self.takeover).await;
            findings.judge("expiry", expiry);
            findings.judge("loss signal", loss);
            findings.judge("release", hold::a_release_frees_at_once(scratch, long).await);
            findings.judge("watch", wake::a_waiter_is_woken(scratch, long).await);
            findings.judge("round-trip time", wake::answers_in_time(scratch, long, self.wanted).await);
            findings
                .judge("clock source", Ok(Proof::of(format!("{} ends a lease, as with every store of this kind", self.takeover.clock))));
        }
        if reached {
            findings.judge("clean-up", self.scratch.clear().await.map(|()| Proof::of("no record of the check is left in the store")));
        }
        findings.safe
    }

    async fn answers(&self) -> Result<Proof, Flaw> {
        let lock = self.scratch.lock(self.wanted.ttl())?;
        match call::leader(&*lock).await? {
            None => Ok(Proof::of(format!("the scratch place {} is empty", self.scratch.place()))),
            Some(leader) => Err(Flaw::broken(format!("{} leads in the scratch place {}", leader.address, self.scratch.place()))),
        }
    }

    /// Finds the least TTL that the store grants, and the one to check with; and whether the wanted one is granted.
    async fn smallest(&self, findings: &mut Findings<impl FnMut(&Finding)>) -> Option<Duration> {
        let (least, outcome) = match hold::smallest(self.scratch).await {
            Ok((asked, granted)) if asked == granted => (Some(granted), Ok(Proof::of(format!("{} is granted", words(asked))))),
            Ok((asked, granted)) => {
                (Some(granted), Ok(Proof::of(format!("{} is granted when {} is asked for", words(granted), words(asked)))))
            }
            Err(flaw) => (None, Err(flaw)),
        };
        findings.judge("smallest TTL", outcome);
        let granted = self.scratch.granted(self.wanted.ttl()).await;
        let wanted = words(self.wanted.ttl());
        findings.judge(
            "wanted TTL",
            match granted {
                Ok(granted) if granted == self.wanted.ttl() => Ok(Proof::of(format!("{wanted} is granted"))),
                Ok(granted) => {
                    Ok(Proof::odd(format!("{wanted} is asked for and {} granted: a crash costs what is granted", words(granted))))
                }
                Err(flaw) => Err(flaw.with(match least {
                    Some(least) => format!("{wanted} is not granted, {} is", words(least)),
                    None => format!("{wanted} is not granted"),
                })),
            },
        );
        least.map(|least| least.max(CALM_TTL))
    }
}

/// What was found so far.
struct Findings<R> {
    report: R,
    safe: bool,
}

impl<R: FnMut(&Finding)> Findings<R> {
    /// Reports what came of one promise. True when it is kept.
    fn judge(&mut self, promise: &'static str, outcome: Result<Proof, Flaw>) -> bool {
        let finding = Finding::new(promise, outcome);
        (self.report)(&finding);
        let kept = finding.verdict != Verdict::Broken;
        self.safe &= kept;
        kept
    }
}

#[cfg(test)]
mod tests;
