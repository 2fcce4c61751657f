//! Runs the binary: to its end, or as a node that is asked over plain sockets.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use tokio::time::Instant;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::wait::{PATIENCE, wait_for};

/// How long a command may take that ends by itself: `store check` and `plan` wait for a store.
const LONGEST: Duration = Duration::from_secs(180);

/// The binary, without whatever settings this test's own environment has.
pub(crate) fn bellwether<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    command.args(arguments).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BELLWETHER_")) {
        command.env_remove(name);
    }
    command
}

/// What a command that ends by itself came to.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn of(command: &mut Command) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let id = Pid::from_child(&child);
        let (say, said) = channel();
        std::thread::spawn(move || drop(say.send(child.wait_with_output())));
        let ended = said.recv_timeout(LONGEST).unwrap_or_else(|_| {
            kill_process(id, Signal::KILL).ok();
            panic!("still runs after {LONGEST:?}: {command:?}")
        });
        let Output { status, stdout, stderr } = ended.expect("it can be waited for");
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        Self { status: status.code(), out: text(stdout), err: text(stderr) }
    }

    /// Runs `bellwether` with these arguments.
    pub(crate) fn with<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Self {
        Self::of(&mut bellwether(arguments))
    }

    /// The sentence on the first line of standard error.
    pub(crate) fn sentence(&self) -> &str {
        self.err.lines().next().unwrap_or("")
    }
}

/// A process whose lines are read as it writes them, and which ends with the test.
pub(crate) struct Running {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Starts `command`, reading its standard error.
    pub(crate) fn logging(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the command starts");
        let stream = child.stderr.take().expect("standard error is piped");
        Self { child, lines: lines(stream), seen: Vec::new() }
    }

    /// Starts `command`, reading its standard output.
    pub(crate) fn printing(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command starts");
        let stream = child.stdout.take().expect("standard output is piped");
        Self { child, lines: lines(stream), seen: Vec::new() }
    }

    /// Starts `command`, with standard output and standard error to `output`, which is not read here.
    pub(crate) fn writing(command: &mut Command, output: OwnedFd) -> Self {
        let error = output.try_clone().expect("an open file can be had twice");
        let child = command.stdout(output).stderr(error).spawn().expect("the command starts");
        // The command's ends of the pipe are its own.
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Self { child, lines: channel().1, seen: Vec::new() }
    }

    /// The next line that contains `words`.
    pub(crate) fn line(&mut self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(words) => return line,
                Ok(line) => self.seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("no line with `{words}` in time, only {:#?}", self.seen),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended without a line with `{words}`, with {:#?}", self.seen),
            }
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process is there to be signalled");
    }

    /// Waits for the process to end by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        // Whoever holds the other end of the pipe has ended once it is closed.
        while let Ok(line) = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            self.seen.push(line);
        }
        let Self { child, seen, .. } = self;
        wait_for("the process to end", || child.try_wait().expect("a child can be waited for").ok_or(&*seen))
    }

    /// From now on nobody reads what it writes.
    pub(crate) fn stop_reading(&mut self) {
        // Its reader ends with the next line, and the pipe with its reader.
        self.lines = channel().1;
    }

    /// Every line so far, but for those that were asked for.
    pub(crate) fn seen(&self) -> &[String] {
        &self.seen
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// A running node.
pub(crate) struct Node {
    pub(crate) process: Running,
    pub(crate) address: String,
}

impl Node {
    /// Starts `bellwether manage` on a free port with these arguments, and waits until it listens.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::of(&mut bellwether(["manage", "-H", "127.0.0.1:0"].iter().chain(arguments)))
    }

    /// Starts a node as `command` says, and waits until it listens.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut process = Running::logging(command);
        let line = process.line("Listening for HTTP");
        let address = field(&line, "addr").unwrap_or_else(|| panic!("no address in `{line}`"));
        Self { process, address }
    }

    /// Sends one request with these header lines, and returns the answer to it.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &[&str]) -> Answer {
        Answer::of(&self.address, method, path, headers)
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, &[])
    }

    /// Waits until the node takes no more connections: its workers know by then that it is stopping.
    pub(crate) fn refuses_connections(&self) {
        let refused = || TcpStream::connect(&self.address).map_or_else(Ok, Err);
        wait_for("the node to take no more connections", refused);
    }

    /// Waits until the node says that it is a `role`.
    pub(crate) fn becomes(&self, role: &str) {
        self.waits_for(role, |status| status["role"] == role);
    }

    /// Waits until what the node says of itself is as `wanted`.
    pub(crate) fn waits_for(&self, reason: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        wait_for(reason, || {
            let status = self.get("/_bellwether/status").json();
            if wanted(&status) { Ok(status) } else { Err(status) }
        })
    }
}

/// The value of `name=` in a log line.
pub(crate) fn field(line: &str, name: &str) -> Option<String> {
    let (_, value) = line.split_once(&format!("{name}="))?;
    value.split_whitespace().next().map(str::to_owned)
}

/// What a node answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Sends a request to a TCP address.
    pub(crate) fn of(address: &str, method: &str, path: &str, headers: &[&str]) -> Self {
        let stream = TcpStream::connect(address).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a limit");
        Self::read(stream, method, path, headers)
    }

    /// Sends a request over `stream` and reads until it is closed.
    fn read(mut stream: impl Read + Write, method: &str, path: &str, headers: &[&str]) -> Self {
        let headers = headers.iter().map(|line| format!("{line}\r\n")).collect::<String>();
        let request = format!("{method} {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}\r\n");
        stream.write_all(request.as_bytes()).expect("the node reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("the node answers with text");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no head in `{text}`"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Self { status: status.unwrap_or_else(|| panic!("no status in `{head}`")), head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Sends a request to a node's unix socket.
    pub(crate) fn over(socket: &Path, method: &str, path: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a limit");
        Self::read(stream, method, path, &[])
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error} in `{}`", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }
}
