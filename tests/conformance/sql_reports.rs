//! Reports from the field about elections in databases, each put to both kinds of server.

use std::time::Duration;

use bellwether::store::{Attempt, Leader, Lease, Lock, Renewal, StoreError};
use tokio::time::{Instant, sleep, timeout};

use crate::harness::call_timeout;
use crate::rig::{Running, node};
use crate::sql_rig::{Server, denied, lock_at, on_each_server};
use crate::suite::steps::{PROMPT, acquire, campaign, leader, lose, release, renew, win};
use crate::wait::wait_for;
use crate::wire::{Mode, Wire};

const TTL: Duration = Duration::from_secs(3);
/// What a busy machine may add.
const SLACK: Duration = Duration::from_secs(10);

on_each_server! {
    a_connection_that_is_ended_costs_no_tenure
    an_idle_connection_that_is_ended_costs_no_tenure
    an_attempt_with_late_answers_leaves_no_lock_behind
    an_older_copy_at_the_same_address_ends_the_tenure
    epochs_rise_over_resigns_and_deletions
    a_row_locked_for_two_seconds_costs_nothing
    a_row_locked_for_twenty_seconds_costs_a_ttl_at_most
    a_server_that_takes_no_writes_is_refused_by_name
    a_server_that_takes_no_writes_any_more_keeps_no_tenure
    a_silent_server_is_given_up_and_found_again
    a_slow_server_costs_no_tenure
    a_table_that_was_dropped_is_made_anew
    a_server_that_comes_back_empty_has_greater_epochs_all_the_same
}

/// Two candidates at one store.
pub(crate) fn pair(url: &str, ttl: Duration) -> [Running; 2] {
    [1, 2].map(|port| Running::start_with(lock_at(url, &[], &node(port), ttl).expect("open a lock"), node(port), ttl))
}

/// Waits until one of them leads and the other follows, and says under which epoch.
pub(crate) async fn settled(pair: &[Running; 2], within: Duration, why: &str) -> u64 {
    let [one, other] = pair;
    let (first, second) = (one.roles.wait_until(|role| role.name() == "primary"), other.roles.wait_until(|role| role.name() == "primary"));
    let leads = async {
        tokio::select! { role = first => (role, other), role = second => (role, one) }
    };
    let Ok((role, follower)) = timeout(within, leads).await else { panic!("{why}, but nobody leads within {within:?}") };
    follower.follows(PROMPT, "the other leads").await;
    role.tenure().expect("a primary's epoch").0
}

/// B54: whoever recycles connections, a pooler or an administrator, has no say in who leads.
async fn a_connection_that_is_ended_costs_no_tenure<S: Server>() {
    let server = S::make().await;
    let single = &pair(&server.here(), TTL);
    let epoch = settled(single, PROMPT, "two campaign").await;
    let begun = Instant::now();
    while begun.elapsed() < TTL * 3 {
        sleep(TTL / 4).await;
        server.administer(S::END_CONNECTIONS).await;
    }
    assert_eq!(settled(single, PROMPT, "connections are made anew").await, epoch);
}

/// B54, as seen by one call: the first one after it is lost at most.
async fn an_idle_connection_that_is_ended_costs_no_tenure<S: Server>() {
    let server = S::make().await;
    let lock = server.open(1, TTL * 20);
    let mut lease = win(&*lock, "nobody else campaigns").await;
    for _ in 0..3 {
        server.administer(S::END_CONNECTIONS).await;
        if let Err(error) = lease.renew().await {
            assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
            assert_eq!(lease.renew().await.expect("a connection of its own"), Renewal::Held);
        }
    }
}

/// B55: answers come when nobody waits for them any more.
async fn an_attempt_with_late_answers_leaves_no_lock_behind<S: Server>() {
    let server = S::make().await;
    server.open(9, TTL * 20).leader().await.expect("the table is made");
    let wire = Wire::to(server.place()).await;
    let lock = lock_at(&server.url_at(wire.address()), &[], &node(1), TTL * 20).expect("open a lock");
    assert_eq!(leader(&*lock).await, None);
    wire.set(Mode::Delay(Duration::from_millis(400)));
    for _ in 0..5 {
        drop(timeout(Duration::from_millis(500), lock.acquire()).await);
    }
    wire.set(Mode::Pass);
    // Whatever came of them, the row is nobody's but ours, and no transaction keeps it.
    let mut lease = win(&*lock, "nobody else campaigns").await;
    let locked = timeout(PROMPT, server.lock_row()).await.expect("no transaction was left open");
    drop(locked);
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*server.open(2, TTL), "the first holds it").await;
}

/// B56: the address leads to a copy that is older than the tenure. The holder is told by its next renewal, and the next one
/// leads under a greater epoch, although nobody there ever heard of the last.
async fn an_older_copy_at_the_same_address_ends_the_tenure<S: Server>() {
    let mut server = S::make().await;
    let before = server.open(1, TTL * 20);
    let mut first = win(&*before, "nobody else campaigns").await;
    release(&mut *first).await;
    server.back_up().await;
    let mut lost = win(&*before, "the first was released").await;
    server.restore().await;
    assert_eq!(renew(&mut *lost).await, Renewal::Lost);
    let next = win(&*server.open(2, TTL), "the copy knows of no tenure").await;
    assert!(next.epoch() > lost.epoch(), "{} after {}", next.epoch(), lost.epoch());
}

/// B58, B59: with releases and deletions in between, also late ones.
async fn epochs_rise_over_resigns_and_deletions<S: Server>() {
    let server = S::make().await;
    let locks = [server.open(1, TTL * 20), server.open(2, TTL * 20)];
    let (mut epochs, mut last) = (Vec::new(), None::<Box<dyn Lease>>);
    for turn in 0..8 {
        let mut lease = campaign(&*locks[turn % 2], SLACK, "the last tenure is over").await;
        epochs.push(lease.epoch());
        if let Some(mut late) = last.take() {
            release(late.as_mut()).await;
            assert_eq!(renew(&mut *lease).await, Renewal::Held, "a late release is about an earlier tenure");
        }
        if turn % 3 == 2 {
            server.texts("DELETE FROM leader_leases").await;
            assert_eq!(renew(&mut *lease).await, Renewal::Lost);
        } else {
            release(&mut *lease).await;
        }
        last = Some(lease);
    }
    assert!(epochs.windows(2).all(|pair| pair[0] < pair[1]), "{epochs:?}");
}

/// B144: another program keeps the row locked, and lets it go in time.
async fn a_row_locked_for_two_seconds_costs_nothing<S: Server>() {
    const TTL: Duration = Duration::from_secs(5);
    let server = S::make().await;
    let pair = pair(&server.here(), TTL);
    let epoch = settled(&pair, PROMPT, "two campaign").await;
    let locked = server.lock_row().await;
    // The length of the fault is the scenario itself; and a tenure that it cost would be over a TTL later.
    sleep(Duration::from_secs(2)).await;
    drop(locked);
    sleep(TTL).await;
    assert_eq!(settled(&pair, PROMPT, "it could renew in time").await, epoch);
}

/// B144: another program keeps the row locked for four TTLs.
async fn a_row_locked_for_twenty_seconds_costs_a_ttl_at_most<S: Server>() {
    const TTL: Duration = Duration::from_secs(5);
    let server = S::make().await;
    let pair = pair(&server.here(), TTL);
    let epoch = settled(&pair, PROMPT, "two campaign").await;
    let locked = server.lock_row().await;
    // The length of the fault is the scenario itself.
    sleep(TTL * 4).await;
    assert!(pair.iter().all(|one| one.roles.current().name() != "primary"), "nobody could renew");
    drop(locked);
    let unlocked = Instant::now();
    let next = settled(&pair, TTL + SLACK, "the row is free").await;
    assert!(next > epoch, "{next} after {epoch}");
    assert!(unlocked.elapsed() < TTL * 2, "{:?}", unlocked.elapsed());
}

async fn a_server_that_takes_no_writes_is_refused_by_name<S: Server>() {
    let server = S::make().await;
    server.open(1, TTL * 20).leader().await.expect("the table is made");
    server.administer(S::READ_ONLY).await;
    let lock = server.open(1, TTL);
    refuses(&*lock).await;
    for _ in 0..2 {
        denied(lock.acquire().await, &["database `election` at 127.0.0.1:", "primary"]);
        denied(lock.leader().await, &["database `election` at 127.0.0.1:", "primary"]);
    }
    server.administer(S::WRITABLE).await;
    serves(&*lock).await;
    win(&*lock, "it takes writes again").await;
}

/// The primary became a standby, and its connections live on.
async fn a_server_that_takes_no_writes_any_more_keeps_no_tenure<S: Server>() {
    let server = S::make().await;
    let lock = server.open(1, TTL * 20);
    let mut lease = win(&*lock, "nobody else campaigns").await;
    server.administer(S::READ_ONLY).await;
    // A connection that lives on is told a moment later.
    wait_for("the server to renew no more", PROMPT, async || match lease.renew().await {
        Ok(Renewal::Held) => Err("it renews"),
        Ok(Renewal::Lost) | Err(_) => Ok(()),
    })
    .await;
    refuses(&*lock).await;
    server.administer(S::WRITABLE).await;
    serves(&*lock).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held, "nobody has led since");
}

/// Waits until the server has heard that it shall take no writes.
async fn refuses(lock: &dyn Lock) {
    wait_for("the server to say nothing of leaders", PROMPT, async || match lock.leader().await {
        Ok(leader) => Err(leader),
        Err(_) => Ok(()),
    })
    .await;
    denied(lock.leader().await, &["primary"]);
}

/// Waits until the server has heard that it may take writes.
async fn serves(lock: &dyn Lock) {
    wait_for("it to take writes again", PROMPT, async || lock.leader().await).await;
}

/// Every call ends by itself or with its caller, and none waits for what an earlier one lost.
async fn a_silent_server_is_given_up_and_found_again<S: Server>() {
    let server = S::make().await;
    let wire = Wire::to(server.place()).await;
    let lock = lock_at(&server.url_at(wire.address()), &[], &node(1), TTL).expect("open a lock");
    let mut lease = win(&*lock, "nobody else campaigns").await;
    wire.set(Mode::Blackhole);
    // As the candidate does it.
    assert!(timeout(call_timeout(TTL), lease.renew()).await.is_err(), "nothing can have answered");
    let silent = timeout(PROMPT, lock.changed(leader_of(&*lease).as_ref())).await.expect("a wait ends when nothing answers");
    assert!(matches!(silent, Err(StoreError::Unavailable { .. })), "{silent:?}");
    wire.set(Mode::Pass);
    wait_for("the server to be found again", TTL + SLACK, async || match timeout(call_timeout(TTL), lock.leader()).await {
        Ok(Ok(_)) => Ok(()),
        silent => Err(silent),
    })
    .await;
}

fn leader_of(lease: &dyn Lease) -> Option<Leader> {
    Some(Leader { address: node(1).address, epoch: lease.epoch() })
}

/// B21: an answer takes 0 to 900 ms, differently each time.
async fn a_slow_server_costs_no_tenure<S: Server>() {
    const TTL: Duration = Duration::from_secs(3);
    let server = S::make().await;
    let wire = Wire::to(server.place()).await;
    let pair = pair(&server.url_at(wire.address()), TTL);
    for _ in 0..4 {
        let epoch = settled(&pair, PROMPT, "two campaign").await;
        wire.was_late();
        wire.set(Mode::SlowAnswers(Duration::from_millis(900)));
        // The length of the trouble is the scenario itself.
        sleep(TTL * 4).await;
        wire.set(Mode::Pass);
        let (now, late) = (settled(&pair, PROMPT, "it could renew in time").await, wire.was_late());
        if now == epoch {
            return;
        }
        // On a busy machine answers take longer than they were meant to.
        assert!(late > Duration::from_millis(75), "epoch {epoch} became {now}, and answers were {late:?} late at most");
    }
    panic!("this machine is too busy to be slow in time");
}

async fn a_table_that_was_dropped_is_made_anew<S: Server>() {
    let server = S::make().await;
    let lock = server.open(1, TTL * 20);
    let mut lease = win(&*lock, "nobody else campaigns").await;
    server.texts("DROP TABLE leader_leases").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let Attempt::Held(next) = acquire(&*lock).await else { panic!("the new table has no row") };
    assert!(next.epoch() > lease.epoch());
}

async fn a_server_that_comes_back_empty_has_greater_epochs_all_the_same<S: Server>() {
    let mut server = S::make().await;
    let lock = server.open(1, TTL * 20);
    let mut lease = win(&*lock, "nobody else campaigns").await;
    server.crash();
    let down = lease.renew().await.expect_err("nobody answers");
    assert!(matches!(down, StoreError::Unavailable { .. }), "{down}");
    server.come_back_empty().await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let next = win(&*server.open(2, TTL), "there is no row").await;
    assert!(next.epoch() > lease.epoch(), "{} after {}", next.epoch(), lease.epoch());
}
