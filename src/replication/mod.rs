//! Decides who is primary: the only loop and the only clock of the election.
//!
//! A [`Candidate`] campaigns for a [`Lock`](crate::store::Lock), leads and resigns; a [`Follower`] only observes. Both
//! publish a [`Role`] that anybody may read through a [`RoleWatch`]. This room knows no HTTP and no particular store.

mod candidate;
mod counters;
mod follower;
mod role;
mod timing;

pub use candidate::{Candidate, CandidateHandle, Drain, NoDrain, ResignError};
pub use counters::{Counters, StoreHealth};
pub use follower::Follower;
pub use role::{Role, RoleWatch};
pub use timing::{Timing, TimingError};
