//! Decides who is primary: the only loop and the only clock of the election.
//!
//! A candidate campaigns for a [`Lock`](crate::store::Lock), leads and resigns; a follower only observes. Both
//! publish a [`Role`] that anybody may read through a [`RoleWatch`]. This room knows no HTTP and no particular store.

mod role;
mod timing;

pub(crate) use role::RolePublisher;
pub use role::{Role, RoleWatch};
pub use timing::{Timing, TimingError};
