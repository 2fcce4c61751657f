//! `bellwether observe`: each change of leader on a line of its own, as it happens.

use std::process::Command;

use rustix::process::Signal;

use crate::node::{Node, Running, bellwether};
use crate::port;

#[test]
fn each_change_of_leader_is_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let store = format!("sqlite://{}", folder.path().join("lock.db").display());
    // Nobody waits for it to run out: the first one gives its lock back.
    let node =
        |address: &str| Node::start(&["--replication", "--advertise", address, "--replication-ttl", "15s", "--service", "s", &store]);
    let mut first = node("10.0.0.1:4000");
    first.becomes("primary");

    let arguments = ["observe", &store, "--service", "s", "--replication-ttl", "15s"];
    let mut text = Running::printing(&mut bellwether(arguments));
    let mut json = Running::printing(bellwether(arguments).args(["--output", "json"]));
    let line = text.line("10.0.0.1:4000 leads under epoch ");
    let epoch = line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let value: serde_json::Value = serde_json::from_str(&json.line("10.0.0.1:4000")).unwrap();
    assert_eq!((&value["primary"], value["epoch"].as_u64()), (&"10.0.0.1:4000".into(), Some(epoch)), "{value}");

    let second = node("10.0.0.2:4000");
    second.becomes("replica");
    first.process.signal(Signal::TERM);
    first.process.ended();
    let line = text.line("10.0.0.2:4000 leads under epoch ");
    assert!(line.rsplit(' ').next().unwrap().parse::<u64>().unwrap() > epoch, "{line}");

    for observer in [&mut text, &mut json] {
        observer.signal(Signal::TERM);
        assert_eq!(observer.ended().code(), Some(0));
    }
}

#[test]
fn a_store_that_is_down_is_waited_for_and_its_return_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (client, peer) = (port::free(), port::free());
    let mut observer = Running::logging(&mut bellwether(["observe", &format!("etcd://{client}"), "--replication-ttl", "1s"]));
    observer.line("store call failed, trying again");
    let (client, peer) = (format!("http://{client}"), format!("http://{peer}"));
    let etcd = Running::logging(
        Command::new("etcd")
            .arg("--data-dir")
            .arg(folder.path())
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client, "--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer, "--initial-cluster", &format!("default={peer}")]),
    );
    observer.line("store answers again");
    drop(etcd);
    observer.line("store call failed, trying again");
    observer.signal(Signal::INT);
    assert_eq!(observer.ended().code(), Some(0));
}
