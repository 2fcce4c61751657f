//! Who gets the lock, and under which number.

use std::time::Duration;

use futures_util::future::join_all;

use super::call;
use super::finding::{Flaw, Proof, named};
use super::scratch::Scratch;
use crate::store::{Attempt, Epoch, Lease, Lock};

const RACERS: usize = 8;
const TENURES: usize = 4;

/// Acquires a lock that must be free.
pub(super) async fn win(lock: &dyn Lock, why: &str) -> Result<Box<dyn Lease>, Flaw> {
    match call::acquire(lock).await? {
        Attempt::Held(lease) => Ok(lease),
        Attempt::Taken(Some(leader)) => Err(Flaw::broken(format!("{why}, yet the lock is said to be held by {}", leader.address))),
        Attempt::Taken(None) => Err(Flaw::broken(format!("{why}, yet the lock is refused"))),
    }
}

/// Tries to acquire a lock that somebody else holds.
pub(super) async fn lose(lock: &dyn Lock, why: &str) -> Result<(), Flaw> {
    match call::acquire(lock).await? {
        Attempt::Taken(_) => Ok(()),
        Attempt::Held(lease) => Err(Flaw::broken(format!("{why}, yet the lock was given once more, under epoch {}", lease.epoch()))),
    }
}

pub(super) async fn one_of_many_wins(scratch: &Scratch, ttl: Duration) -> Result<Proof, Flaw> {
    let racers = scratch.afresh([ttl; RACERS]).await?;
    let attempts = join_all(racers.iter().map(|racer| call::acquire(&**racer))).await;
    let mut winners = Vec::new();
    for attempt in attempts {
        if let Attempt::Held(lease) = attempt? {
            winners.push(lease);
        }
    }
    let [winner] = &winners[..] else {
        return Err(Flaw::broken(format!("{} of {RACERS} nodes that tried at once were given the lock", winners.len())));
    };
    for answer in join_all(racers.iter().map(|racer| call::leader(&**racer))).await {
        match answer? {
            Some(leader) if leader.epoch == winner.epoch() => {}
            other => {
                return Err(Flaw::broken(format!(
                    "one node leads under epoch {}, another is told of {}",
                    winner.epoch(),
                    named(other.as_ref())
                )));
            }
        }
    }
    Ok(Proof::of(format!("of {RACERS} nodes at once one was given the lock, and all were told which")))
}

/// A lost answer must not cost a TTL, and a process that only has the same address must not pass for another.
pub(super) async fn a_process_knows_its_own(scratch: &Scratch, ttl: Duration) -> Result<Proof, Flaw> {
    let [] = scratch.afresh([]).await?;
    let (own, twin) = (scratch.lock_at("twin.invalid:1", ttl)?, scratch.lock_at("twin.invalid:1", ttl)?);
    drop(win(&*own, "nobody else tried").await?);
    lose(&*twin, "another process at the same address holds it").await?;
    win(&*own, "this very process has it, though it lost the answer").await?;
    Ok(Proof::of("a process finds its own record again, and is not taken for its twin"))
}

pub(super) async fn epochs_rise(scratch: &Scratch, ttl: Duration) -> Result<Proof, Flaw> {
    let locks = scratch.afresh([ttl; 2]).await?;
    let mut last: Option<Epoch> = None;
    for number in 0..TENURES {
        // The same node twice in a row, too.
        let lock = &locks[number / 2 % locks.len()];
        let mut lease = win(&**lock, "the last tenure has ended").await?;
        let epoch = lease.epoch();
        if let Some(last) = last.filter(|last| *last >= epoch) {
            return Err(Flaw::broken(format!("epoch {epoch} came after {last}: the app could not tell a late request from a new one")));
        }
        last = Some(epoch);
        call::release(&mut *lease).await?;
    }
    Ok(Proof::of(format!("each of {TENURES} tenures had a greater one than the last")))
}
