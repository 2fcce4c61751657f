//! Three members, and ways to them that fail.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, StoreError};
use rustix::process::Signal;
use tokio::time::timeout;

use crate::kazoo::Kazoo;
use crate::rig::{KEY, Running, SLACK, lock};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, win};
use crate::wire::{Mode, Wire};
use crate::zookeeper_server::ZooKeeper;

/// The time that a candidate needs to try a second member within its lease has to be there on a busy machine too, and the
/// time that the members need to elect a leader of their own.
const TTL: Duration = Duration::from_secs(9);

/// The members, beginning with this one.
fn url_from(servers: &ZooKeeper, first: usize) -> String {
    let members = (0..3).map(|number| servers.address((first + number) % 3).to_string()).collect::<Vec<_>>();
    format!("zk://{}", members.join(","))
}

/// What befalls our member while we lead. `leading` says whether it is the one that leads the ensemble.
async fn our_member_fails(leading: bool, fail: impl FnOnce(&mut ZooKeeper, usize)) {
    let mut servers = ZooKeeper::start(3, "").await;
    let first = servers.leading_member().await;
    let ours = if leading { first } else { (first + 1) % 3 };
    let url = url_from(&servers, ours);
    let candidate = Running::start(&url, 1, TTL);
    let epoch = candidate.leads(PROMPT, "nobody else campaigns").await;
    let hand = Kazoo::start(servers.address((ours + 1) % 3));
    let before = hand.line(&format!("/{KEY}")).await;

    let demoted = candidate.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    fail(&mut servers, ours);
    let demoted = timeout(TTL * 2, demoted).await;
    assert!(demoted.is_err(), "demoted although two members answer: {demoted:?}");
    let hand = Kazoo::start(servers.address((ours + 1) % 3));
    assert_eq!(hand.line(&format!("/{KEY}")).await, before, "the session moved, and its node with it");
}

#[tokio::test]
async fn a_frozen_follower_of_the_ensemble_costs_no_lock() {
    our_member_fails(false, |servers, ours| servers.signal(ours, Signal::STOP)).await;
}

#[tokio::test]
async fn a_frozen_leader_of_the_ensemble_costs_no_lock() {
    our_member_fails(true, |servers, ours| servers.signal(ours, Signal::STOP)).await;
}

#[tokio::test]
async fn a_killed_follower_of_the_ensemble_costs_no_lock() {
    our_member_fails(false, ZooKeeper::stop).await;
}

#[tokio::test]
async fn a_killed_leader_of_the_ensemble_costs_no_lock() {
    our_member_fails(true, ZooKeeper::stop).await;
}

/// The primary and the ensemble's own leader die in the same moment.
#[tokio::test]
async fn the_next_one_leads_although_the_ensemble_lost_its_leader_too() {
    let ttl = Duration::from_secs(3);
    let mut servers = ZooKeeper::start(3, "").await;
    let leading = servers.leading_member().await;
    let first = Running::start(&url_from(&servers, leading), 1, ttl);
    let before = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&url_from(&servers, leading), 2, ttl);
    second.follows(PROMPT, "the first leads").await;
    servers.stop(leading);
    drop(first);
    // The ensemble's new leader gives every session its whole time again.
    let epoch = second.leads(PROMPT + ttl * 2 + SLACK, "the first has crashed").await;
    assert!(epoch > before);
}

/// A member that is gone costs no more than the attempt to reach it, at the first call too.
#[tokio::test]
async fn dead_members_are_passed_over_within_one_call() {
    let mut servers = ZooKeeper::start(3, "").await;
    let dead = (servers.leading_member().await + 1) % 3;
    servers.stop(dead);
    let lock = lock(&url_from(&servers, dead), 1, Duration::from_secs(60));
    let outcome = timeout(Duration::from_secs(10), lock.acquire()).await;
    assert!(matches!(outcome, Ok(Ok(Attempt::Held(_)))), "{outcome:?}");
}

/// One that accepts and never answers costs a call's time.
#[tokio::test]
async fn a_silent_member_is_passed_over() {
    let servers = ZooKeeper::start(1, "").await;
    let wire = Wire::to(servers.address(0)).await;
    wire.set(Mode::Blackhole);
    let lock = lock(&format!("zk://{},{}", wire.address(), servers.address(0)), 1, Duration::from_secs(3));
    campaign(&*lock, PROMPT, "the second address answers").await;
}

/// A member without the others answers nobody.
#[tokio::test]
async fn without_a_quorum_there_is_no_decision() {
    let mut servers = ZooKeeper::start(3, "").await;
    let ours = servers.leading_member().await;
    let us = lock(&url_from(&servers, ours), 1, Duration::from_secs(60));
    let mut lease = win(&*us, "nobody else campaigns").await;
    servers.stop((ours + 1) % 3);
    servers.stop((ours + 2) % 3);
    let renewed = timeout(Duration::from_secs(10), lease.renew()).await;
    assert!(!matches!(renewed, Ok(Ok(_))), "{renewed:?}");
}

/// Names the member and what it said, for whoever reads the log.
#[tokio::test]
async fn a_store_that_is_down_is_unavailable_and_named() {
    let mut servers = ZooKeeper::start(1, "").await;
    servers.stop(0);
    let error = lock(&servers.url(), 1, TTL).leader().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains(&servers.address(0).to_string()), "{error}");
}

/// What answers there is no ZooKeeper at all.
#[tokio::test]
async fn another_kind_of_server_is_unavailable_and_said_to_be() {
    let web = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listen on loopback");
    let address = web.local_addr().expect("the address of a listener");
    let answers = async {
        loop {
            let (mut client, _) = web.accept().await.expect("a client");
            tokio::io::AsyncWriteExt::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n").await.expect("answer a client");
        }
    };
    let us = lock(&format!("zk://{address}"), 1, TTL);
    tokio::select! {
        () = answers => {}
        error = us.leader() => {
            let error = error.unwrap_err();
            assert!(matches!(error, StoreError::Unavailable { .. }) && error.to_string().contains("no ZooKeeper server"), "{error}");
        }
    }
}

/// A watch that has gone silent is found by pings, also when nobody asks.
#[tokio::test]
async fn a_silent_watch_ends_by_itself() {
    let servers = ZooKeeper::start(1, "").await;
    let wire = Wire::to(servers.address(0)).await;
    let (first, waiter) = (lock(&servers.url(), 1, TTL), lock(&format!("zk://{}", wire.address()), 2, TTL));
    let _lease = win(&*first, "nobody else campaigns").await;
    let seen = leader(&*waiter).await;
    let mut waiting = Box::pin(waiter.changed(seen.as_ref()));
    assert!(timeout(TTL / 3, &mut waiting).await.is_err(), "nothing has changed yet, and the member answers pings");
    wire.set(Mode::Blackhole);
    let ended = timeout(PROMPT, &mut waiting).await;
    assert!(matches!(ended, Ok(Err(StoreError::Unavailable { .. }))), "{ended:?}");
}

/// A connection that was cut, or has swallowed what was said, is replaced by the next call; the session goes on.
#[tokio::test]
async fn a_spoilt_connection_is_replaced_and_its_session_kept() {
    let servers = ZooKeeper::start(1, "").await;
    let wire = Wire::to(servers.address(0)).await;
    let ttl = Duration::from_secs(30);
    let us = lock(&format!("zk://{}", wire.address()), 1, ttl);
    let other = lock(&servers.url(), 2, ttl);
    let lease = win(&*us, "nobody else campaigns").await;
    for trouble in [Mode::Blackhole, Mode::Reset] {
        wire.set(trouble);
        let call = timeout(ttl / 30, us.leader()).await;
        assert!(!matches!(call, Ok(Ok(_))), "{trouble:?} let an answer through: {call:?}");
        wire.set(Mode::Pass);
        let found = leader(&*us).await;
        assert_eq!(found.map(|leader| leader.epoch), Some(lease.epoch()), "after {trouble:?}");
    }
    // Slow is not silent.
    wire.set(Mode::Delay(Duration::from_millis(50)));
    hear(&*us, PROMPT, "we lead", |leader| leader.is_some()).await;
    lose(&*other, "we still hold it").await;
}

/// A way that is slow, but within what a call may take, costs no lock: neither to join, nor to keep, nor to take over.
#[tokio::test]
async fn a_slow_way_costs_no_lock() {
    let ttl = Duration::from_secs(6);
    let servers = ZooKeeper::start(1, "").await;
    let wire = Wire::to(servers.address(0)).await;
    // A round trip is two thirds of what a call may take, so that none has time for two.
    wire.set(Mode::Delay(ttl / 18));
    let url = format!("zk://{}", wire.address());
    let first = Running::start(&url, 1, ttl);
    let epoch = first.leads(PROMPT * 3, "nobody else campaigns").await;
    let second = Running::start(&url, 2, ttl);
    second.follows(PROMPT * 3, "the first leads").await;
    let flicker = first.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let flicker = timeout(ttl * 3, flicker).await;
    assert!(flicker.is_err(), "{flicker:?}");
    drop(first);
    second.leads(ttl * 2 + SLACK, "the first has crashed").await;
}

/// Whose session was ended while nothing could be heard of it takes no free lock for its own.
#[tokio::test]
async fn a_free_lock_is_not_held_by_a_session_that_has_ended() {
    let ttl = Duration::from_secs(2);
    let servers = ZooKeeper::start(1, "").await;
    let hand = Kazoo::start(servers.address(0));
    assert_eq!(hand.line(&format!("/{KEY}")).await, []);
    let (first, second) = (lock(&servers.url(), 1, Duration::from_secs(60)), lock(&servers.url(), 2, ttl));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let lapsed = hand.line(&format!("/{KEY}")).await.remove(1);
    let until = clock::now() + ttl + SLACK;
    while hand.line(&format!("/{KEY}")).await.len() == 2 {
        assert!(clock::now() < until, "a silent waiter's session runs out");
    }
    lease.release().await.expect("an answer");
    let heir = win(&*second, "nobody leads").await;
    let own = hand.line(&format!("/{KEY}")).await.remove(0);
    assert_ne!((own.session, &own.name), (lapsed.session, &lapsed.name));
    assert_eq!(heir.epoch().0, own.created);
}
