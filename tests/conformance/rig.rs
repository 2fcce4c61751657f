//! What the tests of single drivers have in common: locks, whole candidates, and eyes on the log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::node::Node;
use bellwether::replication::{Candidate, CandidateHandle, RoleWatch, Timing};
use bellwether::store::{Lock, LockConfig, OpenError, StoreOption, StoreOptions, StoreUrl};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::call_timeout;

/// The service of these tests, and where its election lies in stores of keys.
pub(crate) const SERVICE: &str = "web";
pub(crate) const KEY: &str = "bellwether/web/leader";

/// What a busy machine may add to anything.
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
    service_at(url, SERVICE, options, node, ttl)
}

/// The same for any service.
pub(crate) fn service_at(url: &str, service: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let options = options.iter().map(|option| option.parse::<StoreOption>().expect("a store option"));
    let options = StoreOptions::new(options).expect("options that come once");
    open(&url.parse().expect("a store URL"), service, &options, node, ttl)
}

/// The same from words that are understood already.
pub(crate) fn open(url: &StoreUrl, service: &str, options: &StoreOptions, node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let election = url.election(service).expect("a service's name");
    url.open(options, LockConfig { election, node: node.clone(), ttl, call_timeout: call_timeout(ttl) })
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
    /// Logs into this folder.
    pub(crate) fn start(folder: &Path) -> Self {
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
