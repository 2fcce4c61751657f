//! The threads of the data plane, and how they begin and end.
//!
//! A worker is a thread with a single-threaded runtime of its own; everything on it is shared by reference counts and
//! cells that no other thread sees. The outside reaches a worker by a watched [`Stage`] alone, and hears of its end.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::accept::accept;
use crate::api::debt::Debtors;
use crate::api::dial::Way;
use crate::api::error::Standing;
use crate::api::gate::Gate;
use crate::api::hold::Space;
use crate::api::ledger::{Outcome, Sheet};
use crate::api::link::Links;
use crate::api::listener::Listener;
use crate::api::mux::Seats;
use crate::api::plane::Stage;
use crate::api::primary::App;
use crate::api::tunnel::CHUNK;
use crate::api::uploads::{self, Uploads};
use crate::api::{Config, Shared, server};
use crate::node::BootId;
use crate::replication::Role;

/// How often idle connections are looked through.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(500);
/// How long before the end of a worker held requests get their answer.
const LAST_WORDS: Duration = Duration::from_millis(250);

/// What a worker is made of; crosses to its thread.
pub(super) struct Seed {
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
    pub(super) sheet: Arc<Sheet>,
    pub(super) space: Arc<Space>,
    pub(super) boot: BootId,
    pub(super) index: usize,
    pub(super) seats: Arc<Seats>,
    pub(super) gate: Arc<Gate>,
    pub(super) listeners: Vec<Listener>,
    pub(super) stage: watch::Receiver<Stage>,
}

impl Seed {
    /// Works until it is told to end.
    pub(super) fn grow(self) -> io::Result<()> {
        let runtime: LocalRuntime =
            Builder::new_current_thread().enable_all().max_blocking_threads(4).build_local(LocalOptions::default())?;
        let Self { config, shared, sheet, space, boot, index, seats, gate, listeners, stage } = self;
        let core = Rc::new(Core {
            http: server::builder(config.limits),
            app: App::new(
                config.upstream.first().map(|app| Way::new(app.clone(), config.to_app.clone()).offering_http2(config.http2)),
                shared.node.as_ref(),
                config.limits,
                shared.roles.clone(),
            ),
            links: Links::new(boot, config.limits, config.ttl, config.tls.clone()),
            hold_over: CancellationToken::new(),
            chunk: RefCell::new(vec![0; CHUNK].into()),
            turn: Notify::new(),
            streams_turn: Notify::new(),
            step_downs: Cell::new(0),
            sweeps: Cell::new(0),
            closing_since: Cell::new(None),
            dropped_as: Cell::new(Outcome::Left),
            uploads: Uploads::default(),
            debtors: config.limits.body_idle_timeout.map(Debtors::new),
            gate,
            config,
            shared,
            sheet,
            space,
            boot,
            index,
            seats,
        });
        runtime.block_on(work(Rc::clone(&core), listeners, stage))?;
        // What is left is dropped with the runtime.
        core.drop_as(Outcome::Cut, || drop(runtime));
        Ok(())
    }
}

/// What all connections of one worker share.
pub(super) struct Core {
    pub(super) config: Arc<Config>,
    pub(super) shared: Arc<Shared>,
    pub(super) sheet: Arc<Sheet>,
    pub(super) space: Arc<Space>,
    /// Tells this node's hops from every other's.
    pub(super) boot: BootId,
    /// Which worker this is.
    pub(super) index: usize,
    pub(super) seats: Arc<Seats>,
    pub(super) http: http1::Builder,
    pub(super) app: App,
    pub(super) links: Links,
    /// Nobody may wait any longer.
    pub(super) hold_over: CancellationToken,
    /// What tunnels read into, one at a time.
    pub(super) chunk: RefCell<Box<[u8]>>,
    /// Wakes every connection when the worker begins to close, and at each sweep from then on.
    pub(super) turn: Notify,
    /// The same for connections with streams, which are also woken when the node steps down.
    pub(super) streams_turn: Notify,
    step_downs: Cell<u32>,
    sweeps: Cell<u32>,
    closing_since: Cell<Option<u32>>,
    /// How a request ends that is dropped.
    dropped_as: Cell<Outcome>,
    pub(super) uploads: Uploads,
    /// Whose bodies are waited for, where that has a limit.
    pub(super) debtors: Option<Rc<Debtors>>,
    pub(super) gate: Arc<Gate>,
}

impl Core {
    /// The number of the present sweep: a clock that costs a request nothing.
    pub(super) fn sweep(&self) -> u32 {
        self.sweeps.get()
    }

    /// Whether clients are to connect elsewhere.
    pub(super) fn is_closing(&self) -> bool {
        self.closing_since.get().is_some()
    }

    /// During which sweep that began.
    pub(super) fn closing_since(&self) -> Option<u32> {
        self.closing_since.get()
    }

    /// What an error of this node says of it at this moment.
    pub(super) fn standing(&self) -> Standing {
        let own = self.shared.node.as_ref().map(|node| &node.address);
        Standing::of(&self.shared.roles.current(), own, self.config.ttl)
    }

    /// How often this node has been primary and is not any more.
    pub(super) fn step_downs(&self) -> u32 {
        self.step_downs.get()
    }

    fn step_down(&self) {
        self.step_downs.set(self.step_downs().wrapping_add(1));
        self.streams_turn.notify_waiters();
    }

    fn close(&self) {
        if !self.is_closing() {
            self.closing_since.set(Some(self.sweep()));
            self.urge();
        }
    }

    /// Has whatever can end on being told so end, at whomever this node has come to meanwhile.
    fn urge(&self) {
        self.turn.notify_waiters();
        self.streams_turn.notify_waiters();
        self.app.tell();
        self.links.tell();
    }

    fn next_sweep(&self) {
        self.sweeps.set(self.sweeps.get().wrapping_add(1));
        if self.is_closing() {
            self.urge();
        }
    }

    /// How a request ends that is dropped at this moment: its client has left, unless somebody has said otherwise.
    pub(super) fn outcome_of_dropped(&self) -> Outcome {
        self.dropped_as.get()
    }

    /// Drops something, and says how the requests in it end.
    pub(super) fn drop_as(&self, outcome: Outcome, drop: impl FnOnce()) {
        let before = self.dropped_as.replace(outcome);
        drop();
        self.dropped_as.set(before);
    }
}

async fn work(core: Rc<Core>, listeners: Vec<Listener>, mut stage: watch::Receiver<Stage>) -> io::Result<()> {
    let connections = TaskTracker::new();
    let accepting = TaskTracker::new();
    let stop = CancellationToken::new();
    for listener in listeners {
        let (core, connections, stop) = (Rc::clone(&core), connections.clone(), stop.clone());
        match listener {
            Listener::Tcp(listener) => {
                let listener = TcpListener::from_std(listener)?;
                accepting.spawn_local(accept(listener, core, connections, stop));
            }
            Listener::Unix(listener) => {
                let listener = UnixListener::from_std(listener)?;
                accepting.spawn_local(accept(listener, core, connections, stop));
            }
        }
    }
    accepting.close();
    let background = TaskTracker::new();
    background.spawn_local(keep_up(Rc::clone(&core)));
    let until = loop {
        let now = *stage.borrow_and_update();
        match now {
            Stage::Serving => {}
            Stage::Closing => core.close(),
            Stage::Ending(until) => break until,
        }
        if stage.changed().await.is_err() {
            break Instant::now();
        }
    };
    core.close();
    stop.cancel();
    accepting.wait().await;
    connections.close();
    let last_words = until.checked_sub(LAST_WORDS).unwrap_or(until);
    let mut rest = pin!(connections.wait());
    if timeout_at(last_words, &mut rest).await.is_err() {
        core.hold_over.cancel();
        // A worker that comes late to this gives them their time all the same.
        timeout_at(until.max(Instant::now() + LAST_WORDS), rest).await.ok();
    }
    Ok(())
}

/// Lets no upstream connection outlive the role it was made for: cuts what runs under a tenure that is over the moment
/// the role says so, its deadline included, and lets go of leaders that are none any more.
async fn keep_up(core: Rc<Core>) {
    let mut sweeps = interval(SWEEP_EVERY);
    sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut looks = interval(uploads::LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = core.shared.roles.current();
    loop {
        tokio::select! {
            _ = looks.tick(), if core.uploads.are_running() => core.uploads.look(),
            role = core.shared.roles.changed(&seen) => {
                // Only a role read just now may cut: with an older one, a request may have begun under a newer already.
                core.app.keep_only(role.tenure());
                core.links.keep_only(role.leader());
                if matches!(role, Role::SteppingDown { .. }) {
                    core.app.tell();
                }
                // It may be over before it is seen, and is said again when it takes longer.
                if matches!(seen, Role::Primary { .. }) && !matches!(role, Role::Primary { .. }) {
                    core.step_down();
                }
                seen = role;
            }
            _ = sweeps.tick() => {
                core.next_sweep();
                if let Some(debtors) = &core.debtors {
                    debtors.sweep();
                }
                core.app.sweep();
                core.links.sweep(&core);
            }
        }
    }
}
