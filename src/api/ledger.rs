//! Counts every request exactly once, and knows when a primary has nothing left to finish.
//!
//! Each worker writes a `Sheet` of its own, with plain stores: nobody else writes it. Readers take a consistent
//! picture of a sheet, so that in every [`Totals`]
//!
//! > accepted = the sum of all outcomes + held + running
//!
//! holds exactly. A request is *accepted* when its head has been read, *held* while it waits for a primary, *running*
//! while it is served or forwarded (its answer's body and its tunnel included), and ends in one [`Outcome`]. Requests
//! that the HTTP library refuses by itself, as malformed, are not accepted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use std::time::Duration;

use tokio::sync::Notify;

use crate::api::error::Reason;

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The app's answer was passed on to its end, or its tunnel closed.
    Answered,
    /// This node answered it by itself: a local route.
    Local,
    /// Its client went away first.
    Left,
    /// The app's answer or the tunnel broke half-way, and the client's connection was cut to show it.
    Cut,
    /// Its client took nothing of its answer for too long, and was cut off.
    Stalled,
    /// Its client was sent to the primary.
    Redirected,
    /// It got one of our own errors.
    Failed(Reason),
}

impl Outcome {
    /// Every outcome with its name in metrics, in the order of the counters.
    const ALL: [(Self, &'static str); 18] = [
        (Self::Answered, "answered"),
        (Self::Local, "local"),
        (Self::Left, "left"),
        (Self::Cut, "failed_cut"),
        (Self::Stalled, "stalled"),
        (Self::Redirected, "redirected"),
        (Self::Failed(Reason::BadRequest), "failed_bad_request"),
        (Self::Failed(Reason::Forbidden), "failed_forbidden"),
        (Self::Failed(Reason::TooLarge), "failed_too_large"),
        (Self::Failed(Reason::UpstreamFailed), "failed_upstream_failed"),
        (Self::Failed(Reason::NoPrimary), "failed_no_primary"),
        (Self::Failed(Reason::HoldFull), "failed_hold_full"),
        (Self::Failed(Reason::NoUpstream), "failed_no_upstream"),
        (Self::Failed(Reason::Superseded), "failed_superseded"),
        (Self::Failed(Reason::UpstreamTimeout), "failed_upstream_timeout"),
        (Self::Failed(Reason::Loop), "failed_loop"),
        (Self::Failed(Reason::RequestTimeout), "failed_request_timeout"),
        (Self::Failed(Reason::TooManyConnections), "failed_too_many_connections"),
    ];

    fn index(self) -> usize {
        match self {
            Self::Answered => 0,
            Self::Local => 1,
            Self::Left => 2,
            Self::Cut => 3,
            Self::Stalled => 4,
            Self::Redirected => 5,
            Self::Failed(reason) => 6 + reason as usize,
        }
    }

    /// As metrics and logs name it.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self.index()].1
    }
}

/// How a TLS handshake of a client ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// With a connection.
    Done,
    /// One side did not believe the other, or they have no version or cipher in common, or the client broke it off.
    Failed,
    /// Not in time.
    Late,
    /// It was none: the client spoke something else, such as plain HTTP.
    Plain,
}

impl Handshake {
    const NAMES: [&'static str; 4] = ["done", "failed", "late", "plain"];
}

/// By which limit this node ended a client's connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Closing {
    /// No request began for as long as a connection may idle.
    Idle,
    /// A head began, and did not end in time.
    SlowHead,
    /// The client took nothing of what it was sent.
    Stalled,
    /// There were as many as there may be, the reserve included.
    Refused,
    /// Over HTTP/2, the client asked for too much that leads to nothing.
    Flood,
}

impl Closing {
    const NAMES: [&'static str; 5] = ["idle", "slow_head", "stalled", "refused", "flood"];
}

/// How long requests were held, as a histogram.
#[derive(Clone, PartialEq, Debug)]
pub struct Histogram {
    /// How many waits were at most [`BOUNDS`](Self::BOUNDS)\[i\] seconds and more than the bound before; the last counts the longer ones.
    pub counts: [u64; Self::BOUNDS.len() + 1],
    /// All waits together.
    pub sum: Duration,
}

impl Histogram {
    /// The upper bounds in seconds.
    pub const BOUNDS: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];
}

/// What all workers together have counted, at one instant per worker.
#[derive(Clone, PartialEq, Debug)]
pub struct Totals {
    /// Requests whose head was read.
    pub accepted: u64,
    /// Ended requests by how they ended; every outcome is listed.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Requests that wait for a primary.
    pub held: u64,
    /// Requests that are being served or forwarded.
    pub running: u64,
    /// Open client connections.
    pub connections: u64,
    /// How long the requests were held that are no longer.
    pub hold: Histogram,
    /// TLS handshakes by how they ended; each way is listed.
    pub handshakes: [(&'static str, u64); Handshake::NAMES.len()],
    /// Connections of clients that a limit has ended, by which; each is listed.
    pub closings: [(&'static str, u64); Closing::NAMES.len()],
}

/// The counters of all workers.
#[derive(Debug)]
pub struct Ledger {
    sheets: Vec<Arc<Sheet>>,
    quiet: Arc<Quiet>,
}

impl Ledger {
    pub(crate) fn new(workers: usize) -> Self {
        let quiet = Arc::new(Quiet::default());
        Self { sheets: (0..workers).map(|_| Arc::new(Sheet::new(Arc::clone(&quiet)))).collect(), quiet }
    }

    pub(crate) fn sheet(&self, worker: usize) -> Arc<Sheet> {
        Arc::clone(&self.sheets[worker])
    }

    /// Adds up the workers' counters.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            accepted: 0,
            outcomes: Outcome::ALL.map(|(_, name)| (name, 0)).to_vec(),
            held: 0,
            running: 0,
            connections: 0,
            hold: Histogram { counts: Default::default(), sum: Duration::ZERO },
            handshakes: Handshake::NAMES.map(|name| (name, 0)),
            closings: Closing::NAMES.map(|name| (name, 0)),
        };
        for sheet in &self.sheets {
            sheet.add_to(&mut totals);
        }
        totals
    }

    /// Whether the leader takes no requests, as far as some worker knows.
    pub(crate) fn has_trouble(&self) -> bool {
        self.sheets.iter().any(|sheet| sheet.troubles.load(Ordering::Relaxed) > 0)
    }

    /// Returns once no worker serves a request as primary. Requests that come in later do not matter when the role
    /// already forbids them: a worker counts a request in before it reads the role.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(crate) async fn quiet(&self) {
        let _watch = Watch::new(&self.quiet);
        loop {
            let mut hushed = std::pin::pin!(self.quiet.hushed.notified());
            hushed.as_mut().enable();
            fence(Ordering::SeqCst);
            if self.sheets.iter().all(|sheet| sheet.serving.load(Ordering::Relaxed) == 0) {
                return;
            }
            hushed.await;
        }
    }
}

/// Tells whoever waits for it that a worker stopped serving.
#[derive(Debug, Default)]
struct Quiet {
    watchers: AtomicUsize,
    hushed: Notify,
}

struct Watch<'a>(&'a Quiet);

impl<'a> Watch<'a> {
    fn new(quiet: &'a Quiet) -> Self {
        quiet.watchers.fetch_add(1, Ordering::SeqCst);
        Self(quiet)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.watchers.fetch_sub(1, Ordering::SeqCst);
    }
}

/// One worker's counters. Only that worker calls the methods that change them; the alignment keeps two workers off one
/// cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Sheet {
    /// Odd while the counters below are being changed together.
    version: AtomicU64,
    accepted: AtomicU64,
    held: AtomicU64,
    running: AtomicU64,
    outcomes: [AtomicU64; Outcome::ALL.len()],
    hold_counts: [AtomicU64; Histogram::BOUNDS.len() + 1],
    hold_micros: AtomicU64,
    connections: AtomicU64,
    /// Requests in the hands of the primary handler; what a drain waits for.
    serving: AtomicU64,
    /// Leaders that take no requests, as far as this worker knows.
    troubles: AtomicU64,
    handshakes: [AtomicU64; Handshake::NAMES.len()],
    closings: [AtomicU64; Closing::NAMES.len()],
    quiet: Arc<Quiet>,
}

impl Sheet {
    fn new(quiet: Arc<Quiet>) -> Self {
        Self {
            version: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            held: AtomicU64::new(0),
            running: AtomicU64::new(0),
            outcomes: Default::default(),
            hold_counts: Default::default(),
            hold_micros: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            serving: AtomicU64::new(0),
            troubles: AtomicU64::new(0),
            handshakes: Default::default(),
            closings: Default::default(),
            quiet,
        }
    }

    /// A request was read and is taken on.
    pub(crate) fn accept(&self) {
        self.change(|| {
            raise(&self.accepted, 1);
            raise(&self.running, 1);
        });
    }

    /// A running request begins to wait.
    pub(crate) fn hold(&self) {
        self.change(|| {
            lower(&self.running);
            raise(&self.held, 1);
        });
    }

    /// A held request goes on.
    pub(crate) fn resume(&self, waited: Duration) {
        let seconds = waited.as_secs_f64();
        let bucket = Histogram::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Histogram::BOUNDS.len());
        self.change(|| {
            lower(&self.held);
            raise(&self.running, 1);
            raise(&self.hold_counts[bucket], 1);
            raise(&self.hold_micros, u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        });
    }

    /// A running request ends.
    pub(crate) fn end(&self, outcome: Outcome) {
        self.change(|| {
            lower(&self.running);
            raise(&self.outcomes[outcome.index()], 1);
        });
    }

    pub(crate) fn shake(&self, ended: Handshake) {
        raise(&self.handshakes[ended as usize], 1);
    }

    /// A limit ends a connection.
    pub(crate) fn close_by(&self, limit: Closing) {
        raise(&self.closings[limit as usize], 1);
    }

    pub(crate) fn open_connection(&self) {
        raise(&self.connections, 1);
    }

    pub(crate) fn close_connection(&self) {
        lower(&self.connections);
    }

    /// A leader takes no requests, until the end of that is told.
    pub(crate) fn begin_trouble(&self) {
        raise(&self.troubles, 1);
    }

    pub(crate) fn end_trouble(&self) {
        lower(&self.troubles);
    }

    /// Counts a request in before its role is read: either a drain sees the count, or the request sees the role.
    pub(crate) fn begin_serving(&self) {
        raise(&self.serving, 1);
        fence(Ordering::SeqCst);
    }

    /// The primary handler is done with a request.
    pub(crate) fn end_serving(&self) {
        lower(&self.serving);
        if self.serving.load(Ordering::Relaxed) == 0 {
            fence(Ordering::SeqCst);
            if self.quiet.watchers.load(Ordering::Relaxed) > 0 {
                self.quiet.hushed.notify_waiters();
            }
        }
    }

    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.version.store(version + 2, Ordering::Release);
    }

    fn add_to(&self, totals: &mut Totals) {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            let (accepted, held, running) = (read(&self.accepted), read(&self.held), read(&self.running));
            let outcomes = self.outcomes.each_ref().map(read);
            let hold_counts = self.hold_counts.each_ref().map(read);
            let hold_micros = read(&self.hold_micros);
            let connections = read(&self.connections);
            fence(Ordering::Acquire);
            if before % 2 == 1 || self.version.load(Ordering::Relaxed) != before {
                std::hint::spin_loop();
                continue;
            }
            totals.accepted += accepted;
            totals.held += held;
            totals.running += running;
            totals.connections += connections;
            totals.outcomes.iter_mut().zip(outcomes).for_each(|((_, total), count)| *total += count);
            totals.hold.counts.iter_mut().zip(hold_counts).for_each(|(total, count)| *total += count);
            totals.hold.sum += Duration::from_micros(hold_micros);
            totals.handshakes.iter_mut().zip(&self.handshakes).for_each(|((_, total), count)| *total += read(count));
            totals.closings.iter_mut().zip(&self.closings).for_each(|((_, total), count)| *total += read(count));
            return;
        }
    }
}

/// Adds to a counter that only the calling thread writes.
fn raise(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Takes one from a counter that only the calling thread writes.
fn lower(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(totals: &Totals, name: &str) -> u64 {
        totals.outcomes.iter().find(|(known, _)| *known == name).unwrap().1
    }

    #[test]
    fn every_outcome_has_its_own_counter() {
        for (index, (outcome, name)) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), index, "{name}");
        }
    }

    #[test]
    fn a_reader_never_sees_a_request_twice_or_not_at_all() {
        let ledger = Arc::new(Ledger::new(1));
        let sheet = ledger.sheet(0);
        let writer = std::thread::spawn(move || {
            for _ in 0..50_000 {
                sheet.accept();
                sheet.hold();
                sheet.resume(Duration::from_millis(70));
                sheet.end(Outcome::Answered);
            }
        });
        let mut totals = ledger.totals();
        while totals.accepted < 50_000 || totals.running + totals.held > 0 {
            totals = ledger.totals();
            let ended: u64 = totals.outcomes.iter().map(|(_, count)| count).sum();
            assert_eq!(totals.accepted, ended + totals.held + totals.running, "{totals:?}");
        }
        writer.join().unwrap();
        assert_eq!(outcome(&totals, "answered"), 50_000);
        assert_eq!(totals.hold.counts[1], 50_000);
        assert_eq!(totals.hold.sum, Duration::from_millis(70) * 50_000);
    }

    #[tokio::test]
    async fn a_drain_waits_for_the_last_worker() {
        let ledger = Ledger::new(2);
        ledger.quiet().await;
        let (first, second) = (ledger.sheet(0), ledger.sheet(1));
        first.begin_serving();
        second.begin_serving();
        let mut drained = tokio_test_poll(ledger.quiet());
        assert!(!drained.poll(), "two requests are being served");
        first.end_serving();
        assert!(!drained.poll(), "one request is being served");
        second.end_serving();
        assert!(drained.poll());
    }

    /// Polls a future by hand.
    fn tokio_test_poll<F: Future>(future: F) -> ByHand<F> {
        ByHand(Box::pin(future))
    }

    struct ByHand<F>(std::pin::Pin<Box<F>>);

    impl<F: Future> ByHand<F> {
        fn poll(&mut self) -> bool {
            self.0.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())).is_ready()
        }
    }
}
