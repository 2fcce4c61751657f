//! How many clients may be connected at once, and who is let in beyond that.
//!
//! A connection does not say who is at its other end before its first request. So the limit has a reserve: whoever comes in
//! through it is served if that is another node, or somebody who asks about this node itself, and else told to come again.
//! A crowd of clients thus locks out neither replicas nor health checks, though one that fills the reserve again and again
//! does. Whoever comes when the reserve is full, too, is sent away unheard: to wait in the backlog would look to a load
//! balancer like a node that is only slow.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a connection of the reserve may be silent: what other nodes and health checks have to say, they say at once.
pub(super) const RESERVE_PATIENCE: Duration = Duration::from_secs(2);

/// How many connections there are beyond `most`.
pub(super) fn reserve(most: usize) -> usize {
    (most / 16).max(16)
}

/// How many connections all workers together have open, and may have.
#[derive(Debug)]
pub(super) struct Gate {
    ordinary: Share,
    reserved: Share,
}

#[derive(Debug)]
struct Share {
    most: usize,
    taken: AtomicUsize,
}

impl Share {
    fn new(most: usize) -> Self {
        Self { most, taken: AtomicUsize::new(0) }
    }

    fn take(&self) -> bool {
        let one_more = |taken: usize| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn give_back(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { ordinary: Share::new(most), reserved: Share::new(reserve(most)) })
    }

    /// Lets one connection in until its pass is dropped; `None` when there is no room for it.
    pub(super) fn enter(self: &Arc<Self>) -> Option<Pass> {
        let reserved = !self.ordinary.take();
        if reserved && !self.reserved.take() {
            return None;
        }
        Some(Pass { gate: Arc::clone(self), reserved: Cell::new(reserved) })
    }
}

/// One connection's place.
#[derive(Debug)]
pub(super) struct Pass {
    gate: Arc<Gate>,
    reserved: Cell<bool>,
}

impl Pass {
    /// Whether the connection is one of the reserve. It is none any more once there is an ordinary place for it.
    pub(super) fn is_reserved(&self) -> bool {
        if self.reserved.get() && self.gate.ordinary.take() {
            self.gate.reserved.give_back();
            self.reserved.set(false);
        }
        self.reserved.get()
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let share = if self.reserved.get() { &self.gate.reserved } else { &self.gate.ordinary };
        share.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_entered_last_and_left_as_soon_as_there_is_room() {
        let gate = Gate::new(2);
        let ordinary = [gate.enter().unwrap(), gate.enter().unwrap()];
        assert!(ordinary.iter().all(|pass| !pass.is_reserved()));
        let mut reserved: Vec<Pass> = (0..reserve(2)).map(|_| gate.enter().unwrap()).collect();
        assert!(reserved.iter().all(Pass::is_reserved));
        assert!(gate.enter().is_none(), "the reserve is full");
        drop(ordinary);
        assert!(!reserved[0].is_reserved() && !reserved[1].is_reserved() && reserved[2].is_reserved());
        assert!(gate.enter().unwrap().is_reserved(), "two places of the reserve are free again");
        reserved.clear();
        assert_eq!([&gate.ordinary, &gate.reserved].map(|share| share.taken.load(Ordering::Relaxed)), [0, 0]);
    }
}
