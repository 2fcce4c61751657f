//! TLS between nodes: who is believed, what is told of clients, and failovers under mutual TLS.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::support::app::App;
use crate::support::certificates::{Authority, Credentials, LONG, Wanted};
use crate::support::cluster::Cluster;
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Client, Method, get, request, with};
use crate::support::ledger::Ledger;
use crate::support::load::{Load, Outcome};
use crate::support::one::One;
use crate::support::pair::Pair;
use crate::support::raw::Origin;
use crate::support::secure::{self, HERE, NODE, Secure, World};
use crate::support::store::{Kind, Store};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(30);
const TTL: Duration = Duration::from_secs(2);

async fn cluster(world: &World) -> Cluster {
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure())
    };
    let store = Store::start(Kind::Sqlite, world.folder.path()).await;
    Cluster::start_on(store, TTL, [&own, &own, &own]).await
}

/// Each request ended as it may, none was executed twice, and there never were two primaries.
async fn ended_well(cluster: &Cluster, load: Load, one: &One, may_end: impl Fn(&Outcome)) {
    let outcomes = load.stop().await;
    outcomes.iter().for_each(may_end);
    cluster.assert_told_the_truth(&outcomes);
    one.assert_never_two();
}

fn values(seen: &Value, name: &str) -> Vec<String> {
    let pairs = seen["headers"].as_array().expect("headers").iter();
    pairs.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn a_planned_handover_under_mutual_tls_fails_no_request() {
    let world = World::new();
    let cluster = cluster(&world).await;
    let (one, load) = (cluster.watch(), Load::start(cluster.places(), 5));
    load.answers(60).await;
    let first = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(first).await;
    assert_eq!(cluster.nodes[first].resign().await.status, 200);
    let second = cluster.settled_after(epoch, 3, LIMIT).await;
    assert_ne!(first, second);
    load.answers(60).await;
    ended_well(&cluster, load, &one, Outcome::assert_answered).await;
    cluster.balances().await;
}

#[tokio::test]
async fn a_planned_stop_under_mutual_tls_fails_no_request() {
    let world = World::new();
    let mut cluster = cluster(&world).await;
    let one = cluster.watch();
    let first = cluster.settled(3, LIMIT).await;
    let load = Load::start(cluster.others(first).map(|node| cluster.nodes[node].place()), 5);
    load.answers(40).await;
    cluster.nodes[first].signal(Signal::TERM);
    assert_eq!(cluster.nodes[first].ended(LIMIT).await.code(), Some(0));
    load.answers(40).await;
    ended_well(&cluster, load, &one, Outcome::assert_answered).await;
    cluster.balances().await;
}

#[tokio::test]
async fn a_killed_primary_is_replaced_under_mutual_tls() {
    let world = World::new();
    let mut cluster = cluster(&world).await;
    let one = cluster.watch();
    let first = cluster.settled(3, LIMIT).await;
    let epoch = cluster.epoch_at(first).await;
    let load = Load::start(cluster.others(first).map(|node| cluster.nodes[node].place()), 5);
    load.answers(40).await;
    cluster.nodes[first].kill().await;
    cluster.settled_after(epoch, 2, LIMIT).await;
    load.answers(40).await;
    ended_well(&cluster, load, &one, Outcome::assert_survived).await;
    cluster.restart(first);
    cluster.settled(3, LIMIT).await;
    cluster.balances().await;
}

/// A hop over TLS keeps its connections: tickets that a server hands out unasked do not make an idle one look closed.
#[tokio::test]
async fn connections_over_tls_are_used_again() {
    let world = World::new();
    let app = App::start_secured("a", &Ledger::default(), &world.node("app")).await;
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure()).with(["--workers", "1"])
    };
    let pair = Pair::start_with(&format!("https://{}", app.address()), own).await;
    let client = Client::new(pair.replica.place());
    let post = async || {
        let answer = client.send(request(Method::POST, "/who", "an order")).await.unwrap();
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "a"));
    };
    post().await;
    let hops = async || pair.primary.metrics().await.value("tls_handshakes_total{result=\"done\"}");
    let (before, opened) = (hops().await, app.connections());
    for _ in 0..40 {
        post().await;
    }
    // Each reading opens a connection of its own.
    let (after, opened_since) = (hops().await - before - 1.0, app.connections() - opened);
    assert!(
        after <= 3.0 && opened_since <= 3,
        "for 40 requests one after the other: {after} connections to the primary, {opened_since} to the app"
    );
}

/// The connection that nodes share works over TLS: requests side by side open none of their own.
#[tokio::test]
async fn requests_share_a_connection_over_tls() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure()).with(["--workers", "1"])
    };
    let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
    let clients = (0..30).map(|_| Client::new(pair.replica.place())).collect::<Vec<_>>();
    let at_once = async || {
        // Idle ones would do as well as a shared one; they go after some seconds.
        wait_for("idle connections to be closed", LIMIT, async || match pair.primary.metrics().await.value("connections") {
            0.0..=6.0 => Ok(()),
            open => Err(open),
        })
        .await;
        let before = pair.primary.metrics().await.value("tls_handshakes_total{result=\"done\"}");
        let answers = clients.iter().map(|client| client.send(request(Method::GET, "/slow?ms=100", "")));
        for answer in futures_util::future::join_all(answers).await {
            assert_eq!(answer.expect("an answer").text(), "a");
        }
        // Each reading opens a connection of its own.
        pair.primary.metrics().await.value("tls_handshakes_total{result=\"done\"}") - before - 1.0
    };
    wait_for("the shared connection", LIMIT, async || match at_once().await {
        0.0..=2.0 => Ok(()),
        opened => Err(opened),
    })
    .await;
    assert_eq!(get(pair.replica.place(), "/big?mb=8").await.body.len(), 8 << 20);
}

#[tokio::test]
async fn nodes_believe_what_nodes_say_of_a_client_and_nobody_else() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure())
    };
    let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
    // A replica sends whatever claims to come from a node back to it.
    let forged = ("bellwether-hop", "0123456789abcdef;epoch=0");
    let cases = [("127.0.0.1", Some(forged)), ("127.0.0.1", None), ("127.0.0.1, 127.0.0.1", None)];
    let [primary, replica] = pair.places();
    for (place, (addresses, more)) in [primary.clone(), primary, replica].into_iter().zip(cases) {
        let client = Client::new(place);
        // The second time over the connection that the nodes share.
        for _ in 0..2 {
            let mut asked = request(Method::GET, "/echo", "");
            let lies = [("x-forwarded-for", "10.9.9.9"), ("x-forwarded-proto", "gopher"), ("host", "service.example")];
            for (name, value) in lies.into_iter().chain(more) {
                asked = with(asked, name, value);
            }
            let seen = client.send(asked).await.unwrap().json();
            assert_eq!(values(&seen, "x-forwarded-for").join(", "), addresses, "{seen}");
            assert_eq!(values(&seen, "x-forwarded-proto"), ["https"], "{seen}");
            assert_eq!(values(&seen, "x-forwarded-host"), ["service.example"], "{seen}");
            assert_eq!(values(&seen, "host"), ["service.example"], "{seen}");
        }
    }
}

/// Two nodes in one election, each started in a way of its own; only the first is in front of an app.
async fn two(
    leads: impl Fn(Manage) -> Manage,
    advertise: Option<SocketAddr>,
    follows: impl Fn(Manage) -> Manage,
) -> (Daemon, Daemon, App, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("sqlite://{}", folder.path().join("election.db").display());
    let app = App::start("a", &Ledger::default()).await;
    let leader = Manage::new("leader", folder.path());
    let address = advertise.unwrap_or(leader.address).to_string();
    let leader = leads(leader.replicated_as(&address, &store, LIMIT)).upstream(app.address()).start().await;
    leader.becomes("primary", LIMIT).await;
    let follower = Manage::new("follower", folder.path()).replicated(&store, LIMIT).with(["--hold-timeout", "2s"]);
    let follower = follows(follower).start().await;
    follower.becomes("replica", LIMIT).await;
    (leader, follower, app, folder)
}

/// What a client is told who sends an order through `node`.
async fn told(node: &Daemon) -> (u16, Value) {
    let answer = Client::new(node.place()).send(request(Method::POST, "/who", "an order")).await.expect("an answer");
    let said = answer.json();
    assert_eq!(said["verdict"], "not-sent", "{said}");
    (answer.status.as_u16(), said)
}

/// B106: an impostor at the leader's address sees no request, and the client is told why.
#[tokio::test]
async fn a_leader_that_is_not_whom_it_should_be_gets_no_request() {
    let world = World::new();
    let others = Authority::new(world.folder.path(), "others");
    for (files, words) in [
        (others.issue(Wanted { name: "impostor", hosts: HERE, usage: NODE, life: LONG }), "was issued by no CA"),
        (
            world.authority.issue(Wanted { name: "elsewhere", hosts: "DNS:ha.example", usage: NODE, life: LONG }),
            "is for ha.example and not for 127.0.0.1",
        ),
        (
            world.authority.issue(Wanted { name: "over", hosts: HERE, usage: NODE, life: ("20200101000000Z", "20210101000000Z") }),
            "ran out on 2021",
        ),
    ] {
        let impostor = Origin::bind().await;
        let at = Some(impostor.address());
        let secured = |manage: Manage| {
            let files = world.node(&manage.name);
            manage.secured("--tls", &files, &world.secure())
        };
        let (_leader, follower, app, _folder) = two(secured, at, secured).await;
        // The leader asks itself at its start whether it is there, so more than one connects.
        let serve = async {
            loop {
                let (stream, _) = impostor.accept_bare().await;
                // The handshake ends with the other's refusal; nothing but that was sent.
                assert!(secure::accept(&files, stream).await.is_err());
            }
        };
        let said = tokio::select! {
            said = told(&follower) => said,
            () = serve => unreachable!("it serves for ever"),
        };
        assert_eq!((said.0, said.1["reason"].as_str()), (502, Some("upstream-failed")), "{}", said.1);
        assert!(said.1["message"].as_str().unwrap().contains(words), "{words}: {}", said.1);
        assert_eq!(app.connections(), 0);
        wait_for("the log to say so", LIMIT, async || if follower.log().contains(words) { Ok(()) } else { Err(follower.log()) }).await;
    }
}

/// B107: all nodes show the same certificate, which is for the service and for no host of an `--advertise`.
#[tokio::test]
async fn nodes_may_share_a_certificate_for_another_name() {
    let world = World::new();
    // The test itself reaches them by their address.
    let shared = world.authority.issue(Wanted { name: "shared", hosts: "DNS:ha.example,IP:127.0.0.1", usage: NODE, life: LONG });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("sqlite://{}", folder.path().join("election.db").display());
    let app = App::start("a", &Ledger::default()).await;
    let start = async |name, role| {
        let manage = Manage::new(name, folder.path());
        let address = format!("localhost:{}", manage.address.port());
        let manage = manage.replicated_as(&address, &store, LIMIT).upstream(app.address());
        let node = manage.secured("--tlsverify", &shared, &world.secure()).with(["--tls-server-name", "ha.example"]).start().await;
        node.becomes(role, LIMIT).await;
        node
    };
    let _leader = start("leader", "primary").await;
    let follower = start("follower", "replica").await;
    let answer = Client::new(follower.place()).send(request(Method::POST, "/who", "an order")).await.expect("an answer");
    assert_eq!((answer.status.as_u16(), answer.text()), (200, "a"));
}

/// B107, with a replica that was not told what the certificate is for: clients are told which name was expected, no log is filled,
/// and who leads is known without a word to the leader.
#[tokio::test]
async fn a_certificate_for_another_name_is_said_once_and_hides_no_leader() {
    const REQUESTS: usize = 30;
    let world = World::new();
    // The test itself reaches both by their address.
    let shared = world.authority.issue(Wanted { name: "shared", hosts: "DNS:ha.example,IP:127.0.0.1", usage: NODE, life: LONG });
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("sqlite://{}", folder.path().join("election.db").display());
    let app = App::start("a", &Ledger::default()).await;
    let manage = Manage::new("leader", folder.path());
    let address = format!("localhost:{}", manage.address.port());
    let leader = manage.replicated_as(&address, &store, LIMIT).upstream(app.address()).secured("--tlsverify", &shared, &world.secure());
    let leader = leader.with(["--tls-server-name", "ha.example"]).start().await;
    leader.becomes("primary", LIMIT).await;
    let follower = Manage::new("follower", folder.path()).replicated(&store, LIMIT).mutual(&world).with(["--workers", "1"]).start().await;
    follower.becomes("replica", LIMIT).await;

    let words = "is for ha.example, 127.0.0.1 and not for localhost";
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let (status, said) = told(&follower).await;
        assert_eq!((status, said["reason"].as_str()), (502, Some("upstream-failed")), "{said}");
        assert!(said["message"].as_str().unwrap().contains(words), "{said}");
    }
    let lines = |node: &Daemon| node.log().lines().filter(|line| line.contains(words)).count();
    wait_for("the log to say so", LIMIT, async || if lines(&follower) > 0 { Ok(()) } else { Err(follower.log()) }).await;
    // Every ten seconds at most.
    let most = 1 + began.elapsed().as_secs() as usize / 10;
    assert!(lines(&follower) <= most && leader.log().lines().count() < REQUESTS, "{}{}", follower.log(), leader.log());
    assert_eq!(app.connections(), 0);
    for path in ["/_bellwether/leader", "/info"] {
        let answer = Client::new(follower.place()).send(request(Method::GET, path, "")).await.expect("an answer");
        assert!(answer.status == 200 && answer.text().contains(&address), "{path}: {}", answer.text());
    }
}

/// B104: one that was told to speak TLS and one that was not.
#[tokio::test]
async fn nodes_that_disagree_about_tls_say_so() {
    let world = World::new();
    let secured = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tls", &files, &world.secure())
    };
    let (_leader, follower, _app, _folder) = two(secured, None, |manage| manage).await;
    let (status, said) = told(&follower).await;
    assert_eq!((status, said["message"].as_str().unwrap().contains("speaks TLS, and this node does not")), (502, true), "{said}");
    let (_leader, follower, _app, _folder) = two(|manage| manage, None, secured).await;
    let (status, said) = told(&follower).await;
    assert_eq!((status, said["message"].as_str().unwrap().contains("it does not speak TLS")), (502, true), "{said}");
}

/// A replica whose certificate the leader does not believe never has an order lost in the connection that is refused.
#[tokio::test]
async fn an_order_is_not_sent_to_a_leader_that_refuses_this_node() {
    let world = World::new();
    let others = Authority::new(world.folder.path(), "others");
    let both = world.folder.path().join("both.pem");
    std::fs::write(&both, [world.authority.file(), others.file()].map(|file| std::fs::read_to_string(file).unwrap()).concat()).unwrap();
    let foreign = Credentials { ca: both, ..others.issue(Wanted { name: "foreign", hosts: HERE, usage: NODE, life: LONG }) };
    let asked_by = Secure::of(&Credentials { ca: foreign.ca.clone(), ..world.user.clone() });
    let leads = |manage: Manage| manage.secured("--tlsverify", &world.node("leader"), &world.secure());
    let follows = |manage: Manage| manage.secured("--tlsverify", &foreign, &asked_by);
    let (_leader, follower, app, _folder) = two(leads, None, follows).await;
    for _ in 0..3 {
        let (status, said) = told(&follower).await;
        assert_eq!((status, said["reason"].as_str()), (503, Some("no-primary")), "{said}");
        assert!(said["message"].as_str().unwrap().contains("alert"), "{said}");
    }
    assert_eq!(app.connections(), 0);
}
