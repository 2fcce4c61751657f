//! One `bellwether manage` process of the demo: started, killed, asked to end, and always ended with the demo.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};

use super::TTL;
use super::folder::free_address;

/// How much of a node's log an error shows.
const LOG_LINES: usize = 15;

/// Where a node listens, where its app is, and its process while it has one.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: SocketAddr,
    app: SocketAddr,
    store: String,
    log: PathBuf,
    child: Option<Child>,
    asked_to_end: bool,
}

impl Node {
    /// A node that is yet to be started, in front of `app`, with its log and the store's file in `folder`.
    pub(super) fn new(name: String, app: SocketAddr, folder: &Path) -> io::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        Ok(Self { address: free_address()?, app, store: store_url(folder), log, child: None, asked_to_end: false, name })
    }

    /// Starts the process, or starts it again.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["manage", &self.store, "--service", "demo", "--replication"])
            .args(["--replication-ttl", &humantime::format_duration(TTL).to_string()])
            .args(["--host", &self.address.to_string(), "--advertise", &self.address.to_string()])
            .args(["--upstream", &format!("http://{}", self.app)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            // A Ctrl-C in the terminal is for the demo, which then ends its nodes itself.
            .process_group(0)
            .kill_on_drop(true);
        // What the user has set for nodes of their own is not meant for these.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(name)) {
            command.env_remove(name);
        }
        self.child = Some(command.spawn()?);
        self.asked_to_end = false;
        Ok(())
    }

    /// Its process id, while it runs.
    pub(super) fn pid(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// Ends the process as a crash would, in the middle of whatever it does.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        match self.child.take() {
            Some(mut child) => child.kill().await,
            None => Ok(()),
        }
    }

    /// Asks the process to end as an operator or a service manager would.
    pub(super) fn terminate(&mut self) -> io::Result<()> {
        let pid = self.pid().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        let pid = pid.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        self.asked_to_end = true;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// The status of a process that was asked to end, once it has.
    pub(super) async fn ended(&mut self, limit: Duration) -> Option<ExitStatus> {
        let child = self.child.as_mut()?;
        let status = tokio::time::timeout(limit, child.wait()).await.ok()?.ok()?;
        self.child = None;
        Some(status)
    }

    /// The status of a process that has ended though nobody asked it to.
    pub(super) fn failed(&mut self) -> Option<ExitStatus> {
        if self.asked_to_end {
            return None;
        }
        let status = self.child.as_mut()?.try_wait().ok()??;
        self.child = None;
        Some(status)
    }

    /// The last lines that the process wrote.
    pub(super) fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines = log.lines().collect::<Vec<_>>();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

/// The store in `folder`, as every command takes it.
pub(super) fn store_url(folder: &Path) -> String {
    format!("sqlite://{}", folder.join("election.db").display())
}

fn is_ours(name: &OsString) -> bool {
    name.to_string_lossy().starts_with("BELLWETHER_")
}
