//! That the faults do what they say; what the store promises without them is in the conformance suite.

use tokio::time;

use super::*;
use crate::store::{Attempt, Lease, Renewal, StoreError};

const TTL: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

fn node(name: &str) -> Node {
    Node::new(format!("{name}:1").parse().unwrap())
}

struct Fixture {
    memory: Memory,
    a: Node,
    lock: Arc<dyn Lock>,
    faults: Faults,
}

fn fixture(seed: u64) -> Fixture {
    let (memory, a) = (Memory::new(seed), node("a"));
    Fixture { lock: memory.lock(&a, TTL), faults: memory.faults(&a), memory, a }
}

async fn held(lock: &dyn Lock) -> Box<dyn Lease> {
    match lock.acquire().await {
        Ok(Attempt::Held(lease)) => lease,
        other => panic!("{other:?}"),
    }
}

async fn gives_up<T>(call: impl Future<Output = T>) -> bool {
    time::timeout(SECOND, call).await.is_err()
}

#[tokio::test(start_paused = true)]
async fn a_partition_swallows_calls_until_it_is_healed() {
    let Fixture { memory, lock, faults, .. } = fixture(0);
    let mut lease = held(&*lock).await;
    let before = memory.holder();
    faults.partition();
    assert!(gives_up(lease.renew()).await);
    assert!(gives_up(lock.changed(None)).await);
    assert_eq!(memory.holder(), before, "the renewal never arrived");
    memory.lock(&node("b"), TTL).leader().await.unwrap();
    faults.heal();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

#[tokio::test(start_paused = true)]
async fn a_partition_of_one_is_none_of_the_others() {
    let Fixture { memory, faults, .. } = fixture(0);
    faults.partition();
    held(&*memory.lock(&node("b"), TTL)).await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_call_fails_at_once() {
    let Fixture { lock, faults, .. } = fixture(0);
    faults.refuse();
    assert!(matches!(lock.acquire().await, Err(StoreError::Unavailable { .. })));
    assert!(matches!(lock.changed(None).await, Err(StoreError::Unavailable { .. })));
    faults.heal();
    held(&*lock).await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_a_call_that_took_effect() {
    let Fixture { memory, a, lock, faults } = fixture(0);
    faults.lose_replies(1.0);
    assert!(gives_up(lock.acquire()).await);
    let written = memory.holder().expect("the attempt took effect");
    assert_eq!(written.node, a);
    faults.calm();
    assert!(held(&*lock).await.epoch() > written.epoch);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_arrives_after_its_sender_gave_up() {
    let Fixture { memory, lock, faults, .. } = fixture(0);
    faults.delay(3 * SECOND..4 * SECOND);
    let sent = Instant::now();
    assert!(gives_up(lock.acquire()).await);
    assert_eq!(memory.holder(), None);
    // Also when the wire was cut behind it; a waiter elsewhere hears of it when it arrives, and not when somebody looks.
    faults.partition();
    memory.lock(&node("b"), TTL).changed(None).await.unwrap();
    assert!(sent.elapsed() >= 3 * SECOND && sent.elapsed() <= 4 * SECOND, "{:?}", sent.elapsed());
    let arrived = memory.holder().expect("the attempt has arrived").expires - TTL;
    assert!(arrived - sent >= 3 * SECOND && arrived - sent < 4 * SECOND, "{:?}", arrived - sent);
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_to_a_store_that_is_down_is_lost() {
    let Fixture { memory, lock, faults, .. } = fixture(0);
    faults.delay(SECOND / 2..SECOND);
    let (attempt, ()) = tokio::join!(lock.acquire(), async { memory.stop() });
    assert!(matches!(attempt, Err(StoreError::Unavailable { .. })), "{attempt:?}");
    memory.start();
    assert_eq!(memory.holder(), None);
}

#[tokio::test(start_paused = true)]
async fn a_slow_reply_is_slow_and_nothing_else() {
    let Fixture { memory, lock, faults, .. } = fixture(0);
    faults.delay_replies(3 * SECOND..4 * SECOND);
    let sent = Instant::now();
    held(&*lock).await;
    assert!(sent.elapsed() >= 3 * SECOND);
    assert_eq!(memory.holder().unwrap().expires, sent + TTL);
}

#[tokio::test(start_paused = true)]
async fn a_spurious_change_is_no_change() {
    let Fixture { lock, faults, .. } = fixture(0);
    assert!(gives_up(lock.changed(None)).await);
    faults.spurious(1.0);
    time::timeout(TTL, lock.changed(None)).await.unwrap().unwrap();
    assert_eq!(lock.leader().await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn only_a_wiped_store_numbers_from_the_start() {
    let Fixture { memory, lock, .. } = fixture(0);
    let first = held(&*lock).await.epoch();
    memory.delete_record();
    assert!(held(&*lock).await.epoch() > first);
    memory.stop();
    memory.start();
    memory.wipe();
    assert_eq!(held(&*lock).await.epoch(), first);
}

#[tokio::test(start_paused = true)]
async fn one_seed_is_one_history() {
    async fn history(seed: u64) -> Vec<Duration> {
        let Fixture { lock, faults, .. } = fixture(seed);
        faults.delay(Duration::ZERO..SECOND);
        faults.delay_replies(Duration::ZERO..SECOND);
        let start = Instant::now();
        let mut at = Vec::new();
        for _ in 0..5 {
            lock.leader().await.unwrap();
            at.push(start.elapsed());
        }
        at
    }
    assert_eq!(history(7).await, history(7).await);
    assert_ne!(history(7).await, history(8).await);
}

#[tokio::test(start_paused = true)]
async fn one_url_and_election_is_one_store() {
    use crate::store::{LockConfig, StoreOptions, StoreUrl};
    let open = |url: &str, service: &str, name: &str| {
        let url: StoreUrl = url.parse().unwrap();
        let config = LockConfig { election: url.election(service).unwrap(), node: node(name), ttl: TTL, call_timeout: SECOND };
        url.open(&StoreOptions::default(), config).unwrap()
    };
    held(&*open("memory:one", "web", "a")).await;
    assert!(matches!(open("memory:one", "web", "b").acquire().await, Ok(Attempt::Taken(Some(_)))));
    held(&*open("memory:one", "mail", "b")).await;
    held(&*open("memory:two", "web", "b")).await;
}
