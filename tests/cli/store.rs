//! `bellwether store check`: a line for each promise, and a status that says whether an election would be safe.

use rustix::process::Signal;
use serde_json::Value;

use crate::node::{Ended, Running, bellwether};

fn check(arguments: &[&str]) -> Ended {
    Ended::with([&["store", "check"], arguments].concat())
}

#[test]
fn each_promise_is_a_line() {
    let ended = check(&["memory:"]);
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{ended:?}");
    for promise in [
        "answers",
        "smallest TTL",
        "wanted TTL",
        "compare-and-set",
        "identity",
        "epochs",
        "renewal",
        "expiry",
        "loss signal",
        "release",
        "watch",
        "round-trip time",
        "clock source",
        "clean-up",
    ] {
        // On a busy machine what is slow may be odd.
        let is_it = |line: &&str| ["kept  ", "odd   "].iter().any(|verdict| line.starts_with(&format!("{verdict}  {promise} ")));
        assert_eq!(ended.out.lines().filter(is_it).count(), 1, "{promise}: {}", ended.out);
    }
}

#[test]
fn machines_read_one_object() {
    let ended = check(&["memory:", "--output", "json"]);
    let found: Value = serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out));
    assert_eq!((ended.status, &found["safe"], &found["store"]), (Some(0), &true.into(), &"memory:".into()));
    let promises = found["promises"].as_array().unwrap();
    assert!(promises.len() > 10 && promises.iter().all(|one| one["verdict"] != "broken" && one["detail"].is_string()), "{found:#}");
}

#[test]
fn a_ttl_that_the_store_is_too_slow_or_too_coarse_for_is_refused() {
    let ended = check(&["etcd://127.0.0.1:1", "--replication-ttl", "1500ms"]);
    assert!(ended.status == Some(2) && ended.sentence().contains("use 2s"), "{ended:?}");
    let ended = check(&["sqlite:///nowhere/lock.db"]);
    assert!(ended.status == Some(2) && ended.sentence().contains("/nowhere"), "{ended:?}");
    let ended = check(&["etcd://root:sesame@h"]);
    assert!(ended.status == Some(2) && !ended.err.contains("sesame"), "{ended:?}");
}

#[test]
fn a_store_that_does_not_answer_is_not_safe() {
    let ended = check(&["etcd://127.0.0.1:1"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.out.starts_with("BROKEN  answers") && ended.out.lines().count() == 1, "{}", ended.out);
    assert!(ended.err.starts_with("error: an election would not be safe at etcd://127.0.0.1:1"), "{}", ended.err);
}

#[test]
fn a_check_that_is_broken_off_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("lock.db").display());
    let mut command = bellwether(["store", "check", &store]);
    let mut running = Running::printing(&mut command);
    running.line("epochs");
    // Now it waits for a lease to run out.
    running.signal(Signal::INT);
    assert_eq!(running.ended().code(), Some(1));
    let left =
        Ended::of(std::process::Command::new("sqlite3").arg(folder.path().join("lock.db")).arg("select count(*) from leader_leases"));
    assert_eq!((left.status, left.out.as_str()), (Some(0), "0\n"), "{left:?}");
}

#[test]
fn the_store_needs_a_command_and_the_check_a_store() {
    let ended = Ended::with(["store"]);
    assert!(ended.status == Some(2) && ended.err.contains("check"), "{ended:?}");
    let ended = check(&[]);
    assert!(ended.status == Some(2) && ended.sentence().contains("<STORE> is missing"), "{ended:?}");
}
