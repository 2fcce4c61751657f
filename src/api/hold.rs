//! Where requests wait for a primary: bounded in time, in number and in bytes, and only for as long as their clients do.
//!
//! A held request reads ahead in its body, as much as could be sent again anyway: so that a client is not kept from
//! sending a short one, and so that the library sees when the client leaves. It never reads the body of a client that
//! waits for a 100.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::api::error::{Failure, Reason};
use crate::api::forward::Exchange;
use crate::api::headers::preferred_wait;
use crate::replication::Role;

/// How often a request whose body cannot be read to its end looks whether its client is still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a request that met trouble waits before it tries again, unless the role changes; it doubles from here
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// up to here.
const LAST_PAUSE: Duration = Duration::from_millis(250);

/// How often a request that waits for a leader in trouble looks whether that is still the leader.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why a request waits.
#[derive(Debug)]
pub(super) enum Cause {
    /// No primary is known.
    NoPrimary,
    /// The primary that is known could not take the request; what happened, for people.
    Trouble(String),
}

/// How a wait ends that leads to no other try.
#[derive(Debug)]
pub(super) enum Ended {
    /// With an error of our own.
    Failed(Failure),
    /// The client is gone.
    Left,
}

/// How much may wait in all workers together.
#[derive(Debug)]
pub(super) struct Space {
    most_requests: usize,
    most_bytes: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
}

impl Space {
    pub(super) fn new(most_requests: usize, most_bytes: usize) -> Arc<Self> {
        Arc::new(Self { most_requests, most_bytes, requests: AtomicUsize::new(0), bytes: AtomicUsize::new(0) })
    }

    /// Room for one request that takes `bytes`, until the slot is dropped.
    pub(super) fn enter(self: &Arc<Self>, bytes: usize) -> Option<Slot> {
        if !take(&self.requests, 1, self.most_requests) {
            return None;
        }
        let mut slot = Slot { space: Arc::clone(self), bytes: 0 };
        slot.grow(bytes).then_some(slot)
    }
}

/// One held request's share of the [`Space`].
#[derive(Debug)]
pub(super) struct Slot {
    space: Arc<Space>,
    bytes: usize,
}

impl Slot {
    /// Makes room for more bytes, if there is some.
    fn grow(&mut self, bytes: usize) -> bool {
        let grown = take(&self.space.bytes, bytes, self.space.most_bytes);
        self.bytes += if grown { bytes } else { 0 };
        grown
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.space.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.space.requests.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds to a counter unless that takes it past `most`.
fn take(counter: &AtomicUsize, more: usize, most: usize) -> bool {
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |now| now.checked_add(more).filter(|sum| *sum <= most)).is_ok()
}

/// Waits until a request that was tried under the role `seen` is worth another try. Otherwise returns how it ends.
pub(super) async fn wait(exchange: &mut Exchange, seen: &Role, cause: &Cause) -> Result<(), Ended> {
    let core = exchange.core();
    let limit = || preferred_wait(&exchange.head.headers).map_or(core.config.hold_timeout, |wait| wait.min(core.config.hold_timeout));
    let deadline = exchange.deadline.unwrap_or_else(|| Instant::now() + limit());
    exchange.deadline = Some(deadline);
    let Some(mut slot) = core.space.enter(exchange.terms.bytes) else {
        return Err(Ended::Failed(exchange.fail(Reason::HoldFull, "too many requests are waiting for a primary already")));
    };
    exchange.ticket.hold();
    let ended = tokio::select! {
        biased;
        () = worth_a_try(exchange, seen, cause) => Ok(()),
        () = departure(exchange) => Err(Ended::Left),
        () = core.hold_over.cancelled() => Err(give_up(exchange, cause)),
        _ = timeout_at(deadline, read_ahead(exchange, &mut slot)) => Err(give_up(exchange, cause)),
    };
    exchange.held += exchange.ticket.resume();
    ended
}

async fn worth_a_try(exchange: &Exchange, seen: &Role, cause: &Cause) {
    let core = &exchange.session.core;
    let roles = &core.shared.roles;
    match (cause, core.links.troubled()) {
        (Cause::NoPrimary, _) => {}
        (Cause::Trouble(_), Some(link)) => tokio::select! {
            _ = roles.changed(seen) => {}
            () = link.recovers() => {}
            // The link may have been given up meanwhile, and another one made.
            () = sleep(LOOK_AGAIN) => {}
        },
        (Cause::Trouble(_), None) => {
            let pause = FIRST_PAUSE.saturating_mul(1 << exchange.troubles.min(8)).min(LAST_PAUSE);
            timeout(pause, roles.changed(seen)).await.ok();
        }
    }
    roles.wait_until(|role| matches!(role, Role::Primary { .. } | Role::Replica(_))).await;
}

/// Returns when the client has left, where the library cannot see it: behind a body that is not being read, behind a
/// request that came too early (pipelining), or when its end is hidden. Everywhere else, the library drops the whole request.
async fn departure(exchange: &Exchange) {
    loop {
        sleep(LOOK_EVERY).await;
        if exchange.is_broken_off() || exchange.session.wire.is_abandoned() {
            return;
        }
    }
}

/// Reads ahead in the body while there is room, which others may make, and never returns.
async fn read_ahead(exchange: &Exchange, slot: &mut Slot) {
    if let Some(feed) = &exchange.feed {
        let mut owed = 0;
        loop {
            let mut has_room = |bytes| {
                owed = if slot.grow(bytes) { 0 } else { bytes };
                owed == 0
            };
            std::future::poll_fn(|cx| feed.poll_ahead(cx, &mut has_room)).await;
            if owed == 0 {
                break;
            }
            while !slot.grow(owed) {
                sleep(LOOK_EVERY).await;
            }
        }
    }
    std::future::pending().await
}

fn give_up(exchange: &Exchange, cause: &Cause) -> Ended {
    let message = match cause {
        Cause::NoPrimary => "no primary came up in time".to_owned(),
        Cause::Trouble(message) => format!("no primary could be reached in time: {message}"),
    };
    Ended::Failed(exchange.fail(Reason::NoPrimary, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hold_is_bounded_in_number_and_bytes_and_gives_back_both() {
        let space = Space::new(2, 100);
        let mut first = space.enter(60).unwrap();
        assert!(space.enter(60).is_none(), "no room for the bytes");
        let second = space.enter(10).unwrap();
        assert!(space.enter(0).is_none(), "no room for a third");
        assert!(!first.grow(31) && first.grow(30));
        drop((first, second));
        assert_eq!((space.requests.load(Ordering::Relaxed), space.bytes.load(Ordering::Relaxed)), (0, 0));
    }
}
