//! One `bellwether manage` process under test: started, signalled, questioned, and ended with the test.

use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::{Child, Command};

use super::certificates::Credentials;
use super::http::{Answer, Broken, Client, request};
use super::metrics::Metrics;
use super::place::Place;
use super::secure::{Secure, World};
use super::{http, port, wait_for, within};

/// How long a local route may take on a busy machine; much longer than it should.
const LOCAL: Duration = Duration::from_secs(20);
/// How long a process may take to start and to listen on a busy machine.
const START: Duration = Duration::from_secs(30);

/// Where Debian has it, on whichever machine.
const FAKETIME: &str = "/usr/$LIB/faketime/libfaketime.so.1";

/// What `/info` says.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Info {
    pub(crate) role: String,
    pub(crate) primary: String,
    pub(crate) epoch: u64,
    pub(crate) all: Value,
}

/// How one node is started; can be started again at the same address.
#[derive(Debug, Clone)]
pub(crate) struct Manage {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    admin: SocketAddr,
    arguments: Vec<String>,
    /// By how much its wall clock is wrong.
    clock: Option<&'static str>,
    variables: Vec<(&'static str, String)>,
    /// How those who ask it speak TLS.
    tls: Option<Secure>,
    log: PathBuf,
}

impl Manage {
    /// A lone node that listens on a free port and logs to `folder`.
    pub(crate) fn new(name: &str, folder: &Path) -> Self {
        let (address, admin) = (port::free(), port::free());
        let arguments = ["manage", "--host", &address.to_string(), "--admin", &admin.to_string()].map(str::to_owned).into();
        Self {
            name: name.to_owned(),
            address,
            admin,
            arguments,
            clock: None,
            variables: Vec::new(),
            tls: None,
            log: folder.join(format!("{name}.log")),
        }
    }

    /// Takes part in the election in `store` under its own address.
    pub(crate) fn replicated(self, store: &str, ttl: Duration) -> Self {
        let advertise = self.address.to_string();
        self.replicated_as(&advertise, store, ttl)
    }

    /// Takes part in the election in `store`, telling the others to reach it at `advertise`.
    pub(crate) fn replicated_as(self, advertise: &str, store: &str, ttl: Duration) -> Self {
        let ttl = format!("{}ms", ttl.as_millis());
        self.with(["--replication", "--advertise", advertise, "--replication-ttl", &ttl]).with(store.split(' '))
    }

    /// Serves the app at `app`.
    pub(crate) fn upstream(self, app: SocketAddr) -> Self {
        self.with(["--upstream", &format!("http://{app}")])
    }

    /// Takes orders at `admin` instead of at a port.
    pub(crate) fn administered_at(mut self, admin: &str) -> Self {
        let place = self.arguments.iter().position(|argument| argument == "--admin").expect("every node has one") + 1;
        admin.clone_into(&mut self.arguments[place]);
        self
    }

    /// Lives by a wall clock that is wrong by this much, as faketime(1) writes it. Needs the Debian package faketime.
    pub(crate) fn by_clock(mut self, offset: &'static str) -> Self {
        self.clock = Some(offset);
        self
    }

    /// Has these in its environment.
    pub(crate) fn env(mut self, variables: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        self.variables.extend(variables);
        self
    }

    /// Speaks TLS by `flag`, showing what is in `files`; the test asks it as `secure` does.
    pub(crate) fn secured(mut self, flag: &str, files: &Credentials, secure: &Secure) -> Self {
        self.tls = Some(secure.clone());
        let [ca, cert, key] = [&files.ca, &files.cert, &files.key].map(|file| file.to_str().expect("a path in UTF-8"));
        self.with([flag, "--tlscacert", ca, "--tlscert", cert, "--tlskey", key])
    }

    /// Speaks mutual TLS under a certificate of its own; the test asks it as the user.
    pub(crate) fn mutual(self, world: &World) -> Self {
        let files = world.node(&self.name);
        self.secured("--tlsverify", &files, &world.secure())
    }

    /// Takes more arguments.
    pub(crate) fn with<'a>(mut self, arguments: impl IntoIterator<Item = &'a str>) -> Self {
        self.arguments.extend(arguments.into_iter().map(str::to_owned));
        self
    }

    fn place(&self) -> Place {
        Place { address: self.address, tls: self.tls.clone() }
    }

    fn access_log(&self) -> PathBuf {
        self.log.with_extension("access")
    }

    /// Starts the process and waits until it answers.
    pub(crate) async fn start(&self) -> Daemon {
        let mut daemon = self.spawn();
        wait_for("the node to listen", START, async || match daemon.child.try_wait().expect("a child's status") {
            Some(status) => panic!("{} ended with {status} at its start", daemon.name()),
            None => daemon.look().await,
        })
        .await;
        daemon
    }

    /// Starts the process.
    pub(crate) fn spawn(&self) -> Daemon {
        let [log, access_log] =
            [&self.log, &self.access_log()].map(|path| File::options().create(true).append(true).open(path).expect("open a node's log"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
        if let Some(offset) = self.clock {
            // Not by the command faketime, which stands between us and the process that is to be killed.
            command.envs([("LD_PRELOAD", FAKETIME), ("FAKETIME", offset), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")]);
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.args(&self.arguments).stdin(Stdio::null()).stdout(access_log).stderr(log).kill_on_drop(true);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("BELLWETHER_")) {
            command.env_remove(name);
        }
        let child = command.spawn().expect("start a node");
        Daemon { child, manage: self.clone(), control: Client::new(self.place()) }
    }
}

/// A running node. Dropping it kills the process; when that happens in a failed test, its log is printed.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    manage: Manage,
    control: Client,
}

impl Daemon {
    pub(crate) fn name(&self) -> &str {
        &self.manage.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.manage.address
    }

    /// Where clients reach it, and how they speak to it.
    pub(crate) fn place(&self) -> Place {
        self.manage.place()
    }

    /// How it was started, to start it again.
    pub(crate) fn manage(&self) -> Manage {
        self.manage.clone()
    }

    /// What it says of itself.
    ///
    /// # Panics
    /// When it says nothing.
    pub(crate) async fn info(&self) -> Info {
        self.look().await.unwrap_or_else(|broken| panic!("{} does not say what it is: {broken:?}", self.name()))
    }

    /// What it says of itself, if it does.
    pub(crate) async fn look(&self) -> Result<Info, Broken> {
        let answer = self.control.send_within(LOCAL, request(http::Method::GET, "/info", "")).await?;
        let all = answer.json();
        let text = |key: &str| all[key].as_str().unwrap_or_else(|| panic!("no {key} in {all}")).to_owned();
        let (role, primary) = (text("Role"), text("Primary"));
        Ok(Info { role, primary, epoch: all["Epoch"].as_u64().expect("a number as Epoch"), all })
    }

    /// Waits until it says that it is a `role`.
    pub(crate) async fn becomes(&self, role: &str, limit: Duration) -> Info {
        wait_for(&format!("{} to become {role}", self.name()), limit, async || match self.look().await {
            Ok(info) if info.role == role => Ok(info),
            other => Err(other),
        })
        .await
    }

    /// Asks it to hand over, as somebody who may.
    pub(crate) async fn resign(&self) -> Answer {
        http::post(self.manage.admin, "/_bellwether/resign", "").await
    }

    pub(crate) async fn metrics(&self) -> Metrics {
        Metrics::of(self.place()).await
    }

    /// The same by the way of those who may give orders, which is open however many clients there are.
    pub(crate) async fn metrics_aside(&self) -> Metrics {
        Metrics::of(self.manage.admin).await
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("signal a node");
    }

    /// Stops the process, and returns once all its threads have.
    pub(crate) async fn freeze(&self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.pid());
        wait_for("all threads to stop", LOCAL, async || {
            let tasks = std::fs::read_dir(&tasks).expect("a process's threads").flatten();
            let states = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
            // The state comes after the name, which is in parentheses.
            let running = states.filter(|stat| !stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))).count();
            if running == 0 { Ok(()) } else { Err(running) }
        })
        .await;
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn ended(&mut self, limit: Duration) -> ExitStatus {
        let what = format!("the end of {}", self.manage.name);
        within(&what, limit, self.child.wait()).await.expect("a child's status")
    }

    /// Ends the process as a crash does.
    pub(crate) async fn kill(&mut self) {
        self.child.kill().await.expect("kill a node");
    }

    /// The process, for what `/proc` says of it.
    pub(crate) fn pid(&self) -> Pid {
        let pid = self.child.id().expect("a running process");
        Pid::from_raw(pid.try_into().expect("a process id")).expect("a process id")
    }

    /// # Panics
    /// When its wall clock is the machine's.
    pub(crate) fn assert_by_false_clock(&self) {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).expect("a running process");
        assert!(maps.contains("libfaketime"), "{} has no false clock: is the Debian package faketime there?", self.name());
    }

    /// Its resident memory, in KiB.
    pub(crate) fn resident(&self) -> u64 {
        self.size("VmRSS:")
    }

    /// The most that this has ever been, or since it was forgotten.
    pub(crate) fn peak(&self) -> u64 {
        self.size("VmHWM:")
    }

    /// Has the system look for the peak from now on.
    pub(crate) fn forget_peak(&self) {
        std::fs::write(format!("/proc/{}/clear_refs", self.pid()), "5").expect("a process of our own");
    }

    fn size(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a running process");
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a size");
        line.trim().trim_end_matches(" kB").parse().expect("a number of KiB")
    }

    /// How many files and sockets it has open.
    pub(crate) fn open_files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.pid())).expect("a process of our own").count()
    }

    /// Everything it has logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.manage.log).unwrap_or_default()
    }

    /// All that it has written down of requests so far, where it has been told to.
    pub(crate) fn access_log(&self) -> String {
        std::fs::read_to_string(self.manage.access_log()).unwrap_or_default()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("---- log of {} at {} ----\n{}", self.name(), self.address(), self.log());
        }
    }
}
