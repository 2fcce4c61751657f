//! For how long the lock is held, and who learns that it no longer is.

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::call;
use super::finding::{Flaw, Proof, named};
use super::order::{lose, win};
use super::scratch::Scratch;
use crate::duration::words;
use crate::store::{Attempt, Lease, Lock, Renewal, StoreError, Takeover};

/// The TTLs that are tried, until one is granted.
const LADDER: [Duration; 9] = [
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(3),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(15),
    Duration::from_secs(30),
    Duration::from_secs(60),
];
/// How late anything may be because the machine or the network is busy.
const SLACK: Duration = Duration::from_secs(1);
/// How long to wait for an expiry that is overdue before it is given up.
const OVERDUE: Duration = Duration::from_secs(15);
/// How often to try again what a busy machine was too slow for.
const TRIES: usize = 3;
/// What needs no TTL to run out takes less than this.
const PROMPT: Duration = Duration::from_secs(10);

/// The least TTL that the store takes, and what it makes of it.
pub(super) async fn smallest(scratch: &Scratch) -> Result<(Duration, Duration), Flaw> {
    let mut refusal = None;
    for ttl in LADDER {
        match scratch.granted(ttl).await {
            Ok(granted) => return Ok((ttl, granted)),
            Err(flaw @ (Flaw::Broken(_) | Flaw::Undecided(StoreError::Unavailable { .. }))) => return Err(flaw),
            Err(flaw) => refusal = Some(flaw),
        }
    }
    let sentence = format!("none from {} to {} is granted", words(LADDER[0]), words(LADDER[LADDER.len() - 1]));
    Err(refusal.map_or(Flaw::broken(sentence.clone()), |refusal| refusal.with(sentence)))
}

pub(super) async fn a_renewed_lease_lasts(scratch: &Scratch, ttl: Duration, takeover: &Takeover) -> Result<Proof, Flaw> {
    for _ in 0..TRIES {
        if let Some(proof) = renewed_in_time(scratch, ttl, takeover).await? {
            return Ok(proof);
        }
    }
    Err(Flaw::broken(format!(
        "{TRIES} times a renewal or its answer came only after the TTL of {}: the store or the way to it is too slow",
        words(ttl)
    )))
}

/// Renews for longer than a silent holder's lock is held. Nothing, when this machine or the way to the store was too slow to tell.
async fn renewed_in_time(scratch: &Scratch, ttl: Duration, takeover: &Takeover) -> Result<Option<Proof>, Flaw> {
    let [holder, rival] = scratch.afresh([ttl; 2]).await?;
    let started = Instant::now();
    let mut lease = win(&*holder, "nobody else tried").await?;
    let (ttl, mut renewed) = (lease.ttl(), started);
    while started.elapsed() < latest(ttl, takeover) {
        sleep(ttl / 3).await;
        let sent = Instant::now();
        let renewal = call::renew(&mut *lease).await?;
        if renewed.elapsed() >= ttl {
            return Ok(None);
        }
        if renewal == Renewal::Lost {
            let (ttl, after) = (words(ttl), brief(started.elapsed()));
            return Err(Flaw::broken(format!("a lease that was renewed three times a TTL of {ttl} was lost after {after}")));
        }
        renewed = sent;
        let lost = lose(&*rival, "the holder renews in time").await;
        if renewed.elapsed() >= ttl {
            return Ok(None);
        }
        lost?;
    }
    Ok(Some(Proof::of(format!("held for {} with a TTL of {}", brief(started.elapsed()), words(ttl)))))
}

/// Whether a silent holder's lock goes to the next one, and whether the old holder is told. The second is tried also where the
/// first fails, with a holder that gave its record back.
pub(super) async fn a_silent_holder_loses(
    scratch: &Scratch,
    ttl: Duration,
    takeover: &Takeover,
) -> (Result<Proof, Flaw>, Result<Proof, Flaw>) {
    let try_both = async {
        // The second is to hold it for longer than anything that follows takes.
        let [first, second] = scratch.afresh([ttl, ttl * 10]).await?;
        let sent = Instant::now();
        let old = win(&*first, "nobody else tried").await?;
        Ok::<_, Flaw>((first, second, sent, old))
    };
    let (first, second, sent, mut old) = match try_both.await {
        Ok(ready) => ready,
        Err(flaw) => return (Err(flaw), Err(Flaw::broken("could not be tried without a lease"))),
    };
    let due = latest(old.ttl(), takeover);
    match next_after(&*second, sent + due + OVERDUE).await {
        Err(flaw) => (Err(flaw), Err(Flaw::broken("could not be tried without a second tenure"))),
        Ok(Some(new)) => {
            let after = sent.elapsed();
            let loss = told(&mut *old, new, &*second).await;
            (judge_expiry(after, old.ttl(), due), loss)
        }
        Ok(None) => {
            let sentence = format!("still held {} after its last renewal with a TTL of {}", brief(sent.elapsed()), words(old.ttl()));
            let loss = async {
                call::withdraw(&*first).await?;
                let new = win(&*second, "the first has withdrawn").await?;
                told(&mut *old, new, &*second).await
            };
            (Err(Flaw::broken(format!("{sentence}: nobody would follow a primary that crashed"))), loss.await)
        }
    }
}

fn judge_expiry(after: Duration, ttl: Duration, due: Duration) -> Result<Proof, Flaw> {
    let sentence = format!("a silent holder's lock was free after {} with a TTL of {}", brief(after), words(ttl));
    if after < ttl {
        Err(Flaw::broken(format!("{sentence}: two primaries could serve at once")))
    } else if after > due + SLACK {
        Ok(Proof::odd(format!("{sentence}, later than the {} that a plan counts with", brief(due))))
    } else {
        Ok(Proof::of(sentence))
    }
}

/// Campaigns as a candidate does. Nothing, when the lock is not given until `until`.
async fn next_after(lock: &dyn Lock, until: Instant) -> Result<Option<Box<dyn Lease>>, Flaw> {
    loop {
        match call::acquire(lock).await? {
            Attempt::Held(lease) => return Ok(Some(lease)),
            Attempt::Taken(_) if Instant::now() >= until => return Ok(None),
            Attempt::Taken(by) => {
                let look = until.min(Instant::now() + Duration::from_millis(100));
                match timeout_at(look, lock.changed(by.as_ref())).await {
                    Ok(Ok(())) => sleep(Duration::from_millis(10)).await,
                    Ok(Err(_)) => sleep(Duration::from_millis(100)).await,
                    Err(_) => {}
                }
            }
        }
    }
}

/// Whether the holder of a tenure that another one followed hears of it, and harms nobody when it lets go.
async fn told(old: &mut dyn Lease, mut new: Box<dyn Lease>, second: &dyn Lock) -> Result<Proof, Flaw> {
    if new.epoch() <= old.epoch() {
        return Err(Flaw::broken(format!("epoch {} came after {}", new.epoch(), old.epoch())));
    }
    if call::renew(old).await? == Renewal::Held {
        return Err(Flaw::broken("a holder was told that its lease goes on when another one had it: two primaries would serve at once"));
    }
    call::release(old).await?;
    if call::renew(&mut *new).await? == Renewal::Lost {
        return Err(Flaw::broken("a lost lease that was given back took the next holder's with it"));
    }
    match call::leader(second).await? {
        Some(leader) if leader.epoch == new.epoch() => Ok(Proof::of("a holder that was replaced is told at its next renewal")),
        other => Err(Flaw::broken(format!("epoch {} holds the lock, but the store names {}", new.epoch(), named(other.as_ref())))),
    }
}

pub(super) async fn a_release_frees_at_once(scratch: &Scratch, ttl: Duration) -> Result<Proof, Flaw> {
    let [first, second] = scratch.afresh([ttl; 2]).await?;
    let mut lease = win(&*first, "nobody else tried").await?;
    lose(&*second, "the first holds it").await?;
    let released = Instant::now();
    call::release(&mut *lease).await?;
    match next_after(&*second, released + PROMPT).await? {
        Some(_) => Ok(Proof::of(format!("the next one had the lock after {}", brief(released.elapsed())))),
        None => Err(Flaw::broken(format!("the lock was not free {} after it was given back", brief(released.elapsed())))),
    }
}

/// When a silent holder's lock is free at the latest.
fn latest(ttl: Duration, takeover: &Takeover) -> Duration {
    ttl * takeover.lasts + takeover.delay + takeover.late + takeover.look_every(ttl)
}

/// A duration as it was measured, in few digits.
pub(super) fn brief(duration: Duration) -> String {
    format!("{duration:.1?}")
}
