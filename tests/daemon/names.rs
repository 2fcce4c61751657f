//! B78: names that come to stand for other addresses while nodes run, as those of pods do, and names that stand for several.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::Instant;

use crate::support::app::App;
use crate::support::daemon::{Daemon, Manage};
use crate::support::etcd::Etcd;
use crate::support::http::{Client, Method, get, post, request};
use crate::support::ledger::Ledger;
use crate::support::metrics::Metrics;
use crate::support::names::{Gone, Names, local, port};
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw};
use crate::support::wait_for;
use crate::support::wire::Wire;

/// Nothing here waits for it to run out, and no stall of this machine costs a tenure.
const TTL: Duration = Duration::from_secs(30);
/// Renewals come every third of it.
const RENEWED: Duration = Duration::from_secs(10);
const LIMIT: Duration = Duration::from_secs(20);

/// An app that has moved is found where it is now.
#[tokio::test]
async fn an_app_that_moves_is_found_by_its_name() {
    let port = port();
    let names = Names::new("app.test", &[local(2)]);
    let here = App::start_at(SocketAddr::new(local(2), port), "here", &Ledger::default()).await;
    let places = Places::with(&format!("http://app.test:{port}"), |manage| names.known_to(manage)).await;
    for place in places.each() {
        assert_eq!(get(&place, "/who").await.text(), "here", "at {place}");
    }
    let _there = App::start_at(SocketAddr::new(local(3), port), "there", &Ledger::default()).await;
    names.set("app.test", &[local(3)]);
    drop(here);
    for place in places.each() {
        answers(&place, "there").await;
        assert_eq!(post(&place, "/who", "").await.text(), "there", "at {place}");
    }
}

/// What is idle at the old address is closed soon, though the app goes on there: the next request asks the name.
#[tokio::test]
async fn idle_connections_to_an_old_address_end() {
    let port = port();
    let names = Names::new("app.test", &[local(2)]);
    let [old, new] = [Origin::at(SocketAddr::new(local(2), port)).await, Origin::at(SocketAddr::new(local(3), port)).await];
    let folder = tempfile::tempdir().unwrap();
    let node = Manage::new("node", folder.path()).with(["--upstream", &format!("http://app.test:{port}")]);
    let node = names.known_to(node).start().await;
    let mut client = Raw::connect(node.place()).await;
    for (origin, next) in [(&old, 3), (&new, 2)] {
        client.send("POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        app.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        assert_eq!(client.answer().await.1, "ok");
        names.set("app.test", &[local(next)]);
        assert!(app.is_cut().await, "it is kept though nothing goes over it");
    }
}

/// Of the addresses of an app, those that are dead cost a part of the first request's time, and not of each.
#[tokio::test]
async fn dead_addresses_of_an_app_do_not_cost_each_request() {
    const REQUESTS: u32 = 30;
    let port = port();
    // Whichever end of the list is tried first, somebody dead is.
    let names = Names::new("app.test", &[local(4), local(3), local(5)]);
    let _dead = [Gone::at(SocketAddr::new(local(4), port)).await, Gone::at(SocketAddr::new(local(5), port)).await];
    let origin = Origin::at(SocketAddr::new(local(3), port)).await;
    let folder = tempfile::tempdir().unwrap();
    let node = Manage::new("node", folder.path()).with(["--workers", "1", "--upstream", &format!("http://app.test:{port}")]);
    let node = names.known_to(node).start().await;
    let mut client = Raw::connect(node.place()).await;
    let began = Instant::now();
    for _ in 0..REQUESTS {
        client.send("POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n").await;
        let mut app = origin.accept().await;
        app.head().await;
        // The next one needs a connection of its own.
        app.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok").await;
        assert_eq!(client.answer().await.1, "ok");
    }
    // A dead address takes a third of the second that there is for connecting.
    let share = Duration::from_secs(1) / 3;
    assert!(began.elapsed() < share * REQUESTS / 2, "{:?} for {REQUESTS} requests", began.elapsed());
}

/// A leader whose name comes to stand for another address is reached there in the same tenure; somebody else at that address
/// gets no request.
#[tokio::test]
async fn a_leader_that_moves_is_found_by_its_name() {
    let port = port();
    let names = Names::new("leader.test", &[local(2)]);
    let app = App::start("app", &Ledger::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("election.db").display());
    let manage = Manage::new("leader", folder.path());
    let door = Wire::at(SocketAddr::new(local(2), port), manage.address).await;
    let leader = names.known_to(manage.replicated_as(&format!("leader.test:{port}"), &store, TTL).upstream(app.address())).start().await;
    let epoch = leader.becomes("primary", LIMIT).await.epoch;
    let replica = names.known_to(Manage::new("replica", folder.path()).replicated(&store, TTL)).start().await;
    replica.becomes("replica", LIMIT).await;
    let place = replica.place();
    answers(&place, "app").await;

    let next_door = Wire::at(SocketAddr::new(local(3), port), leader.address()).await;
    names.set("leader.test", &[local(3)]);
    drop(door);
    passes_on(&replica, epoch).await;

    let strangers = Ledger::default();
    let stranger = App::start_at(SocketAddr::new(local(4), port), "stranger", &strangers).await;
    names.set("leader.test", &[local(4)]);
    drop(next_door);
    wait_for("the stranger to be found", LIMIT, async || match post(&place, "/who", "secret").await {
        answer if answer.status == 502 && answer.text().contains("not a node of election") => Ok(()),
        answer => Err(answer),
    })
    .await;
    // It is asked who it is, and nothing else.
    assert!(strangers.arrivals().iter().all(|seen| seen.method == Method::GET), "{:?}", strangers.arrivals());

    let _back = Wire::at(SocketAddr::new(local(2), port), leader.address()).await;
    names.set("leader.test", &[local(4), local(2)]);
    drop(stranger);
    passes_on(&replica, epoch).await;
}

/// A store that has moved is found where it is now, and no tenure is lost.
#[tokio::test]
async fn a_store_that_moves_is_found_by_its_name() {
    let (etcd, port, folder) = (Etcd::start().await, port(), tempfile::tempdir().unwrap());
    let names = Names::new("store.test", &[local(2)]);
    let here = Wire::at(SocketAddr::new(local(2), port), etcd.address()).await;
    let node = names.known_to(Manage::new("node", folder.path()).replicated(&format!("etcd://store.test:{port}"), RENEWED)).start().await;
    let epoch = node.becomes("primary", LIMIT).await.epoch;
    let _there = Wire::at(SocketAddr::new(local(3), port), etcd.address()).await;
    names.set("store.test", &[local(3)]);
    drop(here);
    let renewals = async || Metrics::of(node.place()).await.value("store_calls_total{op=\"renew\",result=\"ok\"}");
    let before = renewals().await;
    wait_for("two more renewals", LIMIT, async || match renewals().await {
        count if count >= before + 2.0 => Ok(()),
        count => Err(count),
    })
    .await;
    let info = node.info().await;
    assert_eq!((info.role.as_str(), info.epoch), ("primary", epoch));
}

/// Waits until who answers at `place` is `name`.
async fn answers(place: &Place, name: &str) {
    wait_for(&format!("{name} to answer at {place}"), LIMIT, async || match get(place, "/who").await {
        answer if answer.status == 200 && answer.text() == name => Ok(()),
        answer => Err(answer),
    })
    .await;
}

/// Waits until requests of both kinds reach the app through `replica`, in the same tenure as before.
async fn passes_on(replica: &Daemon, epoch: u64) {
    answers(&replica.place(), "app").await;
    let client = Client::new(replica.place());
    let answer = client.send(request(Method::POST, "/who", "")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.text(), answer.epoch()), (200, "app", Some(epoch)));
}
