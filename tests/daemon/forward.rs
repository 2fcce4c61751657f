//! What a replica passes on, to whom, and what it refuses to.

use std::time::Duration;

use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::app::App;
use crate::support::cluster::Cluster;
use crate::support::daemon::Manage;
use crate::support::etcd::Etcd;
use crate::support::http::{Client, Method, get, request, with};
use crate::support::ledger::Ledger;
use crate::support::metrics::Metrics;
use crate::support::pair::Pair;
use crate::support::places::Places;
use crate::support::port;
use crate::support::raw::{Origin, Raw, header};
use crate::support::store::Kind;
use crate::support::streams::Streams;
use crate::support::wait_for;
use crate::support::wire::Wire;

/// Nothing here waits for it to run out, and no stall of this machine costs a tenure.
const TTL: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(20);
/// Where the leader of the election that nodes take part in by default is found in etcd.
const ELECTION: &str = "bellwether/default/leader/";

/// B74: the request target reaches the app byte for byte, through the primary and through a replica, in either version of HTTP.
#[tokio::test]
async fn the_request_target_is_passed_on_byte_for_byte() {
    let targets = [
        "/echo?q=select%20*&empty=&a=1&a=2",
        "/echo?",
        "/a%2Fb/../c",
        "//double",
        "/%E2%9C%93",
        "/;v=1",
        "/a|b{c}",
        "/echo?http://other/?",
    ];
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        let seen = async |line: &str| {
            // Each worker has connections of its own to the app, so that the next request may come over another one.
            let mut app = origin.accept().await;
            let head = app.head().await;
            assert_eq!(head.lines().next(), Some(line), "through {place}");
            app.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await;
        };
        let ordinary = targets.map(|target| [format!("GET {target} HTTP/1.1"), format!("GET {target} HTTP/1.1")]);
        // A fragment is the client's own (RFC 9112 §3.2), and no part of any target.
        let odd = [["OPTIONS * HTTP/1.1"; 2], ["GET /a?b#x HTTP/1.1", "GET /a?b HTTP/1.1"]].map(|lines| lines.map(str::to_owned));
        for [sent, received] in ordinary.into_iter().chain(odd) {
            client.send(format!("{sent}\r\nHost: service\r\n\r\n")).await;
            seen(&received).await;
            assert_eq!(client.answer().await.1, "ok");
        }
        let mut client = Streams::connect(&place).await;
        for target in targets {
            let mut stream = client.get(target).await;
            seen(&format!("GET {target} HTTP/1.1")).await;
            assert_eq!(stream.whole().await.unwrap(), (200, "ok".to_owned()));
        }
    }
}

/// B75: every method, with a body and without, has the same effect through a replica as on the app itself.
#[tokio::test]
async fn every_method_is_passed_on_with_its_body() {
    let (direct, app) = (App::start("a", &Ledger::default()).await, App::start("a", &Ledger::default()).await);
    let places = Places::of(app.address()).await;
    let direct = Client::new(direct.address());
    for place in places.each() {
        let through = Client::new(&place);
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO"] {
            for (path, body) in [("/one", ""), ("/two?x=1", "a body"), ("/three", "")] {
                let mut seen = Vec::new();
                for client in [&direct, &through] {
                    let request = with(request(method.parse::<Method>().unwrap(), path, body), "content-type", "text/plain");
                    let answer = client.send(request).await.unwrap();
                    let echo = answer.json();
                    seen.push((answer.status, echo["method"].clone(), echo["target"].clone(), echo["body"].clone()));
                }
                assert_eq!(seen[0], seen[1], "{method} {path} at {place}");
                assert_eq!(seen[0].3, body);
            }
        }
        let head = through.send(request(Method::HEAD, "/one", "")).await.unwrap();
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
    }
}

/// S04: a path that only ends like a local route belongs to the app.
#[tokio::test]
async fn only_whole_local_routes_are_local() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    let alike = ["/api/users/info", "/information", "/v1/info", "/debug", "/containers/debug", "/x/_ping", "/_pings", "/_bellwetherx"];
    for place in places.each() {
        for path in alike {
            let answer = get(&place, path).await;
            assert_eq!(answer.json()["target"], path, "through {place}");
        }
    }
    // A node that is pinged may ask its app, by HEAD, whether it is a Docker engine.
    let forwarded = || ledger.arrivals().iter().filter(|arrival| arrival.method == Method::GET).count();
    let before = forwarded();
    for (path, status) in [("/_ping", 200), ("/info", 200), ("/v1.41/info", 200), ("/v1.24/_ping", 200), ("/_bellwether/none", 404)] {
        for place in places.each() {
            assert_eq!(get(&place, path).await.status, status, "{path} at {place}");
        }
    }
    assert_eq!(forwarded(), before, "local routes are never forwarded");
}

/// B70: a redirect is the client's to follow, and stays as it is, also where it leads to the leader itself.
#[tokio::test]
async fn a_redirect_is_passed_on_untouched() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    let leader = places.clear.primary.place();
    for place in places.each() {
        let mut client = Raw::connect(&place).await;
        for location in ["/ui/".to_owned(), format!("{leader}/ui/"), "//elsewhere/ui/#top".to_owned()] {
            client.send("GET /r HTTP/1.1\r\nHost: service\r\n\r\n").await;
            let mut app = origin.accept().await;
            app.head().await;
            app.send(format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")).await;
            let (head, _) = client.answer().await;
            assert!(head.starts_with("HTTP/1.1 302 Found\r\n"), "{head}");
            assert_eq!(header(&head, "location"), Some(location.as_str()), "at {place}");
        }
    }
    assert!(origin.is_left_alone(Duration::from_millis(500)).await, "somebody has followed");
}

/// B78: a leader may advertise a name.
#[tokio::test]
async fn a_leader_is_reached_by_its_name() {
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start_as(app.address(), |address| format!("localhost:{}", address.port())).await;
    let answer = get(pair.replica.address(), "/who").await;
    assert_eq!(answer.text(), "a");
    assert_eq!(answer.header("bellwether-primary"), format!("localhost:{}", pair.primary.address().port()));
}

/// B130: the address that a node advertises need not be the one that it listens on.
#[tokio::test]
async fn a_node_may_be_reached_at_another_address_than_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let (store, app) = (sqlite(&folder), App::start("a", &Ledger::default()).await);
    let manage = Manage::new("a", folder.path());
    let door = Wire::to(manage.address).await;
    let advertised = door.address().to_string();
    let primary = manage.replicated_as(&advertised, &store, TTL).upstream(app.address()).start().await;
    primary.becomes("primary", LIMIT).await;
    let replica = Manage::new("b", folder.path()).replicated(&store, TTL).start().await;
    assert_eq!(replica.becomes("replica", LIMIT).await.primary, advertised);
    let answer = get(replica.address(), "/who").await;
    assert_eq!((answer.text(), answer.header("bellwether-primary")), ("a", advertised.as_str()));
}

/// B77: warm connections to the old leader carry nothing to it once there is a new one.
#[tokio::test]
async fn nothing_goes_to_the_old_leader_over_warm_connections() {
    let cluster = Cluster::start(Kind::Etcd, TTL).await;
    let primary = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(primary).await;
    let [replica, _] = cluster.others(primary);
    let through = cluster.nodes[replica].address();
    let warm = (0..50).map(|_| async move {
        let client = Client::new(through);
        client.send(request(Method::GET, "/slow?ms=2000", "")).await.unwrap();
        client
    });
    let clients = futures_util::future::join_all(warm).await;
    let busy = Metrics::of(cluster.nodes[primary].address()).await.value("connections");
    assert!(busy >= 50.0, "{busy} connections to the leader");

    assert_eq!(cluster.nodes[primary].resign().await.status, 200);
    let next = cluster.settled_after(epoch, 3, LIMIT).await;
    let before = cluster.ledger.arrivals().len();
    for _ in 0..10 {
        let answers = clients.iter().map(|client| client.send(request(Method::GET, "/who", "")));
        for answer in futures_util::future::join_all(answers).await {
            let answer = answer.unwrap();
            assert_eq!((answer.status.as_u16(), answer.text()), (200, cluster.nodes[next].name()));
            assert!(answer.epoch() > Some(epoch));
        }
    }
    assert_eq!(cluster.ledger.arrivals().len(), before + 500);
    wait_for("the connections to the old leader to be closed", LIMIT, async || {
        match Metrics::of(cluster.nodes[primary].address()).await.value("connections") {
            // The ones that ask for this, and for its state.
            few if few <= 5.0 => Ok(()),
            open => Err(open),
        }
    })
    .await;
}

/// B80: an advertised address at which something else answers is named, and gets no request.
#[tokio::test]
async fn an_address_that_is_no_node_gets_no_request() {
    let folder = tempfile::tempdir().unwrap();
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let store = sqlite(&folder);
    let advertised = app.address().to_string();
    let wrong = Manage::new("a", folder.path()).replicated_as(&advertised, &store, TTL).upstream(app.address()).start().await;
    wrong.becomes("primary", LIMIT).await;
    let replica = Manage::new("b", folder.path()).replicated(&store, TTL).start().await;
    replica.becomes("replica", LIMIT).await;

    let answer = Client::new(replica.address()).send(with(request(Method::POST, "/count", "x"), "request-id", "lost")).await.unwrap();
    let said = answer.json();
    assert_eq!((answer.status.as_u16(), said["verdict"].as_str()), (502, Some("not-sent")), "{said}");
    let message = said["message"].as_str().unwrap();
    assert!(message.contains(&advertised) && message.contains("default"), "{message}");
    assert_eq!(ledger.count("lost"), 0);
}

/// B67: a leader's record that names the replica itself, by whichever of its addresses, sends nothing round in circles.
#[tokio::test]
async fn a_leader_record_that_names_the_replica_itself_is_no_way_out() {
    let etcd = Etcd::start().await;
    let folder = tempfile::tempdir().unwrap();
    let manage = Manage::new("b", folder.path());
    let port = manage.address.port();
    let own = manage.address.to_string();
    let manage = manage.with(["--hold-timeout", "500ms", "--host", &format!("[::1]:{port}")]);
    for (number, host) in ["127.0.0.1", "localhost", "[::1]"].into_iter().enumerate() {
        let (service, record) = (format!("{port}-{number}"), format!("{host}:{port}"));
        etcd.campaign(&format!("bellwether/{service}/leader/"), &record).await;
        let mut node = manage.clone().with(["--service", &service]).replicated_as(&own, &etcd.url(), TTL).start().await;
        // Its own address is that of a former run, which the node waits for. Any other name of it is a leader's like another.
        let role = if host == "127.0.0.1" { "electing" } else { "replica" };
        node.becomes(role, LIMIT).await;
        let client = Client::new(node.address());
        let mut open_files = Vec::new();
        for method in [Method::GET, Method::POST].iter().cycle().take(4) {
            let answer = client.send(request(method.clone(), "/who", "")).await.unwrap();
            let said = answer.json();
            assert_eq!((answer.status.as_u16(), said["reason"].as_str()), (503, Some("no-primary")), "{record}: {said}");
            assert_eq!(said["verdict"], "not-sent", "{said}");
            assert_eq!(said["message"].as_str().unwrap().contains("this node itself"), role == "replica", "{said}");
            open_files.push(node.open_files());
        }
        // What a look of its own at itself has open at that moment comes and goes.
        assert!(open_files[3] <= open_files[0] + 4, "sockets grow: {open_files:?}");
        wait_for("nothing but these four to have been accepted", LIMIT, async || {
            let metrics = node.metrics().await;
            match metrics.value("requests_accepted_total") - metrics.value("requests_total{outcome=\"local\"}") {
                4.0 => Ok(()),
                _ => Err(metrics),
            }
        })
        .await;
        node.kill().await;
    }
}

/// S07: a leader that accepts and never answers costs a bounded time.
#[tokio::test]
async fn a_leader_that_never_answers_costs_a_bounded_time() {
    let (etcd, black_hole, folder) = (Etcd::start().await, Origin::bind().await, tempfile::tempdir().unwrap());
    etcd.campaign(ELECTION, &black_hole.address().to_string()).await;
    let manage = Manage::new("b", folder.path()).replicated(&etcd.url(), TTL).with(["--hold-timeout", "2s"]);
    let node = manage.start().await;
    node.becomes("replica", LIMIT).await;
    let asked = Instant::now();
    let answer = get(node.address(), "/who").await;
    assert!(answer.status.is_server_error(), "{}", answer.status);
    assert_eq!(answer.json()["verdict"], "not-sent", "{}", answer.text());
    assert!(asked.elapsed() < LIMIT, "{:?}", asked.elapsed());
}

/// The contract's 508: a request that comes back to the node that sent it on is refused, and so is a hop of a later epoch.
#[tokio::test]
async fn a_request_that_has_come_round_is_refused() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let pair = Pair::start(app.address()).await;
    let boot = pair.primary.info().await.all["ID"].as_str().expect("an ID").to_owned();
    let epoch = pair.primary.info().await.epoch;
    let hop = |value: String| with(request(Method::POST, "/count", "x"), "bellwether-hop", &value);
    let client = Client::new(pair.primary.address());

    let own = client.send(hop(format!("{boot};epoch={epoch}"))).await.unwrap();
    assert_eq!((own.status.as_u16(), own.json()["reason"].as_str()), (508, Some("loop")), "{}", own.text());
    let later = client.send(hop(format!("00000000000000aa;epoch={}", epoch + 1))).await.unwrap();
    assert_eq!((later.status.as_u16(), later.json()["reason"].as_str()), (503, Some("superseded")), "{}", later.text());
    assert!(ledger.arrivals().is_empty());
    let nonsense = client.send(hop("nonsense".to_owned())).await.unwrap();
    assert_eq!(nonsense.status, 200, "a client's own header is dropped");
}

/// Without an app there is an error that says so.
#[tokio::test]
async fn a_primary_without_an_app_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let node = Manage::new("a", folder.path()).start().await;
    let answer = get(node.address(), "/who").await;
    assert_eq!((answer.status.as_u16(), answer.json()["reason"].as_str()), (503, Some("no-upstream")), "{}", answer.text());
    let dead = port::free();
    let node = Manage::new("b", folder.path()).upstream(dead).start().await;
    let answer = get(node.address(), "/who").await;
    assert_eq!((answer.status.as_u16(), answer.json()["verdict"].as_str()), (502, Some("not-sent")), "{}", answer.text());
}

fn sqlite(folder: &TempDir) -> String {
    format!("sqlite://{}", folder.path().join("election.db").display())
}
