//! The election as others see it and meddle with it: `etcdctl elect` as rival and observer, neighbours, junk, operators.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, Leader, Renewal, StoreError};
use etcd_client::{LeaseGrantOptions, PutOptions};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Child;
use tokio::time::timeout;

use crate::etcd_rig::{client, delete, keys};
use crate::etcd_server::Etcd;
use crate::rig::{KEY, LONG_TTL, Log, SLACK, lock, lock_with, node};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, release, renew, win, withdraw};
use crate::wait::wait_for;

/// For leases that are to run out; `etcdctl`, which is started a few times within it, takes its time on a busy machine.
const TTL: Duration = Duration::from_secs(6);

fn interrupt(child: &Child) {
    let id = child.id().expect("a running process").try_into().expect("a process id");
    kill_process(Pid::from_raw(id).expect("a process id"), Signal::INT).expect("interrupt etcdctl");
}

#[tokio::test]
async fn we_queue_behind_a_rival_of_another_make_and_lead_when_it_goes() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let rival = etcd.spawn_etcdctl(&["elect", KEY, "10.0.0.9:4000"]);
    hear(&*us, PROMPT, "etcdctl leads", |leader| leader.is_some_and(|leader| leader.address.as_str() == "10.0.0.9:4000")).await;

    let taken = lose(&*us, "etcdctl leads").await.expect("a leader's name");
    let queue = keys(&etcd).await;
    assert_eq!((queue[0].value.as_str(), queue[1].value.as_str()), ("10.0.0.9:4000", "127.0.0.1:1"), "{queue:?}");
    assert_eq!(taken.epoch.0, queue[0].created);

    interrupt(&rival);
    let lease = campaign(&*us, PROMPT, "etcdctl has resigned").await;
    assert_eq!(lease.epoch().0, queue[1].created, "the place in the queue was kept");
}

#[tokio::test]
async fn a_rival_of_another_make_queues_behind_us() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let _rival = etcd.spawn_etcdctl(&["elect", KEY, "10.0.0.9:4000"]);
    wait_for("etcdctl to queue", PROMPT, || async {
        let queue = keys(&etcd).await;
        if queue.len() == 2 { Ok(()) } else { Err(queue) }
    })
    .await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    release(&mut *lease).await;
    hear(&*us, PROMPT, "etcdctl is next", |leader| leader.is_some_and(|leader| leader.address.as_str() == "10.0.0.9:4000")).await;
}

#[tokio::test]
async fn an_observer_of_another_make_sees_us_lead() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let _lease = win(&*us, "nobody else campaigns").await;
    let mut observer = etcd.spawn_etcdctl(&["elect", "-l", KEY]);
    let mut printed = BufReader::new(observer.stdout.take().expect("etcdctl's output")).lines();
    let mut next = async || timeout(PROMPT, printed.next_line()).await.expect("a line in time").expect("a line").expect("a line");
    let queue = keys(&etcd).await;
    assert_eq!(next().await, queue[0].name);
    assert_eq!(next().await, "127.0.0.1:1");
    assert_eq!(queue[0].name, format!("{KEY}/{:x}", queue[0].lease), "the key is named after its lease, without padding");
    assert!(queue[0].name.starts_with(&format!("{KEY}/6277")), "a node's lease can be told from others");
}

/// B30: keys that merely begin like the election's are no candidates of it, and neither are other elections.
#[tokio::test]
async fn neighbours_do_not_stand_in_our_way() {
    let etcd = Etcd::start().await;
    let log = Log::start(etcd.folder());
    for key in [format!("{KEY}2"), format!("{KEY}X/y"), KEY.to_owned(), "bellwether/web".to_owned()] {
        etcd.etcdctl(&["put", &key, "10.0.0.9:4000"]).await;
    }
    let (prod, prod2) = (format!("{}/prod", etcd.url()), format!("{}/prod2", etcd.url()));
    for (port, url) in [(1, etcd.url()), (2, prod.clone()), (3, prod2)] {
        win(&*lock(&url, port, LONG_TTL), "each election is its own").await;
    }
    lose(&*lock(&prod, 4, LONG_TTL), "this election has its leader").await;
    assert_eq!(log.warnings_of(""), [""; 0], "neighbours are nothing to warn of");
}

/// B16: what no candidate would write is left alone, and named in the log once.
#[tokio::test]
async fn junk_among_the_candidates_is_ignored_and_named_once() {
    let etcd = Etcd::start().await;
    let log = Log::start(etcd.folder());
    let mut hand = client(&etcd).await;
    let mut junk: Vec<(Vec<u8>, Vec<u8>)> =
        ["brace", "empty", "lease/below", "7d7ba228272f0307"].map(|name| (format!("{KEY}/{name}").into_bytes(), b"{".to_vec())).into();
    junk[1].1.clear();
    junk.push(([KEY.as_bytes(), b"/\xff\xfe"].concat(), b"\xff".to_vec()));
    // Together more than a client takes in one answer.
    junk.extend((0..5).map(|number| (format!("{KEY}/big{number}").into_bytes(), vec![b'x'; 1024 * 1024])));
    for (key, value) in &junk {
        hand.put(key.as_slice(), value.as_slice(), None).await.expect("write junk");
    }

    let (us, other) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, LONG_TTL));
    let mut lease = win(&*us, "junk is no rival").await;
    for _ in 0..3 {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(lease.epoch()));
    }
    for (key, value) in &junk {
        let kept = hand.get(key.as_slice(), None).await.expect("read junk");
        assert!(kept.kvs().first().is_some_and(|kept| kept.value() == value), "the junk at {key:?} was touched");
        let name = String::from_utf8_lossy(key).escape_debug().to_string();
        assert_eq!(log.warnings_of(&name).len(), 1, "{name}: {:?}", log.warnings_of(""));
    }
    lose(&*other, "the lock is taken all the same").await;
}

/// The oldest candidate's key with something in it that is no address.
#[tokio::test]
async fn a_rival_without_an_address_is_foreign_and_named() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let rival = etcd.spawn_etcdctl(&["elect", KEY, "hello"]);
    let refused = wait_for("etcdctl to lead", PROMPT, || async {
        match us.leader().await {
            Err(error @ StoreError::Foreign { .. }) => Ok(error.to_string()),
            other => Err(other),
        }
    })
    .await;
    let queue = keys(&etcd).await;
    assert!(refused.contains(&queue[0].name) && refused.contains("hello"), "{refused}");
    assert!(matches!(us.acquire().await, Err(StoreError::Foreign { .. })));
    interrupt(&rival);
    campaign_past_errors(&us).await;
}

async fn campaign_past_errors(lock: &std::sync::Arc<dyn bellwether::store::Lock>) {
    wait_for("the foreign rival to be gone", PROMPT, || async {
        match lock.acquire().await {
            Ok(Attempt::Held(_)) => Ok(()),
            other => Err(other.map(drop)),
        }
    })
    .await;
}

/// Deleting the key does not end the holder's tenure before the holder hears of it; a frozen one does not.
#[tokio::test]
async fn nobody_leads_past_a_deleted_key_while_its_frozen_owner_may_still_serve() {
    let etcd = Etcd::start().await;
    let (frozen, next) = (lock(&etcd.url(), 1, TTL), lock(&etcd.url(), 2, TTL));
    let mut lease = win(&*frozen, "nobody else campaigns").await;
    lose(&*next, "the first holds it").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    let renewed = clock::now();
    delete(&etcd, &keys(&etcd).await[0].name).await;

    assert!(lose(&*next, "the first may still serve").await.is_none());
    let heir = campaign(&*next, lease.ttl() + SLACK, "the first is frozen").await;
    assert!(clock::now() - renewed >= lease.ttl(), "took over after {:?} of {:?}", clock::now() - renewed, lease.ttl());
    assert!(heir.epoch() > lease.epoch());
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
}

#[tokio::test]
async fn a_holder_hears_of_its_deleted_key_at_once_and_the_next_one_leads_as_soon_as_it_has_let_go() {
    let etcd = Etcd::start().await;
    // Nothing here can be an expiry.
    let (first, second) = (lock(&etcd.url(), 1, LONG_TTL), lock(&etcd.url(), 2, LONG_TTL));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let me = Leader { address: node(1).address, epoch: lease.epoch() };
    let name = keys(&etcd).await[0].name.clone();
    let (hint, ()) = tokio::join!(timeout(PROMPT, first.changed(Some(&me))), delete(&etcd, &name));
    assert!(matches!(hint, Ok(Ok(()))), "{hint:?}");
    assert!(lose(&*second, "the first has not let go").await.is_none());
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(lose(&*second, "the first has not let go").await.is_none());
    let (withdrawn, ()) = tokio::join!(timeout(PROMPT, second.changed(None)), withdraw(&*first));
    assert!(matches!(withdrawn, Ok(Ok(()))), "{withdrawn:?}");
    let mut next = win(&*second, "the first has let go").await;
    lose(&*first, "the second leads now").await;
    release(&mut *lease).await;
    assert_eq!(renew(&mut *next).await, Renewal::Held, "the first has nothing left to release");
}

/// Should a node ever keep its lease alive without looking at its key, the others do not wait for ever.
#[tokio::test]
async fn an_owner_that_ignores_the_loss_of_its_key_is_waited_for_no_longer_than_its_ttl() {
    let etcd = Etcd::start().await;
    let mut hand = client(&etcd).await;
    let number = LeaseGrantOptions::new().with_id(0x6277_0000_0000_0001);
    let stubborn = hand.lease_grant(6, Some(number)).await.expect("a lease").id();
    let key = format!("{KEY}/{stubborn:x}");
    hand.put(key.as_str(), "10.0.0.9:4000", Some(PutOptions::new().with_lease(stubborn))).await.expect("a candidate");
    let us = lock(&etcd.url(), 1, LONG_TTL);
    lose(&*us, "the stubborn one leads").await;
    let (mut keeper, mut answers) = hand.lease_keep_alive(stubborn).await.expect("a stream");
    hand.delete(key.as_str(), None).await.expect("delete its key");
    let deleted = clock::now();
    let stay = async {
        loop {
            keeper.keep_alive().await.expect("a beat");
            assert!(answers.message().await.expect("an answer").is_some_and(|answer| answer.ttl() > 0), "its lease lives");
            // The beat of a rival that lives.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        () = stay => {}
        lease = campaign(&*us, Duration::from_secs(6) + SLACK, "its tenure must be over") => {
            assert!(clock::now() - deleted >= Duration::from_secs(6));
            assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(lease.epoch()));
        }
    }
}

/// B28: a person who rewrites our key takes it out of the election, and we join anew under another lease.
#[tokio::test]
async fn a_key_that_somebody_rewrote_is_given_up() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let spoilt = keys(&etcd).await.remove(0);
    etcd.etcdctl(&["put", &spoilt.name, "10.0.0.9:4000"]).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let again = campaign(&*us, PROMPT, "a key without a lease is no candidate").await;
    assert!(again.epoch() > lease.epoch());
    let left = keys(&etcd).await;
    assert_eq!((left[0].name.as_str(), left[0].lease, left[0].value.as_str()), (spoilt.name.as_str(), 0, "10.0.0.9:4000"));
    assert!(left[1].lease != 0 && left[1].lease != spoilt.lease);
}

/// B28: whatever a node writes lives under a lease, also after it came back at another address.
#[tokio::test]
async fn every_key_of_ours_lives_under_its_lease_and_goes_with_it() {
    let etcd = Etcd::start().await;
    let us = lock(&etcd.url(), 1, TTL);
    release(&mut *win(&*us, "nobody else campaigns").await).await;
    let moved = lock_with(&etcd.url(), &[], &node(7), TTL).expect("open a lock");
    let lease = win(&*moved, "the first has released it").await;
    let held = keys(&etcd).await;
    assert_eq!((held.len(), held[0].value.as_str()), (1, "127.0.0.1:7"));
    assert_ne!(held[0].lease, 0);
    drop(lease);
    wait_for("the key to go with its lease", TTL + SLACK, || async {
        let left = keys(&etcd).await;
        if left.is_empty() { Ok(()) } else { Err(left) }
    })
    .await;
}
