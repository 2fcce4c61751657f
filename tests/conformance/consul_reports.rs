//! What goes wrong for people who elect through Consul, each as a test.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, Renewal, StoreError};
use http::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::consul_meddler::{Meddler, answer, no_leader};
use crate::consul_rig::{LOCK_DELAY, SLACK, held, quick, sessions};
use crate::consul_server::Consul;
use crate::rig::{KEY, Running, lock, lock_with, node};
use crate::suite::steps::{PROMPT, campaign, leader, lose, renew, win};
use crate::wire::{Mode, Wire};

const TTL: Duration = Duration::from_secs(2);

/// A whole candidate with this lock-delay.
fn delayed(consul: &Consul, port: u16, lock_delay: &str) -> Running {
    let lock = lock_with(&consul.url(), &[format!("lock-delay={lock_delay}")], &node(port), TTL).expect("open a lock");
    Running::start_with(lock, node(port), TTL)
}

/// B37: whatever a long poll does, a holder that hears nothing stops by its own clock, before anybody else may lead.
#[tokio::test]
async fn a_holder_in_a_black_hole_stops_before_the_next_one_leads() {
    let consul = quick().await;
    let wire = Wire::to(consul.address()).await;
    let first = Running::start(&format!("consul://{}", wire.address()), 1, TTL);
    let before = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&consul.url(), 2, TTL);
    second.follows(PROMPT, "the first leads").await;

    wire.set(Mode::Blackhole);
    let cut = clock::now();
    let stopped = async {
        timeout(TTL, first.roles.wait_until(|role| role.tenure().is_none())).await.expect("it stops within its TTL");
        clock::now()
    };
    let next = async {
        let epoch = second.leads(TTL * 2 + LOCK_DELAY + SLACK, "the first is silent").await;
        (epoch, clock::now())
    };
    let (stopped, (epoch, led)) = tokio::join!(stopped, next);
    assert!(stopped < led && stopped - cut < TTL, "stopped after {:?}, the next led after {:?}", stopped - cut, led - cut);
    assert!(epoch > before);
    wire.set(Mode::Pass);
    first.follows(PROMPT, "the second leads").await;
}

/// B39, B48: a cluster without a leader is one that gives no decision. Shorter than the TTL it costs nothing, whatever is
/// asked and however often.
#[tokio::test]
async fn a_cluster_that_is_without_a_leader_for_less_than_the_ttl_costs_no_tenure() {
    let ttl = Duration::from_secs(6);
    let consul = quick().await;
    let meddler = Meddler::before(consul.address()).await;
    let holder = Running::start(&meddler.url(), 1, ttl);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    let flicker = holder.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let troubles = async {
        for _ in 0..2 {
            meddler.meddle(|_, _| Some(no_leader()));
            // Less than what is left of any lease that is renewed every third of its TTL.
            sleep(ttl / 3).await;
            meddler.pass();
            sleep(ttl / 2).await;
        }
    };
    tokio::select! {
        role = flicker => panic!("it lost its tenure: {role:?}"),
        () = troubles => {}
    }
}

/// B39: a longer one costs the tenure, and nothing need be restarted.
#[tokio::test]
async fn a_cluster_that_was_without_a_leader_for_long_is_led_again() {
    let consul = quick().await;
    let meddler = Meddler::before(consul.address()).await;
    let holder = Running::start(&meddler.url(), 1, TTL);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    meddler.meddle(|_, _| Some(no_leader()));
    timeout(TTL, holder.roles.wait_until(|role| role.tenure().is_none())).await.expect("it stops within its TTL");
    let error = lock(&meddler.url(), 2, TTL).acquire().await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }) && error.to_string().contains("No cluster leader"), "{error}");
    sleep(TTL).await;
    meddler.pass();
    assert!(holder.leads(TTL + SLACK, "the cluster has a leader again").await >= epoch);
}

/// B48: one renewal that fails, or two in a row, are tried again while the lease lasts.
#[tokio::test]
async fn renewals_that_fail_once_or_twice_cost_no_tenure() {
    let ttl = Duration::from_secs(3);
    let consul = quick().await;
    let meddler = Meddler::before(consul.address()).await;
    let holder = Running::start(&meddler.url(), 1, ttl);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    for failures in [1, 2] {
        let (failed, mut seen) = tokio::sync::watch::channel(0);
        meddler.meddle(move |_, target| {
            let fails = target.starts_with("/v1/session/renew/") && *failed.borrow() <= failures;
            if fails {
                failed.send_modify(|count| *count += 1);
            }
            (fails && *failed.borrow() <= failures).then(|| answer(500, "rpc error making call: EOF"))
        });
        timeout(PROMPT, seen.wait_for(|count| *count > failures)).await.expect("renewals in time").expect("renewals");
        assert_eq!(holder.leads(PROMPT, "a renewal is tried again").await, epoch);
    }
}

/// B40: who has waited with a session that Consul has forgotten makes a new one, and takes over as quickly.
#[tokio::test]
async fn a_waiter_whose_session_was_destroyed_takes_over_all_the_same() {
    let consul = quick().await;
    let (first, second) = (lock(&consul.url(), 1, PROMPT), lock(&consul.url(), 2, PROMPT));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let waiting = sessions(&consul).await.into_iter().find(|session| session["Name"].as_str().is_some_and(|name| name.ends_with(":2")));
    let waiting = waiting.expect("the session of the second");
    let destroyed = consul.api("PUT", &format!("/v1/session/destroy/{}", waiting["ID"].as_str().expect("its name")), "").await;
    assert_eq!(destroyed.0, 200);
    lease.release().await.expect("release");
    let next = win(&*second, "the first has released it").await;
    assert!(next.epoch() > lease.epoch());
}

/// B41: a TTL that the servers do not keep is told in one sentence, with the least that they do.
#[tokio::test]
async fn a_ttl_below_the_servers_least_is_refused_with_the_one_to_use() {
    for (settings, asked, least) in [(json!({}), 5, "10s"), (json!({"session_ttl_min": "20s"}), 15, "20s")] {
        let consul = Consul::start_with(true, &settings).await;
        let error = lock(&consul.url(), 1, Duration::from_secs(asked)).acquire().await.unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
        for words in [&format!("no TTL of {asked}s"), &format!("--replication-ttl {least}"), "session_ttl_min"] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(!error.to_string().contains('\n'), "{error}");
        assert_eq!(consul.key(KEY).await, None);
        let kept = lock(&consul.url(), 1, Duration::from_secs(20));
        assert_eq!(win(&*kept, "this the servers keep").await.ttl(), Duration::from_secs(20));
    }
}

/// B42: a crash costs up to twice the TTL, and then the lock-delay that was asked for.
#[tokio::test]
async fn a_crash_costs_what_the_documents_say() {
    let consul = quick().await;
    for (delay, lock_delay) in [("0s", Duration::ZERO), ("3s", Duration::from_secs(3))] {
        let first = delayed(&consul, 1, delay);
        first.leads(PROMPT, "nobody else campaigns").await;
        let second = delayed(&consul, 2, delay);
        second.follows(PROMPT, "the first leads").await;
        let crashed = clock::now();
        drop(first);
        second.leads(TTL * 2 + lock_delay + SLACK, "the first has crashed").await;
        let took = clock::now() - crashed;
        // Its last renewal was a third of its TTL ago at most.
        assert!(took >= TTL * 2 / 3 + lock_delay, "{took:?} with a lock-delay of {delay}");
        second.handle.resign().await.expect("resign");
    }
}

/// B44: the only node, whose session somebody destroyed, waits for the lock-delay, says so, and leads as soon as it is over.
#[tokio::test]
async fn a_lock_delay_is_waited_for_and_no_longer() {
    let consul = quick().await;
    let only = delayed(&consul, 1, "3s");
    let before = only.leads(PROMPT, "nobody else campaigns").await;
    consul.destroy_holder(KEY).await;
    let destroyed = clock::now();
    timeout(PROMPT, only.roles.wait_until(|role| role.tenure().is_none())).await.expect("it hears of it");
    assert!(only.leads(Duration::from_secs(3) + SLACK, "nobody else campaigns").await > before);
    assert!(clock::now() - destroyed >= Duration::from_millis(2_900), "{:?}", clock::now() - destroyed);
}

/// B46: a session rests on its TTL alone, and on no check of the agent that it was made at.
#[tokio::test]
async fn a_session_has_no_checks() {
    let consul = quick().await;
    let us = lock_with(&consul.url(), &["lock-delay=7s".to_owned()], &node(1), TTL).expect("open a lock");
    win(&*us, "nobody else campaigns").await;
    let session = sessions(&consul).await.remove(0);
    assert!(session["NodeChecks"].as_array().is_none_or(Vec::is_empty), "{session}");
    assert!(session["ServiceChecks"].as_array().is_none_or(Vec::is_empty), "{session}");
    assert_eq!((session["Behavior"].as_str(), session["TTL"].as_str()), (Some("release"), Some("2s")), "{session}");
    assert_eq!(session["LockDelay"], 7_000_000_000_u64, "{session}");
    assert_eq!(session["Name"], "bellwether bellwether/web 127.0.0.1:1");
}

/// B47: a holder whose session somebody destroyed stops at once, and the next one leads after it.
#[tokio::test]
async fn a_destroyed_session_ends_the_tenure_before_the_next_one_begins() {
    let consul = quick().await;
    // So long that nothing here can be an expiry, and no renewal comes in time to tell.
    let ttl = Duration::from_secs(60);
    let first = Running::start(&consul.url(), 1, ttl);
    let before = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&consul.url(), 2, ttl);
    second.follows(PROMPT, "the first leads").await;
    consul.destroy_holder(KEY).await;
    let stopped = async {
        timeout(PROMPT, first.roles.wait_until(|role| role.tenure().is_none_or(|epoch| epoch.0 != before))).await.expect("it hears of it");
        clock::now()
    };
    let next = async {
        let leads = |running: &Running| {
            let roles = running.roles.clone();
            async move { roles.wait_until(|role| role.name() == "primary" && role.tenure().is_some_and(|epoch| epoch.0 > before)).await }
        };
        timeout(PROMPT, async {
            tokio::select! {
                _ = leads(&first) => {}
                _ = leads(&second) => {}
            }
        })
        .await
        .expect("somebody leads again");
        clock::now()
    };
    let (stopped, led) = tokio::join!(stopped, next);
    assert!(stopped < led, "the next one led {:?} before the last one stopped", stopped - led);
}

/// The same at the level of the lock, where nothing has told it of the loss.
#[tokio::test]
async fn a_destroyed_session_is_a_lost_lease_and_is_not_asked_for_again() {
    let consul = quick().await;
    let us = lock(&consul.url(), 1, Duration::from_secs(60));
    let mut lease = win(&*us, "nobody else campaigns").await;
    let (_, before) = held(&consul).await;
    consul.destroy_holder(KEY).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(matches!(us.acquire().await, Ok(Attempt::Taken(None))), "Consul's lock-delay holds the key back");
    let again = campaign(&*us, LOCK_DELAY + SLACK, "the lock-delay is over").await;
    assert!(again.epoch() > lease.epoch());
    assert_ne!(held(&consul).await.1, before);
}

/// B01: an outage of any length heals by itself, also when Consul has forgotten everything.
#[tokio::test]
async fn a_store_that_comes_back_empty_is_led_again() {
    let mut consul = Consul::start().await;
    let only = Running::start(&consul.url(), 1, TTL);
    only.leads(PROMPT, "nobody else campaigns").await;
    consul.stop().await;
    timeout(TTL, only.roles.wait_until(|role| role.tenure().is_none())).await.expect("it stops within its TTL");
    consul.restart_empty().await;
    only.leads(TTL * 2 + SLACK, "the store is back").await;
    assert_eq!(held(&consul).await.0, "127.0.0.1:1");
}

/// A frozen server answers nobody; a holder outlasts a freeze that is shorter than its TTL.
#[tokio::test]
async fn a_server_that_freezes_for_less_than_the_ttl_costs_no_tenure() {
    let ttl = Duration::from_secs(6);
    let consul = quick().await;
    let holder = Running::start(&consul.url(), 1, ttl);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    consul.signal(Signal::STOP);
    sleep(ttl / 3).await;
    consul.signal(Signal::CONT);
    let flicker = timeout(ttl, holder.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch))).await;
    assert!(flicker.is_err(), "{flicker:?}");
}

/// B06: renewals cost the store no write, and a waiting candidate none either.
#[tokio::test]
async fn renewing_and_waiting_write_nothing() {
    let consul = quick().await;
    let (first, second) = (lock(&consul.url(), 1, PROMPT), lock(&consul.url(), 2, PROMPT));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let applied = async || {
        let sessions = sessions(&consul).await;
        (sessions.iter().map(|session| session["ModifyIndex"].clone()).collect::<Vec<_>>(), consul.key(KEY).await)
    };
    let before = applied().await;
    for _ in 0..10 {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        lose(&*second, "the first holds it").await;
        leader(&*second).await;
    }
    assert_eq!(applied().await, before);
}

/// A request is met by its own answer alone, whoever stands in the way: what is no answer of Consul decides nothing.
#[tokio::test]
async fn answers_that_are_not_consuls_take_no_tenure_and_give_none() {
    let consul = quick().await;
    let meddler = Meddler::before(consul.address()).await;
    let us = lock(&meddler.url(), 1, PROMPT);
    let mut lease = win(&*us, "nobody else campaigns").await;
    for (status, body) in [(200, "<html>sign in</html>"), (200, "{}"), (200, "true"), (404, "not here"), (302, ""), (500, ""), (204, "")] {
        meddler.meddle(move |_, _| Some(answer(status, body)));
        let renewed = lease.renew().await;
        assert!(matches!(renewed, Err(StoreError::Unavailable { .. })), "{status} {body}: {renewed:?}");
        let acquired = us.acquire().await;
        assert!(matches!(acquired, Err(StoreError::Unavailable { .. })), "{status} {body}: {acquired:?}");
    }
    // The right form, with nothing right in it.
    for body in
        ["[]", "{}", "null", "[{}]", "[{\"Key\":\"other\",\"ModifyIndex\":1}]", "{\"ID\":\"../x\"}", "{\"Results\":[],\"Errors\":null}"]
    {
        meddler.meddle(move |method, _| {
            let mut answer = answer(200, body);
            answer.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
            if method == Method::GET {
                answer.headers_mut().insert("x-consul-index", http::HeaderValue::from_static("9"));
            }
            Some(answer)
        });
        let renewed = lease.renew().await;
        assert!(matches!(renewed, Err(StoreError::Unavailable { .. })), "{body}: {renewed:?}");
        assert!(!matches!(us.acquire().await, Ok(Attempt::Held(_))), "{body}");
    }
    meddler.pass();
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
}
