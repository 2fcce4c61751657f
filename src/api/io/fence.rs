//! What ends with a tenure.

use std::io;

use crate::replication::RoleWatch;
use crate::store::Epoch;

/// The tenure that a connection to the app belongs to: nothing is written under one that is over.
///
/// A request that has passed every check may still wait for its turn to be written, and a process may be stopped there for
/// any time. So the role is read once more where there is nothing left to wait for.
#[derive(Clone, Debug)]
pub(in crate::api) struct Fence {
    pub(in crate::api) roles: RoleWatch,
    pub(in crate::api) epoch: Epoch,
}

impl Fence {
    /// Fails once the tenure is over.
    pub(in crate::api) fn check(&self) -> io::Result<()> {
        if self.roles.current().tenure() == Some(self.epoch) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the tenure that it belongs to has ended"))
    }
}
