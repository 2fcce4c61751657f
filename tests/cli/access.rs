//! The access log of a real node: on standard output, and nothing else there.

use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::node::{Answer, Node, Running, bellwether};
use crate::wait::wait_for;

/// Its log is not read here, which would say so.
fn waits_for_socket(socket: &Path) {
    wait_for("the node to listen", || UnixStream::connect(socket));
}

#[test]
fn every_request_is_a_line_on_standard_output_also_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let host = format!("unix://{}", socket.display());
    let mut node = Running::printing(&mut bellwether(["manage", "-H", &host, "--access-log", "json"]));
    waits_for_socket(&socket);
    let answer = Answer::over(&socket, "GET", "/_ping");
    let line: Value = serde_json::from_str(&node.line("/_ping")).unwrap();
    assert_eq!((&line["status"], &line["outcome"], &line["client"]), (&200.into(), &"local".into(), &Value::Null));
    assert_eq!(answer.header("x-request-id"), line["id"].as_str());
    for _ in 0..50 {
        assert_eq!(Answer::over(&socket, "GET", "/last").status, 503);
    }
    node.signal(Signal::TERM);
    assert_eq!(node.ended().code(), Some(0));
    let last = node.seen().iter().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect::<Vec<_>>();
    assert_eq!(last.iter().filter(|line| line["outcome"] == "failed_no_upstream").count(), 50, "{last:#?}");
    assert_eq!(last.len(), 50, "nothing else is written there");
}

#[test]
fn a_node_without_it_prints_nothing_and_with_it_counts_what_was_lost() {
    let node = Node::start(&["--max-connections", "7"]);
    let metrics = node.get("/_bellwether/metrics").body;
    assert!(metrics.contains("\nbellwether_connections_limit 7\n") && !metrics.contains("access_log"), "{metrics}");
    let node = Node::start(&["--access-log", "text"]);
    let metrics = node.get("/_bellwether/metrics").body;
    assert!(metrics.contains("\nbellwether_access_log_lost_lines_total 0\n"), "{metrics}");
    assert!(metrics.contains("\nbellwether_connections_closed_total{reason=\"refused\"} 0\n"), "{metrics}");
}
