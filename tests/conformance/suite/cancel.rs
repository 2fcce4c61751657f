//! Calls whose caller went away, at any point.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use bellwether::store::{Attempt, Epoch, Leader, Lease, Lock};
use tokio::time;

use super::steps::{brief_client, campaign, client, leader, lose, release, win, withdraw};
use crate::harness::Harness;

/// Polls a call at most `times` times, leaves it alone for a moment in which what it sent may take effect, and drops it
/// where it then stands; a call that only waits is dropped in the end.
async fn poll_at_most<F: Future>(times: usize, moment: Duration, call: F) -> Option<F::Output> {
    let mut call = pin!(call);
    let mut left = times;
    let polled = poll_fn(|context| {
        left -= 1;
        match call.as_mut().poll(context) {
            Poll::Pending if left == 0 => Poll::Ready(None),
            poll => poll.map(Some),
        }
    });
    let outcome = time::timeout(Duration::from_millis(30), polled).await.unwrap_or(None);
    if outcome.is_none() && !moment.is_zero() {
        time::sleep(moment).await;
    }
    outcome
}

pub(crate) async fn an_attempt_whose_reply_was_lost_is_adopted<S: Harness>(store: &S) {
    let ((a, first), (_, second)) = (client(store, 1), client(store, 2));
    let written = written_by_a_dropped_attempt(&*first, &*second).await;
    assert_eq!(written.address, a.address);
    lose(&*second, "the first has it, although it does not know").await;
    let lease = win(&*first, "the record in its way is its own").await;
    assert!(lease.epoch() >= written.epoch, "{} after {}", lease.epoch(), written.epoch);
    assert_eq!(leader(&*second).await, Some(Leader { address: a.address, epoch: lease.epoch() }));
}

/// Drops attempts of the first, each a little later than the one before, until one has reached the store, as the second
/// sees, and nobody was there for its reply.
async fn written_by_a_dropped_attempt(first: &dyn Lock, second: &dyn Lock) -> Leader {
    let mut times = 1;
    for _ in 0..1_000 {
        let attempt = poll_at_most(times, Duration::from_millis(5), first.acquire()).await;
        match (attempt, leader(second).await) {
            (None, Some(written)) => return written,
            (Some(Ok(Attempt::Held(mut lease))), _) => {
                release(&mut *lease).await;
                times = 1;
            }
            (None | Some(_), _) => times += 1,
        }
    }
    panic!("no attempt was dropped between its effect and its reply");
}

/// B55: whatever a dropped call leaves behind, the lock works, and nothing is held by nobody for longer than a TTL.
pub(crate) async fn calls_may_be_dropped_anywhere<S: Harness>(store: &S) {
    for seed in 0..3 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let clients = [brief_client(store, 1), brief_client(store, 2)];
        let mut leases: [Option<Box<dyn Lease>>; 2] = [None, None];
        let mut greatest = Epoch(0);
        for _ in 0..60 {
            let turn = rng.usize(..clients.len());
            let (lock, lease) = (&*clients[turn].1, &mut leases[turn]);
            let (times, moment) = (rng.usize(1..12), Duration::from_micros(rng.u64(..3) * 500));
            match (rng.u8(..6), lease.as_deref_mut()) {
                (0 | 1, Some(lease)) => drop(poll_at_most(times, moment, lease.renew()).await),
                (2, Some(lease)) => drop(poll_at_most(times, moment, lease.release()).await),
                (3, _) => drop(poll_at_most(times, moment, lock.withdraw()).await),
                (4, _) => drop(poll_at_most(times, moment, lock.changed(None)).await),
                (5, _) => drop(poll_at_most(times, moment, lock.leader()).await),
                _ => {
                    if let Some(Ok(Attempt::Held(held))) = poll_at_most(times, moment, lock.acquire()).await {
                        assert!(held.epoch() >= greatest, "seed {seed}: {} after {greatest}", held.epoch());
                        greatest = held.epoch();
                        *lease = Some(held);
                    }
                }
            }
            time::sleep(Duration::from_micros(rng.u64(..300))).await;
        }
        for (_, lock) in &clients {
            withdraw(&**lock).await;
        }
        let (_, heir) = brief_client(store, 3);
        let within = store.ttl() * 2 + store.slack();
        let lease = campaign(&*heir, within, "all others have withdrawn").await;
        assert!(lease.epoch() > greatest, "seed {seed}: {} after {greatest}", lease.epoch());
        withdraw(&*heir).await;
    }
}
