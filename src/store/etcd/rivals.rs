//! Other nodes that were ahead in the line, and whose key is gone while their lease may not be.
//!
//! A node's key goes with its lease, and then the node is known to lead no more. When a person deletes the key alone, its
//! owner still serves until it hears of it: whoever moves up must first see that lease end. The owner ends it as soon as
//! it has let go; the lease of a frozen one runs out. In no case is it waited for longer than the last tenure that it can
//! have confirmed. Of candidates of another make, like `etcdctl elect`, a deleted key is how they resign.

use std::time::Duration;

use tokio::time::Instant;

use super::line::Line;
use super::session::is_of_a_node;

#[derive(Default, Debug)]
pub(super) struct Rivals {
    known: Vec<Rival>,
}

#[derive(Debug)]
struct Rival {
    lease: i64,
    key_is_gone: bool,
    /// Set once its lease was seen to have outlived its key: when its tenure is over all the same.
    over_by: Option<Instant>,
}

impl Rivals {
    /// Learns who is ahead of the candidate that holds `own`, and whose key is gone.
    pub(super) fn see(&mut self, line: &Line, own: Option<i64>) {
        let ahead = line.ahead_of(own);
        // Whoever stands behind us again has heard that its earlier key is gone.
        self.known.retain(|rival| !line.has(rival.lease) || ahead.iter().any(|candidate| candidate.lease == rival.lease));
        for rival in &mut self.known {
            rival.key_is_gone = !line.has(rival.lease);
        }
        for candidate in ahead.iter().filter(|candidate| is_of_a_node(candidate.lease)) {
            if !self.known.iter().any(|rival| rival.lease == candidate.lease) {
                self.known.push(Rival { lease: candidate.lease, key_is_gone: false, over_by: None });
            }
        }
    }

    /// The leases of those whose key is gone, and who are not known to lead no more.
    pub(super) fn missing(&self) -> Vec<i64> {
        self.known.iter().filter(|rival| rival.key_is_gone).map(|rival| rival.lease).collect()
    }

    /// Notes what the store says of the lease of one whose key is gone: the time it was `granted`, or that it has ended.
    pub(super) fn judge(&mut self, lease: i64, granted: Option<Duration>, now: Instant) {
        self.known.retain_mut(|rival| match granted {
            _ if rival.lease != lease => true,
            None => false,
            Some(granted) => now < *rival.over_by.get_or_insert(now + granted),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::Candidate;
    use super::*;

    /// A node's lease, and one that etcd has numbered.
    const NODE: i64 = 0x6277 << 48;
    const OTHER: i64 = 0x7d7b << 48;

    fn line(leases: &[i64]) -> Line {
        let candidates = leases.iter().map(|&lease| Candidate { lease, created: lease }).collect();
        Line { candidates, strangers: Vec::new(), oldest: None, revision: 100, term: 1 }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_is_waited_for_until_its_lease_ends_or_its_last_tenure_must_be_over() {
        let [first, second, own] = [NODE + 1, NODE + 2, NODE + 3];
        let mut rivals = Rivals::default();
        rivals.see(&line(&[first, second, own]), Some(own));
        assert_eq!(rivals.missing(), [0; 0]);
        rivals.see(&line(&[own]), Some(own));
        assert_eq!(rivals.missing(), [first, second]);

        let (start, ttl) = (Instant::now(), Duration::from_secs(10));
        rivals.judge(first, None, start);
        rivals.judge(second, Some(ttl), start);
        assert_eq!(rivals.missing(), [second]);
        rivals.judge(second, Some(ttl), start + ttl - Duration::from_millis(1));
        assert_eq!(rivals.missing(), [second], "still within the tenure that it can have confirmed");
        rivals.judge(second, Some(ttl), start + ttl);
        assert_eq!(rivals.missing(), [0; 0]);
    }

    #[test]
    fn nobody_behind_us_is_a_rival_and_one_that_queued_again_is_none_any_more() {
        let [first, own, third] = [NODE + 1, NODE + 2, NODE + 3];
        let mut rivals = Rivals::default();
        rivals.see(&line(&[first, own, third]), Some(own));
        rivals.see(&line(&[own]), Some(own));
        assert_eq!(rivals.missing(), [first]);
        rivals.see(&line(&[own, first]), Some(own));
        assert_eq!(rivals.missing(), [0; 0]);
    }

    #[test]
    fn a_candidate_of_another_make_has_resigned_when_its_key_is_gone() {
        let mut rivals = Rivals::default();
        rivals.see(&line(&[OTHER, NODE]), Some(NODE));
        rivals.see(&line(&[NODE]), Some(NODE));
        assert_eq!(rivals.missing(), [0; 0]);
    }
}
