//! A real etcd server on loopback.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use etcd_client::{GetOptions, PutOptions, SortOrder, SortTarget};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::{port, wait_for};

/// How long the server may take to start on a busy machine.
const START: Duration = Duration::from_secs(40);

/// A server with its data in a folder of its own. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Etcd {
    child: Option<Child>,
    client: SocketAddr,
    peer: SocketAddr,
    data: TempDir,
}

impl Etcd {
    /// Starts an empty server.
    pub(crate) async fn start() -> Self {
        let data = tempfile::tempdir().expect("a temporary folder");
        let mut etcd = Self { child: None, client: port::free(), peer: port::free(), data };
        etcd.restart().await;
        etcd
    }

    pub(crate) fn url(&self) -> String {
        format!("etcd://{}", self.client)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.client
    }

    /// Ends the server as a crash does.
    pub(crate) async fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("kill etcd");
        }
    }

    /// Starts the server again with its data.
    pub(crate) async fn restart(&mut self) {
        let (client, peer) = (format!("http://{}", self.client), format!("http://{}", self.peer));
        let child = Command::new("etcd")
            .arg("--data-dir")
            .arg(self.data.path().join("etcd"))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}"), "--heartbeat-interval=20", "--election-timeout=200"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        self.child = Some(child.unwrap_or_else(|error| panic!("start etcd, of the Debian package etcd-server: {error}")));
        wait_for("etcd to answer", START, async || match etcd_client::Client::connect([&client], None).await {
            Ok(mut connected) => connected.get("ready", None).await.map(drop).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        })
        .await;
    }

    /// Freezes the server, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id).expect("a running server");
        let pid = Pid::from_raw(pid.try_into().expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("signal etcd");
    }

    /// Starts the server again without its data.
    pub(crate) async fn restart_empty(&mut self) {
        std::fs::remove_dir_all(self.data.path().join("etcd")).expect("remove etcd's data");
        self.restart().await;
    }

    /// Deletes the oldest key under `prefix`, which is the leader's.
    pub(crate) async fn delete_leader(&self, prefix: &str) {
        let mut client = self.client().await;
        let found = client.get(prefix, Some(oldest_first().with_limit(1))).await.expect("read the election");
        let key = found.kvs().first().expect("a leader's key").key().to_owned();
        let deleted = client.delete(key, None).await.expect("delete the leader's key");
        assert_eq!(deleted.deleted(), 1, "there was a key to delete");
    }

    /// The candidates under `prefix`, the leader first.
    pub(crate) async fn values(&self, prefix: &str) -> Vec<String> {
        let found = self.client().await.get(prefix, Some(oldest_first())).await.expect("read the election");
        found.kvs().iter().map(|pair| pair.value_str().expect("an address").to_owned()).collect()
    }

    /// Joins the queue under `prefix` as another program would that follows the same recipe, with any `value`.
    pub(crate) async fn campaign(&self, prefix: &str, value: &str) {
        let mut client = self.client().await;
        let lease = client.lease_grant(600, None).await.expect("grant a lease").id();
        let put = PutOptions::new().with_lease(lease);
        client.put(format!("{prefix}{lease:x}"), value, Some(put)).await.expect("write a candidate's key");
    }

    async fn client(&self) -> etcd_client::Client {
        etcd_client::Client::connect([format!("http://{}", self.client)], None).await.expect("connect to etcd")
    }
}

fn oldest_first() -> GetOptions {
    GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend)
}
