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

mod endings;
mod sheet;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use tokio::sync::Notify;

pub use endings::{Closing, Handshake, Outcome};
pub(crate) use sheet::Sheet;

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
        self.sheets.iter().any(|sheet| sheet.has_trouble())
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
            if self.sheets.iter().all(|sheet| !sheet.is_serving()) {
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

impl Quiet {
    /// To be called behind a fence, after the last request of a worker has been counted out.
    fn tell(&self) {
        if self.watchers.load(Ordering::Relaxed) > 0 {
            self.hushed.notify_waiters();
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(totals: &Totals, name: &str) -> u64 {
        totals.outcomes.iter().find(|(known, _)| *known == name).unwrap().1
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
