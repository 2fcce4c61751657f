//! Decides who is primary: the only loop and the only clock of the election.
//!
//! A [`Candidate`] campaigns for a [`Lock`](crate::store::Lock), leads and resigns; a [`Follower`] only observes. Both
//! publish a [`Role`] that anybody may read through a [`RoleWatch`]. This room knows no HTTP and no particular store.
//!
//! The rules that every change here must keep:
//!
//! 1. Nobody is primary until the store says so, and no longer than the clock allows: a tenure is over at *when the last
//!    confirmed call was sent + TTL − margin*, on a clock that counts suspended time.
//! 2. Ignorance changes no role, except by that clock.
//! 3. A primary becomes a replica only by way of electing, so that no node forwards to itself.
//! 4. The greater epoch wins; a smaller one is believed once the store has named it for a full TTL.
//! 5. Resigning holds, drains and only then releases; losing the lock cuts what runs.

mod belief;
mod calls;
mod candidate;
mod counters;
mod follower;
mod plan;
mod role;
mod tenure;
mod timing;

pub use candidate::{Candidate, CandidateHandle, Drain, ResignError};
pub use counters::{Counters, StoreHealth};
pub use follower::Follower;
pub use plan::{Estimate, Plan};
#[cfg(test)]
pub(crate) use role::RolePublisher;
pub use role::{Role, RoleWatch};
pub use timing::{Timing, TimingError};
