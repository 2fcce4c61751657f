//! Reports from the field about elections on etcd, each tried against a real server.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Leader, Renewal};
use tokio::time::{sleep, sleep_until, timeout};

use crate::etcd_rig::{client, delete, keys};
use crate::etcd_server::Etcd;
use crate::harness::call_timeout;
use crate::rig::{LONG_TTL, Running, SLACK, lock};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, release, renew, win};
use crate::wait::wait_for;
use crate::wire::{Mode, Wire};

/// For whole candidates, which renew: long enough that no stall of this machine costs a lease.
const TTL: Duration = Duration::from_secs(6);

/// B23: a waiting candidate that lost its lease joins anew, and leads only on what it has read.
#[tokio::test]
async fn a_waiter_that_lost_its_lease_queues_again_under_another() {
    let etcd = Etcd::start().await;
    let wire = Wire::to(etcd.client(0)).await;
    let first = Running::start(&etcd.url(), 1, TTL);
    first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&format!("etcd://{}", wire.address()), 2, TTL);
    second.follows(PROMPT, "the first leads").await;
    let before = keys(&etcd).await.remove(1);

    wire.set(Mode::Blackhole);
    let gone = wait_for("the waiter's lease to run out", TTL + SLACK, || async {
        let queue = keys(&etcd).await;
        if queue.len() == 1 { Ok(()) } else { Err(queue) }
    });
    gone.await;
    wire.set(Mode::Pass);
    let after = wait_for("the waiter to queue again", PROMPT, || async {
        let mut queue = keys(&etcd).await;
        if queue.len() == 2 { Ok(queue.remove(1)) } else { Err(queue) }
    })
    .await;
    assert_ne!(after.lease, before.lease);
    assert!(after.created > before.created);

    first.handle.retire().await;
    let epoch = second.leads(PROMPT, "the first has retired").await;
    let left = keys(&etcd).await;
    assert_eq!((left.len(), epoch, left[0].lease), (1, after.created, after.lease), "{left:?}");
}

/// B23: and one whose lease lapsed without its knowledge does not take the next free lock for its own.
#[tokio::test]
async fn a_free_lock_is_not_held_by_a_lease_that_has_lapsed() {
    let etcd = Etcd::start().await;
    let (first, second) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, TTL));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let lapsed = keys(&etcd).await.remove(1);
    wait_for("the waiter's lease to run out", TTL + SLACK, || async {
        let queue = keys(&etcd).await;
        if queue.len() == 1 { Ok(()) } else { Err(queue) }
    })
    .await;
    release(&mut *lease).await;
    let heir = win(&*second, "nobody leads").await;
    let own = keys(&etcd).await.remove(0);
    assert_ne!(own.lease, lapsed.lease);
    assert_eq!(heir.epoch().0, own.created);
}

/// B25: a leader whose last write has been compacted away is found, by who starts afterwards and by who was cut off.
#[tokio::test]
async fn compaction_hides_nobody() {
    let etcd = Etcd::start().await;
    let wire = Wire::to(etcd.client(0)).await;
    let (first, second) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, LONG_TTL));
    let cut_off = lock(&format!("etcd://{}", wire.address()), 3, TTL);
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let seen = leader(&*cut_off).await;

    let epoch = lease.epoch();
    let released = |now: Option<&Leader>| now.is_none_or(|now| now.epoch > epoch);
    let mut waiting = Box::pin(hear(&*second, PROMPT, "the first releases", released));
    assert!(timeout(Duration::from_millis(200), &mut waiting).await.is_err(), "nothing has changed yet");
    wire.set(Mode::Blackhole);
    write_and_compact(&etcd).await;
    let late = lock(&etcd.url(), 4, TTL);
    assert_eq!(leader(&*late).await, seen);

    tokio::join!(release(&mut *lease), waiting);
    win(&*second, "the first has released it").await;
    write_and_compact(&etcd).await;
    wire.set(Mode::Pass);
    wait_for("the one that was cut off to find the new leader", PROMPT, || async {
        match timeout(call_timeout(TTL), cut_off.leader()).await {
            Ok(Ok(Some(now))) if now.epoch > epoch => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn write_and_compact(etcd: &Etcd) {
    let mut hand = client(etcd).await;
    let mut revision = 0;
    for number in 0..1_000 {
        let written = hand.put(format!("other/{number}"), "x", None).await.expect("write a key");
        revision = written.header().expect("a header").revision();
    }
    hand.compact(revision, None).await.expect("compact");
}

/// B26: who only observes gets an answer when there is no leader, and hears of the first one and of its deletion.
#[tokio::test]
async fn an_observer_is_told_of_nobody_of_somebody_and_of_nobody_again() {
    let etcd = Etcd::start().await;
    let (observer, first) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, LONG_TTL));
    assert_eq!(timeout(PROMPT, observer.leader()).await.expect("an answer").expect("an answer"), None);
    let (lease, ()) =
        tokio::join!(win(&*first, "nobody else campaigns"), hear(&*observer, PROMPT, "the first leads", |leader| leader.is_some()));
    let name = keys(&etcd).await[0].name.clone();
    tokio::join!(delete(&etcd, &name), hear(&*observer, PROMPT, "its key was deleted", |leader| leader.is_none()));
    assert!(keys(&etcd).await.is_empty() && lease.epoch().0 > 0);
}

/// B27: the address lives under the same lease as the lock, so that nobody is sent to a dead node.
#[tokio::test]
async fn a_crashed_leader_is_forgotten_with_its_lock() {
    let etcd = Etcd::start().await;
    let observer = lock(&etcd.url(), 1, TTL);
    let crashing = Running::start(&etcd.url(), 2, TTL);
    crashing.leads(PROMPT, "nobody else campaigns").await;
    hear(&*observer, PROMPT, "it leads", |leader| leader.is_some()).await;
    drop(crashing);
    hear(&*observer, TTL + SLACK, "it has crashed", |leader| leader.is_none()).await;
    assert_eq!(keys(&etcd).await, []);
}

/// B31: a store that is gone ends the tenure in time; one that comes back empty is met with a new lease.
#[tokio::test]
async fn an_emptied_store_is_led_again_under_a_new_lease() {
    let mut etcd = Etcd::start().await;
    let node = Running::start(&etcd.url(), 1, TTL);
    node.leads(PROMPT, "nobody else campaigns").await;
    let before = keys(&etcd).await.remove(0);
    etcd.stop(0).await;
    let stopped = clock::now();
    // Whoever looks a TTL later finds no primary, however late this machine lets him look.
    sleep_until(stopped + TTL).await;
    assert_eq!(node.roles.current().tenure(), None, "a primary without a store steps down within its TTL");

    etcd.wipe(0);
    etcd.restart(0).await;
    node.leads(TTL * 2 + SLACK, "the store is back").await;
    let after = keys(&etcd).await;
    assert_eq!(after.len(), 1);
    assert_ne!(after[0].lease, before.lease);
}

/// B31: at the level of the lock, where nothing has told it of the loss.
#[tokio::test]
async fn a_lease_of_an_emptied_store_is_lost_and_not_asked_for_again() {
    let mut etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let before = keys(&etcd).await.remove(0);
    etcd.stop(0).await;
    etcd.wipe(0);
    etcd.restart(0).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    campaign(&*us, PROMPT, "the store is empty").await;
    let after = keys(&etcd).await;
    assert_eq!(after.len(), 1);
    assert_ne!(after[0].lease, before.lease);
}

/// B33: etcd grants what it can keep, not what was asked, and that is what counts.
#[tokio::test]
async fn the_granted_ttl_counts() {
    let etcd = Etcd::start_with(1, &["--heartbeat-interval=500", "--election-timeout=5000"]).await;
    let us = lock(&etcd.url(), 1, Duration::from_secs(3));
    let lease = campaign(&*us, PROMPT, "nobody else campaigns").await;
    let told = etcd.etcdctl(&["lease", "timetolive", &format!("{:x}", keys(&etcd).await[0].lease)]).await;
    assert_eq!(lease.ttl(), Duration::from_secs(8), "{told}");
    assert!(told.contains("granted with TTL(8s)"), "{told}");
}

/// B06: renewals cost the store no write, and a waiting candidate none either.
#[tokio::test]
async fn renewing_and_waiting_write_nothing() {
    let etcd = Etcd::start().await;
    let (first, second) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, LONG_TTL));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let revision = async || {
        let answer = client(&etcd).await.get("any", None).await.expect("an answer");
        answer.header().expect("a header").revision()
    };
    let before = revision().await;
    for _ in 0..10 {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        lose(&*second, "the first holds it").await;
        leader(&*second).await;
        // For whatever they might write of their own accord between two calls.
        sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(revision().await, before);
}
