//! B109: a node whose output nobody reads, because whoever did is gone or too slow, does all the rest of its work.

use std::io::{ErrorKind, Read, Write, pipe};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use rustix::process::Signal;
use tempfile::TempDir;

use crate::node::{Answer, Running, bellwether};
use crate::wait::wait_for;

/// A primary whose standard output and standard error go to one place.
struct Unread {
    node: Running,
    socket: PathBuf,
    _folder: TempDir,
}

impl Unread {
    /// Starts it, and waits until it leads and listens.
    fn start(output: OwnedFd) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("node.sock");
        let host = format!("unix://{}", socket.display());
        let mut command = bellwether(["manage", "-H", &host, "--access-log", "json", "--log-level", "debug"]);
        command.args(["--replication", "--advertise", "10.0.0.1:4000", "--replication-ttl", "2s", "memory:"]);
        let node = Running::writing(&mut command, output);
        wait_for("the node to listen", || UnixStream::connect(&socket));
        let unread = Self { node, socket, _folder: folder };
        wait_for("the node to lead", || match unread.leader() {
            leader if leader["role"] == "primary" => Ok(()),
            other => Err(other),
        });
        unread
    }

    fn leader(&self) -> serde_json::Value {
        Answer::over(&self.socket, "GET", "/_bellwether/leader").json()
    }

    /// How many renewals the store has confirmed.
    fn renewals(&self) -> u64 {
        let metrics = Answer::over(&self.socket, "GET", "/_bellwether/metrics").body;
        let renewals = metrics.lines().find_map(|line| line.strip_prefix("bellwether_store_calls_total{op=\"renew\",result=\"ok\"} "));
        renewals.map_or(0, |count| count.parse().expect("a number"))
    }

    /// Has it answer requests and renew its tenure for longer than that would last, then stop.
    fn works_and_stops(mut self) {
        let epoch = self.leader()["epoch"].clone();
        let before = self.renewals();
        wait_for("five more renewals", || {
            assert_eq!(Answer::over(&self.socket, "GET", "/").status, 503, "there is no app");
            self.node.signal(Signal::HUP);
            match self.renewals() {
                renewals if renewals >= before + 5 => Ok(()),
                renewals => Err(renewals),
            }
        });
        let leader = self.leader();
        assert_eq!((&leader["role"], &leader["epoch"]), (&"primary".into(), &epoch));
        self.node.signal(Signal::TERM);
        assert_eq!(self.node.ended().code(), Some(0));
    }
}

/// Output that takes nothing more until the other end is read: a stream, as a service manager gives it.
fn stuck() -> (UnixStream, OwnedFd) {
    let (reader, mut writer) = UnixStream::pair().expect("two ends");
    writer.set_nonblocking(true).expect("a socket of our own");
    let full = loop {
        if let Err(error) = writer.write(b"\n") {
            break error;
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    writer.set_nonblocking(false).expect("a socket of our own");
    (reader, writer.into())
}

#[test]
fn a_node_whose_output_is_closed_works_and_stops() {
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    Unread::start(writer.into()).works_and_stops();
}

#[test]
fn a_node_whose_output_is_full_works_and_stops() {
    let (_reader, full) = stuck();
    Unread::start(full).works_and_stops();
}

#[test]
fn what_waited_to_be_read_is_there_when_somebody_reads_again() {
    let (mut reader, full) = stuck();
    let mut unread = Unread::start(full);
    let reading = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    assert_eq!(Answer::over(&unread.socket, "GET", "/late").status, 503);
    unread.node.signal(Signal::TERM);
    assert_eq!(unread.node.ended().code(), Some(0));
    let text = reading.join().unwrap();
    for words in ["Listening for HTTP", "Cluster leadership acquired", "\"target\":\"/late\"", "Stopped"] {
        assert!(text.contains(words), "no `{words}` in {}", text.trim_start());
    }
}

#[test]
fn a_command_whose_error_nobody_can_be_told_ends_with_its_status_all_the_same() {
    let (_reader, full) = stuck();
    let mut command = Running::writing(&mut bellwether(["manage", "--no-such-flag"]), full);
    assert_eq!(command.ended().code(), Some(2));
    let (_reader, full) = stuck();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = Running::writing(&mut bellwether(["manage", "-H", &address]), full);
    assert_eq!(command.ended().code(), Some(1));
}
