//! Hundreds of clients that do not go on: with a head, with a body, or with reading. Each costs a node a bounded time and
//! hardly any memory, everybody else is served meanwhile, and no app takes a part of a request for a whole one.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::support::app::App;
use crate::support::crowd::{Before, connect, connect_narrow, drip, has_come, said_to, serves_others};
use crate::support::daemon::{Daemon, Manage};
use crate::support::frames::{END_HEADERS, END_STREAM, GOAWAY, HEADERS, PREFACE, frame, get, settings};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::secure::World;
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);
/// So many at each node, of each kind.
const MANY: usize = 100;
/// Short, as tests go. One worker, so that whoever else is served is served beside the crowd.
const LIMITS: [&str; 6] = ["--workers", "1", "--header-timeout", "8s", "--body-idle-timeout", "3s"];

/// All three places, used at once, with an app for either pair.
async fn apart(ledgers: &[Ledger; 2]) -> ([App; 2], Places) {
    let apps = [App::start("a", &ledgers[0]).await, App::start("a", &ledgers[1]).await];
    let [clear, mutual] = apps.each_ref().map(|app| format!("http://{}", app.address()));
    let places = Places::apart([&clear, &mutual], |manage| manage.with(LIMITS)).await;
    (apps, places)
}

/// Slowloris: heads that go on and on, heads that stop, and connections that say nothing.
#[tokio::test]
async fn heads_that_do_not_end_cost_nobody_else_anything() {
    const BEGUN: &str = "GET /slow-head HTTP/1.1\r\nHost: service\r\nRequest-Id: slow\r\n";
    let ledgers = [Ledger::default(), Ledger::default()];
    let (_apps, places) = apart(&ledgers).await;
    let nodes = places.nodes();
    let before = Before::of_each(&nodes).await;
    join_all(nodes.into_iter().zip(&before).map(async |(node, before)| {
        let (mut begun, mut silent) = (JoinSet::new(), JoinSet::new());
        for _ in 0..MANY {
            begun.spawn(drip(node.place(), BEGUN, "X-More: of it\r\n"));
            begun.spawn(drip(node.place(), BEGUN, ""));
            silent.spawn(drip(node.place(), "", ""));
        }
        has_come(node, 3 * MANY).await;
        serves_others(node).await;
        for said in said_to(begun).await {
            assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("\"not-sent\""), "{said:?}");
        }
        assert!(said_to(silent).await.iter().all(String::is_empty));
        let counted = before.is_back(node).await;
        assert_eq!(counted.value("connections_closed_total{reason=\"slow_head\"}"), 2.0 * MANY as f64);
        assert!(counted.value("connections_closed_total{reason=\"idle\"}") >= MANY as f64);
        assert_eq!(counted.value("requests_total{outcome=\"failed_request_timeout\"}"), 0.0, "no request had begun");
    }))
    .await;
    assert!(ledgers.iter().all(|ledger| ledger.count("slow") == 0));
}

/// The same over HTTP/2, where it begins earlier: with the preface, and with a frame; what a client is told is to go.
#[tokio::test]
async fn heads_that_do_not_end_over_http2_cost_nobody_else_anything() {
    let ledgers = [Ledger::default(), Ledger::default()];
    let (_apps, places) = apart(&ledgers).await;
    let nodes = places.nodes();
    let before = Before::of_each(&nodes).await;
    let begun = [PREFACE, &settings(&[])].concat();
    let head = frame(HEADERS, END_STREAM, 1, get("/slow-head", &[("request-id", "slow")]));
    let after = |more: &[u8]| [&begun[..], more].concat();
    let (half, long) =
        (&head[..head.len() / 2], &frame(HEADERS, END_HEADERS | END_STREAM, 1, get("/", &[("x-long", &"x".repeat(1_000))]))[..50]);
    let leave = String::from_utf8(frame(GOAWAY, 0, 0, [0; 8])[..9].to_vec()).expect("ASCII");
    join_all(nodes.into_iter().zip(&before).map(async |(node, before)| {
        let (mut crowd, mut preface) = (JoinSet::new(), JoinSet::new());
        for _ in 0..MANY / 4 {
            for (begin, piece) in [(after(half), ""), (after(long), "x"), (after(&head), ""), (begun.clone(), "")] {
                crowd.spawn(drip(node.place().for_http2(), begin, piece));
            }
            preface.spawn(drip(node.place().for_http2(), &PREFACE[..PREFACE.len() / 2], ""));
        }
        has_come(node, crowd.len() + preface.len()).await;
        serves_others(node).await;
        for said in said_to(crowd).await {
            assert!(said.contains(&leave), "{said:?}");
        }
        assert!(said_to(preface).await.iter().all(String::is_empty));
        let counted = before.is_back(node).await;
        assert!(counted.value("connections_closed_total{reason=\"idle\"}") >= (MANY / 4 * 5) as f64);
    }))
    .await;
    assert!(ledgers.iter().all(|ledger| ledger.count("slow") == 0));
}

/// Before there is any head, over TLS: handshakes that stop, and connections that say nothing.
#[tokio::test]
async fn handshakes_that_do_not_end_cost_nobody_else_anything() {
    let (_apps, places) = apart(&Default::default()).await;
    let nodes = [&places.mutual.primary, &places.mutual.replica];
    let before = Before::of_each(&nodes).await;
    join_all(nodes.into_iter().zip(&before).map(async |(node, before)| {
        let mut crowd = JoinSet::new();
        for _ in 0..MANY {
            // How a hello begins, and the same byte by byte.
            for (begin, piece) in [("\x16\x03\x01\x02", ""), ("\x16\x03\x01\x02", "\x01"), ("", "")] {
                crowd.spawn(drip(Place::from(node.address()), begin, piece));
            }
        }
        has_come(node, 3 * MANY).await;
        serves_others(node).await;
        assert!(said_to(crowd).await.iter().all(String::is_empty));
        let counted = before.is_back(node).await;
        assert_eq!(counted.value("tls_handshakes_total{result=\"late\"}"), 3.0 * MANY as f64);
    }))
    .await;
}

/// An app that answers a GET, and keeps what comes behind any other head until its connection ends or that body does.
struct Keeper {
    address: SocketAddr,
    kept: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Keeper {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind an app");
        let address = listener.local_addr().expect("an address");
        let kept = Arc::<Mutex<Vec<String>>>::default();
        let mut serving = JoinSet::new();
        let keeping = Arc::clone(&kept);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.spawn(keep(stream, Arc::clone(&keeping)));
            }
        });
        Self { address, kept, _serving: serving }
    }

    /// The bodies of which no more comes.
    fn kept(&self) -> Vec<String> {
        self.kept.lock().expect("no panic under this lock").clone()
    }
}

/// What ends a body that is sent to a [`Keeper`].
const LAST: &str = "the last of it";

async fn keep(mut stream: TcpStream, kept: Arc<Mutex<Vec<String>>>) {
    let mut read = Vec::new();
    while matches!(stream.read_buf(&mut read).await, Ok(1..)) {
        let end = if read.starts_with(b"GET ") { "\r\n\r\n".to_owned() } else { format!("{LAST}\r\n0\r\n\r\n") };
        if read.ends_with(end.as_bytes()) {
            read.clear();
            // A node that has left needs no answer.
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na").await.ok();
        }
    }
    if let Some((_, body)) = String::from_utf8_lossy(&read).split_once("\r\n\r\n") {
        kept.lock().expect("no panic under this lock").push(body.to_owned());
    }
}

/// R-U-Dead-Yet: bodies that stop. Their app can tell, and those that only come slowly are waited for.
#[tokio::test]
async fn bodies_that_stop_are_given_up_and_reach_the_app_as_parts() {
    let app = Keeper::start().await;
    let places = Places::with(&format!("http://{}", app.address), |manage| manage.with(LIMITS)).await;
    let nodes = places.nodes();
    let before = Before::of_each(&nodes).await;
    let head = |length: &str| format!("POST /slow-body HTTP/1.1\r\nHost: service\r\n{length}\r\n");
    let (measured, chunked) = (head("Content-Length: 1000\r\n"), head("Transfer-Encoding: chunked\r\n"));
    join_all(nodes.into_iter().zip(&before).map(async |(node, before)| {
        let (mut stopped, mut slow) = (JoinSet::new(), Vec::new());
        for _ in 0..MANY / 2 {
            stopped.spawn(drip(node.place(), format!("{measured}some"), ""));
            stopped.spawn(drip(node.place(), format!("{chunked}4\r\nsome\r\n"), ""));
        }
        for _ in 0..MANY / 3 {
            let mut client = connect(&node.place()).await;
            client.write_all(chunked.as_bytes()).await.expect("send");
            client.flush().await.expect("send");
            slow.push(client);
        }
        has_come(node, stopped.len() + slow.len()).await;
        let mut stopped = std::pin::pin!(said_to(stopped));
        // For as long as the others are waited for.
        let stopped = loop {
            for client in &mut slow {
                client.write_all(b"1\r\nx\r\n").await.expect("a client that sends something is not cut");
                client.flush().await.expect("a client that sends something is not cut");
            }
            tokio::select! {
                said = stopped.as_mut() => break said,
                () = serves_others(node) => {}
            }
        };
        for said in stopped {
            assert!(said.starts_with("HTTP/1.1 408 ") && said.contains("\"maybe-executed\""), "{said:?}");
        }
        for mut client in slow {
            client.write_all(format!("{:x}\r\n{LAST}\r\n0\r\n\r\n", LAST.len()).as_bytes()).await.expect("send");
            client.flush().await.expect("send");
            let mut answer = vec![0; b"HTTP/1.1 200".len()];
            within("the answer to a slow body", LIMIT, client.read_exact(&mut answer)).await.expect("an answer");
            assert_eq!(answer, b"HTTP/1.1 200");
        }
        let counted = before.is_back(node).await;
        assert_eq!(counted.value("requests_total{outcome=\"failed_request_timeout\"}"), (MANY / 2 * 2) as f64);
    }))
    .await;
    wait_for("the app to lose all of them", LIMIT, async || match app.kept().len() {
        all if all == nodes.len() * (MANY / 2 * 2) => Ok(()),
        some => Err(some),
    })
    .await;
    let parts = app.kept();
    let whole = parts.iter().filter(|body| !["some", "4\r\nsome\r\n"].contains(&body.as_str())).collect::<Vec<_>>();
    assert!(whole.is_empty(), "{whole:?}");
}

/// Slow Read: clients that ask for much and take nothing. What the app still has to send for them is its own again.
#[tokio::test]
async fn answers_that_are_not_taken_are_cut_and_fill_no_memory() {
    /// Of one answer, in KiB: what was read of the app, and what is to be written.
    const MOST: u64 = 512;
    let (_apps, places) = apart(&Default::default()).await;
    let nodes = places.nodes();
    let idle = nodes.map(Daemon::resident);
    nodes.iter().for_each(|node| node.forget_peak());
    // Memory that a node keeps for the next time is no leak.
    join_all(nodes.map(|node| take_nothing(node, MANY))).await;
    let before = Before::of_each(&nodes).await;
    join_all(nodes.map(|node| take_nothing(node, 2 * MANY))).await;
    for ((node, before), idle) in nodes.into_iter().zip(&before).zip(idle) {
        let counted = before.is_back(node).await;
        assert!(counted.value("connections_closed_total{reason=\"stalled\"}") >= MANY as f64);
        let grown = node.peak().saturating_sub(idle);
        // Twice as many pass the primary.
        assert!(grown < 2 * MANY as u64 * MOST, "{} grew by {grown} KiB for answers that nobody took", node.name());
    }
}

/// So many ask for much, and take nothing of it until the node has cut as many as `cut` in all.
async fn take_nothing(node: &Daemon, cut: usize) {
    let mut crowd = Vec::new();
    for _ in 0..MANY {
        let mut client = connect_narrow(&node.place()).await;
        client.write_all(b"GET /big?mb=64 HTTP/1.1\r\nHost: service\r\n\r\n").await.expect("send");
        client.flush().await.expect("send");
        crowd.push(client);
    }
    wait_for("all to be cut", LIMIT * 4, async || {
        serves_others(node).await;
        let counted = node.metrics().await;
        let by = |outcome| counted.value(&format!("requests_total{{outcome=\"{outcome}\"}}"));
        // A replica's connection to the primary is one of a client, too, and may be cut first.
        let all = by("stalled") + by("failed_cut");
        if all >= cut as f64 { Ok(()) } else { Err(all) }
    })
    .await;
}

/// The tool that others test with has its own idea of each attack, and asks a node beside it whether it is still there.
/// Needs the Debian package slowhttptest. On a busy machine it may end before it has begun: what is counted of such clients is for
/// the tests above. It has no certificate to show: over TLS it comes to nodes that ask for none.
#[tokio::test]
async fn a_node_stays_available_to_slowhttptest() {
    let world = World::new();
    let apps = [App::start("a", &Ledger::default()).await, App::start("a", &Ledger::default()).await];
    let upstreams = apps.each_ref().map(|app| format!("http://{}", app.address()));
    let clear = Pair::start_with(&upstreams[0], |manage| manage.with(LIMITS)).await;
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.with(LIMITS).secured("--tls", &files, &world.secure())
    };
    let secured = Pair::start_with(&upstreams[1], own).await;
    let attack = async |node: &Daemon, path: &str, manner: &[&str]| {
        let mut tool = Command::new("slowhttptest");
        tool.args(["-c", "100", "-r", "100", "-l", "10", "-p", "10", "-u", &format!("{}{path}", node.place())]);
        tool.args(manner).stdin(Stdio::null()).kill_on_drop(true);
        let run = within("slowhttptest", LIMIT * 2, tool.output()).await.expect("the Debian package slowhttptest is installed");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(said.contains("YES") && !said.contains("service available:   NO"), "{manner:?} at {}: {said}", node.place());
    };
    let nodes = [&clear.primary, &clear.replica, &secured.primary, &secured.replica];
    join_all(nodes.map(async |node| {
        tokio::join!(
            attack(node, "/who", &["-H", "-i", "1"]),
            attack(node, "/echo", &["-B", "-i", "1", "-s", "8192"]),
            attack(node, "/big?mb=8", &["-X", "-w", "10", "-y", "20", "-n", "5", "-z", "32"]),
            attack(node, "/who", &["-R"]),
        );
        serves_others(node).await;
    }))
    .await;
}
