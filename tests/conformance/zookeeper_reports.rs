//! Reports from the field about elections on ZooKeeper, each tried against real servers.

use std::time::Duration;

use bellwether::clock;
use bellwether::replication::RoleWatch;
use bellwether::store::{Leader, Renewal};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::kazoo::Kazoo;
use crate::rig::{KEY, Running, SLACK, lock, node};
use crate::suite::steps::{PROMPT, hear, lose, release, renew, win};
use crate::wait::wait_for;
use crate::wire::{Mode, Wire};
use crate::zookeeper_server::ZooKeeper;
use crate::zookeeper_thaw::thaw;

const TTL: Duration = Duration::from_secs(3);

/// Looks all the time whether two of these are primary at once.
struct One {
    looking: JoinSet<()>,
}

impl One {
    fn watch(candidates: &[&Running]) -> Self {
        let roles: Vec<RoleWatch> = candidates.iter().map(|candidate| candidate.roles.clone()).collect();
        let mut looking = JoinSet::new();
        looking.spawn(async move {
            loop {
                let primaries = roles.iter().map(RoleWatch::current).filter(|role| role.name() == "primary").collect::<Vec<_>>();
                assert!(primaries.len() < 2, "two primaries at once: {primaries:?}");
                sleep(Duration::from_millis(1)).await;
            }
        });
        Self { looking }
    }

    /// # Panics
    /// When there were two primaries at any time.
    fn assert_never_two(mut self) {
        if let Some(Err(panicked)) = self.looking.try_join_next() {
            std::panic::resume_unwind(panicked.into_panic());
        }
    }
}

async fn one_leads(candidates: &[&Running], within: Duration, why: &str) -> usize {
    wait_for(why, within, || async {
        let roles = candidates.iter().map(|candidate| candidate.roles.current()).collect::<Vec<_>>();
        match roles.iter().position(|role| role.name() == "primary") {
            Some(primary) if roles.iter().filter(|role| role.name() == "replica").count() + 1 == roles.len() => Ok(primary),
            _ => Err(roles),
        }
    })
    .await
}

/// B49: a leader that hears nothing from its servers is demoted by its own clock before the next one leads, and comes back
/// under another node.
#[tokio::test]
async fn a_black_holed_leader_steps_down_before_the_next_one_leads() {
    let servers = ZooKeeper::start(1, "").await;
    let wire = Wire::to(servers.address(0)).await;
    let first = Running::start(&format!("zk://{}", wire.address()), 1, TTL);
    let epoch = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&servers.url(), 2, TTL);
    second.follows(PROMPT, "the first leads").await;
    let hand = Kazoo::start(servers.address(0));
    let before = hand.line(&format!("/{KEY}")).await.remove(0);
    let one = One::watch(&[&first, &second]);

    wire.set(Mode::Blackhole);
    let next = second.leads(TTL * 2 + SLACK, "the first is cut off").await;
    assert!(next > epoch);
    assert!(first.roles.current().tenure().is_none());
    wire.set(Mode::Pass);
    first.follows(PROMPT, "the second leads").await;
    let line = wait_for("the first to queue again", PROMPT, || async {
        let line = hand.line(&format!("/{KEY}")).await;
        if line.len() == 2 { Ok(line) } else { Err(line) }
    });
    let line = line.await;
    assert_eq!(line[1].data, before.data);
    assert!(line[1].name != before.name && line[1].session != before.session && line[1].created > before.created, "{line:?}");
    one.assert_never_two();
}

/// B49: an operator ends the leader's session. Its node goes at once, and it is told at once.
#[tokio::test]
async fn a_leader_whose_session_was_ended_by_hand_queues_again_under_another() {
    let servers = ZooKeeper::start(1, "").await;
    // So long that nothing here can be an expiry.
    let ttl = Duration::from_secs(60);
    let first = Running::start(&servers.url(), 1, ttl);
    first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&servers.url(), 2, ttl);
    second.follows(PROMPT, "the first leads").await;
    let hand = Kazoo::start(servers.address(0));
    let before = hand.line(&format!("/{KEY}")).await.remove(0);
    hand.command::<()>(json!(["expire", before.session])).await;
    second.leads(PROMPT, "the first one's session is gone").await;
    first.follows(PROMPT, "the second leads").await;
    let line = wait_for("the first to queue again", PROMPT, || async {
        let line = hand.line(&format!("/{KEY}")).await;
        if line.len() == 2 { Ok(line) } else { Err(line) }
    });
    let line = line.await;
    assert!(line[1].session != before.session && line[1].name != before.name, "{line:?} after {before:?}");
}

/// B49: the same at the level of the lock: the tenure is lost, and the process's next node is another one's.
#[tokio::test]
async fn a_tenure_ends_with_its_session() {
    let servers = ZooKeeper::start(1, "").await;
    let us = lock(&servers.url(), 1, Duration::from_secs(60));
    let mut lease = win(&*us, "nobody else campaigns").await;
    let hand = Kazoo::start(servers.address(0));
    let before = hand.line(&format!("/{KEY}")).await.remove(0);
    hand.command::<()>(json!(["expire", before.session])).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let next = win(&*us, "nobody else campaigns").await;
    assert!(next.epoch() > lease.epoch());
    release(&mut *lease).await;
    let line = hand.line(&format!("/{KEY}")).await;
    assert_eq!((line.len(), line[0].created), (1, next.epoch().0), "the lost tenure has nothing left to release");
}

/// B51: the members hear nothing of each other for about as long as a session lives.
#[tokio::test]
async fn an_ensemble_that_falls_apart_never_has_two_leaders() {
    let mut servers = ZooKeeper::start(3, "").await;
    let url = |first: usize| {
        let members = (0..3).map(|number| servers.address((first + number) % 3).to_string()).collect::<Vec<_>>();
        format!("zk://{}", members.join(","))
    };
    let candidates = [0, 1, 2].map(|number| Running::start(&url(usize::from(number)), number + 1, TTL));
    let candidates = [&candidates[0], &candidates[1], &candidates[2]];
    one_leads(&candidates, PROMPT, "somebody leads").await;
    let one = One::watch(&candidates);
    let mut rng = fastrand::Rng::with_seed(51);
    for round in 0..20 {
        // Two of three: none of the three can do without one of them, and the third goes on for a while without knowing.
        let (left, others) = (round % 3, [(round + 1) % 3, (round + 2) % 3]);
        others.iter().for_each(|&member| servers.signal(member, Signal::STOP));
        // The length of the silence is the scenario itself.
        sleep(Duration::from_millis(rng.u64(2_000..4_000))).await;
        thaw(&mut servers, &others).await;
        let why = format!("round {round}: member {left} has the others back");
        one_leads(&candidates, PROMPT + TTL * 2 + SLACK, &why).await;
    }
    one.assert_never_two();
}

/// B53: every member is restarted in turn while three candidates campaign.
#[tokio::test]
async fn a_rolling_restart_of_the_ensemble_never_makes_two_leaders() {
    let mut servers = ZooKeeper::start(3, "").await;
    let candidates = [1, 2, 3].map(|port| Running::start(&servers.url(), port, TTL));
    let candidates = [&candidates[0], &candidates[1], &candidates[2]];
    one_leads(&candidates, PROMPT, "somebody leads").await;
    let one = One::watch(&candidates);
    for member in 0..3 {
        servers.stop(member);
        servers.restart(member).await;
        one_leads(&candidates, PROMPT + TTL * 2 + SLACK, "the ensemble is whole again").await;
    }
    one.assert_never_two();
    let hand = Kazoo::start(servers.address(0));
    let line = hand.line(&format!("/{KEY}")).await;
    let addresses = line.iter().map(|node| node.data.as_str()).collect::<std::collections::BTreeSet<_>>();
    assert_eq!((line.len(), addresses.len()), (3, 3), "each has one place in the line: {line:?}");
}

/// A store that is gone ends the tenure in time; one that comes back empty is met with a new session.
#[tokio::test]
async fn an_emptied_store_is_led_again_under_a_new_session() {
    let mut servers = ZooKeeper::start(1, "").await;
    let node = Running::start(&servers.url(), 1, TTL);
    node.leads(PROMPT, "nobody else campaigns").await;
    servers.stop(0);
    let stopped = clock::now();
    let demoted = node.roles.wait_until(|role| role.tenure().is_none());
    timeout(TTL, demoted).await.expect("a primary without a store steps down within its TTL");
    assert!(clock::now() - stopped < TTL);

    servers.wipe(0);
    servers.restart(0).await;
    node.leads(PROMPT + TTL * 2 + SLACK, "the store is back").await;
    let hand = Kazoo::start(servers.address(0));
    assert_eq!(hand.line(&format!("/{KEY}")).await.len(), 1);
}

/// The servers grant what they can keep, not what was asked, and that is what counts.
#[tokio::test]
async fn the_granted_ttl_counts() {
    let servers = ZooKeeper::start(1, "minSessionTimeout=8000\nmaxSessionTimeout=20000\n").await;
    for (asked, granted) in [(1, 8), (10, 10), (60, 20)] {
        let us = lock(&servers.url(), 1, Duration::from_secs(asked));
        let mut lease = win(&*us, "nobody else campaigns").await;
        assert_eq!(lease.ttl(), Duration::from_secs(granted), "asked for {asked}");
        release(&mut *lease).await;
    }
}

/// B06: waiting and looking write nothing; a renewal is one transaction that changes nothing.
#[tokio::test]
async fn renewals_are_few_transactions_and_waiting_is_none() {
    let servers = ZooKeeper::start(1, "").await;
    let hand = Kazoo::start(servers.address(0));
    let long = Duration::from_secs(60);
    let (first, second) = (lock(&servers.url(), 1, long), lock(&servers.url(), 2, long));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let line = hand.line(&format!("/{KEY}")).await;
    // Each look at the number is two transactions of its own.
    let zxid = async || hand.command::<u64>(json!(["zxid"])).await;
    let before = zxid().await;
    for _ in 0..10 {
        lose(&*second, "the first holds it").await;
        assert_eq!(second.leader().await.expect("an answer").map(|leader| leader.epoch), Some(lease.epoch()));
    }
    assert_eq!(zxid().await, before + 2);
    for _ in 0..10 {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
    }
    assert_eq!(zxid().await, before + 4 + 10);
    assert_eq!(hand.line(&format!("/{KEY}")).await, line);
}

/// No herd: whoever waits is woken by the end of the leader and of the one before it, and by nobody else's.
#[tokio::test]
async fn who_waits_is_not_woken_by_those_behind_it() {
    let servers = ZooKeeper::start(1, "").await;
    let long = Duration::from_secs(60);
    let [first, second, third, fourth] = [1, 2, 3, 4].map(|port| lock(&servers.url(), port, long));
    let lease = win(&*first, "nobody else campaigns").await;
    for waiter in [&second, &third, &fourth] {
        lose(&**waiter, "the first holds it").await;
    }
    let seen = Leader { address: node(1).address, epoch: lease.epoch() };
    let mut quiet = Box::pin(second.changed(Some(&seen)));
    assert!(timeout(Duration::from_millis(300), &mut quiet).await.is_err(), "nothing has changed yet");
    let mut last = Box::pin(fourth.changed(Some(&seen)));
    assert!(timeout(Duration::from_millis(300), &mut last).await.is_err(), "nothing has changed yet");
    third.withdraw().await.expect("an answer");
    assert!(matches!(timeout(PROMPT, last).await, Ok(Ok(()))), "the one before the last has left");
    assert!(timeout(Duration::from_millis(300), &mut quiet).await.is_err(), "only somebody behind has left");
    let fifth = lock(&servers.url(), 5, long);
    lose(&*fifth, "the first holds it").await;
    assert!(timeout(Duration::from_millis(300), &mut quiet).await.is_err(), "only somebody behind has come");
    drop(quiet);
    let gone = |leader: Option<&Leader>| leader.is_none_or(|leader| leader.epoch > seen.epoch);
    let mut lease = lease;
    tokio::join!(
        release(&mut *lease),
        hear(&*second, PROMPT, "the first releases", gone),
        hear(&*fifth, PROMPT, "the first releases", gone)
    );
}
