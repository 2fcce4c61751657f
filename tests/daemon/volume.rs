//! Much at once: bodies of a gigabyte, thousands of tunnels, ten thousand connections. None of it costs a node much, and
//! nothing of it stays.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::stream;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::task::JoinSet;

use crate::support::app::App;
use crate::support::bulk::BulkApp;
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Method, request};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::raw::Raw;
use crate::support::secure::World;
use crate::support::spoken::{Connection, Spoken};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(20);
/// How long a gigabyte may take on a busy machine.
const LONG: Duration = Duration::from_secs(300);
/// In bytes,
const GIGABYTE: u64 = 1 << 30;
/// and in the KiB that memory is counted in.
const MEBIBYTE: u64 = 1024;

async fn upload(node: &Daemon, spoken: Spoken, app: &BulkApp) {
    let size = app.pattern.size;
    let pieces = app.pattern.clone().pieces().map(|piece| Ok(Frame::data(piece)));
    let request = Request::post("/").header(header::CONTENT_LENGTH, size);
    let request = request.body(StreamBody::new(stream::iter(pieces)).boxed()).expect("a request");
    let answer = Connection::open(&node.place(), spoken).await.send(request).await;
    assert_eq!((answer.status, answer.text()), (StatusCode::OK, size.to_string().as_str()));
}

/// Reads it all, and stops in between until the app can send no more.
async fn download(node: &Daemon, spoken: Spoken, app: &BulkApp) {
    let before = app.sent.load(Ordering::Relaxed);
    let mut connection = Connection::open(&node.place(), spoken).await;
    let answer = connection.start(request(Method::GET, "/", "")).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::OK);
    let (pattern, mut body, mut read, mut rested) = (&app.pattern, answer.into_body(), 0, false);
    while let Some(frame) = body.frame().await {
        let Ok(bytes) = frame.expect("the body goes on").into_data() else { continue };
        pattern.assert_at(read, &bytes);
        read += bytes.len() as u64;
        if read > pattern.size / 8 && !rested {
            rested = true;
            let sent = held_back(app).await - before;
            assert!(sent - read < pattern.size / 4, "the app has sent {sent} while {read} were read");
        }
    }
    assert_eq!(read, pattern.size);
}

/// How much the app has sent once it can send no more: for as long as two hundred looks.
async fn held_back(app: &BulkApp) -> u64 {
    let (mut seen, mut looks) = (0, 0);
    wait_for("the app to be held back", LIMIT, async || {
        let sent = app.sent.load(Ordering::Relaxed);
        looks = if sent == seen { looks + 1 } else { 0 };
        seen = sent;
        if looks >= 200 { Ok(sent) } else { Err(sent) }
    })
    .await
}

/// B98.
#[tokio::test]
async fn a_gigabyte_passes_two_hops_and_leaves_no_trace_in_memory() {
    let app = BulkApp::start(GIGABYTE).await;
    passes(&app, &Pair::start(app.address).await).await;
}

/// A quarter of it, as TLS is slow without optimisation; what it keeps does not depend on how much there is.
#[tokio::test]
async fn much_passes_two_hops_under_mutual_tls_and_leaves_no_trace_in_memory() {
    let app = BulkApp::start(GIGABYTE / 4).await;
    let world = World::new();
    passes(&app, &Pair::start_with(&format!("http://{}", app.address), |manage| manage.mutual(&world)).await).await;
}

/// Sends it all through the replica, both ways and in both versions of HTTP.
async fn passes(app: &BulkApp, pair: &Pair) {
    let nodes = [&pair.primary, &pair.replica];
    let idle = nodes.map(Daemon::resident);
    nodes.iter().for_each(|node| node.forget_peak());
    for spoken in [Spoken::Http1, Spoken::Http2] {
        within("an upload", LONG, upload(&pair.replica, spoken, app)).await;
        within("a download", LONG, download(&pair.replica, spoken, app)).await;
        for (node, idle) in nodes.into_iter().zip(idle) {
            let more = node.peak() - idle;
            assert!(more < 40 * MEBIBYTE, "{} took {more} KiB more than idle for {spoken:?}", node.name());
        }
    }
}

/// How a tunnel of the test comes to its end.
#[derive(Clone, Copy, Debug)]
enum Ending {
    ClientFirst,
    AppFirst,
    /// The client breaks off.
    Cut,
    /// The app does not agree to it.
    Refused,
}

/// Opens a tunnel and ends it.
async fn tunnel(way: SocketAddr, ending: Ending) {
    let mut client = Raw::connect(way).await;
    let target = match ending {
        Ending::ClientFirst | Ending::Cut => "/hijack",
        Ending::AppFirst => "/hijack?first=bye",
        Ending::Refused => "/status?code=400",
    };
    let token = ["websocket", "tcp"][fastrand::usize(..2)];
    client.send(format!("GET {target} HTTP/1.1\r\nHost: service\r\nConnection: Upgrade\r\nUpgrade: {token}\r\n\r\n")).await;
    match ending {
        Ending::ClientFirst => {
            assert!(client.head().await.starts_with("HTTP/1.1 101"));
            client.send("some").await;
            assert_eq!(client.take(4).await, b"some");
            client.finish().await;
            assert!(client.rest().await.is_empty());
        }
        Ending::AppFirst => {
            assert!(client.head().await.starts_with("HTTP/1.1 101"));
            // Of a WebSocket, a replica says for itself that there is nothing behind this.
            assert!(client.rest().await.starts_with(b"bye"));
            client.finish().await;
        }
        Ending::Cut => {
            assert!(client.head().await.starts_with("HTTP/1.1 101"));
            client.send("some").await;
        }
        Ending::Refused => assert!(client.answer().await.0.starts_with("HTTP/1.1 400")),
    }
}

/// Opens and ends so many, fifty at a time.
async fn tunnels(way: SocketAddr, count: usize) {
    const AT_ONCE: usize = 50;
    let mut running = JoinSet::new();
    let endings = [Ending::ClientFirst, Ending::AppFirst, Ending::Cut, Ending::Refused];
    for ending in endings.into_iter().cycle().take(count) {
        if running.len() == AT_ONCE {
            running.join_next().await.expect("some run").expect("a tunnel ends as it should");
        }
        running.spawn(tunnel(way, ending));
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("a tunnel ends as it should");
    }
}

/// Waits until nothing runs on a node and it has so many files open, or fewer; gives its resident memory.
async fn at_rest(node: &Daemon, files: usize) -> u64 {
    wait_for(&format!("{} to let go of everything", node.name()), LIMIT, async || {
        let metrics = node.metrics().await;
        let (running, connections, open) = (metrics.value("running_requests"), metrics.value("connections"), node.open_files());
        // The one that asks is a connection, too, and so are those of the replica's workers to their leader.
        let rests = running == 0.0 && connections <= 4.0 && open <= files && metrics.unaccounted() == 0.0;
        if rests { Ok(()) } else { Err((running, connections, open, files)) }
    })
    .await;
    node.resident()
}

#[tokio::test]
async fn thousands_of_tunnels_leave_nothing_behind() {
    const MANY: usize = 3_000;
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start_with(&format!("http://{}", app.address()), |manage| manage.with(["--workers", "2"])).await;
    let nodes = [&pair.primary, &pair.replica];
    // The workers' own connections to the leader come later, and those of the store and of who asks for metrics come and go.
    let files = nodes.map(|node| node.open_files() + 8);
    let way = pair.replica.address();
    // Memory that a node keeps for the next time is no leak.
    tunnels(way, 400).await;
    let mut resident = Vec::new();
    for (node, files) in nodes.into_iter().zip(files) {
        resident.push(at_rest(node, files).await);
    }
    tunnels(way, MANY).await;
    for ((node, files), before) in nodes.into_iter().zip(files).zip(resident) {
        let after = at_rest(node, files).await;
        assert!(after < before + 8 * MEBIBYTE, "{} kept {} KiB", node.name(), after - before);
    }
}

/// As many as a user may have open, and room for them.
fn raise_open_files(to: u64) {
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= to);
    if !enough(limit.current) {
        // Beyond the hard limit only root gets.
        let maximum = if enough(limit.maximum) { limit.maximum } else { Some(to) };
        let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(to), maximum });
        raised.unwrap_or_else(|error| panic!("this needs {to} open files: raise `ulimit -Hn` ({error})"));
    }
}

#[tokio::test]
async fn ten_thousand_idle_connections_fit_into_little_memory() {
    const MANY: usize = 10_000;
    raise_open_files(MANY as u64 + 5_000);
    let app = App::start("a", &Ledger::default()).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = Manage::new("node", folder.path()).upstream(app.address());
    let node = node.with(["--max-connections", "10100", "--header-timeout", "10m"]).start().await;
    let mut idle = Vec::with_capacity(MANY);
    for number in 0..MANY {
        let mut client = Raw::connect(node.address()).await;
        // One half has been used, and one has not.
        if number % 2 == 0 {
            client.send("GET /who HTTP/1.1\r\nHost: service\r\n\r\n").await;
            assert_eq!(client.answer().await.1, "a");
        }
        idle.push(client);
    }
    let open = wait_for("all to be accepted", LIMIT, async || match node.metrics().await.value("connections") {
        open if open >= MANY as f64 => Ok(open),
        open => Err(open),
    })
    .await;
    let resident = node.resident();
    assert!(resident < 250 * MEBIBYTE, "{open} connections take {resident} KiB");
    // And each of them can be used.
    for client in idle.iter_mut().step_by(97) {
        client.send("GET /who HTTP/1.1\r\nHost: service\r\n\r\n").await;
        assert_eq!(client.answer().await.1, "a");
    }
    drop(idle);
    wait_for("all to be closed", LIMIT, async || match node.metrics().await.value("connections") {
        0.0..=2.0 => Ok(()),
        open => Err(open),
    })
    .await;
}
