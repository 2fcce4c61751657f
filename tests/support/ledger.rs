//! What the copies of the app did, in one place and in one order.
//!
//! The ledger refuses what comes under an epoch that is over, as an app with a fence does, and remembers that it came.

use std::collections::HashMap;
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

    /// Enters an arrival; false when its epoch is over.
    pub(crate) fn enter(&self, mut arrival: Arrival) -> bool {
        let mut book = self.lock();
        // One without an epoch came from a test itself, not through a primary.
        arrival.refused = (1..book.highest_epoch).contains(&arrival.epoch);
        book.highest_epoch = book.highest_epoch.max(arrival.epoch);
        let admitted = !arrival.refused;
        book.arrivals.push(arrival);
        admitted
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no panic under this lock")
    }
}
