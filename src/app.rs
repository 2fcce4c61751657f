//! The daemon, put together: build, bind, spawn, wait, drain.
//!
//! The control plane — the election, the store's client, the admin listener and the signals — lives on this thread's
//! runtime; the data plane has threads of its own, so that no load of requests can starve a renewal.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::advertise;
use crate::api::access::Writer;
use crate::api::{self, AccessLog, Bound, ElectionStatus, Engine, Identity, Listen, Local, LocalConfig, Plane, Right, Shared, Status};
use crate::config::Config;
use crate::machine;
use crate::node::{BootId, Node};
use crate::replication::{Candidate, CandidateHandle, RoleWatch};
use crate::shutdown::Signals;
use crate::telemetry::Log;
use crate::tls::Tls;

/// What closing takes beyond the drain: one look of a held request at its new primary.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Runs a node until a signal ends it. The first one hands over, drains and closes; a second one ends it at once.
///
/// # Errors
/// When it cannot start, when a part of it ends that should not, or when a second signal cut it short.
pub fn run(config: Config, log: &Log) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the control runtime")?;
    runtime.block_on(async {
        let mut signals = Signals::listen_as_daemon(on_hang_up(&config)).context("listen for signals")?;
        let mut daemon = Daemon::start(config, log)?;
        let signal = tokio::select! {
            signal = signals.next() => signal,
            reason = daemon.failed() => bail!(reason),
        };
        info!(signal, "Stopping");
        tokio::select! {
            () = daemon.stop() => info!("Stopped"),
            signal = signals.next() => bail!("{signal} came before the node was done stopping, so it ended at once and cut what ran"),
        }
        Ok(())
    })
}

/// What SIGHUP means.
fn on_hang_up(config: &Config) -> impl Fn() + Send + 'static {
    let tls = config.api.tls.clone();
    move || match &tls {
        Some(tls) => {
            info!(signal = "SIGHUP", "Reading the TLS files again: of the other settings none changes without a restart");
            tls.read_again();
        }
        None => info!(signal = "SIGHUP", "Nothing to reload: settings are read at the start, restart the node to change them"),
    }
}

/// A running node.
struct Daemon {
    status: Arc<Status>,
    plane: Arc<Plane>,
    candidate: Option<CandidateHandle>,
    drain_timeout: Duration,
    /// Everything of the control plane; each task returns what it is called.
    tasks: JoinSet<&'static str>,
    /// What is done once and then over.
    _errands: JoinSet<()>,
    access_writer: Option<Writer>,
    stop_election: CancellationToken,
    stop_admin: CancellationToken,
}

impl Daemon {
    fn start(config: Config, log: &Log) -> anyhow::Result<Self> {
        let candidacy = Candidacy::open(&config)?;
        let open_files = machine::raise_open_files();
        let bound = api::bind(&config.api)?;
        let admin = config.admin.as_ref().map(|admin| api::bind_admin(&admin.listen)).transpose()?;
        for warning in &config.warnings {
            warn!("{warning}");
        }
        if let Some(forecast) = &config.forecast {
            info!("{forecast}");
        }

        let node = candidacy.as_ref().map(|candidacy| candidacy.node.clone()).or_else(|| lone_node(&config, &bound));
        let roles = candidacy.as_ref().map_or_else(RoleWatch::lone, |candidacy| candidacy.roles.clone());
        let handle = candidacy.as_ref().map(|candidacy| candidacy.handle.clone());
        let election = candidacy.as_ref().map(|candidacy| candidacy.status.clone());
        let status = Arc::new(Status::new(identity(&config, node.as_ref()), roles.clone(), election, bound.ledger()));
        let verb_limit = config.drain_timeout + config.api.ttl + CLOSE_GRACE;
        let tls = config.api.tls.clone();
        let access = config.access_log.map(|format| {
            let name = node.as_ref().map_or_else(String::new, |node| node.address.to_string());
            AccessLog::start(format, name, std::io::stdout())
        });
        let (access, access_writer) = access.transpose().context("start the access log")?.unzip();
        let lines_lost = access.as_ref().map(AccessLog::lost);
        let engine = Arc::new(Engine::new(
            roles.clone(),
            node.as_ref().map(|node| node.address.clone()),
            config.api.upstream.first(),
            config.api.to_app.clone(),
            tls.as_ref().map(Tls::to_nodes),
        ));
        let local = LocalConfig {
            routes: config.local_routes,
            engine: Arc::clone(&engine),
            token: config.token,
            verb_limit,
            retry_after: config.api.ttl,
            tls: tls.clone(),
            max_connections: config.api.max_connections,
            lines_lost,
            log_lines_lost: log.lost(),
        };
        let local = Arc::new(Local::new(Arc::clone(&status), handle.clone(), local));

        for addr in bound.addresses() {
            info!(%addr, workers = config.api.workers, open_files, "Listening for HTTP");
        }
        if let Some(tls) = &tls {
            info!(expires = %tls.life().end(), verify = tls.verifies(), "TLS is spoken on TCP addresses and between nodes");
        }
        let shared = Shared { node, service: config.service, roles, local: Arc::clone(&local) as _, access };
        let plane = Arc::new(bound.serve(shared).context("start the workers")?);

        let mut errands = JoinSet::new();
        let (mut tasks, stop_election, stop_admin) = (JoinSet::new(), CancellationToken::new(), CancellationToken::new());
        if let Some(Candidacy { candidate, node, .. }) = candidacy {
            errands.spawn(advertise::check(node, tls.as_ref().map(Tls::to_nodes)));
            let running = candidate.with_drain(Arc::clone(&plane) as _, config.drain_timeout).run(stop_election.clone());
            tasks.spawn(named("election", running));
        }
        if let Some((admin, socket)) = config.admin.zip(admin) {
            info!(addr = %socket.address(), "Listening for administration");
            let right = if admin.is_private { Right::AdminListener } else { Right::None };
            tasks.spawn(named("admin listener", socket.serve(local, right, stop_admin.clone())));
        }
        if let Some(tls) = tls {
            tasks.spawn(named("reading of TLS files", async move { tls.keep_up().await }));
        }
        tasks.spawn(named("questions to the engine", async move { engine.keep_up().await }));
        let timed = Arc::clone(&status);
        tasks.spawn(named("role timer", async move { timed.time_roles().await }));
        Ok(Self {
            status,
            plane,
            candidate: handle,
            drain_timeout: config.drain_timeout,
            tasks,
            _errands: errands,
            access_writer,
            stop_election,
            stop_admin,
        })
    }

    /// Returns when a part of the node ended that should not, with which and why.
    async fn failed(&mut self) -> String {
        tokio::select! {
            why = self.plane.failed() => format!("a worker ended: {why}"),
            ended = self.tasks.join_next(), if !self.tasks.is_empty() => match ended {
                Some(Ok(part)) => format!("the {part} ended, though nobody told it to"),
                Some(Err(error)) => format!("a part of the control plane ended: {error}"),
                None => "the control plane ended, though nobody told it to".to_owned(),
            },
        }
    }

    /// Not ready; step down and give the lock back; let what is held go to the new primary; close; the admin listener last.
    async fn stop(&mut self) {
        self.status.stop();
        self.plane.closing();
        if let Some(candidate) = &self.candidate {
            candidate.retire().await;
        }
        // The node follows on meanwhile, so that what it still holds finds the next primary.
        self.plane.close(self.drain_timeout + CLOSE_GRACE).await;
        if let Some(writer) = self.access_writer.take() {
            writer.finish(CLOSE_GRACE).await;
        }
        self.stop_election.cancel();
        self.stop_admin.cancel();
        self.tasks.shutdown().await;
    }
}

/// This node's part in an election.
struct Candidacy {
    node: Node,
    candidate: Candidate,
    handle: CandidateHandle,
    roles: RoleWatch,
    status: ElectionStatus,
}

impl Candidacy {
    /// Opens the store; nothing is sent yet. `None` for a lone node.
    fn open(config: &Config) -> anyhow::Result<Option<Self>> {
        let (Some(election), Some(address)) = (&config.election, &config.advertise) else { return Ok(None) };
        let node = Node::new(address.clone());
        let lock = election.open(node.clone())?;
        let (candidate, handle, roles) = Candidate::new(lock, node.clone(), election.timing);
        let status = ElectionStatus { store: election.store.to_string(), ttl: election.timing.ttl(), counters: candidate.counters() };
        Ok(Some(Self { node, candidate, handle, roles, status }))
    }
}

/// A node that takes part in no election, where it was told to be reached, or else where it listens.
fn lone_node(config: &Config, bound: &Bound) -> Option<Node> {
    let listens = |listen: &Listen| match listen {
        Listen::Tcp(address) if address.ip().is_unspecified() => format!("{}:{}", machine::host_name(), address.port()).parse().ok(),
        Listen::Tcp(address) => address.to_string().parse().ok(),
        Listen::Unix(_) => None,
    };
    config.advertise.clone().or_else(|| bound.addresses().iter().find_map(listens)).map(Node::new)
}

fn identity(config: &Config, node: Option<&Node>) -> Identity {
    Identity {
        host: machine::host_name(),
        memory: machine::memory(),
        service: config.service.clone(),
        address: node.map(|node| node.address.clone()),
        boot: node.map_or_else(BootId::random, |node| node.boot),
        has_app: !config.api.upstream.is_empty(),
    }
}

/// A task that says what it was when it ends.
async fn named<T>(name: &'static str, task: impl Future<Output = T>) -> &'static str {
    task.await;
    name
}
