//! Before the first leader, and without a store.

use std::time::Duration;

use crate::support::app::App;
use crate::support::cluster::Cluster;
use crate::support::daemon::Manage;
use crate::support::http::{Broken, Client, Method, get, post, request, with};
use crate::support::ledger::Ledger;
use crate::support::quickest;
use crate::support::raw::Origin;
use crate::support::store::{Kind, Store};
use futures_util::future::join_all;
use rustix::process::Signal;
use tokio::time::sleep;

const TTL: Duration = Duration::from_secs(2);
const LIMIT: Duration = Duration::from_secs(20);

/// S01, B73: a node whose store does not answer yet serves its local routes, and nothing else until it is elected.
#[tokio::test]
async fn a_node_holds_requests_until_its_store_answers() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = Store::start(Kind::Etcd, folder.path()).await;
    store.fail().await;
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let node = Manage::new("a", folder.path()).replicated(&store.url(), TTL).upstream(app.address()).start().await;

    let address = node.address();
    let mut held = tokio::task::JoinSet::new();
    held.spawn(async move { (get(address, "/who").await, post(address, "/count", "one").await) });
    for (path, status) in [("/_ping", 200), ("/info", 200), ("/_bellwether/live", 200), ("/_bellwether/primary", 503)] {
        let took = quickest(async || assert_eq!(get(address, path).await.status, status, "{path}")).await;
        assert!(took < TTL / 2, "{path} took {took:?}");
    }
    assert_eq!(node.info().await.role, "electing");
    assert!(ledger.arrivals().is_empty(), "nothing is served before the election: {:?}", ledger.arrivals());

    store.recover().await;
    let (got, posted) = held.join_next().await.unwrap().unwrap();
    assert_eq!((got.text(), posted.status.as_u16()), ("a", 200));
    assert!(got.held().is_some(), "{:?}", got.headers);
    ledger.assert_in_order();
}

/// B14: the first attempt to lead waits for no timer.
#[tokio::test]
async fn a_fresh_node_leads_at_once() {
    const LONG_TTL: Duration = Duration::from_secs(15);
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::Consul, Kind::Etcd, Kind::Kubernetes, Kind::Sqlite] {
        let (store, app) = (Store::start(kind, folder.path()).await, App::start("a", &Ledger::default()).await);
        let manage = Manage::new("a", folder.path()).replicated(&store.url(), LONG_TTL).upstream(app.address());
        let mut elections = ["one", "two", "three", "four", "five"].into_iter();
        // From the start of the process to its first answer of the app.
        let took = quickest(async || {
            let mut node = manage.clone().with(["--service", elections.next().unwrap()]).start().await;
            assert_eq!(get(node.address(), "/who").await.text(), "a");
            node.kill().await;
        });
        let took = took.await;
        // The shortest of its timers is a sixth of the TTL.
        assert!(took < LONG_TTL / 6, "{kind:?}: first answer after {took:?}");
    }
}

/// B15: requests that come before the first election are served by whoever wins it.
#[tokio::test]
async fn requests_queued_before_the_first_election_are_all_served() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(Kind::Sqlite, folder.path()).await;
    let (ledger, mut nodes, mut apps) = (Ledger::default(), Vec::new(), Vec::new());
    for name in ["a", "b", "c"] {
        let app = App::start(name, &ledger).await;
        let manage = Manage::new(name, folder.path()).replicated(&store.url(), TTL).upstream(app.address());
        nodes.push(manage.spawn());
        apps.push(app);
    }
    let requests = nodes.iter().flat_map(|node| [node.address(); 10]).enumerate().map(|(number, address)| async move {
        let client = Client::new(address);
        loop {
            let request = with(request(Method::POST, "/count", "one"), "request-id", &number.to_string());
            match client.send(request).await {
                Ok(answer) => return answer,
                // Until the node listens; a refused connection has sent nothing.
                Err(Broken::Refused) => sleep(Duration::from_millis(2)).await,
                Err(broken) => panic!("{broken:?}"),
            }
        }
    });
    for answer in join_all(requests).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(ledger.arrivals().len(), 30);
    ledger.assert_in_order();
}

/// B12: a candidate with a short TTL waits for as long as the holder's record says.
#[tokio::test]
async fn a_longer_lease_is_honoured_by_a_candidate_with_a_shorter_one() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::Consul, Kind::Etcd, Kind::Kubernetes, Kind::Sqlite] {
        let store = Store::start(kind, folder.path()).await;
        let manage = |name: &str, ttl| Manage::new(&format!("{kind:?}-{name}"), folder.path()).replicated(&store.url(), ttl);
        let holder = manage("holder", Duration::from_secs(30)).start().await;
        let epoch = holder.becomes("primary", LIMIT).await.epoch;
        let candidate = manage("candidate", TTL).start().await;
        candidate.becomes("replica", LIMIT).await;

        holder.signal(Signal::STOP);
        // Two of the candidate's TTLs, and a fraction of the holder's: the scenario itself.
        sleep(TTL * 2).await;
        assert_ne!(candidate.info().await.role, "primary", "{kind:?}");
        holder.signal(Signal::CONT);
        let info = holder.becomes("primary", LIMIT).await;
        assert_eq!(info.epoch, epoch, "{kind:?}: the tenure goes on");
    }
}

/// B13: a record that ran out long ago delays nobody.
#[tokio::test]
async fn a_record_that_ran_out_long_ago_delays_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::start(Kind::Sqlite, folder.path()).await;
    let ttl = Duration::from_secs(60);
    let mut dead = Manage::new("dead", folder.path()).replicated(&store.url(), ttl).start().await;
    let epoch = dead.becomes("primary", LIMIT).await.epoch;
    dead.kill().await;
    store.age(Duration::from_secs(3_600)).await;
    let next = Manage::new("next", folder.path()).replicated(&store.url(), ttl).start().await;
    assert!(next.becomes("primary", LIMIT).await.epoch > epoch);
}

/// B19: two services on one store have a primary each.
#[tokio::test]
async fn two_services_share_a_store_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    for kind in [Kind::Consul, Kind::Etcd, Kind::Kubernetes, Kind::Sqlite] {
        let store = Store::start(kind, folder.path()).await;
        let (mut nodes, mut apps) = (Vec::new(), Vec::new());
        for (name, service) in [("blue", "blue"), ("green", "green")] {
            let app = App::start(name, &Ledger::default()).await;
            let manage = Manage::new(&format!("{kind:?}-{name}"), folder.path()).replicated(&store.url(), TTL);
            nodes.push(manage.upstream(app.address()).with(["--service", service]).start().await);
            apps.push(app);
        }
        for (node, name) in nodes.iter().zip(["blue", "green"]) {
            node.becomes("primary", LIMIT).await;
            assert_eq!(get(node.address(), "/who").await.text(), name);
        }
    }
}

/// B22: a store that answers garbage, then nothing, is a store that is down.
#[tokio::test]
async fn garbage_from_the_store_ends_no_node() {
    let garbage = Origin::bind().await;
    let folder = tempfile::tempdir().unwrap();
    let url = format!("etcd://{}", garbage.address());
    let mut answering = tokio::task::JoinSet::new();
    answering.spawn(async move {
        for answer in ["HTTP/1.1 500 no cluster leader\r\n\r\n", "{}", "\u{0}\u{1}\u{2}", "SSH-2.0-x\r\n", ""].iter().cycle() {
            garbage.answer_next(answer.as_bytes()).await;
        }
    });
    let manage = Manage::new("a", folder.path()).replicated(&url, TTL).with(["--hold-timeout", "1s"]);
    let mut node = manage.start().await;
    for _ in 0..3 {
        let answer = get(node.address(), "/who").await;
        assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (503, Some("no-primary")), "{}", answer.text());
        assert_eq!(answer.json()["verdict"], "not-sent");
        assert!(answer.header("retry-after").parse::<u64>().is_ok(), "{:?}", answer.headers);
    }
    assert_eq!(node.info().await.role, "electing");
    node.signal(Signal::TERM);
    assert!(node.ended(LIMIT).await.success());
}

/// B11: a waiting candidate ends in time, whether its store answers, is gone or is frozen, and leaves nothing behind.
#[tokio::test]
async fn a_replica_ends_in_time_whatever_its_store_does() {
    let mut cluster = Cluster::start(Kind::Etcd, TTL).await;
    let primary = cluster.settled(3, LIMIT).await;
    let [first, second] = cluster.others(primary);
    terminate(&mut cluster, first).await;
    cluster.restart(first);
    cluster.settled(3, LIMIT).await;

    let Store::Etcd(etcd) = &cluster.store else { unreachable!("this test runs on etcd") };
    etcd.signal(Signal::STOP);
    terminate(&mut cluster, first).await;
    let Store::Etcd(etcd) = &cluster.store else { unreachable!("this test runs on etcd") };
    etcd.signal(Signal::CONT);
    cluster.settled(2, TTL * 2 + LIMIT).await;

    cluster.store.fail().await;
    terminate(&mut cluster, second).await;
    cluster.store.recover().await;
    let primary = cluster.settled(1, TTL * 2 + LIMIT).await;
    let Store::Etcd(etcd) = &cluster.store else { unreachable!("this test runs on etcd") };
    let own = cluster.nodes[primary].address().to_string();
    crate::support::wait_for("the other candidates' keys to be gone", TTL + LIMIT, async || {
        let candidates = etcd.values("bellwether/default/leader/").await;
        if candidates == [own.as_str()] { Ok(()) } else { Err(candidates) }
    })
    .await;
}

async fn terminate(cluster: &mut Cluster, node: usize) {
    cluster.nodes[node].signal(Signal::TERM);
    let status = cluster.nodes[node].ended(LIMIT).await;
    assert!(status.success(), "{status}");
}
