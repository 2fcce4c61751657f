//! What the tests of the etcd driver alone have in common: locks, whole candidates, and eyes on the keys.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::node::Node;
use bellwether::replication::{Candidate, CandidateHandle, RoleWatch, Timing};
use bellwether::store::{Lock, LockConfig, OpenError, StoreOption, StoreOptions, StoreUrl};
use etcd_client::{Client, ConnectOptions};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::etcd_server::Etcd;
use crate::harness::call_timeout;

/// Where the election of these tests lies.
pub(crate) const KEY: &str = "bellwether/web/leader";

/// What etcd may need beyond a TTL on a busy machine: half a second for a lease that ran out, and then the machine.
pub(crate) const SLACK: Duration = Duration::from_secs(20);

/// A TTL that outlives any test, however slow the machine: for leases that nobody renews and nobody means to lose.
pub(crate) const LONG_TTL: Duration = Duration::from_secs(120);

pub(crate) fn node(port: u16) -> Node {
    Node::new(format!("127.0.0.1:{port}").parse().expect("an address"))
}

/// The lock of a node of its own.
pub(crate) fn lock(url: &str, port: u16, ttl: Duration) -> Arc<dyn Lock> {
    lock_with(url, &[], &node(port), ttl).expect("open a lock")
}

/// The lock of `node`, with these store options.
pub(crate) fn lock_with(url: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let url: StoreUrl = url.parse().expect("a store URL");
    let options = options.iter().map(|option| option.parse::<StoreOption>().expect("a store option"));
    let options = StoreOptions::new(options).expect("options that come once");
    let election = url.election("web").expect("a service's name");
    url.open(&options, LockConfig { election, node: node.clone(), ttl, call_timeout: call_timeout(ttl) })
}

/// A whole candidate at work. Dropping it is a crash: nothing is given back.
pub(crate) struct Running {
    pub(crate) roles: RoleWatch,
    pub(crate) handle: CandidateHandle,
    _task: JoinSet<()>,
}

impl Running {
    pub(crate) fn start(url: &str, port: u16, ttl: Duration) -> Self {
        Self::start_with(lock(url, port, ttl), node(port), ttl)
    }

    pub(crate) fn start_with(lock: Arc<dyn Lock>, node: Node, ttl: Duration) -> Self {
        let timing = Timing::new(ttl).expect("a TTL that can be used");
        let (candidate, handle, roles) = Candidate::new(lock, node, timing);
        let mut task = JoinSet::new();
        task.spawn(candidate.run(CancellationToken::new()));
        Self { roles, handle, _task: task }
    }

    /// Waits until it is primary, and says under which epoch.
    pub(crate) async fn leads(&self, within: Duration, why: &str) -> u64 {
        let primary = self.roles.wait_until(|role| role.name() == "primary");
        match tokio::time::timeout(within, primary).await {
            Ok(role) => role.tenure().expect("a primary's epoch").0,
            Err(_) => panic!("{why}, but it did not lead within {within:?}: {:?}", self.roles.current()),
        }
    }

    /// Waits until it follows somebody.
    pub(crate) async fn follows(&self, within: Duration, why: &str) {
        let replica = self.roles.wait_until(|role| role.name() == "replica");
        let outcome = tokio::time::timeout(within, replica).await;
        assert!(outcome.is_ok(), "{why}, but it followed nobody within {within:?}: {:?}", self.roles.current());
    }
}

/// What is logged on this thread while it lives.
pub(crate) struct Log {
    file: PathBuf,
    _subscriber: tracing::subscriber::DefaultGuard,
}

impl Log {
    /// Logs into the folder of `etcd`.
    pub(crate) fn start(etcd: &Etcd) -> Self {
        Self::start_in(etcd.folder())
    }

    /// Logs into this folder.
    pub(crate) fn start_in(folder: &Path) -> Self {
        let file = folder.join("log");
        let writer = Mutex::new(File::create(&file).expect("create a log"));
        let subscriber = tracing_subscriber::fmt().with_writer(writer).finish();
        Self { file, _subscriber: tracing::subscriber::set_default(subscriber) }
    }

    /// The warnings that name `what`.
    pub(crate) fn warnings_of(&self, what: &str) -> Vec<String> {
        let log = std::fs::read_to_string(&self.file).expect("read the log");
        log.lines().filter(|line| line.contains("WARN") && line.contains(what)).map(str::to_owned).collect()
    }
}

/// A client of the tests' own.
pub(crate) async fn client(etcd: &Etcd) -> Client {
    let patience = ConnectOptions::new().with_timeout(Duration::from_secs(20));
    Client::connect([etcd.client(0).to_string()], Some(patience)).await.expect("connect to etcd")
}

/// One key as `etcdctl` sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) lease: u64,
    pub(crate) created: u64,
}

/// All keys of the election, oldest first.
pub(crate) async fn keys(etcd: &Etcd) -> Vec<Key> {
    let place = format!("{KEY}/");
    let fields = etcd.etcdctl(&["get", "--prefix", &place, "--sort-by=CREATE", "--order=ASCEND", "--write-out=fields"]).await;
    let mut keys = Vec::new();
    let mut key = Key { name: String::new(), value: String::new(), lease: 0, created: 0 };
    for line in fields.lines() {
        let Some((field, value)) = line.split_once(" : ") else { continue };
        let (text, number) = (value.trim_matches('"').to_owned(), value.parse().unwrap_or(0));
        match field.trim_matches('"') {
            "Key" => key.name = text,
            "Value" => key.value = text,
            "CreateRevision" => key.created = number,
            "Lease" => {
                key.lease = number;
                keys.push(key.clone());
            }
            _ => {}
        }
    }
    keys
}

/// Deletes a key as an operator would.
pub(crate) async fn delete(etcd: &Etcd, key: &str) {
    assert_eq!(etcd.etcdctl(&["del", key]).await.trim(), "1", "{key} was there");
}
