//! Apps and clients that are not ours, in Python.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// How long a suite may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);
/// Where `scripts/prepare.sh` puts their packages.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/python-clients-2");
/// And those of httpx.
const HTTPX_PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/python-httpx-1");
/// And those of Hypercorn, with h2 and wsproto.
const HYPERCORN_PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/python-hypercorn-1");

/// A gRPC service and its client: see there.
pub(crate) const GRPC: &str = include_str!("grpc_calls.py");
/// A gRPC service whose calls last, and a client with many of them: see there.
pub(crate) const GRPC_MANY: &str = include_str!("grpc_many.py");
/// A client of the first that goes on until it is told to end: see there.
pub(crate) const GRPC_STEADY: &str = include_str!("grpc_steady.py");
/// A web server over TLS that knows HTTP/1.1 alone: see there.
pub(crate) const HTTP1: &str = include_str!("http1_server.py");
/// What httpx does over HTTP/2: see there.
pub(crate) const HTTPX: &str = include_str!("httpx_client.py");
/// Clients of httpx that go on until they are told to end: see there.
pub(crate) const HTTPX_STEADY: &str = include_str!("httpx_steady.py");
/// An app that gives back what it is told over WebSocket.
pub(crate) const ECHO: &str = include_str!("echo_websocket.py");
/// The same, which says how each WebSocket was closed: see there.
pub(crate) const WEBSOCKET_APP: &str = include_str!("websocket_app.py");
/// A client of it.
pub(crate) const WEBSOCKET_CLIENT: &str = include_str!("websocket_client.py");
/// The same as [`WEBSOCKET_APP`] over HTTP/2: see there.
pub(crate) const HTTP2_APP: &str = include_str!("http2_app.py");
/// The same as [`WEBSOCKET_CLIENT`] over HTTP/2: see there.
pub(crate) const HTTP2_WEBSOCKET_CLIENT: &str = include_str!("http2_websocket_client.py");

/// What a WebSocket does over HTTP/2: see there.
pub(crate) const H2_WEBSOCKET: &str = include_str!("h2_websocket.py");

fn python() -> Command {
    python_with(PACKAGES)
}

fn python_with(packages: &str) -> Command {
    assert!(Path::new(packages).exists(), "packages for Python are missing: run scripts/prepare.sh test");
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", packages).kill_on_drop(true);
    command
}

/// A script that runs until it is dropped, as far as it does not end before.
pub(crate) struct Running {
    lines: Lines<BufReader<ChildStdout>>,
    child: Child,
}

impl Running {
    pub(crate) fn start(script: &str, arguments: &[&str]) -> Self {
        Self::complaining_to(Stdio::inherit(), script, arguments)
    }

    fn complaining_to(stderr: Stdio, script: &str, arguments: &[&str]) -> Self {
        let mut command = match script {
            HTTP2_APP | HTTP2_WEBSOCKET_CLIENT => python_with(HYPERCORN_PACKAGES),
            HTTPX_STEADY => python_with(HTTPX_PACKAGES),
            _ => python(),
        };
        command.args(["-c", script]).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr);
        let mut child = command.spawn().expect("python3 starts");
        Self { lines: BufReader::new(child.stdout.take().expect("its output")).lines(), child }
    }

    /// Ends what it reads.
    pub(crate) fn finish(&mut self) {
        drop(self.child.stdin.take());
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> String {
        let line = timeout(PATIENCE, self.lines.next_line()).await.expect("it says something in time").expect("its output");
        line.expect("a line, and not the end")
    }
}

/// An app that prints its port, and serves until it is dropped.
pub(crate) struct Served {
    pub(crate) port: u16,
    pub(crate) running: Running,
}

impl Served {
    pub(crate) async fn start(script: &str, arguments: &[&str]) -> Self {
        // It may complain of each client that breaks the rules, as some have to.
        let mut running = Running::complaining_to(Stdio::null(), script, arguments);
        Self { port: running.line().await.parse().expect("a port"), running }
    }
}

/// Runs a script to its end, and gives what it printed.
///
/// # Panics
/// When it fails.
pub(crate) async fn run(script: &str, arguments: &[&str]) -> String {
    let mut command = python();
    command.args(["-c", script]).args(arguments);
    done(command).await
}

/// The same with httpx at hand.
pub(crate) async fn httpx(script: &str, arguments: &[&str]) -> String {
    let mut command = python_with(HTTPX_PACKAGES);
    command.args(["-c", script]).args(arguments);
    done(command).await
}

/// The same with what both are made of.
pub(crate) async fn run_with_all(script: &str, arguments: &[&str]) -> String {
    let mut command = python_with(HTTPX_PACKAGES);
    command.env("PYTHONPATH", format!("{PACKAGES}:{HTTPX_PACKAGES}")).args(["-c", script]).args(arguments);
    done(command).await
}

/// How each case of the WebSocket suite behaved at `place`, but for those of limits, compression and speed.
pub(crate) async fn websocket_suite(place: &str, folder: &Path) -> serde_json::Value {
    let mut command = python();
    let suite = format!("{PACKAGES}/bin/kosoku");
    command.args([suite.as_str(), "-m", "fuzzingclient", "-p", "4", "-x", "9.*", "-x", "12.*", "-x", "13.*", "-o"]).arg(folder).arg(place);
    // It fails where a case does: which ones do is the caller's to judge.
    let output = timeout(PATIENCE, command.output()).await.expect("the suite ends in time").expect("python3 starts");
    let report = std::fs::read(folder.join("index.json"));
    let report = report.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_slice(&report).expect("a report in JSON")
}

async fn done(mut command: Command) -> String {
    let output = timeout(PATIENCE, command.output()).await.expect("it ends in time").expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    said
}
