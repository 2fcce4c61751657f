//! One election's row: what we write into it, and whom we read in it.

use std::time::Duration;

use crate::store::contract::{Epoch, Leader};
use crate::store::{LockConfig, OpenError};

/// What the columns can hold.
const LONGEST_COMPONENT: usize = 64;
const LONGEST_HOLDER: usize = 255;

/// The columns of the table, as Dubbo Admin names them.
pub(in crate::store) const COLUMNS: [&str; 6] = ["id", "component", "holder_id", "acquired_at", "expires_at", "version"];

/// What was found at one moment.
pub(in crate::store) struct Look {
    /// The database's clock, in milliseconds since 1970.
    pub(in crate::store) now: i64,
    pub(in crate::store) row: Option<Row>,
}

/// The election's row as it was read.
#[derive(Clone)]
pub(in crate::store) struct Row {
    pub(in crate::store) component: String,
    pub(in crate::store) holder_id: String,
    pub(in crate::store) version: i64,
    /// In any form that shows every change.
    pub(in crate::store) expires_at: String,
    /// By the database's clock, in milliseconds; nothing if `expires_at` is no time.
    pub(in crate::store) left: Option<i64>,
}

/// The one row that an election has, seen from one process.
pub(in crate::store) struct Seat {
    component: String,
    holder: String,
    ttl: Duration,
}

impl Seat {
    /// The row for this election, as this node will write it.
    ///
    /// Neither name has a character that any database would take for anything but itself between quotes: an election's
    /// and an address's are letters, digits and `. _ - / : [ ]`.
    pub(in crate::store) fn new(config: &LockConfig) -> Result<Self, OpenError> {
        let (component, holder) = (config.election.component(), format!("{}/{}", config.node.address, config.node.boot));
        if component.len() > LONGEST_COMPONENT {
            return Err(OpenError::Place(format!(
                "`{component}` is longer than the {LONGEST_COMPONENT} characters of a row's name: shorten the service or the prefix"
            )));
        }
        if holder.len() > LONGEST_HOLDER {
            return Err(OpenError::Place(format!(
                "the address {} is too long for the store: advertise a shorter name",
                config.node.address
            )));
        }
        // What the table keeps: whole milliseconds.
        let ttl = Duration::from_millis(u64::try_from(config.ttl.as_millis()).unwrap_or(u64::MAX));
        Ok(Self { component, holder, ttl })
    }

    /// The row's name.
    pub(in crate::store) fn component(&self) -> &str {
        &self.component
    }

    /// What this process writes as `holder_id`.
    pub(in crate::store) fn holder(&self) -> &str {
        &self.holder
    }

    pub(in crate::store) fn ttl(&self) -> Duration {
        self.ttl
    }

    pub(super) fn is_ours(&self, row: &Row) -> bool {
        row.holder_id == self.holder
    }

    /// Whom the row names, if it is of our form. A database may think that names are equal which differ in their case.
    pub(super) fn leader_of(&self, row: &Row) -> Option<Leader> {
        let (address, boot) = row.holder_id.rsplit_once('/')?;
        let is_boot_id = boot.len() == 16 && boot.bytes().all(|byte| byte.is_ascii_hexdigit());
        let address = address.parse().ok().filter(|_| is_boot_id && row.left.is_some() && row.component == self.component)?;
        Some(Leader { address, epoch: epoch(row.version)? })
    }
}

/// A version that others can follow.
fn epoch(version: i64) -> Option<Epoch> {
    u64::try_from(version).ok().filter(|_| version < i64::MAX).map(Epoch)
}
