//! Several members, and ways to them that fail.

use std::time::Duration;

use bellwether::store::{Renewal, StoreError};
use tokio::time::timeout;

use crate::etcd_server::Etcd;
use crate::harness::call_timeout;
use crate::rig::{LONG_TTL, Running, SLACK, lock};
use crate::suite::steps::{PROMPT, hear, leader, lose, renew, win};
use crate::wire::{Mode, Wire};

/// The time that a candidate needs to try a second member within its lease has to be there on a busy machine too.
const TTL: Duration = Duration::from_secs(9);

/// Members that do not take each other for dead when this machine is busy, and replace one that is within a second or two.
const STEADY: [&str; 2] = ["--heartbeat-interval=100", "--election-timeout=1000"];

/// B34: our member stops for half a TTL. `leading` says whether it is the one that leads the cluster.
async fn a_frozen_member_costs_no_lock(leading: bool) {
    let etcd = Etcd::start_with(3, &STEADY).await;
    let first = etcd.leading_member().await;
    let ours = if leading { first } else { (first + 1) % 3 };
    let candidate = Running::start(&etcd.url_of([ours, (ours + 1) % 3, (ours + 2) % 3]), 1, TTL);
    let epoch = candidate.leads(PROMPT, "nobody else campaigns").await;

    let demoted = candidate.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let mut demoted = Box::pin(demoted);
    etcd.pause(ours);
    let frozen = timeout(TTL / 2, &mut demoted).await;
    assert!(frozen.is_err(), "demoted while its member was frozen: {frozen:?}");
    etcd.resume(ours);
    let thawed = timeout(TTL, &mut demoted).await;
    assert!(thawed.is_err(), "demoted after its member was frozen: {thawed:?}");
}

#[tokio::test]
async fn a_frozen_follower_of_the_cluster_costs_no_lock() {
    a_frozen_member_costs_no_lock(false).await;
}

#[tokio::test]
async fn a_frozen_leader_of_the_cluster_costs_no_lock() {
    a_frozen_member_costs_no_lock(true).await;
}

/// B34: the same without a limit: the member never comes back.
#[tokio::test]
async fn a_member_that_stays_frozen_is_left_for_another() {
    let etcd = Etcd::start_with(3, &STEADY).await;
    let ours = (etcd.leading_member().await + 1) % 3;
    let candidate = Running::start(&etcd.url_of([ours, (ours + 1) % 3, (ours + 2) % 3]), 1, TTL);
    let epoch = candidate.leads(PROMPT, "nobody else campaigns").await;
    etcd.pause(ours);
    let demoted = candidate.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let demoted = timeout(TTL * 2, demoted).await;
    assert!(demoted.is_err(), "demoted although two members answer: {demoted:?}");
}

/// B36: the primary and the cluster's own leader die in the same moment.
#[tokio::test]
async fn the_next_one_leads_although_the_cluster_lost_its_leader_too() {
    let mut etcd = Etcd::start_with(3, &STEADY).await;
    let leading = etcd.leading_member().await;
    let url = etcd.url_of([leading, (leading + 1) % 3, (leading + 2) % 3]);
    let first = Running::start(&url, 1, TTL);
    let before = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&url, 2, TTL);
    second.follows(PROMPT, "the first leads").await;
    etcd.stop(leading).await;
    drop(first);
    // The cluster's new leader gives every lease its whole time again.
    let epoch = second.leads(TTL * 2 + SLACK, "the first has crashed").await;
    assert!(epoch > before);
}

/// A member that is gone costs no more than the attempt to reach it, at the first call too.
#[tokio::test]
async fn dead_members_are_passed_over_within_one_call() {
    let mut etcd = Etcd::start_with(3, &STEADY).await;
    let dead = (etcd.leading_member().await + 1) % 3;
    etcd.stop(dead).await;
    let url = etcd.url_of([dead, (dead + 1) % 3, (dead + 2) % 3]);
    let lock = lock(&url, 1, LONG_TTL);
    let outcome = timeout(call_timeout(LONG_TTL), lock.acquire()).await;
    assert!(matches!(outcome, Ok(Ok(bellwether::store::Attempt::Held(_)))), "{outcome:?}");
}

/// Names the member and what it said, for whoever reads the log.
#[tokio::test]
async fn a_store_that_is_down_is_unavailable_and_named() {
    let mut etcd = Etcd::start().await;
    etcd.stop(0).await;
    let error = lock(&etcd.url(), 1, TTL).leader().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(&etcd.client(0).to_string()), "{error}");
}

/// B36: a watch that has gone silent is found by pings, also when nobody asks.
#[tokio::test]
async fn a_silent_watch_ends_by_itself() {
    let etcd = Etcd::start().await;
    let wire = Wire::to(etcd.client(0)).await;
    let (first, waiter) = (lock(&etcd.url(), 1, LONG_TTL), lock(&format!("etcd://{}", wire.address()), 2, LONG_TTL));
    let _lease = win(&*first, "nobody else campaigns").await;
    let seen = leader(&*waiter).await;
    let mut waiting = Box::pin(waiter.changed(seen.as_ref()));
    assert!(timeout(Duration::from_millis(500), &mut waiting).await.is_err(), "nothing has changed yet");
    wire.set(Mode::Blackhole);
    let ended = timeout(Duration::from_secs(40), &mut waiting).await;
    let Ok(Err(error @ StoreError::Unavailable { .. })) = ended else { panic!("{ended:?}") };
    let said = error.to_string();
    assert!(said.contains(&wire.address().to_string()), "it names the member: {said}");
    assert!(!said.contains(['{', '"']), "it is said in words: {said}");
}

/// A connection that was cut, or has swallowed what was said, is replaced by the next call.
#[tokio::test]
async fn a_spoilt_connection_is_replaced() {
    let etcd = Etcd::start().await;
    let wire = Wire::to(etcd.client(0)).await;
    let us = lock(&format!("etcd://{}", wire.address()), 1, TTL);
    let other = lock(&etcd.url(), 2, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    for trouble in [Mode::Blackhole, Mode::Reset, Mode::Delay(TTL)] {
        wire.set(trouble);
        let call = timeout(call_timeout(TTL), us.leader()).await;
        assert!(!matches!(call, Ok(Ok(_))), "{trouble:?} let an answer through: {call:?}");
        wire.set(Mode::Pass);
        let found = leader(&*us).await;
        assert_eq!(found.map(|leader| leader.epoch), Some(lease.epoch()), "after {trouble:?}");
        assert_eq!(renew(&mut *lease).await, Renewal::Held, "after {trouble:?}");
    }
    // Slow is not silent.
    wire.set(Mode::Delay(Duration::from_millis(50)));
    hear(&*us, PROMPT, "we lead", |leader| leader.is_some()).await;
    lose(&*other, "we still hold it").await;
}

/// B06: a way that is slow, but within what a call may take, costs no lock: neither to join, nor to keep, nor to take over.
#[tokio::test]
async fn a_slow_way_costs_no_lock() {
    let etcd = Etcd::start().await;
    let wire = Wire::to(etcd.client(0)).await;
    // A round trip is more than half of what a call may take, so that none has time for two; the rest is this machine's.
    wire.set(Mode::Delay(call_timeout(TTL) * 11 / 20 / 2));
    let url = format!("etcd://{}", wire.address());
    let first = Running::start(&url, 1, TTL);
    let epoch = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&url, 2, TTL);
    second.follows(PROMPT, "the first leads").await;
    let flicker = first.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let flicker = timeout(TTL * 2, flicker).await;
    assert!(flicker.is_err(), "{flicker:?}");
    drop(first);
    second.leads(TTL + SLACK, "the first has crashed").await;
}
