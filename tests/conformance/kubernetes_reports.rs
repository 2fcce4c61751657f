//! Reports from the field about elections on Kubernetes, and what else can befall a Lease.

use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, Leader, Renewal, StoreError};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use crate::kubernetes_rig::{lock, lock_at, spec};
use crate::kubernetes_server::{Kubernetes, NAMESPACE, lease_name};
use crate::rig::{LONG_TTL, Running, SERVICE, SLACK, node};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, release, renew, win, withdraw};
use crate::wait::wait_for;
use crate::wire::{Mode, Wire};

/// For whole candidates, which renew: long enough that no stall of this machine costs a lease.
const TTL: Duration = Duration::from_secs(6);

/// B62: a holder and a candidate on connections that have gone silent. The holder stops by its own clock; the candidate tries over
/// new connections, and leads soon after one of them works.
#[tokio::test]
async fn a_silent_connection_holds_nobody_up() {
    let server = Kubernetes::start().await;
    let wires = [Wire::to(server.address()).await, Wire::to(server.address()).await];
    let running = |number: usize| {
        let node = node(u16::try_from(number).expect("a port") + 1);
        Running::start_with(lock_at(&server.kubeconfig_to(wires[number].address()), &node, TTL), node, TTL)
    };
    let holder = running(0);
    let epoch = holder.leads(PROMPT, "nobody else campaigns").await;
    let candidate = running(1);
    candidate.follows(PROMPT, "the first leads").await;

    wires[0].set(Mode::Blackhole);
    let cut = clock::now();
    let stopped = timeout(TTL + SLACK, holder.roles.wait_until(|role| role.name() != "primary")).await;
    assert!(stopped.is_ok(), "still {:?}", holder.roles.current());
    wires[1].set(Mode::Blackhole);
    // Long enough that its idle connections and its watch are all known to be dead.
    sleep(TTL * 2).await;
    assert_ne!(candidate.roles.current().name(), "primary", "it cannot know");
    wires[1].set(Mode::Pass);
    assert!(candidate.leads(TTL + SLACK, "its way works again").await > epoch);
    assert!(clock::now() - cut >= TTL);
    // What was under way when the wire went silent is lost for good; the first needs new connections, too.
    wires[0].set(Mode::Pass);
    holder.follows(TTL + SLACK, "its way works again").await;
}

/// B12: whoever waits with a short TTL waits for as long as the record says.
#[tokio::test]
async fn a_longer_lease_is_honoured() {
    let server = Kubernetes::start().await;
    let (long, short) = (lock(&server, 1, TTL), lock(&server, 2, Duration::from_secs(1)));
    let sent = clock::now();
    let lease = win(&*long, "nobody else campaigns").await;
    let next = campaign(&*short, TTL + SLACK, "the first is silent").await;
    assert!(clock::now() - sent >= TTL, "taken after {:?} of {TTL:?}", clock::now() - sent);
    assert!(next.epoch() > lease.epoch());
    assert_eq!(spec(&server, "leaseDurationSeconds"), 1, "the next one's TTL is its own");
}

/// B13: a record that died long ago, by a clock that nobody believes, costs a newcomer what the record says and no more.
#[tokio::test]
async fn a_record_of_long_ago_is_waited_for_once() {
    let server = Kubernetes::start().await;
    for (times, holder) in [("2020-01-02T03:04:05.000000Z", "10.0.0.9:4000_00000000000000ab"), ("2199-01-02T03:04:05.000000Z", "web-1")] {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 2, "acquireTime": times, "renewTime": times});
        let lease = json!({"metadata": {"name": lease_name(SERVICE)}, "spec": spec});
        assert_eq!(server.objects(|objects| objects.create(NAMESPACE, lease)).0, 201);
        let newcomer = lock(&server, 1, LONG_TTL);
        let began = clock::now();
        wait_for("the old record to be over", Duration::from_secs(2) + SLACK, || async {
            match newcomer.acquire().await {
                Ok(Attempt::Held(_)) => Ok(()),
                other => Err(other.map(drop)),
            }
        })
        .await;
        assert!(clock::now() - began >= Duration::from_secs(2), "{holder}: taken after {:?}", clock::now() - began);
        server.delete(SERVICE);
    }
}

/// B65: somebody writes another holder into the record. The leader stops, and leads again when that one's time is over.
#[tokio::test]
async fn a_holder_that_was_edited_ends_the_tenure() {
    let server = Kubernetes::start().await;
    let running = Running::start_with(lock(&server, 1, TTL), node(1), TTL);
    let epoch = running.leads(PROMPT, "nobody else campaigns").await;
    server.edit(SERVICE, &json!({"spec": {"holderIdentity": "x"}}));
    let edited = clock::now();
    let stopped = timeout(TTL + SLACK, running.roles.wait_until(|role| role.name() != "primary")).await;
    assert!(stopped.is_ok(), "still {:?}", running.roles.current());
    assert_eq!(spec(&server, "holderIdentity"), "x", "it is x's for its time");
    assert!(running.leads(TTL * 2 + SLACK, "x does not renew").await > epoch);
    assert!(clock::now() - edited >= TTL, "x had its time");
}

/// An update of what is not there makes it: neither a late renewal nor a late release may bring a deleted tenure back, also
/// where a server takes no notice of the `uid`.
#[tokio::test]
async fn nothing_that_comes_late_brings_a_deleted_record_back() {
    let server = Kubernetes::start().await;
    for is_careless in [false, true] {
        server.objects(|objects| objects.is_careless = is_careless);
        let (us, other) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
        for late in ["renew", "release", "withdraw"] {
            let mut lease = win(&*us, "the last record was deleted").await;
            server.delete(SERVICE);
            match late {
                "renew" => assert_eq!(renew(&mut *lease).await, Renewal::Lost),
                "release" => release(&mut *lease).await,
                _ => withdraw(&*us).await,
            }
            assert_eq!(leader(&*other).await, None, "{late}");
            let mut next = win(&*other, "the record is gone").await;
            assert!(next.epoch() > lease.epoch(), "{late}: {} after {}", next.epoch(), lease.epoch());
            assert_eq!(renew(&mut *lease).await, Renewal::Lost);
            release(&mut *next).await;
        }
    }
}

/// Whatever else people keep on the object is theirs, and costs no tenure.
#[tokio::test]
async fn labels_and_annotations_of_others_stay_and_cost_nothing() {
    let server = Kubernetes::start().await;
    let (us, other) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
    let mut lease = win(&*us, "nobody else campaigns").await;
    server.edit(SERVICE, &json!({"metadata": {"labels": {"team": "a"}, "annotations": {"note": "b"}}}));
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    release(&mut *lease).await;
    win(&*other, "the first has released it").await;
    let metadata = server.lease(SERVICE).expect("a lease")["metadata"].clone();
    assert_eq!((&metadata["labels"]["team"], &metadata["annotations"]["note"]), (&json!("a"), &json!("b")));
}

/// The object as client-go writes it, tenure by tenure.
#[tokio::test]
async fn the_record_is_what_other_clients_expect() {
    let server = Kubernetes::start().await;
    let (first, second) = (node(1), node(2));
    let lease = win(&*lock_at(&server.kubeconfig(), &first, LONG_TTL), "nobody else campaigns").await;
    let read = |field: &str| spec(&server, field);
    assert_eq!(read("holderIdentity"), format!("127.0.0.1:1_{}", first.boot));
    assert_eq!((read("leaseDurationSeconds"), read("leaseTransitions")), (json!(120), json!(1)));
    assert_eq!(read("acquireTime"), read("renewTime"));
    let mut lease = lease;
    let acquired = read("acquireTime");
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    assert_eq!(read("acquireTime"), acquired, "a renewal is no new tenure");
    assert_ne!(read("renewTime"), acquired);
    release(&mut *lease).await;
    assert_eq!((read("holderIdentity"), read("leaseDurationSeconds"), read("leaseTransitions")), (json!(""), json!(1), json!(1)));
    win(&*lock_at(&server.kubeconfig(), &second, LONG_TTL), "the first has released it").await;
    assert_eq!(read("leaseTransitions"), 2);
}

/// A taker that counts as client-go does raises the epoch as we do.
#[tokio::test]
async fn an_epoch_rises_over_takers_of_other_makes() {
    let server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let first = win(&*us, "nobody else campaigns").await.epoch();
    server.edit(SERVICE, &json!({"spec": {"holderIdentity": "10.0.0.9:4000_00000000000000ab", "leaseTransitions": 2}}));
    let rival = leader(&*us).await.expect("a leader");
    assert_eq!((rival.address.as_str(), rival.epoch.0), ("10.0.0.9:4000", first.0 + 1));
    server.edit(SERVICE, &json!({"spec": {"holderIdentity": "", "leaseTransitions": null}, "metadata": {"annotations": null}}));
    assert!(win(&*us, "the rival is gone").await.epoch() > rival.epoch, "also when the count was lost");
}

/// A watch that the server ends, or that begins too far back, is begun anew.
#[tokio::test]
async fn a_watch_that_ends_misses_nothing() {
    let server = Kubernetes::start().await;
    let (first, waiter) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
    server.watch_for(Duration::from_millis(50));
    for _ in 0..3 {
        let mut lease = win(&*first, "nobody else campaigns").await;
        let seen = leader(&*waiter).await;
        server.objects(|objects| objects.tick(10));
        // It begins at a change that the server has forgotten by then.
        server.objects(|objects| objects.forget());
        assert!(timeout(PROMPT, waiter.changed(seen.as_ref())).await.is_ok(), "an end is a hint");
        let gone = |leader: Option<&Leader>| leader.is_none();
        let meddle = async {
            server.end_watches();
            release(&mut *lease).await;
        };
        tokio::join!(hear(&*waiter, PROMPT, "the first releases", gone), meddle);
    }
    let before = server.requests().len();
    server.watch_for(LONG_TTL);
    drop(timeout(Duration::from_millis(100), waiter.changed(None)).await);
    drop(timeout(Duration::from_millis(100), waiter.changed(None)).await);
    drop(timeout(Duration::from_millis(100), waiter.changed(None)).await);
    let watches = server.requests().split_off(before).into_iter().filter(|request| request.starts_with("watch")).count();
    assert!(watches <= 1, "a watch outlives the calls that wait on it: {watches}");
}

/// B22: what a broken server or a proxy answers decides nothing, least of all that the lock is free.
#[tokio::test]
async fn answers_of_a_broken_server_decide_nothing() {
    let server = Kubernetes::start().await;
    let (us, other) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
    let mut lease = win(&*us, "nobody else campaigns").await;
    let seen = lose(&*other, "the first has it").await;
    let failure = |code: u16, reason: &str| json!({"kind": "Status", "reason": reason, "code": code, "message": "no leader"}).to_string();
    for (code, text) in [
        (500, failure(500, "InternalError")),
        (503, failure(503, "ServiceUnavailable")),
        (429, failure(429, "TooManyRequests")),
        (404, "<html>not here</html>".to_owned()),
        (404, "{}".to_owned()),
        (409, "{}".to_owned()),
        (200, "{}".to_owned()),
        (200, "{".to_owned()),
        (200, String::new()),
        (200, "null".to_owned()),
        (200, Value::from("x".repeat(3_000_000)).to_string()),
    ] {
        server.answer_with(Some((code, &text)));
        let text = &text[..text.len().min(60)];
        let mut outcomes = vec![
            ("renew", lease.renew().await.map(drop)),
            ("acquire", other.acquire().await.map(drop)),
            ("leader", other.leader().await.map(drop)),
        ];
        // A watch that ends, however it began, is a hint.
        if code != 200 {
            outcomes.push(("changed", timeout(PROMPT, other.changed(seen.as_ref())).await.expect("an answer in time")));
        }
        for (call, outcome) in outcomes {
            assert!(matches!(outcome, Err(StoreError::Unavailable { .. })), "{call} with {code} {text}: {outcome:?}");
        }
        server.answer_with(None);
        assert_eq!(renew(&mut *lease).await, Renewal::Held, "after {code} {text}");
        lose(&*other, "the first has it").await;
    }
}

/// A server that was restored from nothing counts anew; who has seen more counts on.
#[tokio::test]
async fn a_server_that_lost_its_data_ends_the_tenure() {
    let mut server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    server.restart_empty().await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(win(&*us, "the record is gone").await.epoch() > lease.epoch());
}
