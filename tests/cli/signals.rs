//! How a node ends.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use rustix::process::Signal;

use crate::node::Node;

#[test]
fn one_signal_ends_a_node_in_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut node = Node::start(&["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "60s", "memory:"]);
        node.becomes("primary");
        node.process.signal(signal);
        node.process.line("Cluster leadership lost");
        node.process.line("Stopped");
        assert_eq!(node.process.ended().code(), Some(0));
    }
}

#[test]
fn a_node_whose_store_is_down_ends_all_the_same() {
    let mut node = Node::start(&["--replication", "--advertise", "127.0.0.1:4000", "--replication-ttl", "1s", "etcd://127.0.0.1:1"]);
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ended().code(), Some(0));
}

#[test]
fn the_files_of_its_sockets_go_with_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let [clients, admin] = ["node.sock", "admin.sock"].map(|name| folder.path().join(name));
    let [host, orders] = [&clients, &admin].map(|path| format!("unix://{}", path.display()));
    let mut node = Node::start(&["-H", &host, "--admin", &orders]);
    node.process.line("Listening for administration");
    assert!(clients.exists() && admin.exists());
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ended().code(), Some(0));
    assert!(!clients.exists() && !admin.exists());
}

#[test]
fn a_hang_up_changes_nothing() {
    // B126: there is nothing to reload, and no tenure and no stream is lost by asking for it.
    let app = SlowApp::start();
    let election = ["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "60s", "memory:", "--upstream"];
    let mut node = Node::start(&[&election[..], &[&app.url()]].concat());
    node.becomes("primary");
    let epoch = || node.get("/_bellwether/status").json()["epoch"].clone();
    let before = epoch();
    let mut client = send(&node);
    let mut running = app.request();
    for _ in 0..3 {
        node.process.signal(Signal::HUP);
        node.process.line("Nothing to reload");
    }
    running.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndone").unwrap();
    let mut answer = vec![0; 512];
    let length = client.read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200 OK"), "{}", String::from_utf8_lossy(&answer[..length]));
    assert_eq!(node.get("/_bellwether/status").json()["epoch"], before);
}

#[test]
fn a_node_whose_log_nobody_reads_any_more_goes_on() {
    // A terminal that was closed, or `2>&1 | tee` that was ended.
    let mut node = Node::start(&["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "60s", "memory:"]);
    node.becomes("primary");
    node.process.stop_reading();
    for _ in 0..3 {
        node.process.signal(Signal::HUP);
        assert_eq!(node.get("/_bellwether/leader").json()["role"], "primary");
    }
    node.process.signal(Signal::TERM);
    assert_eq!(node.process.ended().code(), Some(0));
}

/// An app that takes a request and leaves it unanswered until it is told.
struct SlowApp {
    listener: TcpListener,
}

impl SlowApp {
    fn start() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").expect("a free port") }
    }

    fn url(&self) -> String {
        format!("http://{}", self.listener.local_addr().expect("a bound address"))
    }

    /// Takes the next request; it is this stream's to answer.
    fn request(&self) -> TcpStream {
        let (mut stream, _) = self.listener.accept().expect("the node connects");
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("the node sends a head");
            head.extend(byte);
        }
        stream
    }
}

fn send(node: &Node) -> TcpStream {
    let mut client = TcpStream::connect(&node.address).expect("the node listens");
    client.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket takes a limit");
    client.write_all(b"GET /slow HTTP/1.1\r\nHost: app\r\n\r\n").expect("the node reads");
    client
}

#[test]
fn a_running_request_is_finished_first() {
    // B124
    let app = SlowApp::start();
    let mut node = Node::start(&["--upstream", &app.url(), "--workers", "1"]);
    let mut client = send(&node);
    let mut running = app.request();
    assert_eq!(node.get("/_bellwether/ready").status, 200);
    node.process.signal(Signal::TERM);
    node.refuses_connections();
    running.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone").unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("done"), "{answer}");
    assert!(answer.to_lowercase().contains("connection: close"), "{answer}");
    assert_eq!(node.process.ended().code(), Some(0));
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let app = SlowApp::start();
    let mut node = Node::start(&["--upstream", &app.url(), "--drain-timeout", "10m"]);
    let _client = send(&node);
    let _running = app.request();
    node.process.signal(Signal::TERM);
    node.process.line("Stopping");
    node.process.signal(Signal::INT);
    node.process.line("error: SIGINT came before the node was done stopping");
    // Long before the end of the drain.
    assert_eq!(node.process.ended().code(), Some(1));
}

#[test]
fn what_does_not_end_in_time_is_cut() {
    let app = SlowApp::start();
    let mut node = Node::start(&["--upstream", &app.url(), "--drain-timeout", "200ms"]);
    let mut client = send(&node);
    let _running = app.request();
    node.process.signal(Signal::TERM);
    let mut answer = String::new();
    client.read_to_string(&mut answer).ok();
    assert!(!answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(node.process.ended().code(), Some(0));
}
