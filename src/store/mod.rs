//! The stores that can keep the election's lock: single, bounded round trips; no policy and no loop.

mod contract;

pub use contract::{Attempt, Cause, Epoch, Leader, Lease, Lock, Renewal, StoreError};
