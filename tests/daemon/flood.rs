//! Clients that flood an HTTP/2 connection, at each of the three places: what each of them costs has an end, and nobody else
//! notices.

use std::time::Duration;

use tokio::time::timeout;

use crate::support::app::App;
use crate::support::daemon::Daemon;
use crate::support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frames, GOAWAY, HEADERS, PADDED, PING, PRIORITY, RST_STREAM,
    WINDOW_UPDATE, block, frame, get, settings,
};
use crate::support::http::{self, Client, Method, request};
use crate::support::ledger::Ledger;
use crate::support::places::Places;
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(20);
/// How much a node may grow by what one client does to it, in KiB.
const ROOM: u64 = 32 * 1024;

/// The three places, in front of an app.
async fn places() -> (App, Places) {
    let app = App::start("a", &Ledger::default()).await;
    // One worker, so that whoever else is served is served beside the flood.
    let places = Places::with(&format!("http://{}", app.address()), |manage| manage.with(["--workers", "1"])).await;
    (app, places)
}

/// A node, and what it was like before the flood.
struct Flooded<'a> {
    node: &'a Daemon,
    before: u64,
}

impl<'a> Flooded<'a> {
    async fn at(node: &'a Daemon) -> Self {
        assert_eq!(http::get(node.place(), "/who").await.text(), "a");
        Self { node, before: node.resident() }
    }

    async fn connect(&self) -> Frames {
        Frames::begin(&self.node.place()).await
    }

    /// Somebody else is answered, and the node has not grown.
    async fn is_well(&self, what: &str) {
        assert_eq!(Client::new(self.node.place()).send(request(Method::GET, "/who", "")).await.expect("an answer").text(), "a");
        let grown = self.node.resident().saturating_sub(self.before);
        assert!(grown < ROOM, "{what}: the node grew by {grown} KiB");
    }

    /// Floods ended by their limit, as far as they are counted.
    async fn floods(&self) -> f64 {
        self.node.metrics().await.value("connections_closed_total{reason=\"flood\"}")
    }
}

/// Each is more than anybody sends who means well, and the node says so before it has read all of it.
#[tokio::test]
async fn a_flood_that_leads_to_nothing_ends_its_connection_and_is_counted() {
    let opened = frame(HEADERS, END_HEADERS, 1, get("/echo", &[]));
    let head = frame(HEADERS, END_STREAM, 1, get("/", &[]));
    let field = block(&[("x-filler", &"f".repeat(1_000))]);
    // CVE-2023-44487, taken back before the node has looked at it.
    let taken_back: Vec<u8> = (0..2_000)
        .flat_map(|n| {
            [frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * n, get("/who", &[])), frame(RST_STREAM, 0, 1 + 2 * n, [0, 0, 0, 8])].concat()
        })
        .collect();
    // CVE-2025-8671: each is an error that has the node reset a stream.
    let made_to_reset: Vec<u8> = (0..4_000)
        .flat_map(|n| {
            [frame(HEADERS, END_HEADERS, 1 + 2 * n, get("/echo", &[])), frame(WINDOW_UPDATE, 0, 1 + 2 * n, [0x7f, 0xff, 0xff, 0xff])]
                .concat()
        })
        .collect();
    let floods = [
        ("requests that are taken back", vec![], taken_back, 1),
        ("requests that the node has to reset", vec![], made_to_reset, 1),
        // CVE-2024-27316.
        ("a head without an end, in empty pieces", head.clone(), frame(CONTINUATION, 0, 1, ""), 100_000),
        ("a head without an end", head, frame(CONTINUATION, 0, 1, &field), 100_000),
        ("a body of nothing", opened.clone(), frame(DATA, 0, 1, ""), 100_000),
        ("a body of nothing but padding", opened, frame(DATA, PADDED, 1, [0]), 100_000),
    ];
    let (_app, places) = places().await;
    for node in places.nodes() {
        let flooded = Flooded::at(node).await;
        for (number, (what, first, again, times)) in (1..).zip(&floods) {
            let mut client = flooded.connect().await;
            client.send(first).await;
            let (code, sent) = client.flood(again, *times).await;
            assert_eq!(code, Some(ENHANCE_YOUR_CALM), "{what}, sent {sent} times to {}", node.place());
            flooded.is_well(what).await;
            let counted = async || match flooded.floods().await {
                floods if floods == f64::from(number) => Ok(()),
                floods => Err(format!("{floods} floods and not {number}, after {what}")),
            };
            wait_for("it to be counted", LIMIT, counted).await;
        }
    }
}

/// These the node has to answer or to take note of, one by one: it reads no faster than it does, and keeps none of them.
#[tokio::test]
async fn a_flood_that_must_be_answered_costs_no_memory_and_keeps_nobody_waiting() {
    let (_app, places) = places().await;
    for node in places.nodes() {
        must_answer(&Flooded::at(node).await).await;
    }
}

async fn must_answer(flooded: &Flooded<'_>) {
    let windows = [settings(&[(4, 1)]), settings(&[(4, 0x7fff_ffff)])].concat();
    for (what, bytes) in [
        ("PING", frame(PING, 0, 0, [1; 8])),
        ("answers to no PING", frame(PING, ACK, 0, [1; 8])),
        ("SETTINGS", settings(&[(3, 100)])),
        ("SETTINGS that change all windows", windows),
        ("PRIORITY", frame(PRIORITY, 0, 1, [0, 0, 0, 3, 16])),
        ("PRIORITY_UPDATE", frame(0x10, 0, 0, [&[0, 0, 0, 1][..], b"u=0"].concat())),
        ("frames of an unknown type", frame(0x77, 0, 0, [0; 100])),
        ("the smallest windows", frame(WINDOW_UPDATE, 0, 0, [0, 0, 0, 1])),
    ] {
        let mut client = flooded.connect().await;
        // Read, and not: either way a node must not keep what it would say.
        let bytes = bytes.repeat(1_000);
        let bystander = async {
            for _ in 0..20 {
                flooded.is_well(what).await;
            }
        };
        let (_, ()) = tokio::join!(client.flood(&bytes, 200), bystander);
        flooded.is_well(what).await;
        let mut deaf = flooded.connect().await;
        let deafening = async {
            loop {
                deaf.send(&bytes).await;
            }
        };
        // It stops reading when nobody reads what it says; or ends the connection.
        timeout(Duration::from_secs(1), deafening).await.ok();
        flooded.is_well(what).await;
    }
    let log = flooded.node.log();
    assert!(log.lines().count() < 20, "a client decides how long the log is: {log}");
}

/// A table of its own, filled, and then asked for again and again: far larger on this side than on the wire.
#[tokio::test]
async fn a_head_that_unpacks_to_far_more_is_refused() {
    let (_app, places) = places().await;
    for node in places.nodes() {
        is_bombed(&Flooded::at(node).await).await;
    }
}

async fn is_bombed(flooded: &Flooded<'_>) {
    let large = "v".repeat(3_900);
    // Indexed, so that it stays in the table; then by its number.
    let mut bomb = get("/echo", &[]);
    let entry = block(&[("x-large", &large)]);
    bomb.extend([&[0x40][..], &entry[1..]].concat());
    bomb.extend(vec![0xbe; 12_000]);
    for stream in [1, 3, 5, 7] {
        let mut client = flooded.connect().await;
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &bomb)).await;
        let ended = client.find(|seen| matches!(seen.kind, HEADERS | RST_STREAM | GOAWAY)).await.expect("an end of it");
        assert!(ended.status() == Some(431) || ended.code().is_some(), "{ended:?}");
        flooded.is_well("a head that unpacks to 48 MiB").await;
    }
    // As many as may be at once, each below the limit: they cost what they may, and no more.
    let mut client = flooded.connect().await;
    for n in 0..128 {
        client.send(frame(HEADERS, END_HEADERS, 1 + 2 * n, get("/echo", &[("x-large", &large)]))).await;
    }
    flooded.is_well("128 long heads").await;
}

/// Clients that ask for much, and take none of it: each stream ends by itself, and what the app kept for it is free.
#[tokio::test]
async fn answers_that_nobody_has_room_for_are_bounded_and_end() {
    let app = App::start("a", &Ledger::default()).await;
    let limits = ["--workers", "1", "--body-idle-timeout", "2s"];
    let places = Places::with(&format!("http://{}", app.address()), |manage| manage.with(limits)).await;
    for node in places.nodes() {
        answers_end(node).await;
    }
}

async fn answers_end(node: &Daemon) {
    assert_eq!(http::get(node.place(), "/who").await.text(), "a");
    let before = node.resident();
    for window in [0, 1] {
        let mut client = Frames::begin_with(&node.place(), &settings(&[(4, window)])).await;
        for n in 0..100 {
            client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1 + 2 * n, get("/big?mb=64", &[]))).await;
        }
        let mut ended = 0;
        // The connection is busy otherwise.
        while ended < 100 {
            client.send(frame(PING, 0, 0, [0; 8])).await;
            let seen = client.next().await.expect("the connection stays");
            ended += usize::from(seen.kind == RST_STREAM);
            let grown = node.resident().saturating_sub(before);
            assert!(grown < 64 * 1024, "a window of {window}: the node grew by {grown} KiB for 100 answers");
        }
    }
    wait_for("all to be accounted for", LIMIT, async || {
        let metrics = node.metrics().await;
        let (stalled, running) = (metrics.value("requests_total{outcome=\"stalled\"}"), metrics.value("running_requests"));
        // The look at the metrics is none of them.
        if stalled >= 200.0 && running == 0.0 { Ok(()) } else { Err(format!("{stalled} stalled, {running} running")) }
    })
    .await;
    assert_eq!(http::get(node.place(), "/who").await.text(), "a");
}
