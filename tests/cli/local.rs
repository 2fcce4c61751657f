//! The routes that a node answers itself, asked over a plain socket and by the real Docker client.

use std::net::TcpListener;
use std::process::Command;

use crate::node::{Answer, Ended, Node, field};

/// A node whose store nobody answers for.
fn without_its_store() -> Node {
    Node::start(&["--replication", "--advertise", "127.0.0.1:4000", "--replication-ttl", "1s", "etcd://127.0.0.1:1"])
}

#[test]
fn the_docker_client_reads_a_node() {
    // B131: pairs once, no list null, a version that the client accepts.
    let node = Node::start(&[]);
    let docker = Command::new("docker").args(["-H", &format!("tcp://{}", node.address), "info"]).env_remove("DOCKER_CONTEXT").output();
    let docker = docker.expect("the Docker client is missing: apt-get install docker.io (Debian 13: docker-cli)");
    let (out, err) = (String::from_utf8_lossy(&docker.stdout), String::from_utf8_lossy(&docker.stderr));
    assert!(docker.status.success(), "{out}{err}");
    for line in [" Role: primary".to_owned(), format!(" Primary: {}", node.address), " Epoch: 1".to_owned()] {
        assert_eq!(out.lines().filter(|printed| **printed == line).count(), 1, "{line}\n{out}");
    }
    assert!(out.contains(concat!("Server Version: bellwether/", env!("CARGO_PKG_VERSION"))), "{out}");
    assert_eq!(err, "", "the client has nothing to complain about");
}

#[test]
fn a_ping_names_a_docker_api_also_without_an_engine() {
    let nodes = [Node::start(&[]), Node::start(&["--upstream", "unix:///nobody/is/there.sock"])];
    for (node, path) in nodes.iter().flat_map(|node| ["/_ping", "/v1.24/_ping", "/v1.41/_ping?x=y"].map(|path| (node, path))) {
        let get = node.get(path);
        assert_eq!((get.status, get.body.as_str(), get.header("api-version")), (200, "OK", Some("1.41")), "{path}");
        let head = node.ask("HEAD", path, &[]);
        assert_eq!((head.status, head.body.as_str(), head.header("content-length")), (200, "", Some("2")), "{path}");
        assert_eq!(head.header("api-version"), Some("1.41"));
    }
}

#[test]
fn info_says_the_same_in_keys_and_in_pairs() {
    let node = Node::start(&["--advertise", "10.0.0.1:4000"]);
    let info = node.get("/v1.41/info").json();
    let pairs = info["SystemStatus"].as_array().unwrap();
    let pair = |key: &str| pairs.iter().find(|pair| pair[0] == key).map(|pair| pair[1].as_str().unwrap().to_owned());
    assert_eq!((info["Role"].as_str(), pair("Role").as_deref()), (Some("primary"), Some("primary")));
    assert_eq!((info["Primary"].as_str(), pair("Primary").as_deref()), (Some("10.0.0.1:4000"), Some("10.0.0.1:4000")));
    assert_eq!((info["Epoch"].as_u64(), pair("Epoch").as_deref()), (Some(1), Some("1")));
    assert_eq!((info["Nodes"].as_u64(), pair("Nodes").as_deref()), (Some(1), Some("1")));
    assert_eq!(info["ServerVersion"], concat!("bellwether/", env!("CARGO_PKG_VERSION")));
    for key in ["Name", "ID"] {
        assert!(!info[key].as_str().unwrap().is_empty(), "{key}");
    }
}

#[test]
fn paths_match_by_whole_segments() {
    // S04: what only ends like a local route is the app's, and this node has none.
    let node = Node::start(&[]);
    for path in ["/users/info", "/information", "/v1/info", "/debug", "/containers/_ping", "/info/", "//info", "/%69nfo", "/_bellwether"] {
        let answer = node.get(path);
        assert_eq!((answer.status, &answer.json()["reason"]), (503, &"no-upstream".into()), "{path}");
    }
    for path in ["/info", "/v1.41/info", "/info?format=json"] {
        assert_eq!(node.get(path).json()["Role"], "primary", "{path}");
    }
}

#[test]
fn a_local_route_can_be_left_to_the_app() {
    let node = Node::start(&["--local-routes", ""]);
    for path in ["/_ping", "/info", "/v1.41/info"] {
        assert_eq!(node.get(path).status, 503, "{path}");
    }
    assert_eq!(node.get("/_bellwether/live").status, 200);
    let info = Ended::with(["info", "-H", &node.address]);
    assert_eq!(info.status, Some(1));
    assert!(info.err.contains("--local-routes"), "{}", info.err);
}

#[test]
fn what_a_node_does_not_know_is_said_in_json() {
    let node = Node::start(&[]);
    for (method, path, status, reason) in [
        ("GET", "/_bellwether/nothing", 404, "not-found"),
        ("GET", "/_bellwether/", 404, "not-found"),
        ("POST", "/_bellwether/status/", 404, "not-found"),
        ("GET", "/_bellwether/nodes", 501, "not-in-this-version"),
        ("GET", "/_bellwether/ui/", 501, "not-in-this-version"),
        ("POST", "/_bellwether/handover", 501, "not-in-this-version"),
        ("POST", "/_bellwether/status", 405, "method-not-allowed"),
        ("DELETE", "/info", 405, "method-not-allowed"),
        ("GET", "/_bellwether/resign", 405, "method-not-allowed"),
        ("POST", "/_bellwether/resign", 403, "forbidden"),
    ] {
        let answer = node.ask(method, path, &["Content-Length: 0"]);
        let said = answer.json();
        assert_eq!((answer.status, &said["reason"]), (status, &reason.into()), "{method} {path}");
        assert!(said["message"].as_str().unwrap().len() > 20 && said["verdict"] == "not-sent", "{said}");
        let proxy_error = if status == 403 { "http_request_denied" } else { "proxy_internal_response" };
        assert_eq!(answer.header("proxy-status"), Some(format!("bellwether; error={proxy_error}").as_str()), "{method} {path}");
        assert_eq!((answer.header("bellwether-primary"), said["epoch"].as_u64()), (Some(node.address.as_str()), Some(1)), "{said}");
    }
    assert_eq!(node.ask("POST", "/info", &["Content-Length: 0"]).header("allow"), Some("get, head"));
    assert_eq!(node.get("/_bellwether/resign").header("allow"), Some("post"));
}

#[test]
fn on_the_admin_listener_there_is_no_app() {
    let mut node = Node::start(&["--admin", "127.0.0.1:0"]);
    let admin = field(&node.process.line("Listening for administration"), "addr").unwrap();
    for path in ["/", "/users/info"] {
        let answer = Answer::of(&admin, "GET", path, &[]);
        assert_eq!((answer.status, &answer.json()["reason"]), (404, &"not-found".into()), "{path}");
        assert_eq!(answer.header("bellwether-primary"), Some(node.address.as_str()));
    }
    let head = Answer::of(&admin, "HEAD", "/", &[]);
    assert_eq!((head.status, head.body.as_str()), (404, ""));
}

#[test]
fn everything_is_answered_while_the_store_is_not() {
    // B73: no leader, and yet the node is alive and says how things are. Connections to this store are never accepted, and
    // with such a TTL a route that waited for a call to it would wait for longer than this test does.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let store = format!("etcd://{}", silent.local_addr().unwrap());
    let node = Node::start(&["--replication", "--advertise", "127.0.0.1:4000", "--replication-ttl", "10m", &store]);
    for (path, status) in [
        ("/_ping", 200),
        ("/info", 200),
        ("/_bellwether/status", 200),
        ("/_bellwether/leader", 200),
        ("/_bellwether/live", 200),
        ("/_bellwether/metrics", 200),
        ("/_bellwether/primary", 503),
        ("/_bellwether/replica", 503),
        ("/_bellwether/ready", 503),
    ] {
        assert_eq!(node.get(path).status, status, "{path}");
    }
    assert_eq!(node.get("/_bellwether/leader").json()["role"], "electing");
    assert_eq!(node.get("/_bellwether/ready").json()["message"], "no primary is known");
}

#[test]
fn info_fails_once_the_store_has_been_silent_for_a_ttl() {
    // B122: nobody is told of a leader that may be gone.
    let node = without_its_store();
    node.waits_for("a store that was silent for a TTL", |status| status["store"]["silent_seconds"].as_f64() > Some(1.1));
    let info = Ended::with(["info", "-H", &node.address]);
    assert_eq!(info.status, Some(1), "{info:?}");
    assert!(info.out.contains("Role:") && info.out.contains("unreachable since the start"), "{}", info.out);
    assert_eq!(info.err.lines().count(), 1, "{}", info.err);
    assert!(info.err.contains("knows no primary"), "{}", info.err);
    let json: serde_json::Value = serde_json::from_str(&Ended::with(["info", "-H", &node.address, "--output", "json"]).out).unwrap();
    assert_eq!((&json["Primary"], &json["StoreSilent"]), (&"".into(), &true.into()));
}

#[test]
fn info_prints_neat_pairs() {
    let node = Node::start(&[]);
    let info = Ended::with(["info", "-H", &node.address]);
    assert_eq!((info.status, info.err.as_str()), (Some(0), ""));
    let columns = info.out.lines().map(|line| line.find(": ").map(|_| line.len() - line[line.find(':').unwrap() + 1..].trim_start().len()));
    assert_eq!(columns.collect::<std::collections::BTreeSet<_>>().len(), 1, "the values stand in a column:\n{}", info.out);
    assert!(info.out.lines().any(|line| line.split_whitespace().eq(["Role:", "primary"])), "{}", info.out);
}

#[test]
fn a_lone_node_is_primary_and_ready_once_it_has_an_app() {
    let node = Node::start(&["--upstream", "http://127.0.0.1:1"]);
    for (path, status) in [("/_bellwether/primary", 200), ("/_bellwether/replica", 503), ("/_bellwether/ready", 200)] {
        assert_eq!(node.get(path).status, status, "{path}");
    }
    let without_app = Node::start(&[]);
    assert_eq!(without_app.get("/_bellwether/primary").status, 200);
    assert_eq!(without_app.get("/_bellwether/ready").status, 503);
}

#[test]
fn metrics_have_the_documented_names_in_both_formats() {
    // So long that no stall of this machine costs the tenure, and short enough to wait for a renewal.
    let node = Node::start(&["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "9s", "memory:"]);
    node.becomes("primary");
    node.waits_for("a renewal", |status| status["store"]["lease_margin_seconds"].is_number());
    let prometheus = node.get("/_bellwether/metrics");
    let open = node.ask("GET", "/_bellwether/metrics", &["Accept: application/openmetrics-text; version=1.0.0, text/plain;q=0.5"]);
    assert!(prometheus.header("content-type").unwrap().starts_with("text/plain; version=0.0.4"), "{}", prometheus.head);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"), "{}", open.head);
    assert!(open.body.ends_with("# EOF\n"));
    for sample in [
        "bellwether_role{role=\"primary\"} 1",
        "bellwether_role{role=\"electing\"} 0",
        "bellwether_epoch ",
        "bellwether_role_changes_total 1",
        "bellwether_lease_margin_seconds ",
        "bellwether_store_calls_total{op=\"acquire\",result=\"ok\"} 1",
        "bellwether_store_calls_total{op=\"renew\",result=\"unavailable\"} 0",
        "bellwether_requests_total{outcome=\"answered\"} 0",
        "bellwether_requests_accepted_total ",
        "bellwether_held_requests 0",
        "bellwether_hold_seconds_bucket{le=\"+Inf\"} 0",
        "bellwether_hold_seconds_count 0",
        "bellwether_connections ",
    ] {
        for page in [&prometheus.body, &open.body] {
            assert!(page.lines().any(|line| line.starts_with(sample)), "{sample}\n{page}");
        }
    }
}

#[test]
fn a_node_on_a_unix_socket_is_asked_like_any_other() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("unix://{}", folder.path().join("node.sock").display());
    let _node = Node::start(&["-H", &url]);
    let info = Ended::with(["info", "-H", &url]);
    assert_eq!(info.status, Some(0), "{info:?}");
    assert_eq!(Answer::over(&folder.path().join("node.sock"), "GET", "/_bellwether/live").status, 200);
}
