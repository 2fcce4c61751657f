//! Stores and processes that go away and come back.

use std::time::Duration;

use bellwether::node::Node;
use bellwether::replication::{Follower, Role};
use tokio_util::sync::CancellationToken;

use super::property::for_each_seed;
use super::world::{Peer, World};

const TTL: Duration = Duration::from_secs(3);

/// How many renewals the store has confirmed.
fn renewals(peer: &Peer) -> u64 {
    let renewals = peer.counters.store_calls().filter(|(operation, result, _)| (*operation, *result) == ("renew", "ok"));
    renewals.map(|(.., count)| count).sum()
}

fn nobody_leads(peers: &[Peer]) -> bool {
    !peers.iter().any(Peer::is_primary)
}

/// B14: no waiting for the first tick of a timer.
#[tokio::test(start_paused = true)]
async fn a_single_node_leads_at_once() {
    let mut world = World::new(1, TTL, 1);
    let waited = world.until("the only node to lead", TTL, |peers| peers[0].is_primary()).await;
    assert!(waited < Duration::from_millis(50), "{waited:?}");
}

/// S01: a node whose store is slow is nobody's primary, nor its own.
#[tokio::test(start_paused = true)]
async fn nobody_is_primary_before_the_store_has_said_so() {
    let mut world = World::new(1, TTL, 1);
    world.peers[0].faults.partition();
    world.pass(TTL * 4).await;
    assert_eq!(world.peers[0].roles.current(), Role::Electing);
}

/// B01: an outage of four TTLs ends by itself, with the same data.
#[tokio::test(start_paused = true)]
async fn a_store_that_returns_finds_all_candidates_campaigning() {
    let mut world = World::new(1, TTL, 3);
    world.until_agreed(TTL).await;
    world.memory.stop();
    world.until("the primary to stop by its own clock", TTL, nobody_leads).await;
    world.pass(TTL * 4).await;
    world.memory.start();
    world.until_agreed(TTL + TTL / 3).await;
}

/// B01, with an emptied store: the store's new, smaller epochs are believed after a full TTL.
#[tokio::test(start_paused = true)]
async fn an_emptied_store_is_believed_after_a_ttl() {
    let mut world = World::new(1, TTL, 3);
    world.until_agreed(TTL).await;
    for _ in 0..4 {
        let index = world.peers.iter().position(Peer::is_primary).unwrap();
        world.peers[index].handle.resign().await.unwrap();
        world.until_agreed(TTL).await;
    }
    world.memory.stop();
    world.pass(TTL * 4).await;
    world.memory.wipe();
    world.store_forgot();
    world.memory.start();
    let leads = world.until_agreed(TTL * 2).await;
    assert!(world.peers[leads].roles.current().tenure().is_some());
}

/// The store loses its data while a primary lives that does not know: its successor gives it the time to notice.
#[tokio::test(start_paused = true)]
async fn a_wiped_store_gives_no_second_primary_beside_a_frozen_one() {
    let mut world = World::new(1, TTL, 2);
    let leads = world.until_agreed(TTL).await;
    world.peers[leads].handle.resign().await.unwrap();
    let leads = world.until_agreed(TTL).await;
    world.peers[leads].freeze();
    world.memory.wipe();
    world.store_forgot();
    // The judge looks at every instant: the frozen one reads as primary until its deadline.
    world.until("the other one to lead", TTL * 3, |peers| peers[1 - leads].is_primary()).await;
}

/// B04: answers that take a minute are no answers.
#[tokio::test(start_paused = true)]
async fn a_store_that_answers_too_late_ends_the_tenure_by_the_primarys_own_clock() {
    let mut world = World::new(1, TTL, 2);
    let leads = world.until_agreed(TTL).await;
    world.peers[leads].faults.delay_replies(Duration::from_secs(60)..Duration::from_secs(61));
    world.peers[leads].faults.delay(Duration::from_secs(60)..Duration::from_secs(61));
    world.until("the other one to lead", TTL * 2, |peers| peers[1 - leads].is_primary()).await;
}

/// B02: a node that lost the lock is a candidate again, thirty times over.
#[tokio::test(start_paused = true)]
async fn thirty_forced_losses_leave_every_node_a_candidate() {
    let mut world = World::new(1, TTL, 3);
    for round in 0..30 {
        let leads = world.until_agreed(TTL * 2).await;
        world.peers[leads].faults.partition();
        world
            .until("another one to lead", TTL * 2, |peers| {
                peers.iter().enumerate().any(|(index, peer)| index != leads && peer.is_primary())
            })
            .await;
        world.peers[leads].faults.heal();
        assert!(world.peers[leads].counters.role_changes() > 0, "round {round}");
    }
    for leads in 0..3 {
        for index in (0..3).filter(|index| *index != leads) {
            world.peers[index].faults.partition();
        }
        world.until("the only one left to lead", TTL * 2, |peers| peers[leads].is_primary()).await;
        world.peers.iter().for_each(|peer| peer.faults.heal());
        world.until_agreed(TTL * 2).await;
    }
}

/// B21: a call that takes up to 0.9 s costs no tenure of 3 s, wherever on its way it is slow: somebody is elected in such a
/// store, and then nothing changes for two minutes.
#[test]
fn a_slow_store_costs_no_leadership() {
    let nothing = Duration::ZERO..Duration::ZERO;
    let up_to = |millis| Duration::ZERO..Duration::from_millis(millis);
    for (there, back) in [(nothing.clone(), up_to(900)), (up_to(900), nothing), (up_to(450), up_to(450))] {
        for_each_seed(0..8, async |seed| {
            let mut world = World::new(seed, TTL, 3);
            for peer in &world.peers {
                peer.faults.delay(there.clone());
                peer.faults.delay_replies(back.clone());
            }
            let leads = world.until_agreed(TTL * 2).await;
            let changes = world.peers.iter().map(|peer| peer.counters.role_changes()).collect::<Vec<_>>();
            world.pass(Duration::from_secs(120)).await;
            assert!(world.peers[leads].is_primary());
            assert_eq!(world.peers.iter().map(|peer| peer.counters.role_changes()).collect::<Vec<_>>(), changes);
        });
    }
}

/// Slow, and now and then without an answer: a renewal that was lost is made up for by the next one, unless that is lost too.
#[tokio::test(start_paused = true)]
async fn a_lost_renewal_leaves_time_for_another_one() {
    let mut world = World::new(1, TTL, 2);
    let leads = world.until_agreed(TTL).await;
    let changes = world.peers[leads].counters.role_changes();
    for _ in 0..20 {
        let before = renewals(&world.peers[leads]);
        world.until("a renewal", TTL / 2, |peers| renewals(&peers[leads]) > before).await;
        // The next one is swallowed, and nothing passes until just before the second try.
        world.peers[leads].faults.partition();
        world.pass(TTL * 17 / 24).await;
        world.peers[leads].faults.heal();
        world.pass(TTL / 6).await;
        assert_eq!(world.peers[leads].counters.role_changes(), changes);
    }
}

/// B06: about one renewal per third of the TTL, whatever the TTL.
#[tokio::test(start_paused = true)]
async fn an_idle_primary_renews_three_times_per_ttl() {
    for seconds in [1, 3, 30] {
        let ttl = Duration::from_secs(seconds);
        let mut world = World::new(1, ttl, 1);
        world.until_agreed(ttl).await;
        let before = renewals(&world.peers[0]);
        world.pass(ttl * 20).await;
        let count = renewals(&world.peers[0]) - before;
        assert!((58..=62).contains(&count), "{count} renewals in 20 TTLs of {ttl:?}");
    }
}

/// B47, B65: a record deleted by hand ends the tenure as soon as the store can tell.
#[tokio::test(start_paused = true)]
async fn a_deleted_record_ends_the_tenure_and_starts_another() {
    let mut world = World::new(1, TTL, 1);
    world.until_agreed(TTL).await;
    let before = world.peers[0].roles.current().tenure();
    world.memory.delete_record();
    world.store_forgot();
    world.until("a later tenure", TTL / 3, |peers| peers[0].is_primary() && peers[0].roles.current().tenure() > before).await;
}

/// A foreign record is left where it is, and the node waits.
#[tokio::test(start_paused = true)]
async fn a_foreign_record_is_waited_out() {
    let mut world = World::new(1, TTL, 2);
    world.until_agreed(TTL).await;
    world.store_forgot();
    world.memory.write_foreign(b"not ours");
    world.until("the primary to stop", TTL, nobody_leads).await;
    world.pass(TTL * 3).await;
    assert!(nobody_leads(&world.peers));
    assert_eq!(world.memory.value().as_deref(), Some(b"not ours".as_slice()));
    world.memory.delete_record();
    world.until_agreed(TTL * 2).await;
}

/// B67: a node never follows a record of its own earlier run.
#[tokio::test(start_paused = true)]
async fn a_restarted_node_does_not_follow_its_own_old_record() {
    let mut world = World::new(1, TTL, 1);
    world.until_agreed(TTL).await;
    world.crash(0);
    world.pass(TTL / 2).await;
    assert_eq!(world.peers[0].roles.current(), Role::Electing);
    world.until("the new run to lead", TTL, |peers| peers[0].is_primary()).await;
}

/// B26: an observer says "nobody" at once on an empty store, and on a deleted record.
#[tokio::test(start_paused = true)]
async fn a_follower_sees_leaders_come_and_go() {
    let mut world = World::new(1, TTL, 1);
    let observer = Node::new("10.0.0.9:4000".parse().unwrap());
    let (follower, roles) = Follower::new(world.memory.lock(&observer, TTL), Some(&observer), world.timing);
    let stop = CancellationToken::new();
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(follower.run(stop.clone()));
    world.until_agreed(TTL).await;
    roles.wait_until(|role| role.leader().is_some_and(|leader| leader.address.as_str() == "10.0.0.1:4000")).await;
    world.peers[0].faults.partition();
    world.pass(TTL * 2).await;
    assert_eq!(roles.current(), Role::Electing, "nobody renewed the record");
    stop.cancel();
    tasks.join_all().await;
}
