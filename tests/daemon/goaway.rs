//! A primary that resigns asks the proxies that it trusts to connect anew in HTTP/2 (GOAWAY, RFC 9113 §6.8), finishes what runs, and
//! loses nothing of what is sent meanwhile. Others keep their connections.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

use crate::support::app::App;
use crate::support::daemon::Manage;
use crate::support::interop::{GRPC, GRPC_STEADY, HTTPX_STEADY, Running, Served};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::place::Place;
use crate::support::secure::World;
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(60);

/// Two nodes in front of the app at the URL `app`, under mutual TLS with the certificates of a `world`.
async fn candidates(app: &str, world: Option<&World>) -> Pair {
    let own = |manage: Manage| {
        let manage = if manage.name == "replica" { manage.with(["--upstream", app]) } else { manage };
        let manage = manage.with(["--trusted-proxies", "127.0.0.0/8"]);
        match world {
            Some(world) => manage.mutual(world),
            None => manage,
        }
    };
    Pair::start_with(app, own).await
}

/// Has the primary resign in the midst of what `more` waits for, and waits until the other one leads.
async fn resign(pair: &Pair, mut more: impl AsyncFnMut()) {
    more().await;
    assert_eq!(pair.primary.resign().await.status, 200);
    pair.replica.becomes("primary", LIMIT).await;
    pair.primary.becomes("replica", LIMIT).await;
    more().await;
}

/// A client that sends side by side on one connection, and on another once it is asked to.
struct Client {
    place: Place,
    sender: Mutex<Option<SendRequest<Empty<Bytes>>>>,
    connected: AtomicUsize,
    connections: TaskTracker,
}

impl Client {
    fn new(place: &Place) -> Self {
        Self { place: place.for_http2(), sender: Mutex::default(), connected: AtomicUsize::new(0), connections: TaskTracker::new() }
    }

    async fn sender(&self) -> SendRequest<Empty<Bytes>> {
        let mut current = self.sender.lock().await;
        if let Some(sender) = &mut *current
            && sender.ready().await.is_ok()
        {
            return sender.clone();
        }
        let stream = self.place.connect().await.expect("a connection");
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.expect("HTTP/2");
        self.connections.spawn(connection);
        self.connected.fetch_add(1, Ordering::SeqCst);
        current.insert(sender).clone()
    }

    /// # Panics
    /// When the request is lost, or not answered well.
    async fn get(&self, target: &str) {
        let url = format!("{}://{}{target}", self.place.scheme(), self.place.address);
        let mut request = Request::get(url).body(Empty::new()).expect("a request");
        let answer = loop {
            match self.sender().await.try_send_request(request).await {
                Ok(answer) => break answer,
                Err(mut error) => request = error.take_message().unwrap_or_else(|| panic!("lost: {:?}", error.into_error())),
            }
        };
        let status = answer.status();
        let body = answer.into_body().collect().await.expect("a whole answer").to_bytes();
        assert_eq!(status, StatusCode::OK, "{body:?}");
    }
}

#[tokio::test]
async fn no_request_fails_over_http2_when_the_primary_resigns() {
    const AT_ONCE: usize = 16;
    let world = World::new();
    for world in [None, Some(&world)] {
        let app = App::start("a", &Ledger::default()).await;
        let pair = candidates(&format!("http://{}", app.address()), world).await;
        let (ends, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let clients = pair.places().map(|place| Arc::new(Client::new(&place)));
        let mut sending = JoinSet::new();
        for (number, client) in clients.iter().flat_map(|client| [client; AT_ONCE]).enumerate() {
            let (client, ends, answered) = (Arc::clone(client), Arc::clone(&ends), Arc::clone(&answered));
            sending.spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    client.get(&format!("/slow?ms={}", number * 10)).await;
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let more_answers = async || {
            let goal = answered.load(Ordering::SeqCst) + 200;
            wait_for("more answers", LIMIT, async || match answered.load(Ordering::SeqCst) {
                answered if answered >= goal => Ok(()),
                answered => Err(answered),
            })
            .await;
        };
        resign(&pair, more_answers).await;
        let connected = || [&clients[0], &clients[1]].map(|client| client.connected.load(Ordering::SeqCst));
        wait_for("who resigned to ask its client to connect anew", LIMIT, async || match connected() {
            [2, 1] => Ok(()),
            other => Err(other),
        })
        .await;
        ends.store(true, Ordering::SeqCst);
        sending.join_all().await;
        assert_eq!(connected(), [2, 1], "who resigns asks once, and nobody else does");
    }
}

/// Over TLS: with prior knowledge, Debian's curl cannot use a connection twice.
#[tokio::test]
async fn curl_loses_nothing_when_the_primary_resigns() {
    const TRANSFERS: usize = 400;
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let pair = candidates(&format!("http://{}", app.address()), Some(&world)).await;
    let [ca, cert, key] = [&world.user.ca, &world.user.cert, &world.user.key].map(|file| file.to_str().expect("a path in UTF-8"));
    let url = format!("https://{}/slow?ms=100&n=[1-{TRANSFERS}]", pair.primary.address());
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-Z", "--parallel-max", "20", "--http2", "--cacert", ca, "--cert", cert, "--key", key]);
    curl.args(["-o", "/dev/null", "-w", "%{http_version} %{response_code}\\n", &url]).stdin(Stdio::null()).kill_on_drop(true);
    let running = async {
        wait_for("curl to be at work", LIMIT, async || match pair.primary.metrics().await.value("running_requests") {
            running if running >= 10.0 => Ok(()),
            running => Err(running),
        })
        .await;
        assert_eq!(pair.primary.resign().await.status, 200);
    };
    let (output, ()) = tokio::join!(within("curl", LIMIT, curl.output()), running);
    let output = output.expect("curl starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.lines().filter(|line| *line == "2 200").count(), TRANSFERS, "{said}");
}

#[tokio::test]
async fn grpc_calls_lose_nothing_when_the_primary_resigns() {
    let service = Served::start(GRPC, &["serve"]).await;
    let pair = candidates(&format!("h2c://127.0.0.1:{}", service.port), None).await;
    goes_on(&pair, pair.ways().map(|way| Running::start(GRPC_STEADY, &[&way.to_string()]))).await;
}

/// Told to go, it would lose what it has on the connection, and its next request where it has nothing there.
#[tokio::test]
async fn httpx_loses_nothing_when_the_primary_resigns() {
    let app = App::start("a", &Ledger::default()).await;
    let upstream = format!("http://{}", app.address());
    let own = |manage: Manage| if manage.name == "replica" { manage.with(["--upstream", &upstream]) } else { manage };
    let pair = Pair::start_with(&upstream, own).await;
    goes_on(&pair, pair.ways().map(|way| Running::start(HTTPX_STEADY, &[&format!("http://{way}/x")]))).await;
}

/// Has the primary resign while `callers` go on at both nodes: they get all their answers, also from then on.
async fn goes_on(pair: &Pair, mut callers: [Running; 2]) {
    let more_answers = async || {
        for caller in &mut callers {
            for _ in 0..2 {
                assert_eq!(caller.line().await, "answered");
            }
        }
    };
    resign(pair, more_answers).await;
    for caller in &mut callers {
        caller.finish();
        let last = loop {
            match caller.line().await {
                line if line == "answered" => {}
                line => break line,
            }
        };
        assert_eq!(last, "failed 0");
    }
}
