//! What the access log says of requests that wait for a primary, over HTTP/1.1 and HTTP/2, in the clear and under mutual TLS.

use std::time::Duration;

use http::Response;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::support::access::{Format, line_of};
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Method, request, with};
use crate::support::pair::Pair;
use crate::support::port;
use crate::support::secure::World;
use crate::support::spoken::{Connection, Speaker, Spoken, whole};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(30);
const LOGGED: [&str; 2] = ["--access-log", "json"];
/// Times are written in tenths of milliseconds, each rounded by itself.
const ROUNDED: f64 = 0.11;

async fn waits_for(node: &Daemon, what: &str, count: f64) {
    wait_for(&format!("{what} to be {count}"), LIMIT, async || match node.metrics_aside().await.value(what) {
        now if now == count => Ok(()),
        now => Err(now),
    })
    .await;
}

fn millis(line: &Value, key: &str) -> f64 {
    line[key].as_f64().unwrap_or_else(|| panic!("no {key}: {line}"))
}

/// Both nodes may lead, and both hold what comes while the first steps down, which takes as long as an answer.
async fn through_a_handover(world: Option<&World>) {
    let (open, gate) = watch::channel(false);
    let app = Speaker::start(Spoken::Http1, move |request| {
        let mut gate = gate.clone();
        async move {
            if request.uri().path() == "/until" {
                gate.wait_for(|open| *open).await.expect("a test that goes on");
            }
            Response::new(whole("done"))
        }
    })
    .await;
    let own = |manage: Manage| {
        let manage = manage.with(LOGGED).with(["--drain-timeout", "60s", "--hold-timeout", "60s"]);
        let manage = if manage.name == "replica" { manage.with(["--upstream", &app.url]) } else { manage };
        world.into_iter().fold(manage, |manage, world| manage.mutual(world))
    };
    let pair = Pair::start_with(&app.url, own).await;
    let nodes = [&pair.primary, &pair.replica];
    let before = pair.primary.info().await.epoch;
    let mut clients = JoinSet::new();
    let until = pair.primary.place();
    clients.spawn(async move { Connection::open(&until, Spoken::Http1).await.send(request(Method::GET, "/until", "")).await });
    waits_for(&pair.primary, "running_requests", 1.0).await;
    let changing = async {
        pair.primary.becomes("stepping-down", LIMIT).await;
        let mut held = JoinSet::new();
        for (name, node) in ["primary", "replica"].into_iter().zip(nodes) {
            for spoken in Spoken::BOTH {
                let place = node.place();
                held.spawn(async move {
                    let (target, asked) = (format!("/held?{name}={spoken:?}"), Instant::now());
                    let answer = Connection::open(&place, spoken).await.send(request(Method::POST, &target, "an order")).await;
                    (name, target, answer, asked.elapsed())
                });
            }
        }
        for node in nodes {
            waits_for(node, "held_requests", 2.0).await;
        }
        open.send_replace(true);
        held.join_all().await
    };
    let (resigned, held) = tokio::join!(pair.primary.resign(), changing);
    assert_eq!(resigned.status, 200);
    for (name, target, answer, took) in held {
        let node = if name == "primary" { nodes[0] } else { nodes[1] };
        let line = line_of(node, Format::Json, &target).await;
        assert_eq!((answer.status.as_u16(), answer.text()), (200, "done"), "{target}");
        let told = (&line["status"], &line["bytes"], &line["outcome"], &line["verdict"]);
        assert_eq!(told, (&json!(200), &json!(4), &json!("answered"), &Value::Null), "{line}");
        assert_eq!(line["epoch"].as_u64(), answer.epoch(), "{line}");
        assert!(answer.epoch() > Some(before), "{line}");
        let [held, head, total] = ["held_ms", "head_ms", "total_ms"].map(|key| millis(&line, key));
        assert!(0.0 < held && held <= head && head <= total && total <= took.as_secs_f64() * 1e3 + ROUNDED, "{took:?}: {line}");
        let said = answer.held().expect("how long it was held").as_secs_f64() * 1e3;
        assert!((said - held).abs() <= ROUNDED, "{said} was said to the client: {line}");
    }
    clients.join_all().await;
}

#[tokio::test]
async fn a_request_that_was_held_says_for_how_long() {
    through_a_handover(None).await;
    through_a_handover(Some(&World::new())).await;
}

/// No primary comes; some clients wait for that, and some do not.
#[tokio::test]
async fn a_request_that_was_held_in_vain_says_what_became_of_it() {
    const HELD: Duration = Duration::from_secs(2);
    let world = World::new();
    for secured in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manage = Manage::new("node", folder.path()).replicated(&format!("etcd://{}", port::free()), Duration::from_secs(3));
        let manage = manage.with(LOGGED).with(["--hold-timeout", "60s"]);
        let node = if secured { manage.mutual(&world) } else { manage }.start().await;
        for spoken in Spoken::BOTH {
            let target = format!("/in-vain?{spoken:?}");
            let mut client = Connection::open(&node.place(), spoken).await;
            let answer = client.send(with(request(Method::POST, &target, "an order"), "prefer", "wait=2")).await;
            assert_eq!(answer.status, 503, "{}", answer.text());
            let line = line_of(&node, Format::Json, &target).await;
            let told = (&line["status"], &line["bytes"], &line["outcome"], &line["verdict"]);
            assert_eq!(told, (&json!(503), &json!(answer.body.len()), &json!("failed_no_primary"), &json!("not-sent")), "{line}");
            let [held, head] = ["held_ms", "head_ms"].map(|key| millis(&line, key));
            assert!(held >= HELD.as_secs_f64() * 1e3 - ROUNDED && held <= head, "{line}");

            let target = format!("/impatient?{spoken:?}");
            let waiting = client.start(request(Method::GET, &target, ""));
            tokio::select! {
                answer = waiting => panic!("{answer:?}"),
                () = waits_for(&node, "held_requests", 1.0) => {}
            }
            drop(client);
            let line = line_of(&node, Format::Json, &target).await;
            let told = (&line["status"], &line["bytes"], &line["outcome"], &line["verdict"], &line["head_ms"]);
            assert_eq!(told, (&Value::Null, &json!(0), &json!("left"), &Value::Null, &Value::Null), "{line}");
            assert!(0.0 < millis(&line, "held_ms") && millis(&line, "held_ms") <= millis(&line, "total_ms"), "{line}");
        }
    }
}
