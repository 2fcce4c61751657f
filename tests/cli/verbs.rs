//! Acting on a node: who may, and what comes of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tempfile::TempDir;

use crate::node::{Answer, Ended, Node, field};

const RESIGN: &str = "/_bellwether/resign";

/// Flags of a node that elects itself, for so long that no stall of this machine ends its tenure.
const ELECTED: [&str; 6] = ["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "60s", "memory:"];

/// A folder with a token in it that only its owner can read.
fn token() -> (TempDir, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("token");
    fs::write(&file, "sesame\n").expect("a file in it");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("its mode");
    let path = file.to_str().expect("a path of text").to_owned();
    (folder, path)
}

#[test]
fn a_verb_needs_the_token_on_a_public_listener() {
    let (_folder, file) = token();
    let node = Node::start(&[&ELECTED[..], &["--admin-token-file", &file]].concat());
    node.becomes("primary");
    for headers in [
        &[][..],
        &["Authorization: Bearer open"],
        &["Authorization: Basic sesame"],
        &["X-Forwarded-For: 127.0.0.1"],
        &["Authorization: Bearer"],
    ] {
        let answer = node.ask("POST", RESIGN, &[headers, &["Content-Length: 0"]].concat());
        assert_eq!((answer.status, &answer.json()["reason"]), (403, &"forbidden".into()), "{headers:?}");
        assert_eq!(node.get("/_bellwether/leader").json()["role"], "primary", "{headers:?}");
    }
    assert_eq!(node.ask("POST", RESIGN, &["Authorization: Bearer sesame ", "Content-Length: 0"]).status, 200);
}

#[test]
fn resigning_says_what_was_given_back() {
    let (_folder, file) = token();
    // It stands aside for as long before it leads again.
    let short = ["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "4s", "memory:"];
    let node = Node::start(&[&short[..], &["--admin-token-file", &file]].concat());
    node.becomes("primary");
    let before = node.get("/_bellwether/status").json()["epoch"].as_u64().unwrap();
    let answer = node.ask("POST", RESIGN, &["Authorization: Bearer sesame", "Content-Length: 0"]);
    let done = answer.json();
    assert_eq!((answer.status, done["released"].as_u64()), (200, Some(before)), "{done}");
    assert!(done["epoch"].is_u64() && done["primary"].is_string(), "{done}");
    let after = node.waits_for("another tenure", |status| status["role"] == "primary");
    assert!(after["epoch"].as_u64() > Some(before), "{after}");
}

#[test]
fn the_admin_socket_gives_the_right_and_the_command_uses_it() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let url = format!("unix://{}", socket.display());
    let start = || {
        let node = Node::start(&[&ELECTED[..], &["--admin", &url]].concat());
        node.becomes("primary");
        node
    };
    let node = start();
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o600);
    let resigned = Ended::with(["resign", "-H", &url]);
    assert_eq!((resigned.status, resigned.err.as_str()), (Some(0), ""));
    assert!(resigned.out.starts_with("resigned, "), "{}", resigned.out);
    // It stands aside now, so there is nothing to resign from.
    let again = Ended::with(["resign", "-H", &url]);
    assert_eq!(again.status, Some(1));
    assert_eq!(again.err, format!("error: {url} did not resign: this node is not primary\n"));
    drop(node);
    let _another = start();
    let json: serde_json::Value = serde_json::from_str(&Ended::with(["resign", "-H", &url, "--output", "json"]).out).unwrap();
    assert!(json["epoch"].is_u64(), "{json}");
}

#[test]
fn the_command_brings_the_token() {
    let (_folder, file) = token();
    let node = Node::start(&[&ELECTED[..], &["--admin-token-file", &file]].concat());
    node.becomes("primary");
    let without = Ended::with(["resign", "-H", &node.address]);
    assert_eq!(without.status, Some(1));
    assert!(without.err.contains("--admin-token-file"), "{}", without.err);
    assert_eq!(Ended::with(["resign", "-H", &node.address, "--token-file", &file]).status, Some(0));
}

#[test]
fn a_page_in_a_browser_cannot_act_through_a_loopback_listener() {
    let mut node = Node::start(&[&ELECTED[..], &["--admin", "127.0.0.1:0"]].concat());
    node.becomes("primary");
    let admin = field(&node.process.line("Listening for administration"), "addr").unwrap();
    let ask = |header: &str| Answer::of(&admin, "POST", RESIGN, &[header, "Content-Length: 0"]);
    assert_eq!(ask("Origin: https://example.org").status, 403);
    assert_eq!(ask("Accept: */*").status, 200);
}

#[test]
fn an_admin_listener_for_everybody_still_needs_the_token() {
    let (_folder, file) = token();
    let mut node = Node::start(&[&ELECTED[..], &["--admin", "0.0.0.0:0", "--admin-token-file", &file]].concat());
    node.becomes("primary");
    let admin = field(&node.process.line("Listening for administration"), "addr").unwrap().replace("0.0.0.0", "127.0.0.1");
    let ask = |headers: &[&str]| Answer::of(&admin, "POST", RESIGN, headers);
    assert_eq!(ask(&["Content-Length: 0"]).status, 403);
    assert_eq!(ask(&["Content-Length: 0", "Authorization: Bearer sesame"]).status, 200);
}

#[test]
fn what_cannot_be_done_is_a_conflict_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("admin.sock");
    let url = format!("unix://{}", socket.display());
    let lone = Node::start(&["--admin", &url]);
    let answer = Answer::over(&socket, "POST", RESIGN);
    assert_eq!((answer.status, &answer.json()["reason"]), (409, &"no-election".into()));
    drop(lone);
    let electing = Node::start(&["--replication", "--advertise", "127.0.0.1:4000", "--admin", &url, "etcd://127.0.0.1:1"]);
    let answer = Answer::over(&socket, "POST", RESIGN);
    assert_eq!((answer.status, &answer.json()["reason"]), (409, &"not-primary".into()));
    drop(electing);
}
