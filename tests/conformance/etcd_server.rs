//! Real etcd servers on loopback: one, or the members of a cluster, and what befalls them.
//!
//! Data lies in a temporary folder; the processes end with their value. A missing binary fails the test and names the
//! Debian package that has it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::port;
use crate::wait::wait_for;

/// How long a server may take to start on a busy machine.
const START: Duration = Duration::from_secs(30);

/// Short enough that a lost leader is replaced within half a second, and that leases of one second are granted.
pub(crate) const QUICK: [&str; 2] = ["--heartbeat-interval=30", "--election-timeout=300"];

/// A cluster of one or more members.
#[derive(Debug)]
pub(crate) struct Etcd {
    members: Vec<Member>,
    arguments: Vec<String>,
    folder: TempDir,
}

#[derive(Debug)]
struct Member {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    child: Option<Child>,
}

impl Etcd {
    /// One empty server that grants leases of one second and more.
    pub(crate) async fn start() -> Self {
        Self::start_with(1, &QUICK).await
    }

    /// An empty cluster of `size`, each member with these further arguments.
    pub(crate) async fn start_with(size: usize, arguments: &[&str]) -> Self {
        let member = |number| Member { name: format!("m{number}"), client: port::free(), peer: port::free(), child: None };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let arguments = arguments.iter().copied().map(str::to_owned).collect();
        let mut etcd = Self { members: (0..size).map(member).collect(), arguments, folder };
        for number in 0..size {
            etcd.spawn(number);
        }
        for number in 0..size {
            etcd.answers(number).await;
        }
        etcd
    }

    /// The store as `manage` takes it, with the members in this order.
    pub(crate) fn url_of(&self, members: impl IntoIterator<Item = usize>) -> String {
        let clients = members.into_iter().map(|number| self.client(number).to_string());
        format!("etcd://{}", clients.collect::<Vec<_>>().join(","))
    }

    pub(crate) fn url(&self) -> String {
        self.url_of(0..self.members.len())
    }

    /// Where a member is reached by clients.
    pub(crate) fn client(&self, member: usize) -> SocketAddr {
        self.members[member].client
    }

    /// Ends a member as a crash does.
    pub(crate) async fn stop(&mut self, member: usize) {
        if let Some(mut child) = self.members[member].child.take() {
            child.kill().await.expect("kill etcd");
        }
    }

    /// Starts a stopped member again with its data.
    pub(crate) async fn restart(&mut self, member: usize) {
        self.spawn(member);
        self.answers(member).await;
    }

    /// Forgets all that a stopped member knew.
    pub(crate) fn wipe(&self, member: usize) {
        std::fs::remove_dir_all(self.data(member)).expect("remove etcd's data");
    }

    /// Freezes a member.
    pub(crate) fn pause(&self, member: usize) {
        kill_process(self.pid(member), Signal::STOP).expect("pause etcd");
    }

    /// Lets a frozen member go on.
    pub(crate) fn resume(&self, member: usize) {
        kill_process(self.pid(member), Signal::CONT).expect("resume etcd");
    }

    /// Which member leads the cluster.
    pub(crate) async fn leading_member(&self) -> usize {
        wait_for("the cluster to have a leader", START, || async {
            for number in 0..self.members.len() {
                let status = self.etcdctl_at(number, &["endpoint", "status", "--write-out=json"]).await;
                let status: serde_json::Value = serde_json::from_str(&status).map_err(|error| error.to_string())?;
                let status = &status[0]["Status"];
                if status["leader"] == status["header"]["member_id"] {
                    return Ok(number);
                }
            }
            Err("no member leads".to_owned())
        })
        .await
    }

    /// What `etcdctl` prints for these arguments.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) async fn etcdctl(&self, arguments: &[&str]) -> String {
        self.etcdctl_at(0, arguments).await
    }

    async fn etcdctl_at(&self, member: usize, arguments: &[&str]) -> String {
        let output =
            etcdctl(self.client(member)).args(arguments).output().await.unwrap_or_else(|error| missing("etcdctl", "etcd-client", &error));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("etcdctl prints text")
    }

    /// A running `etcdctl` with these arguments; it ends with its value.
    pub(crate) fn spawn_etcdctl(&self, arguments: &[&str]) -> Child {
        let child = etcdctl(self.client(0)).args(arguments).spawn();
        child.unwrap_or_else(|error| missing("etcdctl", "etcd-client", &error))
    }

    fn spawn(&mut self, number: usize) {
        let peers = self.members.iter().map(|member| format!("{}=http://{}", member.name, member.peer));
        let peers = peers.collect::<Vec<_>>().join(",");
        let (data, member) = (self.data(number), &mut self.members[number]);
        let scheme = if self.arguments.iter().any(|argument| argument.starts_with("--cert-file")) { "https" } else { "http" };
        let (client, peer) = (format!("{scheme}://{}", member.client), format!("http://{}", member.peer));
        let child = Command::new("etcd")
            .args(["--name", &member.name, "--data-dir"])
            .arg(data)
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer, "--initial-cluster", &peers])
            .args(&self.arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        member.child = Some(child.unwrap_or_else(|error| missing("etcd", "etcd-server", &error)));
    }

    /// Waits until a member listens; with the others, it then answers.
    async fn answers(&self, member: usize) {
        let address = self.client(member);
        wait_for("etcd to listen", START, move || async move { TcpStream::connect(address).await }).await;
    }

    fn data(&self, member: usize) -> std::path::PathBuf {
        self.folder.path().join(&self.members[member].name)
    }

    /// Lends its folder to files that belong to the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    fn pid(&self, member: usize) -> Pid {
        let id = self.members[member].child.as_ref().and_then(Child::id).expect("a running member");
        Pid::from_raw(id.try_into().expect("a process id")).expect("a process id")
    }
}

fn etcdctl(client: SocketAddr) -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", &client.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

fn missing(binary: &str, package: &str, error: &std::io::Error) -> ! {
    panic!("start {binary}, of the Debian package {package}: {error}")
}
