//! WebSockets to an app that speaks HTTP/2, by Hypercorn: from clients in HTTP/1.1 and in HTTP/2, in the clear and under mutual TLS, with
//! prior knowledge and by ALPN.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::time::timeout;

use crate::support::daemon::Manage;
use crate::support::http::{Client, Method, request};
use crate::support::interop::{HTTP2_APP, HTTP2_WEBSOCKET_CLIENT, Running, Served, WEBSOCKET_CLIENT};
use crate::support::pair::Pair;
use crate::support::secure::World;

const LIMIT: Duration = Duration::from_secs(60);
/// Longer than any test waits: nobody who is told to part holds up the node.
const DRAIN: &str = "120s";
/// What a client is told at the end of a tenure.
const TOLD: &str = "1012 connect again";
/// What the app says of a WebSocket: it came over HTTP/2, without a key and with an epoch.
const OPENED: &str = "opened 2 False True";

/// Two nodes in front of the app.
struct Stage {
    app: Served,
    pair: Pair,
    world: World,
    secured: bool,
}

impl Stage {
    /// The app's hop and the others may be secured, each by itself.
    async fn set(app_secured: bool, secured: bool) -> Self {
        let world = World::new();
        let files = world.node("app");
        let pair = [&files.cert, &files.key].map(|file| file.to_str().expect("a path in UTF-8"));
        let app = Served::start(HTTP2_APP, if app_secured { &pair } else { &[] }).await;
        let ca = world.authority.file().display().to_string();
        let own = |manage: Manage| {
            let manage = manage.with(["--drain-timeout", DRAIN]).env([("SSL_CERT_FILE", ca.clone())]);
            if !secured {
                return manage;
            }
            let files = world.node(&manage.name);
            manage.secured("--tlsverify", &files, &world.secure())
        };
        let scheme = if app_secured { "https" } else { "h2c" };
        let pair = Pair::start_with(&format!("{scheme}://127.0.0.1:{}", app.port), own).await;
        Self { app, pair, world, secured }
    }

    /// A client that is connected to `node` and has had its echoes.
    async fn client(&mut self, node: SocketAddr, script: &str) -> Running {
        let place = node.to_string();
        let user = &self.world.user;
        let files = if self.secured { vec![&user.ca, &user.cert, &user.key] } else { Vec::new() };
        let files = files.into_iter().map(|file| file.to_str().expect("a path in UTF-8"));
        let arguments: Vec<&str> = [place.as_str()].into_iter().chain(files).collect();
        let mut client = Running::start(script, &arguments);
        assert_eq!(client.line().await, "open");
        assert_eq!(self.app.running.line().await, OPENED);
        client
    }
}

#[tokio::test]
async fn they_reach_the_app_in_the_clear_and_are_told_at_the_end() {
    play(false, false).await;
}

#[tokio::test]
async fn they_reach_the_app_by_alpn_and_are_told_at_the_end() {
    play(true, false).await;
}

#[tokio::test]
async fn they_reach_the_app_under_mutual_tls_and_are_told_at_the_end() {
    play(false, true).await;
}

#[tokio::test]
async fn they_reach_the_app_under_mutual_tls_and_by_alpn_and_are_told_at_the_end() {
    play(true, true).await;
}

async fn play(app_secured: bool, secured: bool) {
    let mut stage = Stage::set(app_secured, secured).await;
    for place in stage.pair.places() {
        let answer = Client::new(place).send(request(Method::GET, "/", Vec::new())).await.expect("an answer");
        assert_eq!(answer.text(), "over HTTP/2");
    }
    let mut clients = Vec::new();
    for node in stage.pair.ways() {
        for script in [WEBSOCKET_CLIENT, HTTP2_WEBSOCKET_CLIENT] {
            clients.push(stage.client(node, script).await);
        }
    }
    let resigned = timeout(LIMIT, stage.pair.primary.resign()).await.expect("nobody is waited for who was told");
    assert_eq!(resigned.status, 200);
    for client in &mut clients {
        assert_eq!(client.line().await, TOLD);
        assert_eq!(stage.app.running.line().await, "closed");
    }
}
