//! Who holds the lock, for how long, and under which epoch.

use bellwether::clock;
use bellwether::store::{Attempt, Leader, Lease, Lock, Renewal};
use tokio::time::{self, Instant};

use super::steps::{acquire, brief_client, campaign, client, leader, lose, release, renew, win, withdraw};
use crate::harness::Harness;

pub(crate) async fn of_many_racers_one_wins<S: Harness>(store: &S) {
    let racers: Vec<_> = (1..=8).map(|port| client(store, port)).collect();
    let attempts = futures_util::future::join_all(racers.iter().map(|(_, lock)| acquire(&**lock))).await;
    let winners = attempts.iter().filter(|attempt| matches!(attempt, Attempt::Held(_))).count();
    assert_eq!(winners, 1, "{attempts:?}");
}

pub(crate) async fn a_taken_lock_names_its_leader_to_everybody<S: Harness>(store: &S) {
    let ((a, first), (_, second)) = (client(store, 1), client(store, 2));
    assert_eq!(leader(&*second).await, None, "nobody has campaigned");
    let lease = win(&*first, "nobody else campaigns").await;
    let named = Leader { address: a.address, epoch: lease.epoch() };
    assert_eq!(lose(&*second, "the first holds it").await, Some(named.clone()));
    assert_eq!(leader(&*first).await, Some(named.clone()));
    assert_eq!(leader(&*second).await, Some(named));
}

pub(crate) async fn a_renewed_lease_outlives_its_ttl<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (brief_client(store, 1), client(store, 2));
    // A machine that stalls for a TTL loses the lease by right, and the promise is put to the test once more.
    for _ in 0..5 {
        let mut lease = campaign(&*first, store.ttl() * 2 + store.slack(), "nobody else keeps the lock").await;
        if is_kept_by_renewing(&mut *lease, &*second).await {
            assert_eq!(leader(&*second).await.map(|leader| leader.epoch), Some(lease.epoch()), "a renewal is no new tenure");
            return;
        }
    }
    panic!("this machine stalls for longer than {:?}, time after time", store.ttl());
}

/// Renews for more than two TTLs; false if this machine was too slow to do so in time.
async fn is_kept_by_renewing(lease: &mut dyn Lease, other: &dyn Lock) -> bool {
    let until = Instant::now() + lease.ttl() * 5 / 2;
    let mut sent = Instant::now();
    while Instant::now() < until {
        time::sleep(lease.ttl() / 6).await;
        let renewing = Instant::now();
        if renew(lease).await == Renewal::Lost {
            assert!(sent.elapsed() >= lease.ttl(), "lost {:?} after a renewal", sent.elapsed());
            return false;
        }
        sent = renewing;
        if let Attempt::Held(mut stolen) = acquire(other).await {
            assert!(sent.elapsed() >= lease.ttl(), "given away {:?} after a renewal", sent.elapsed());
            release(&mut *stolen).await;
            return false;
        }
    }
    withdraw(other).await;
    true
}

pub(crate) async fn a_silent_holder_keeps_the_lock_for_its_ttl_and_not_much_longer<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (brief_client(store, 1), client(store, 2));
    assert_eq!(leader(&*first).await, None, "nobody has campaigned, and whatever is opened lazily is open now");
    // From before the call was sent, as the candidate counts: no store may give the lock away sooner.
    let sent = clock::now();
    let lease = win(&*first, "nobody else campaigns").await;
    let answered = clock::now();
    let next = campaign(&*second, lease.ttl() + store.slack(), "the holder is silent").await;
    let taken = clock::now();
    assert!(taken - sent >= lease.ttl(), "given away after {:?} of a TTL of {:?}", taken - sent, lease.ttl());
    assert!(taken - answered <= lease.ttl() + store.slack(), "free only {:?} after a TTL of {:?}", taken - answered, lease.ttl());
    assert!(next.epoch() > lease.epoch());
}

pub(crate) async fn a_released_lock_is_free_at_once<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    release(&mut *lease).await;
    win(&*second, "the first has released it").await;
}

pub(crate) async fn releasing_twice_is_harmless<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    release(&mut *lease).await;
    release(&mut *lease).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost, "a released lease cannot be revived");
    let mut next = win(&*second, "the first has released it").await;
    release(&mut *lease).await;
    assert_eq!(renew(&mut *next).await, Renewal::Held, "the first has released what is its own only");
}

/// What was sent for one tenure may arrive during the next.
pub(crate) async fn an_earlier_tenure_cannot_touch_a_later_one_of_the_same_process<S: Harness>(store: &S) {
    let ((_, lock), (_, other)) = (client(store, 1), client(store, 2));
    let mut earlier = win(&*lock, "nobody else campaigns").await;
    release(&mut *earlier).await;
    let mut later = win(&*lock, "it has released the lock itself").await;
    release(&mut *earlier).await;
    assert_eq!(renew(&mut *earlier).await, Renewal::Lost);
    assert_eq!(renew(&mut *later).await, Renewal::Held);
    lose(&*other, "the later tenure goes on").await;
}

/// Also when the same process leads again.
pub(crate) async fn each_tenure_has_a_greater_epoch<S: Harness>(store: &S) {
    let clients = [client(store, 1), client(store, 2)];
    let mut last = None;
    for turn in [0, 0, 1, 0, 1, 1] {
        let (_, lock) = &clients[turn];
        let mut lease = campaign(&**lock, store.slack(), "whoever led has released").await;
        assert!(Some(lease.epoch()) > last, "{} after {last:?}", lease.epoch());
        last = Some(lease.epoch());
        release(&mut *lease).await;
        withdraw(&**lock).await;
    }
}

pub(crate) async fn a_restarted_node_leads_under_a_greater_epoch<S: Harness>(store: &S) {
    let mut last = None;
    for _ in 0..3 {
        // The same address each time, another run of the process.
        let (_, lock) = brief_client(store, 1);
        let within = store.ttl() * 3 + store.slack();
        let lease = campaign(&*lock, within, "the run before is gone without a word").await;
        assert!(Some(lease.epoch()) > last, "{} after {last:?}", lease.epoch());
        last = Some(lease.epoch());
    }
}

pub(crate) async fn a_lease_that_another_took_over_is_lost<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (brief_client(store, 1), client(store, 2));
    let mut lost = win(&*first, "nobody else campaigns").await;
    let mut next = campaign(&*second, lost.ttl() * 2 + store.slack(), "the first is silent").await;
    assert_eq!(renew(&mut *lost).await, Renewal::Lost);
    assert_eq!(renew(&mut *next).await, Renewal::Held);
}

/// B59: a process that was stopped for longer than its TTL releases what is somebody else's by now.
pub(crate) async fn releasing_a_lost_lease_leaves_the_next_holder_alone<S: Harness>(store: &S) {
    let ((_, first), (_, second), (_, third)) = (brief_client(store, 1), client(store, 2), client(store, 3));
    let mut lost = win(&*first, "nobody else campaigns").await;
    let mut next = campaign(&*second, lost.ttl() * 2 + store.slack(), "the first is silent").await;
    release(&mut *lost).await;
    withdraw(&*first).await;
    assert_eq!(renew(&mut *next).await, Renewal::Held);
    lose(&*third, "the second still holds it").await;
}

pub(crate) async fn a_process_at_the_same_address_is_a_stranger<S: Harness>(store: &S) {
    let ((_, first), (_, twin)) = (client(store, 1), client(store, 1));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*twin, "another process at the same address holds it").await;
    withdraw(&*twin).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held, "the twin gave back nothing of ours");
}

pub(crate) async fn a_withdrawn_candidate_never_leads<S: Harness>(store: &S) {
    let ((_, first), (_, second), (_, third)) = (client(store, 1), client(store, 2), client(store, 3));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    withdraw(&*second).await;
    release(&mut *lease).await;
    assert_eq!(leader(&*third).await, None, "the only one in the queue has left it");
    win(&*third, "nobody is before it").await;
}

pub(crate) async fn withdrawing_gives_back_what_is_held<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let lease = win(&*first, "nobody else campaigns").await;
    // As when the reply to the attempt was lost: the lock has the record, and nobody the lease.
    drop(lease);
    withdraw(&*first).await;
    assert_eq!(leader(&*second).await, None);
    win(&*second, "the first has withdrawn").await;
}

pub(crate) async fn withdrawing_without_anything_is_harmless<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    withdraw(&*first).await;
    let mut lease = win(&*first, "nobody else campaigns").await;
    withdraw(&*second).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
}
