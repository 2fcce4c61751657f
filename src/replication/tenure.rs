//! One tenure, while it lasts: the lease, its deadline, and the renewals that move it.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::debug;

use super::Timing;
use super::calls::Calls;
use crate::clock;
use crate::node::Address;
use crate::store::{Epoch, Leader, Lease, Renewal};

/// How soon after a renewal a hint is followed at the latest, however long the TTL: whoever ends a tenure by hand lets the
/// next one begin soon after.
const LONGEST_DEAFNESS: Duration = Duration::from_millis(250);

pub(super) struct Tenure {
    lease: Box<dyn Lease>,
    me: Leader,
    timing: Timing,
    deadline: Instant,
    last_call: Instant,
    next_renewal: Instant,
}

/// What came of one round of [`Tenure::keep`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// The deadline moved.
    Extended,
    /// The store gave no decision; the deadline stands.
    Unanswered,
    /// The tenure is over, and why.
    Over(&'static str),
}

impl Tenure {
    /// A tenure that the store granted to `address` in answer to a call sent at `sent`.
    pub(super) fn new(lease: Box<dyn Lease>, address: Address, sent: Instant) -> Self {
        let timing = Timing::granted(lease.ttl());
        let me = Leader { address, epoch: lease.epoch() };
        Self { me, timing, deadline: sent + timing.serve_for(), last_call: sent, next_renewal: sent + timing.renew_every(), lease }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.me.epoch
    }

    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn is_over(&self) -> bool {
        clock::now() >= self.deadline
    }

    /// Waits until a renewal is due, or the store hints at a change, and renews once.
    ///
    /// # Cancel safety
    /// May be dropped at any time; the deadline then stands as it was last confirmed.
    pub(super) async fn keep(&mut self, calls: &Calls) -> Kept {
        let hint = async {
            if calls.changed(Some(&self.me)).await.is_err() {
                std::future::pending::<()>().await;
            }
            // A store that keeps hinting must not turn renewals into a storm; and one that has a reason must be heard soon.
            sleep_until(self.last_call + (self.timing.ttl() / 30).min(LONGEST_DEAFNESS)).await;
        };
        tokio::select! {
            () = sleep_until(self.next_renewal.min(self.deadline)) => {}
            () = hint => debug!(epoch = %self.me.epoch, "store hints at a change, renewing early"),
        }
        self.renew(calls).await
    }

    async fn renew(&mut self, calls: &Calls) -> Kept {
        let sent = clock::now();
        if sent >= self.deadline {
            return Kept::Over("no renewal was confirmed in time");
        }
        self.last_call = sent;
        // Until it is confirmed, the next try comes soon, also when this future is dropped here.
        self.next_renewal = sent + self.timing.retry_after();
        match timeout_at(self.deadline, calls.renew(self.lease.as_mut())).await {
            Ok(Ok(Renewal::Held)) => {
                calls.counters().renewed_with(self.deadline.saturating_duration_since(clock::now()));
                self.deadline = sent + self.timing.serve_for();
                self.next_renewal = sent + self.timing.renew_every();
                Kept::Extended
            }
            Ok(Ok(Renewal::Lost)) => Kept::Over("the store no longer names this tenure"),
            Ok(Err(_)) => {
                self.next_renewal = clock::now() + self.timing.retry_after();
                Kept::Unanswered
            }
            Err(_) => Kept::Over("no renewal was confirmed in time"),
        }
    }

    /// Tells the store once that this tenure, which is over, is no longer wanted. The store forgets it by itself otherwise.
    pub(super) async fn let_go(mut self, calls: &Calls) {
        if let Err(error) = calls.release(self.lease.as_mut()).await {
            debug!(epoch = %self.me.epoch, %error, "could not let go of a lost tenure");
        }
    }

    /// Gives the lock back, trying again while the store has not yet taken it back by itself. True when it was given.
    pub(super) async fn release(mut self, calls: &Calls) -> bool {
        let gone_by_itself = self.deadline + self.timing.margin();
        loop {
            if calls.release(self.lease.as_mut()).await.is_ok() {
                return true;
            }
            if clock::now() + self.timing.retry_after() >= gone_by_itself {
                return false;
            }
            tokio::time::sleep(self.timing.retry_after().max(Duration::from_millis(10))).await;
        }
    }
}
