//! Several agents, of which some are dead, silent, or no agents at all; and connections that are.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bellwether::store::{Attempt, Renewal, StoreError};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::consul_meddler::{Meddler, answer, no_leader};
use crate::consul_rig::{LOCK_DELAY, SLACK, quick};
use crate::harness::call_timeout;
use crate::port;
use crate::rig::{Running, lock};
use crate::suite::steps::{PROMPT, hear, leader, lose, renew, win};
use crate::wire::{Mode, Wire};

const TTL: Duration = Duration::from_secs(6);

/// Something at an agent's address that answers every request with these bytes, over and over where `endless`.
struct Fake {
    address: SocketAddr,
    _answering: JoinSet<()>,
}

impl Fake {
    async fn saying(bytes: &'static [u8], endless: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listen on loopback");
        let address = listener.local_addr().expect("the address of a listener");
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.spawn(async move {
                    // Whoever has heard enough hangs up.
                    if stream.read(&mut [0; 4096]).await.is_err() || stream.write_all(bytes).await.is_err() {
                        return;
                    }
                    while endless && stream.write_all(&[b' '; 16 * 1024]).await.is_ok() {}
                });
            }
        });
        Self { address, _answering: answering }
    }
}

/// What stands at an address that no agent is at: each is passed over within one call.
#[tokio::test]
async fn what_is_no_agent_is_passed_over_within_one_call() {
    let consul = quick().await;
    for (fake, endless) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"[..], false),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", false),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Consul-Index: 1\r\n\r\n", true),
        (b"HTTP/1.1 200 OK\r\nX-Header: ", true),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", false),
        (b"SSH-2.0-x\r\n", false),
        (b"", false),
    ] {
        let fake = Fake::saying(fake, endless).await;
        let us = lock(&format!("consul://{},{}", fake.address, consul.address()), 1, TTL);
        let attempt = timeout(call_timeout(TTL), us.acquire()).await;
        let Ok(Ok(Attempt::Held(mut lease))) = attempt else { panic!("{attempt:?}") };
        lease.release().await.expect("release");

        let alone = lock(&format!("consul://{}", fake.address), 1, TTL);
        let error = alone.acquire().await.map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Unavailable { .. }) && error.to_string().contains(&fake.address.to_string()), "{error}");
    }
}

/// An agent that is gone, or has no cluster behind it, costs no call; the next calls go where the last one was answered.
#[tokio::test]
async fn dead_and_orphaned_agents_are_passed_over_within_one_call() {
    let consul = quick().await;
    let orphan = Meddler::before(consul.address()).await;
    orphan.meddle(|_, _| Some(no_leader()));
    let orphan = orphan.url().replace("consul://", "");
    let us = lock(&format!("consul://{},{orphan},{}", port::free(), consul.address()), 1, TTL);
    let attempt = timeout(call_timeout(TTL), us.acquire()).await;
    assert!(matches!(attempt, Ok(Ok(Attempt::Held(_)))), "{attempt:?}");
}

/// B05: an agent that stalls in the middle of a tenure costs one call and no tenure.
#[tokio::test]
async fn an_agent_that_stalls_costs_no_tenure() {
    let consul = quick().await;
    let (one, other) = (Wire::to(consul.address()).await, Wire::to(consul.address()).await);
    let holder = Running::start(&format!("consul://{},{}", one.address(), other.address()), 1, TTL);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    for stalled in [&one, &other] {
        stalled.set(Mode::Blackhole);
        let flicker = timeout(TTL * 3 / 2, holder.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch))).await;
        assert!(flicker.is_err(), "{flicker:?}");
        stalled.set(Mode::Pass);
    }
}

/// A connection that was cut, or has swallowed what was said, is replaced by the next call.
#[tokio::test]
async fn a_spoilt_connection_is_replaced() {
    let consul = quick().await;
    let wire = Wire::to(consul.address()).await;
    let us = lock(&format!("consul://{}", wire.address()), 1, TTL);
    let other = lock(&consul.url(), 2, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    for trouble in [Mode::Blackhole, Mode::Reset, Mode::Delay(TTL)] {
        wire.set(trouble);
        let call = timeout(call_timeout(TTL), us.leader()).await;
        assert!(!matches!(call, Ok(Ok(_))), "{trouble:?} let an answer through: {call:?}");
        wire.set(Mode::Pass);
        assert_eq!(renew(&mut *lease).await, Renewal::Held, "after {trouble:?}");
    }
    // Slow is not silent.
    wire.set(Mode::Delay(Duration::from_millis(50)));
    hear(&*us, PROMPT, "we lead", |leader| leader.is_some()).await;
    lose(&*other, "we still hold it").await;
}

/// B06: a way that is slow, but within what a call may take, costs no lock: neither to join, nor to keep, nor to take over.
#[tokio::test]
async fn a_slow_way_costs_no_lock() {
    let ttl = Duration::from_secs(3);
    let consul = quick().await;
    let wire = Wire::to(consul.address()).await;
    // A round trip is two thirds of what a call may take, so that none has time for two.
    wire.set(Mode::Delay(call_timeout(ttl) / 3));
    let url = format!("consul://{}", wire.address());
    let first = Running::start(&url, 1, ttl);
    let epoch = first.leads(PROMPT, "nobody else campaigns").await;
    let second = Running::start(&url, 2, ttl);
    second.follows(PROMPT, "the first leads").await;
    let flicker = first.roles.wait_until(|role| role.tenure().is_none_or(|tenure| tenure.0 != epoch));
    let flicker = timeout(ttl * 3, flicker).await;
    assert!(flicker.is_err(), "{flicker:?}");
    drop(first);
    second.leads(ttl * 2 + LOCK_DELAY + SLACK, "the first has crashed").await;
}

/// B36: a long poll whose agent has gone silent ends by itself, a little after Consul would have ended it.
#[tokio::test]
async fn a_silent_watch_ends_by_itself() {
    let ttl = Duration::from_secs(2);
    let consul = quick().await;
    let wire = Wire::to(consul.address()).await;
    let (first, waiter) = (lock(&consul.url(), 1, PROMPT), lock(&format!("consul://{}", wire.address()), 2, ttl));
    let _lease = win(&*first, "nobody else campaigns").await;
    let seen = leader(&*waiter).await;
    let mut waiting = Box::pin(waiter.changed(seen.as_ref()));
    assert!(timeout(ttl / 4, &mut waiting).await.is_err(), "nothing has changed yet");
    wire.set(Mode::Blackhole);
    let ended = timeout(PROMPT, &mut waiting).await;
    assert!(matches!(ended, Ok(Err(StoreError::Unavailable { .. }))), "{ended:?}");
}

/// An attempt whose answer is held up is not repeated into a second tenure: what it has written is adopted.
#[tokio::test]
async fn an_answer_that_comes_from_another_agent_is_about_the_same_session() {
    let consul = quick().await;
    let first = Meddler::before(consul.address()).await;
    let us = lock(&format!("{},{}", first.url(), consul.address()), 1, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    // From now on the first agent is out: the session that was made there is kept at the second.
    first.meddle(|_, _| Some(answer(503, "leaving")));
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(lease.epoch()));
}
