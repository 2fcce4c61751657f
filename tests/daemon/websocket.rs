//! How WebSockets of real clients end with their tenure, their node, or their leader: told, and not just cut.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{Instant, timeout};

use crate::support::app::App;
use crate::support::daemon::{Daemon, Manage};
use crate::support::interop::{H2_WEBSOCKET, Running, Served, WEBSOCKET_APP, WEBSOCKET_CLIENT, run_with_all};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::raw::Raw;
use crate::support::secure::World;

const LIMIT: Duration = Duration::from_secs(60);
/// Longer than any test waits: nobody who is told to part holds up the node.
const DRAIN: &str = "120s";
/// What a client is told.
const TOLD: &str = "1012 connect again";

/// Two nodes in front of an app, in the clear or under mutual TLS, and clients that are connected to them.
struct Stage {
    app: Served,
    pair: Pair,
    world: Option<World>,
}

impl Stage {
    async fn set(secured: bool) -> Self {
        let app = Served::start(WEBSOCKET_APP, &[]).await;
        let world = secured.then(World::new);
        let own = |manage: Manage| {
            let manage = manage.with(["--drain-timeout", DRAIN]);
            match &world {
                Some(world) => {
                    let files = world.node(&manage.name);
                    manage.secured("--tlsverify", &files, &world.secure())
                }
                None => manage,
            }
        };
        let pair = Pair::start_with(&format!("http://127.0.0.1:{}", app.port), own).await;
        Self { app, pair, world }
    }

    /// A client that is connected to `node`.
    async fn client(&self, node: &Daemon) -> Running {
        let place = node.address().to_string();
        let files = self.world.iter().flat_map(|world| [&world.user.ca, &world.user.cert, &world.user.key]);
        let files = files.map(|file| file.to_str().expect("a path in UTF-8"));
        let arguments: Vec<&str> = [place.as_str()].into_iter().chain(files).collect();
        let mut client = Running::start(WEBSOCKET_CLIENT, &arguments);
        assert_eq!(client.line().await, "open");
        client
    }

    /// One client for each node.
    async fn clients(&self) -> [Running; 2] {
        [self.client(&self.pair.primary).await, self.client(&self.pair.replica).await]
    }
}

/// RFC 8441 under mutual TLS, as h2 and websockets for Python speak it.
#[tokio::test]
async fn websockets_are_streams_under_mutual_tls() {
    let mut stage = Stage::set(true).await;
    let world = stage.world.as_ref().expect("TLS");
    let files = [&world.user.ca, &world.user.cert, &world.user.key].map(|file| file.to_str().expect("a path in UTF-8"));
    for way in stage.pair.ways() {
        let said = run_with_all(H2_WEBSOCKET, &[&[way.to_string().as_str()][..], &files].concat()).await;
        assert_eq!(said, "offered\nopened\nechoed\nclosed\n");
        for _ in 0..2 {
            assert_eq!(stage.app.running.line().await, "closed 1000");
        }
    }
}

#[tokio::test]
async fn all_are_told_when_the_primary_resigns() {
    for secured in [false, true] {
        let mut stage = Stage::set(secured).await;
        let mut clients = stage.clients().await;
        let resigned = timeout(LIMIT, stage.pair.primary.resign()).await.expect("nobody is waited for who was told");
        assert_eq!(resigned.status, 200);
        for client in &mut clients {
            assert_eq!(client.line().await, TOLD, "secured: {secured}");
            assert_eq!(stage.app.running.line().await, "closed 1012");
        }
    }
}

#[tokio::test]
async fn all_are_told_when_the_primary_is_stopped() {
    for secured in [false, true] {
        let mut stage = Stage::set(secured).await;
        let mut clients = stage.clients().await;
        stage.pair.primary.signal(Signal::TERM);
        for client in &mut clients {
            assert_eq!(client.line().await, TOLD, "secured: {secured}");
            assert_eq!(stage.app.running.line().await, "closed 1012");
        }
        assert!(stage.pair.primary.ended(LIMIT).await.success());
    }
}

#[tokio::test]
async fn those_of_a_replica_are_told_when_it_is_stopped() {
    for secured in [false, true] {
        let mut stage = Stage::set(secured).await;
        let mut client = stage.client(&stage.pair.replica).await;
        stage.pair.replica.signal(Signal::TERM);
        assert_eq!(client.line().await, TOLD, "secured: {secured}");
        assert_eq!(stage.app.running.line().await, "closed 1012");
        assert!(stage.pair.replica.ended(LIMIT).await.success());
    }
}

#[tokio::test]
async fn those_of_a_replica_are_told_when_the_primary_is_killed() {
    for secured in [false, true] {
        let mut stage = Stage::set(secured).await;
        let mut client = stage.client(&stage.pair.replica).await;
        stage.pair.primary.kill().await;
        assert_eq!(client.line().await, TOLD, "secured: {secured}");
        assert_eq!(stage.app.running.line().await, "closed 1006", "nobody was left to tell the app");
    }
}

/// Whatever is not a WebSocket gets the time of a drain, and is cut after it.
#[tokio::test]
async fn any_other_tunnel_gets_its_grace() {
    const GRACE: Duration = Duration::from_secs(10);
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start_with(&format!("http://{}", app.address()), |manage| manage.with(["--drain-timeout", "10s"])).await;
    let mut tunnels = Vec::new();
    for way in pair.ways() {
        let mut client = Raw::connect(way).await;
        client.send("GET /hijack HTTP/1.1\r\nHost: service\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await;
        assert!(client.head().await.starts_with("HTTP/1.1 101"));
        tunnels.push(client);
    }
    let began = Instant::now();
    let running = async {
        pair.primary.becomes("stepping-down", LIMIT).await;
        for tunnel in &mut tunnels {
            tunnel.send("still").await;
            assert_eq!(tunnel.take(5).await, b"still");
        }
        for tunnel in &mut tunnels {
            assert!(tunnel.is_cut().await);
        }
    };
    let (resigned, ()) = tokio::join!(pair.primary.resign(), running);
    assert_eq!(resigned.status, 200);
    assert!(began.elapsed() >= GRACE, "they had their time");
}
