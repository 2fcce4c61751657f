//! Where a setting comes from: a flag overrides the environment, and the environment overrides the file.

use std::fs;

use crate::node::{Node, bellwether, field};

#[test]
fn a_flag_overrides_the_environment_and_that_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bellwether.toml");
    fs::write(&file, "service = \"from-file\"\nadvertise = \"10.0.0.1:1\"\nworkers = 1\nhost = \"127.0.0.1:0\"\n").unwrap();
    let file = file.to_str().unwrap();
    let service = |node: &Node| node.get("/_bellwether/status").json()["service"].as_str().unwrap().to_owned();

    let from_file = Node::of(&mut bellwether(["manage", "--config", file]));
    assert_eq!(service(&from_file), "from-file");
    assert_eq!(from_file.get("/_bellwether/status").json()["advertise"], "10.0.0.1:1");

    let mut with_variables = bellwether(["manage"]);
    with_variables.envs([("BELLWETHER_CONFIG", file), ("BELLWETHER_SERVICE", "from-environment")]);
    assert_eq!(service(&Node::of(&mut with_variables)), "from-environment");

    with_variables.args(["--service", "from-flag", "--advertise", "10.0.0.2:2"]);
    let from_flags = Node::of(&mut with_variables);
    assert_eq!(service(&from_flags), "from-flag");
    assert_eq!(from_flags.get("/_bellwether/status").json()["advertise"], "10.0.0.2:2");
}

#[test]
fn an_election_can_be_configured_by_the_environment_alone() {
    let node = Node::of(bellwether(["manage"]).envs([
        ("BELLWETHER_HOST", "127.0.0.1:0"),
        ("BELLWETHER_STORE", "memory:"),
        ("BELLWETHER_REPLICATION", "1"),
        ("BELLWETHER_REPLICATION_TTL", "60s"),
        ("BELLWETHER_ADVERTISE", "10.0.0.1:4000"),
    ]));
    node.becomes("primary");
    assert_eq!(node.get("/_bellwether/status").json()["primary"], "10.0.0.1:4000");
}

#[test]
fn a_flag_can_switch_off_what_the_file_switches_on() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bellwether.toml");
    fs::write(&file, "replication = true\nadvertise = \"10.0.0.1:4000\"\nstore = \"memory:\"\n").unwrap();
    let node = Node::start(&["--config", file.to_str().unwrap(), "--replication=false"]);
    assert_eq!(node.get("/_bellwether/status").json()["store"], serde_json::Value::Null);
    assert!(node.process.seen().iter().any(|line| line.contains("does not use its STORE")), "{:?}", node.process.seen());
}

#[test]
fn every_address_is_listened_on_and_logged() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let mut node = Node::start(&["-H", &format!("unix://{}", socket.display())]);
    assert_eq!(field(&node.process.line("Listening for HTTP"), "addr").unwrap(), format!("unix://{}", socket.display()));
    assert_eq!(crate::node::Answer::over(&socket, "GET", "/_ping").body, "OK");
    assert_eq!(node.get("/_ping").body, "OK");
}

#[test]
fn log_lines_can_be_json() {
    let mut node = crate::node::Running::logging(&mut bellwether(["manage", "-H", "127.0.0.1:0", "--log-format", "json"]));
    let line: serde_json::Value = serde_json::from_str(&node.line("Listening for HTTP")).unwrap();
    assert_eq!((&line["message"], &line["level"]), (&"Listening for HTTP".into(), &"INFO".into()));
    assert!(line["addr"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
}
