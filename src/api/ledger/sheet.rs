//! The counters of one worker.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Duration;

use super::{Closing, Handshake, Histogram, Outcome, Quiet, Totals};

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
    pub(super) fn new(quiet: Arc<Quiet>) -> Self {
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
        if !self.is_serving() {
            fence(Ordering::SeqCst);
            self.quiet.tell();
        }
    }

    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.version.store(version + 2, Ordering::Release);
    }

    /// Whether a leader takes no requests, as far as this worker knows.
    pub(super) fn has_trouble(&self) -> bool {
        self.troubles.load(Ordering::Relaxed) > 0
    }

    /// Whether a request is in the hands of the primary handler.
    pub(super) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Relaxed) > 0
    }

    /// Adds what it says at one instant.
    pub(super) fn add_to(&self, totals: &mut Totals) {
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
