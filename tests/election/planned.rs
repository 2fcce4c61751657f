//! Resigning, retiring, and the work that must end first.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::clock;
use bellwether::node::Node;
use bellwether::replication::{Candidate, Drain, ResignError, Role};
use bellwether::store::Epoch;
use tokio_util::sync::CancellationToken;

use super::property::{for_each_seed, up_to};
use super::world::World;

const TTL: Duration = Duration::from_secs(3);

/// B09: a planned change does not sit out the lease, however long that is.
#[tokio::test(start_paused = true)]
async fn a_resigning_primary_is_followed_at_once() {
    let mut world = World::new(1, Duration::from_secs(30), 3);
    let leads = world.until_agreed(Duration::from_secs(1)).await;
    let epoch = world.peers[leads].roles.current().tenure().unwrap();
    assert_eq!(world.peers[leads].handle.resign().await, Ok(epoch));
    let next = world.until_agreed(Duration::from_secs(1)).await;
    assert_ne!(next, leads);
}

#[tokio::test(start_paused = true)]
async fn who_resigned_stands_aside_for_a_ttl_and_then_campaigns_again() {
    let mut world = World::new(1, TTL, 1);
    world.until_agreed(TTL).await;
    world.peers[0].handle.resign().await.unwrap();
    let aside = world.until("the only node to lead again", TTL * 2, |peers| peers[0].is_primary()).await;
    assert!(aside > TTL - Duration::from_millis(100) && aside < TTL + TTL / 3, "{aside:?}");
}

#[tokio::test(start_paused = true)]
async fn a_replica_cannot_resign() {
    let mut world = World::new(1, TTL, 2);
    let leads = world.until_agreed(TTL).await;
    assert_eq!(world.peers[1 - leads].handle.resign().await, Err(ResignError::NotPrimary));
}

/// B10: released also when a renewal is in flight, and after one that failed.
#[tokio::test(start_paused = true)]
async fn a_release_survives_renewals_in_flight_and_renewals_that_failed() {
    for seed in 0..50 {
        let mut world = World::new(seed, TTL, 2);
        let leads = world.until_agreed(TTL).await;
        let peer = &world.peers[leads];
        if seed % 2 == 0 {
            peer.faults.delay(TTL / 8..TTL / 7);
        } else {
            peer.faults.refuse();
        }
        world.pass(TTL / 3 + Duration::from_millis(20 * (seed % 7))).await;
        world.peers[leads].faults.calm();
        world.peers[leads].handle.resign().await.unwrap();
        world.until("the other one to lead", Duration::from_secs(1), |peers| peers[1 - leads].is_primary()).await;
    }
}

/// A release has its time also where an answer takes up to 0.9 s: the next one takes a release and an acquire to lead, and no TTL.
#[test]
fn a_release_to_a_slow_store_is_waited_for() {
    const SLOWEST: Duration = Duration::from_millis(900);
    for_each_seed(0..30, async |seed| {
        let mut world = World::new(seed, TTL, 2);
        for peer in &world.peers {
            peer.faults.delay(Duration::ZERO..SLOWEST / 2);
            peer.faults.delay_replies(Duration::ZERO..SLOWEST / 2);
        }
        let leads = world.until_agreed(TTL * 2).await;
        world.pass(up_to(&mut fastrand::Rng::with_seed(seed), TTL)).await;
        world.peers[leads].handle.resign().await.unwrap();
        assert_eq!(world.memory.holder().filter(|holder| holder.node == world.peers[leads].node), None);
        world.until("the other one to lead", SLOWEST * 2, |peers| peers[1 - leads].is_primary()).await;
    });
}

/// B11: whoever is only waiting can stop at any time, whatever the store does.
#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_retires_within_a_call() {
    for cut in [false, true] {
        let mut world = World::new(1, TTL, 2);
        let leads = world.until_agreed(TTL).await;
        let waits = 1 - leads;
        if cut {
            world.peers[waits].faults.partition();
            world.pass(TTL).await;
        }
        let start = clock::now();
        assert_eq!(world.peers[waits].handle.retire().await, None);
        // What was under way, and the farewell.
        let (took, most) = (clock::now() - start, world.timing.call_timeout() + world.timing.leave_timeout());
        assert!(took <= most + Duration::from_millis(10), "{took:?}");
        world.peers[waits].faults.heal();
        world.peers[leads].handle.retire().await.unwrap();
        world.pass(TTL * 3).await;
        assert!(world.peers.iter().all(|peer| peer.roles.current() == Role::Electing), "nobody is left to lead");
    }
}

#[tokio::test(start_paused = true)]
async fn who_retired_follows_its_successor() {
    let mut world = World::new(1, TTL, 2);
    let leads = world.until_agreed(TTL).await;
    world.peers[leads].handle.retire().await.unwrap();
    world.until_agreed(Duration::from_secs(1)).await;
    assert!(world.peers[leads].roles.current().leader().is_some());
}

struct Slow(Duration);

#[async_trait]
impl Drain for Slow {
    async fn drained(&self, _: Epoch) {
        tokio::time::sleep(self.0).await;
    }
}

/// B08: nobody else leads before the work has ended, and the lease is renewed for as long as that takes.
#[tokio::test(start_paused = true)]
async fn the_lock_is_given_back_only_when_the_work_has_ended() {
    let mut world = World::new(1, TTL, 0);
    let node = Node::new("10.0.0.1:4000".parse().unwrap());
    let (candidate, handle, roles) = Candidate::new(world.memory.lock(&node, TTL), node.clone(), world.timing);
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(candidate.with_drain(Arc::new(Slow(TTL * 3)), TTL * 5).run(stop.clone()));
    let epoch = roles.wait_until(|role| role.tenure().is_some()).await.tenure().unwrap();

    tasks.spawn(async move {
        handle.resign().await.ok();
    });
    let stepping = roles.changed(&roles.current()).await;
    assert_eq!((stepping.name(), stepping.tenure()), ("stepping-down", Some(epoch)));
    let start = clock::now();
    while clock::now() - start < TTL * 3 - Duration::from_millis(10) {
        assert_eq!(world.memory.holder().map(|holder| holder.epoch), Some(epoch));
        world.pass(TTL / 10).await;
    }
    roles.wait_until(|role| *role == Role::Electing).await;
    world.pass(Duration::from_millis(50)).await;
    assert_eq!(world.memory.holder(), None);
    stop.cancel();
    tasks.join_all().await;
}

/// Work that does not end is cut off: the role says so before the lock is free.
#[tokio::test(start_paused = true)]
async fn a_drain_that_takes_too_long_is_cut_off() {
    let world = World::new(1, TTL, 0);
    let node = Node::new("10.0.0.1:4000".parse().unwrap());
    let (candidate, handle, roles) = Candidate::new(world.memory.lock(&node, TTL), node.clone(), world.timing);
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(candidate.with_drain(Arc::new(Slow(Duration::from_secs(3_600))), TTL).run(stop.clone()));
    let serving = roles.wait_until(|role| role.tenure().is_some()).await;

    let start = clock::now();
    tasks.spawn(async move {
        handle.resign().await.ok();
    });
    roles.wait_until(|role| *role == Role::Electing && *role != serving).await;
    assert!(world.memory.holder().is_some(), "cut off before the lock is given back");
    assert!(clock::now() - start >= TTL);
    while world.memory.holder().is_some() {
        assert!(clock::now() - start < TTL + Duration::from_secs(1), "released soon after");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.cancel();
    tasks.join_all().await;
}

/// The lock can be lost while the work is being drained.
#[tokio::test(start_paused = true)]
async fn a_lock_lost_while_draining_is_reported() {
    let world = World::new(1, TTL, 0);
    let node = Node::new("10.0.0.1:4000".parse().unwrap());
    let (candidate, handle, roles) = Candidate::new(world.memory.lock(&node, TTL), node.clone(), world.timing);
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(candidate.with_drain(Arc::new(Slow(Duration::from_secs(3_600))), TTL * 100).run(stop.clone()));
    roles.wait_until(|role| role.tenure().is_some()).await;
    world.memory.faults(&node).partition();
    assert_eq!(handle.resign().await, Err(ResignError::LostMeanwhile));
    assert_eq!(roles.current(), Role::Electing);
    stop.cancel();
    tasks.join_all().await;
}
