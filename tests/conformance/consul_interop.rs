//! The election as others see it and meddle with it: the `consul` command, the API in an operator's hands, neighbours, and
//! rivals that lock the same key as Consul's own client library does.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, Leader, Renewal, StoreError};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::time::timeout;

use crate::consul_rig::{LOCK_DELAY, SLACK, change, cli, held, quick, sessions, spawn_cli, stranger};
use crate::rig::{KEY, lock, lock_with, node};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, release, renew, win, withdraw};

const TTL: Duration = Duration::from_secs(2);
/// So long that nothing here can be an expiry.
const LONG: Duration = Duration::from_secs(60);
/// What Consul's client library marks its locks with.
const FLAGS: &str = "flags=3304740253564472344";

#[tokio::test]
async fn an_operator_sees_the_leader_its_session_and_when_there_is_none() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, LONG);
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(cli(&consul, &["kv", "get", KEY]).await.trim(), "127.0.0.1:1");
    let (_, session) = held(&consul).await;
    let detailed = cli(&consul, &["kv", "get", "-detailed", KEY]).await;
    let fields = detailed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect::<Vec<_>>();
    let epoch = lease.epoch().to_string();
    for field in [["Session", &session], ["ModifyIndex", &epoch], ["Flags", "3304740253564472344"]] {
        assert!(fields.contains(&field.to_vec()), "{field:?} in {detailed}");
    }
    release(&mut *lease).await;
    assert_eq!(cli(&consul, &["kv", "get", KEY]).await.trim(), "", "nobody leads, and the key says so");
    withdraw(&*us).await;
    assert_eq!(sessions(&consul).await, Vec::<serde_json::Value>::new(), "nothing of ours is left");
}

#[tokio::test]
async fn a_holder_hears_of_its_deleted_key_at_once_and_the_next_one_leads_as_soon_as_it_has_let_go() {
    let consul = quick().await;
    let (first, second) = (lock(&consul.url(), 1, LONG), lock(&consul.url(), 2, LONG));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let me = Leader { address: node(1).address, epoch: lease.epoch() };
    let (hint, _) = tokio::join!(timeout(PROMPT, first.changed(Some(&me))), cli(&consul, &["kv", "delete", KEY]));
    assert!(matches!(hint, Ok(Ok(()))), "{hint:?}");
    assert!(lose(&*second, "the first has not let go").await.is_none());
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(lose(&*second, "the first has not let go").await.is_none());
    let (freed, ()) = tokio::join!(timeout(PROMPT, second.changed(None)), release(&mut *lease));
    assert!(matches!(freed, Ok(Ok(()))), "{freed:?}");
    let mut next = win(&*second, "the first has let go").await;
    assert!(next.epoch() > lease.epoch());
    lose(&*first, "the second leads now").await;
    release(&mut *lease).await;
    assert_eq!(renew(&mut *next).await, Renewal::Held, "the first has nothing left to release");
}

/// Deleting the key, or freeing it, does not end the holder's tenure before the holder hears of it; a frozen one does not.
#[tokio::test]
async fn nobody_leads_past_a_key_that_was_taken_away_while_its_frozen_owner_may_still_serve() {
    let consul = quick().await;
    for way in ["delete", "free"] {
        let (frozen, next) = (lock(&consul.url(), 1, TTL), lock(&consul.url(), 2, TTL));
        let mut lease = campaign(&*frozen, TTL * 2 + SLACK, "nobody else campaigns").await;
        lose(&*next, "the first holds it").await;
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        let renewed = clock::now();
        match way {
            "delete" => consul.delete(KEY).await,
            _ => assert!(change(&consul, &format!("release={}", held(&consul).await.1), "127.0.0.1:1").await),
        }
        assert!(lose(&*next, "the first may still serve").await.is_none());
        let mut heir = campaign(&*next, lease.ttl() * 2 + SLACK, "the first is frozen").await;
        assert!(clock::now() - renewed >= lease.ttl(), "{way}: took over after {:?}", clock::now() - renewed);
        assert!(heir.epoch() > lease.epoch());
        assert_eq!(renew(&mut *lease).await, Renewal::Lost);
        release(&mut *heir).await;
    }
}

/// An owner that keeps its session without looking at its key is waited for no longer than its TTL.
#[tokio::test]
async fn an_owner_that_ignores_the_loss_of_its_key_is_not_waited_for_for_ever() {
    let consul = quick().await;
    let stubborn = stranger(&consul, "bellwether p/s 10.0.0.9:4000", "3s").await;
    assert!(change(&consul, &format!("acquire={stubborn}&{FLAGS}"), "10.0.0.9:4000").await);
    let us = lock(&consul.url(), 1, TTL);
    lose(&*us, "the stubborn one leads").await;
    consul.delete(KEY).await;
    let deleted = clock::now();
    let stay = async {
        loop {
            assert_eq!(consul.api("PUT", &format!("/v1/session/renew/{stubborn}"), "").await.0, 200, "its session lives");
            // The beat of a rival that lives.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    };
    tokio::select! {
        () = stay => {}
        lease = campaign(&*us, Duration::from_secs(3) + SLACK, "its tenure must be over") => {
            assert!(clock::now() - deleted >= Duration::from_secs(3));
            assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(lease.epoch()));
        }
    }
}

/// Consul's client library locks a key as we do: either takes the other for a lock, and neither leads beside the other.
#[tokio::test]
async fn a_rival_of_another_make_and_we_wait_for_each_other() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, LONG);
    let rival = stranger(&consul, "Consul API Lock", "60s").await;
    let acquire = format!("acquire={rival}&{FLAGS}");
    assert!(change(&consul, &acquire, "10.0.0.9:4000").await);
    let taken = lose(&*us, "the rival leads").await.expect("a leader's name");
    assert_eq!(taken.address.as_str(), "10.0.0.9:4000");
    // It gives the key back and keeps its session, which for us means nothing more.
    let give_back = format!("release={rival}&{FLAGS}");
    let (heard, freed) = tokio::join!(timeout(PROMPT, us.changed(Some(&taken))), change(&consul, &give_back, "10.0.0.9:4000"));
    assert!(matches!(heard, Ok(Ok(()))) && freed, "{heard:?}");
    let mut lease = win(&*us, "the rival has given it back").await;
    assert!(lease.epoch() > taken.epoch);
    assert!(!change(&consul, &acquire, "10.0.0.9:4000").await, "we hold it");
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    release(&mut *lease).await;
    assert!(change(&consul, &acquire, "10.0.0.9:4000").await, "we have given it back");
    hear(&*us, PROMPT, "the rival leads", |leader| leader.is_some_and(|leader| leader.address.as_str() == "10.0.0.9:4000")).await;
}

/// `consul lock` appends `/.lock` to what it is given: on our key it is a neighbour and no rival.
#[tokio::test]
async fn consul_lock_is_a_neighbour() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, LONG);
    let mut neighbour = spawn_cli(&consul, &["lock", "-verbose", KEY, "echo locked; sleep 60"]);
    let mut printed = BufReader::new(neighbour.stdout.take().expect("its output")).lines();
    let locked = async { while printed.next_line().await.expect("text").expect("a line") != "locked" {} };
    timeout(PROMPT, locked).await.expect("consul lock has its lock");
    assert!(consul.key(&format!("{KEY}/.lock")).await.is_some());
    let mut lease = win(&*us, "the neighbour locks another key").await;
    let child = Pid::from_raw(neighbour.id().expect("a process").try_into().expect("a process id")).expect("a process id");
    kill_process(child, Signal::INT).expect("interrupt it");
    timeout(PROMPT, neighbour.wait()).await.expect("it ends in time").expect("its status");
    assert_eq!(renew(&mut *lease).await, Renewal::Held, "nor does its end touch ours");
}

/// Keys that merely begin like the election's are no part of it, and other elections are their own.
#[tokio::test]
async fn neighbours_do_not_stand_in_our_way() {
    let consul = quick().await;
    for key in [format!("{KEY}2"), format!("{KEY}/x"), "bellwether/web".to_owned()] {
        cli(&consul, &["kv", "put", &key, "10.0.0.9:4000"]).await;
    }
    let (prod, prod2) = (format!("{}/prod", consul.url()), format!("{}/prod2", consul.url()));
    for (port, url) in [(1, consul.url()), (2, prod.clone()), (3, prod2)] {
        win(&*lock(&url, port, LONG), "each election is its own").await;
    }
    lose(&*lock(&prod, 4, LONG), "this election has its leader").await;
}

/// A write by hand keeps Consul's lock but not the tenure: whoever reads the key is told somebody else.
#[tokio::test]
async fn a_key_that_somebody_rewrote_is_given_up_and_left_as_it_is() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, TTL);
    for text in ["10.0.0.9:4000", "{\"not\":\"ours\"}"] {
        let mut lease = campaign(&*us, LOCK_DELAY + SLACK, "nobody else campaigns").await;
        cli(&consul, &["kv", "put", KEY, text]).await;
        assert_ne!(held(&consul).await.1, "", "Consul itself keeps the lock");
        assert_eq!(renew(&mut *lease).await, Renewal::Lost);
        release(&mut *lease).await;
        assert_eq!(held(&consul).await, (text.to_owned(), String::new()));
    }
    // What is no address stays until a person removes it.
    let refused = us.acquire().await;
    assert!(matches!(refused, Err(StoreError::Foreign { .. })), "{refused:?}");
    cli(&consul, &["kv", "delete", KEY]).await;
    campaign(&*us, LOCK_DELAY + SLACK, "the foreign record is gone").await;
}

/// The same when it was rewritten between the taking of the key and the hearing of it.
#[tokio::test]
async fn an_address_that_is_not_ours_is_not_led_under() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, TTL);
    drop(win(&*us, "nobody else campaigns").await);
    cli(&consul, &["kv", "put", KEY, "10.0.0.9:4000"]).await;
    assert!(matches!(us.acquire().await, Ok(Attempt::Taken(None))));
    campaign(&*us, LOCK_DELAY + SLACK, "our session is given back").await;
    assert_eq!(held(&consul).await.0, "127.0.0.1:1");
}

/// A holder without an address can be followed by nobody.
#[tokio::test]
async fn a_rival_without_an_address_is_foreign_and_named() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, LONG);
    let rival = stranger(&consul, "Consul API Lock", "60s").await;
    for value in ["hello", "", "\u{1b}[31m\u{fffd}"] {
        assert!(change(&consul, &format!("acquire={rival}&{FLAGS}"), value).await);
        let before = consul.key(KEY).await;
        for error in [us.leader().await.map(drop).unwrap_err(), us.acquire().await.map(drop).unwrap_err()] {
            let named = error.to_string();
            assert!(matches!(error, StoreError::Foreign { .. }) && named.contains(KEY) && !named.contains('\u{1b}'), "{named}");
        }
        withdraw(&*us).await;
        assert_eq!(consul.key(KEY).await, before);
    }
    // Given back without a value, as that library's plain locks are, the key is a lock's all the same.
    assert!(change(&consul, &format!("release={rival}&{FLAGS}"), "").await);
    win(&*us, "the rival has given it back").await;
}

/// The largest value that Consul keeps is foreign and shown shortened; it is no reason to fail in another way.
#[tokio::test]
async fn a_huge_foreign_value_is_named_in_short() {
    let consul = quick().await;
    assert!(change(&consul, "flags=0", &"x".repeat(512 * 1024)).await);
    let error = lock(&consul.url(), 1, LONG).acquire().await.map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
    assert!(error.to_string().len() < 300, "{error}");
}

/// B55: what a node makes in Consul goes with it, also after it came back at another address.
#[tokio::test]
async fn what_a_crashed_node_made_goes_with_its_session() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, TTL);
    let lease = win(&*us, "nobody else campaigns").await;
    drop((lease, us));
    let moved = lock_with(&consul.url(), &[], &node(7), TTL).expect("open a lock");
    let next = campaign(&*moved, TTL * 2 + LOCK_DELAY + SLACK, "the first has crashed").await;
    assert_eq!(held(&consul).await.0, "127.0.0.1:7");
    assert_eq!(sessions(&consul).await.len(), 1, "the crashed node's session is gone");
    assert_eq!(leader(&*moved).await.map(|leader| leader.epoch), Some(next.epoch()));
}
