//! The record in the hands of operators, strangers and restarts.

use bellwether::store::{Renewal, StoreError};

use super::steps::{PROMPT, campaign, client, erase, leader, lose, release, renew, win, withdraw};
use crate::harness::Harness;

pub(crate) async fn a_deleted_record_is_a_lost_lease<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    store.delete_record().await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert_eq!(leader(&*second).await, None, "a renewal must not bring a deleted record back");
    win(&*second, "the record is gone").await;
}

/// B58: a numbering that starts again makes old tokens look new.
pub(crate) async fn epochs_rise_although_the_record_was_deleted<S: Harness>(store: &S) {
    let mut last = None;
    for port in [1, 1, 2, 1] {
        let (_, lock) = client(store, port);
        let mut lease = win(&*lock, "the record is gone").await;
        assert!(Some(lease.epoch()) > last, "{} after {last:?}", lease.epoch());
        last = Some(lease.epoch());
        store.delete_record().await;
        assert_eq!(renew(&mut *lease).await, Renewal::Lost);
        withdraw(&*lock).await;
    }
}

pub(crate) async fn a_foreign_record_is_never_overwritten<S: Harness>(store: &S) {
    let (_, lock) = client(store, 1);
    store.write_foreign().await;
    let before = store.dump().await;
    for _ in 0..2 {
        let refused = lock.acquire().await;
        assert!(matches!(refused, Err(StoreError::Foreign { .. })), "acquire: {refused:?}");
        let refused = lock.leader().await;
        assert!(matches!(refused, Err(StoreError::Foreign { .. })), "leader: {refused:?}");
        withdraw(&*lock).await;
        assert_eq!(store.dump().await, before);
    }
    store.delete_record().await;
    win(&*lock, "the foreign record is gone").await;
}

/// Whoever tries a store out, as `bellwether store check` does, leaves it as it was.
pub(crate) async fn an_erased_election_leaves_nothing_behind<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let before = store.dump().await;
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    release(&mut *lease).await;
    withdraw(&*first).await;
    withdraw(&*second).await;
    erase(&*second).await;
    assert_eq!(store.dump().await, before);
    erase(&*first).await;
    win(&*first, "an election may begin anew").await;
}

pub(crate) async fn erasing_leaves_the_tenure_of_another_alone<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    erase(&*second).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*second, "the first still holds it").await;
}

pub(crate) async fn a_store_that_comes_back_is_found_again<S: Harness>(store: &S) {
    let ((_, first), (_, second)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    let before = lease.epoch();
    lose(&*second, "the first holds it").await;
    store.restart().await;
    // The tenure may have ended meanwhile; whoever leads next does so under a greater epoch.
    if renew(&mut *lease).await == Renewal::Held {
        lose(&*second, "the first has renewed").await;
        release(&mut *lease).await;
    }
    let next = campaign(&*second, PROMPT + store.slack(), "the first is gone").await;
    assert!(next.epoch() > before, "{} after {before}", next.epoch());
}
