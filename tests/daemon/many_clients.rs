//! Floods: more connections than a node takes, from clients that say nothing or ask for too much at once. Other nodes and
//! health checks get through, and everybody else does as soon as there is room.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use tokio::task::JoinSet;

use crate::support::app::App;
use crate::support::crowd::{Before, drip, has_come, said_to, serves_others};
use crate::support::daemon::Daemon;
use crate::support::http::{Client, Method, request};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::places::Places;
use crate::support::raw::Raw;
use crate::support::wait_for;

/// How many clients a node takes here, and the reserve that goes with it.
const MOST: usize = 64;
const RESERVE: usize = 16;
const FLOOD: usize = 300;
const LIMIT: Duration = Duration::from_secs(30);

/// All three places, used at once, with an app for either pair.
async fn apart(ledgers: &[Ledger; 2]) -> ([App; 2], Places) {
    let apps = [App::start("a", &ledgers[0]).await, App::start("a", &ledgers[1]).await];
    let [clear, mutual] = apps.each_ref().map(|app| format!("http://{}", app.address()));
    let most = MOST.to_string();
    let limits = ["--workers", "1", "--header-timeout", "6s", "--max-connections", &most];
    let places = Places::apart([&clear, &mutual], |manage| manage.with(limits)).await;
    (apps, places)
}

/// What a node counts as ended by its limits.
async fn ended(node: &Daemon) -> (f64, f64) {
    let counted = node.metrics_aside().await;
    let by = |reason| counted.value(&format!("connections_closed_total{{reason=\"{reason}\"}}"));
    (by("refused"), by("idle"))
}

/// A health check is answered, once those have had their time who say nothing in the reserve.
async fn is_ready(node: &Daemon) {
    wait_for("a health check to get through", LIMIT, async || {
        let check = Client::new(node.place());
        // Whoever is sent away while still asking may have no answer at all.
        match check.send(request(Method::GET, "/_bellwether/ready", "")).await {
            Ok(answer) if answer.status == StatusCode::OK => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

/// Silent connections: those that are one too many are told so at once, and the others make room when their time is up.
#[tokio::test]
async fn a_flood_of_connections_locks_out_neither_other_nodes_nor_health_checks() {
    let (_apps, places) = apart(&Default::default()).await;
    tokio::join!(is_flooded(&places.clear), is_flooded(&places.mutual));
}

async fn is_flooded(pair: &Pair) {
    let before = [Before::of(&pair.primary).await, Before::of(&pair.replica).await];

    // At the primary, through which everything has to go.
    let mut first = JoinSet::new();
    for _ in 0..MOST + RESERVE {
        first.spawn(drip(pair.primary.place(), "", ""));
    }
    has_come(&pair.primary, MOST).await;
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        flood.spawn(drip(pair.primary.place(), "", ""));
    }
    serves_others(&pair.replica).await;
    let told = said_to(flood).await.into_iter().filter(|said| !said.is_empty()).collect::<Vec<_>>();
    // The reserve takes some in, for two seconds each. Nobody shakes hands with the others to tell them.
    let wanted = FLOOD - 3 * RESERVE;
    assert!(told.len() >= wanted || pair.primary.place().tls.is_some(), "{} of {FLOOD} were told", told.len());
    for said in &told {
        let expected = said.starts_with("HTTP/1.1 503 ") && said.contains("\"too-many-connections\"") && said.contains("retry-after: ");
        assert!(expected, "{said:?}");
    }
    let (refused, _) = ended(&pair.primary).await;
    assert!(refused >= wanted.max(told.len()) as f64, "{refused} counted, and {} told", told.len());
    is_ready(&pair.primary).await;
    said_to(first).await;
    let (_, idle) = ended(&pair.primary).await;
    assert!(idle >= MOST as f64, "{idle} ended for their silence");

    // At the replica, where it is the clients' own way that is full.
    let mut flood = JoinSet::new();
    for _ in 0..FLOOD {
        flood.spawn(drip(pair.replica.place(), "", ""));
    }
    has_come(&pair.replica, MOST).await;
    is_ready(&pair.replica).await;
    serves_others(&pair.primary).await;
    said_to(flood).await;
    for (node, before) in [&pair.primary, &pair.replica].into_iter().zip(&before) {
        before.is_back(node).await;
        serves_others(node).await;
    }
}

/// A pile of ranges, which once brought down those who believed it, is the app's to read; beyond the limit it is nobody's.
#[tokio::test]
async fn a_thousand_ranges_are_passed_on_and_too_many_are_refused() {
    let ledgers = [Ledger::default(), Ledger::default()];
    let (_apps, places) = apart(&ledgers).await;
    let nodes = places.nodes();
    let before = Before::of_each(&nodes).await;
    let ranges = |count: usize| (0..count).map(|n| format!("5-{n}")).collect::<Vec<_>>().join(",");
    let (many, too_many, lines) = (ranges(1_300), ranges(13_000), "Range: bytes=0-\r\n".repeat(120));
    join_all(nodes.map(async |node| {
        let one = async || {
            let mut client = Raw::connect(node.place()).await;
            client.send(format!("GET /ranges HTTP/1.1\r\nHost: service\r\nRange: bytes=0-,{many}\r\n\r\n")).await;
            let (head, body) = client.answer().await;
            assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let seen: serde_json::Value = serde_json::from_str(&body).expect("what the app saw");
            let range = seen["headers"].as_array().expect("headers").iter().find(|pair| pair[0] == "range").expect("a range");
            assert_eq!(range[1], format!("bytes=0-,{many}"));
            for head in [format!("Range: bytes=0-,{too_many}\r\n"), lines.clone()] {
                let mut client = Raw::connect(node.place()).await;
                client.send(format!("GET /refused HTTP/1.1\r\nHost: service\r\nRequest-Id: refused\r\n{head}\r\n")).await;
                let said = client.head().await;
                assert!(said.starts_with("HTTP/1.1 431 "), "{said}");
            }
        };
        join_all((0..MOST / 2).map(|_| one())).await;
    }))
    .await;
    assert!(ledgers.iter().all(|ledger| ledger.count("refused") == 0));
    for (node, before) in nodes.into_iter().zip(&before) {
        before.is_back(node).await;
    }
}

/// Clients that come, ask, and are gone before they are answered: nothing of them stays, and the app hears that they left.
#[tokio::test]
async fn clients_that_come_and_go_without_waiting_leave_nothing_behind() {
    let (_apps, places) = apart(&Default::default()).await;
    let nodes = places.nodes();
    let before = Before::of_each(&nodes).await;
    join_all(nodes.map(async |node| {
        let ask = async || {
            let mut client = Raw::connect(node.place()).await;
            client.send("GET /slow?ms=60000 HTTP/1.1\r\nHost: service\r\n\r\n").await;
            client
        };
        // One waits until it is heard. The others may all leave before anybody has read what they ask for.
        let _heard = ask().await;
        for _ in 1..FLOOD {
            ask().await;
        }
        wait_for("one to be heard", LIMIT, async || match node.metrics_aside().await.value("running_requests") {
            1.0.. => Ok(()),
            running => Err(running),
        })
        .await;
    }))
    .await;
    // Whoever comes later is answered later: nobody of the crowd waits to be accepted then.
    join_all(nodes.map(is_ready)).await;
    // The replica first, whose part of the crowd is at the primary, too.
    for (node, before) in nodes.into_iter().zip(&before).rev() {
        let counted = before.is_back(node).await;
        assert!(counted.value("requests_total{outcome=\"left\"}") > 0.0, "{} has seen nobody leave", node.name());
    }
    join_all(nodes.map(serves_others)).await;
}
