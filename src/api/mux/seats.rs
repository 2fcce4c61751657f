//! Which worker serves which shared connection.
//!
//! The system deals new connections to the workers at random, which evens out over many and not over a few. So a worker
//! that has more shared connections than another turns the next one away, and the other node knocks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many shared connections each worker serves.
#[derive(Debug)]
pub(in crate::api) struct Seats(Box<[AtomicUsize]>);

/// One shared connection's place at a worker, until it is dropped.
#[derive(Debug)]
pub(in crate::api) struct Seat {
    seats: Arc<Seats>,
    worker: usize,
}

impl Seats {
    pub(in crate::api) fn new(workers: usize) -> Arc<Self> {
        Arc::new(Self((0..workers).map(|_| AtomicUsize::new(0)).collect()))
    }

    /// A place at `worker`, unless another has fewer taken.
    pub(super) fn take(self: &Arc<Self>, worker: usize) -> Option<Seat> {
        let least = self.0.iter().map(|taken| taken.load(Ordering::Relaxed)).min().unwrap_or(0);
        if self.0[worker].load(Ordering::Relaxed) > least {
            return None;
        }
        self.0[worker].fetch_add(1, Ordering::Relaxed);
        Some(Seat { seats: Arc::clone(self), worker })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.0[self.worker].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_worker_gets_two_more_than_another() {
        let seats = Seats::new(2);
        let first = seats.take(0).unwrap();
        assert!(seats.take(0).is_none(), "the other has none yet");
        let second = seats.take(1).unwrap();
        let _third = seats.take(0).unwrap();
        drop((first, second));
        let _fourth = seats.take(1).unwrap();
        assert_eq!(seats.0.iter().map(|taken| taken.load(Ordering::Relaxed)).collect::<Vec<_>>(), [1, 1]);
    }
}
