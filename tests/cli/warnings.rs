//! What is odd and yet allowed: a line of the log.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use crate::node::{Node, Running, bellwether};

const APP: [&str; 2] = ["--upstream", "http://127.0.0.1:1"];

/// The warnings that a node logs before it listens.
fn warnings(arguments: &[&str]) -> Vec<String> {
    let node = Node::start(&[&APP, arguments].concat());
    node.process.seen().iter().filter(|line| line.contains("WARN")).cloned().collect()
}

#[test]
fn a_loopback_address_is_odd_where_others_can_take_part() {
    // B127
    let election = ["--replication", "--advertise", "127.0.0.1:4000"];
    let found = warnings(&[&election[..], &["etcd://127.0.0.1:1"]].concat());
    assert!(found.len() == 1 && found[0].contains("--advertise 127.0.0.1:4000"), "{found:?}");
    assert_eq!(warnings(&[&election[..], &["memory:"]].concat()), Vec::<String>::new());
}

#[test]
fn a_token_that_everybody_can_read_is_odd() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, "sesame").unwrap();
    for (mode, odd) in [(0o644, true), (0o600, false)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let found = warnings(&["--admin-token-file", file.to_str().unwrap()]);
        assert_eq!(found.iter().any(|line| line.contains("chmod")), odd, "{found:?}");
    }
}

#[test]
fn a_hold_that_no_crash_fits_into_is_odd() {
    let election = ["--replication", "--advertise", "127.0.0.1:4000", "memory:"];
    let found = warnings(&[&election[..], &["--hold-timeout", "12s"]].concat());
    assert!(found.len() == 1 && found[0].contains("--hold-timeout 12s is shorter than the 12.7s that a crash can take"), "{found:?}");
    assert!(found[0].contains("use --hold-timeout 13s or more"), "{found:?}");
    for will_do in ["13s", "0s"] {
        assert_eq!(warnings(&[&election[..], &["--hold-timeout", will_do]].concat()), Vec::<String>::new());
    }
}

/// The check of `bellwether plan`, without asking.
#[test]
fn a_node_says_what_a_crash_will_cost() {
    let node = Node::start(&["--replication", "--advertise", "10.0.0.1:4000", "etcd://127.0.0.1:1"]);
    let said = node.process.seen().iter().filter(|line| line.contains("A crash of the primary costs")).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("8.6s typically and 12.2s at worst"), "{said:?}");
    assert!(said[0].contains("etcd frees its lock one TTL after its last renewal, up to 500ms late"), "{said:?}");
}

#[test]
fn a_node_without_an_app_is_odd() {
    let node = Node::start(&[]);
    assert!(node.process.seen().iter().any(|line| line.contains("--upstream is not given")), "{:?}", node.process.seen());
}

#[test]
fn an_address_that_leads_elsewhere_is_found_at_the_start() {
    // B80: the port of another node, and the port of an app.
    let other = Node::start(&APP);
    let start = |advertise: &str| {
        let arguments = ["manage", "-H", "127.0.0.1:0", "--replication", "--advertise", advertise, "memory:"];
        Running::logging(bellwether(arguments).args(APP))
    };
    start(&other.address).line("--advertise leads to another node");
    let app = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = app.local_addr().unwrap().to_string();
    let answering = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = app.accept().unwrap();
        assert_ne!(stream.read(&mut [0; 4096]).unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi").unwrap();
    });
    start(&address).line("--advertise leads to no node");
    answering.join().unwrap();
}
