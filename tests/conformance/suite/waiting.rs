//! What a waiting node hears, from hints that may be spurious but must not be missing.

use std::time::Duration;

use bellwether::store::Leader;
use tokio::time;

use super::steps::{PROMPT, brief_client, campaign, client, hear, leader, lose, release, win};
use crate::harness::Harness;

pub(crate) async fn a_waiter_with_stale_knowledge_returns_at_once<S: Harness>(store: &S) {
    let ((_, first), (_, waiter)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    let seen = leader(&*waiter).await;
    hear_from(&*waiter, None).await;
    release(&mut *lease).await;
    hear_from(&*waiter, seen.as_ref()).await;
}

/// Waits for one hint, given knowledge that is wrong already.
async fn hear_from(waiter: &dyn bellwether::store::Lock, seen: Option<&Leader>) {
    let hint = time::timeout(PROMPT, waiter.changed(seen)).await;
    assert!(matches!(hint, Ok(Ok(()))), "`{seen:?}` is wrong, but: {hint:?}");
}

pub(crate) async fn a_waiter_hears_of_a_first_leader<S: Harness>(store: &S) {
    let ((a, first), (_, waiter)) = (client(store, 1), client(store, 2));
    let heard = hear(&*waiter, PROMPT, "the first leads", |leader| leader.is_some_and(|leader| leader.address == a.address));
    let (_lease, ()) = tokio::join!(win(&*first, "nobody else campaigns"), heard);
}

pub(crate) async fn a_waiter_hears_of_a_release<S: Harness>(store: &S) {
    let ((_, first), (_, waiter)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lease_is_seen(&*waiter).await;
    tokio::join!(release(&mut *lease), hear(&*waiter, PROMPT, "the first releases", |leader| leader.is_none()));
}

pub(crate) async fn a_waiter_hears_of_an_expiry<S: Harness>(store: &S) {
    let ((_, first), (_, waiter)) = (brief_client(store, 1), client(store, 2));
    let lease = win(&*first, "nobody else campaigns").await;
    lease_is_seen(&*waiter).await;
    hear(&*waiter, lease.ttl() + store.slack(), "the first is silent", |leader| leader.is_none()).await;
}

pub(crate) async fn a_waiter_hears_of_a_deletion<S: Harness>(store: &S) {
    let ((_, first), (_, waiter)) = (client(store, 1), client(store, 2));
    let _lease = win(&*first, "nobody else campaigns").await;
    lease_is_seen(&*waiter).await;
    tokio::join!(store.delete_record(), hear(&*waiter, PROMPT, "an operator deletes the record", |leader| leader.is_none()));
}

/// With another candidate already in line, so that the lock goes from hand to hand.
pub(crate) async fn a_waiter_hears_of_a_takeover<S: Harness>(store: &S) {
    let ((_, first), (b, second), (_, waiter)) = (client(store, 1), client(store, 2), client(store, 3));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let takeover = async {
        release(&mut *lease).await;
        campaign(&*second, PROMPT, "the first has released it").await
    };
    let heard = hear(&*waiter, PROMPT, "the second takes over", |leader| leader.is_some_and(|leader| leader.address == b.address));
    let (_lease, ()) = tokio::join!(takeover, heard);
}

pub(crate) async fn a_waiter_that_was_dropped_misses_nothing<S: Harness>(store: &S) {
    let ((_, first), (_, waiter)) = (client(store, 1), client(store, 2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    let seen = leader(&*waiter).await;
    for _ in 0..3 {
        drop(time::timeout(Duration::from_millis(30), waiter.changed(seen.as_ref())).await);
    }
    // Between two waits, when nobody listens.
    release(&mut *lease).await;
    hear_from(&*waiter, seen.as_ref()).await;
}

async fn lease_is_seen(waiter: &dyn bellwether::store::Lock) {
    hear(waiter, PROMPT, "somebody leads", |leader| leader.is_some()).await;
}
