//! How soon one hears of a change, and how long a call takes.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::call;
use super::finding::{Flaw, Proof};
use super::hold::brief;
use super::order::win;
use super::scratch::Scratch;
use crate::duration::words;
use crate::replication::Timing;
use crate::store::{Leader, Lock, Renewal};

/// A change is heard of within this, or not at all.
const PROMPT: Duration = Duration::from_secs(10);
/// How long to listen for hints while nothing changes, and how many are too many.
const QUIET: Duration = Duration::from_secs(1);
const TOO_MANY: usize = 20;
const CALLS: u32 = 20;

pub(super) async fn a_waiter_is_woken(scratch: &Scratch, ttl: Duration) -> Result<Proof, Flaw> {
    let [holder, waiter] = scratch.afresh([ttl; 2]).await?;
    let mut lease = win(&*holder, "nobody else tried").await?;
    let seen = call::leader(&*waiter).await?;
    heard(&*waiter, None, "somebody leads already").await?;
    let hints = hints_for_nothing(&*waiter, seen.as_ref()).await;
    let woken = async {
        heard(&*waiter, seen.as_ref(), "the lock was given back").await?;
        Ok::<_, Flaw>(Instant::now())
    };
    let given_back = async {
        // Once the waiter waits.
        tokio::time::sleep(Duration::from_millis(100)).await;
        let sent = Instant::now();
        call::release(&mut *lease).await.map(|()| sent)
    };
    let (woken, sent) = tokio::join!(woken, given_back);
    let sentence = format!("a waiting node heard of a release after {}", brief(woken?.saturating_duration_since(sent?)));
    match hints {
        few if few < TOO_MANY => Ok(Proof::of(sentence)),
        many => Ok(Proof::odd(format!("{sentence}, and {many} times in {} of nothing: the store will be asked as often", words(QUIET)))),
    }
}

/// Waits for a hint, until the store names somebody else than `seen`.
async fn heard(waiter: &dyn Lock, seen: Option<&Leader>, why: &str) -> Result<(), Flaw> {
    let until = Instant::now() + PROMPT;
    let nothing =
        || Flaw::broken(format!("{why}, but nothing was heard of it within {}: a takeover would wait for the next look", words(PROMPT)));
    loop {
        timeout_at(until, waiter.changed(seen)).await.map_err(|_| nothing())??;
        if call::leader(waiter).await?.as_ref() != seen {
            return Ok(());
        }
        if Instant::now() >= until {
            return Err(nothing());
        }
        // A hint may be spurious.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// How many hints come while nothing changes.
async fn hints_for_nothing(waiter: &dyn Lock, seen: Option<&Leader>) -> usize {
    let (mut hints, until) = (0, Instant::now() + QUIET);
    while hints <= TOO_MANY && matches!(timeout_at(until, waiter.changed(seen)).await, Ok(Ok(()))) {
        hints += 1;
    }
    hints
}

pub(super) async fn answers_in_time(scratch: &Scratch, ttl: Duration, wanted: Timing) -> Result<Proof, Flaw> {
    let [lock] = scratch.afresh([ttl]).await?;
    let mut lease = win(&*lock, "nobody else tried").await?;
    let mut times = Vec::new();
    for _ in 0..CALLS {
        let sent = Instant::now();
        // Once, for a call that has to be made again is not in time.
        match timeout(PROMPT, lease.renew()).await {
            Ok(Ok(Renewal::Held)) => {}
            Ok(Ok(Renewal::Lost)) => return Err(Flaw::broken("a lease was lost in the midst of its renewals")),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(Flaw::broken(format!("a renewal was not answered within {}", words(PROMPT)))),
        }
        times.push(sent.elapsed());
    }
    times.sort_unstable();
    let (median, worst, limit) = (times[times.len() / 2], times[times.len() - 1], wanted.call_timeout());
    let sentence = format!("a renewal took {} in the middle and {} at most of {CALLS}", brief(median), brief(worst));
    let sentence = format!("{sentence}, a TTL of {} gives it {}", words(wanted.ttl()), words(limit));
    let needed = words(Duration::from_secs((worst * 3).as_secs() + 1));
    if median >= limit {
        Err(Flaw::broken(format!("{sentence}: use a TTL of {needed} or more")))
    } else if worst >= limit {
        Ok(Proof::odd(format!("{sentence}: better use {needed}")))
    } else {
        Ok(Proof::of(sentence))
    }
}
