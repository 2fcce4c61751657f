//! What the copies of the app did, in one place and in one order.
//!
//! The ledger refuses what comes under an epoch that is over, as an app with a fence does, and remembers that it came.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};

use http::Method;

/// By which header a client names its request.
pub(crate) const REQUEST_ID: &str = "request-id";

/// One request, as it reached an app.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) id: String,
    pub(crate) epoch: u64,
    pub(crate) method: Method,
    pub(crate) app: String,
    /// Its epoch was over when it arrived, so the app refused it.
    pub(crate) refused: bool,
}

/// What reached all apps, in the order of its arrival.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ledger(Arc<Mutex<Book>>);

#[derive(Debug, Default)]
struct Book {
    arrivals: Vec<Arrival>,
    highest_epoch: u64,
    /// How many requests of each epoch are being worked on.
    running: BTreeMap<u64, usize>,
    /// Arrivals that found work of an earlier epoch still going on.
    overlaps: usize,
}

/// A request that an app is working on, until it is dropped.
#[derive(Debug)]
pub(crate) struct Work {
    ledger: Ledger,
    epoch: u64,
}

impl Drop for Work {
    fn drop(&mut self) {
        *self.ledger.lock().running.get_mut(&self.epoch).expect("it was entered") -= 1;
    }
}

impl Ledger {
    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.lock().arrivals.clone()
    }

    /// The store has lost its data: from now on epochs count anew.
    pub(crate) fn start_over(&self) {
        self.lock().highest_epoch = 0;
    }

    /// How many requests with this id were executed.
    pub(crate) fn count(&self, id: &str) -> usize {
        self.lock().arrivals.iter().filter(|arrival| arrival.id == id && !arrival.refused).count()
    }

    /// How many arrived under an epoch that was over.
    pub(crate) fn refused(&self) -> usize {
        self.lock().arrivals.iter().filter(|arrival| arrival.refused).count()
    }

    /// # Panics
    /// When a POST was executed twice, or anything arrived without an epoch or under one lower than one already seen.
    pub(crate) fn assert_in_order(&self) {
        assert_eq!(self.refused(), 0, "arrivals under an epoch that was over");
        self.assert_executed_once();
    }

    /// # Panics
    /// When a POST was executed twice, or anything arrived without an epoch.
    pub(crate) fn assert_executed_once(&self) {
        let mut executed = HashMap::new();
        for (at, arrival) in self.lock().arrivals.iter().enumerate().filter(|(_, arrival)| !arrival.refused) {
            assert!(arrival.epoch > 0, "arrival {at} carries no epoch: {arrival:?}");
            if arrival.method == Method::POST
                && let Some(first) = executed.insert(arrival.id.clone(), at)
            {
                panic!("{arrival:?} was executed twice: arrivals {first} and {at}");
            }
        }
    }

    /// # Panics
    /// When anything arrived while work of an earlier epoch was still going on.
    pub(crate) fn assert_never_overlapped(&self) {
        assert_eq!(self.lock().overlaps, 0, "arrivals that found work of an earlier epoch still going on");
    }

    /// Enters an arrival, and the work on it; `None` when its epoch is over.
    pub(crate) fn enter(&self, mut arrival: Arrival) -> Option<Work> {
        let mut book = self.lock();
        let epoch = arrival.epoch;
        // One without an epoch came from a test itself, not through a primary.
        arrival.refused = (1..book.highest_epoch).contains(&epoch);
        book.highest_epoch = book.highest_epoch.max(epoch);
        let admitted = !arrival.refused;
        book.arrivals.push(arrival);
        if !admitted {
            return None;
        }
        book.overlaps += usize::from(book.running.range(1..epoch.max(1)).any(|(_, running)| *running > 0));
        *book.running.entry(epoch).or_default() += 1;
        Some(Work { ledger: self.clone(), epoch })
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no panic under this lock")
    }
}
