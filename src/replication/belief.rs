//! Which leader to believe, among what a store says at different times.
//!
//! Epochs grow, so a leader with a smaller one than was seen before, or with another's, is old news — unless the store lost
//! its data and counts anew. The two are told apart by time: a store that names such an epoch for a full TTL means it, and
//! by then whoever led before is over.

use std::time::Duration;

use tokio::time::Instant;

use crate::node::Address;
use crate::store::{Epoch, Leader};

#[derive(Debug, Default)]
pub(super) struct Belief {
    highest: Option<(Epoch, Holder)>,
    doubted: Option<(Leader, Instant)>,
}

/// Whose tenure an epoch is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    This,
    Other(Address),
}

impl Belief {
    /// The leader to follow, given that the store named `leader` at `now`.
    pub(super) fn judge(&mut self, leader: Option<Leader>, now: Instant, ttl: Duration) -> Option<Leader> {
        let leader = leader?;
        let holder = Holder::Other(leader.address.clone());
        if !self.doubts(leader.epoch, &holder) {
            self.accept(leader.epoch, holder);
            return Some(leader);
        }
        match &self.doubted {
            Some((doubted, since)) if *doubted == leader => {
                if now.saturating_duration_since(*since) < ttl {
                    return None;
                }
                self.accept(leader.epoch, holder);
                Some(leader)
            }
            Some(_) | None => {
                self.doubted = Some((leader, now));
                None
            }
        }
    }

    /// Whether a greater epoch than this one was seen, or the same one in other hands.
    pub(super) fn doubts(&self, epoch: Epoch, holder: &Holder) -> bool {
        self.highest.as_ref().is_some_and(|(highest, known)| epoch < *highest || (epoch == *highest && holder != known))
    }

    /// Takes `epoch` for the present one, whatever was seen before.
    pub(super) fn accept(&mut self, epoch: Epoch, holder: Holder) {
        self.highest = Some((epoch, holder));
        self.doubted = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(3);

    fn leader(epoch: u64) -> Leader {
        Leader { address: "10.0.0.1:4000".parse().unwrap(), epoch: Epoch(epoch) }
    }

    #[test]
    fn a_smaller_epoch_is_believed_after_a_full_ttl() {
        let mut belief = Belief::default();
        let start = crate::clock::now();
        assert_eq!(belief.judge(Some(leader(7)), start, TTL), Some(leader(7)));
        assert_eq!(belief.judge(Some(leader(2)), start, TTL), None);
        assert_eq!(belief.judge(Some(leader(2)), start + TTL / 2, TTL), None);
        assert_eq!(belief.judge(Some(leader(2)), start + TTL, TTL), Some(leader(2)));
        assert_eq!(belief.judge(Some(leader(3)), start + TTL, TTL), Some(leader(3)), "the store's new count is the count");
    }

    #[test]
    fn another_small_epoch_starts_the_wait_again() {
        let mut belief = Belief::default();
        let start = crate::clock::now();
        belief.judge(Some(leader(7)), start, TTL);
        assert_eq!(belief.judge(Some(leader(2)), start, TTL), None);
        assert_eq!(belief.judge(Some(leader(3)), start + TTL, TTL), None);
        assert_eq!(belief.judge(Some(leader(7)), start + TTL, TTL), Some(leader(7)));
        assert_eq!(belief.judge(Some(leader(3)), start + TTL * 2, TTL), None, "believing the greater one ended the doubt");
    }

    #[test]
    fn the_same_epoch_in_other_hands_is_one_of_a_store_that_counts_anew() {
        let mut belief = Belief::default();
        let start = crate::clock::now();
        belief.judge(Some(leader(2)), start, TTL);
        assert!(belief.doubts(Epoch(2), &Holder::This), "its holder may serve on");
        let other = Leader { address: "10.0.0.2:4000".parse().unwrap(), epoch: Epoch(2) };
        assert_eq!(belief.judge(Some(other.clone()), start, TTL), None);
        assert_eq!(belief.judge(Some(other.clone()), start + TTL, TTL), Some(other));
        belief.accept(Epoch(5), Holder::This);
        assert!(!belief.doubts(Epoch(5), &Holder::This), "a tenure of our own that is taken up again");
    }
}
