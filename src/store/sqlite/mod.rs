//! The lock as a row of an SQLite file, for nodes on one machine.
//!
//! Every decision is one atomic statement that reads the database's clock itself, and every statement is its own
//! transaction, so that a call that nobody waits for any more leaves nothing open. The database's clock is this machine's
//! wall clock.
//!
//! The file is made with the permissions that the process's umask leaves; it holds no secret, but whoever can write it
//! decides who leads.

mod database;
mod failure;
mod table;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::contract::{Lock, StoreError};
use super::sql::{self, Look, Row, Seat, Table};
use super::{LockConfig, OpenError};

use database::Database;
use table::Statements;

/// The lock in the file at `path`, which is made at the first call if it is missing.
pub(super) fn open(path: &Path, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    check_place(path)?;
    Ok(sql::lock(File { seat: Seat::new(config)?, database: Database::new(path, busy_timeout(config.call_timeout)) }, ()))
}

/// A file can be made later, its folder cannot.
fn check_place(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if path.is_dir() {
        return Err(OpenError::Place(format!("{} is a folder: name the database file in it", path.display())));
    }
    if !folder.is_dir() {
        return Err(OpenError::Place(format!("the folder {} does not exist: make it, or name another file", folder.display())));
    }
    Ok(())
}

/// Shorter than the caller's patience, so that a locked database is reported as such and the next call finds an idle
/// connection; never so long that a retry within the TTL would come too late.
fn busy_timeout(call_timeout: Duration) -> Duration {
    (call_timeout * 2 / 3).clamp(Duration::from_millis(10), Duration::from_secs(5))
}

/// The election's row in one file.
struct File {
    seat: Seat,
    database: Database,
}

impl File {
    fn statements(&self) -> Statements<'_> {
        Statements::new(&self.seat)
    }
}

/// Sends one statement, and makes sure of what was decided where somebody will rely on it.
macro_rules! decide {
    ($file:ident, $operation:literal, $statement:ident($($argument:expr),*)) => {{
        let mut session = $file.database.session($operation).await?;
        match $file.statements().$statement(session.connection() $(, $argument)*).await {
            Ok(decided) => session.confirm().await.map(|()| decided),
            Err(error) => Err(session.fail(error)),
        }
    }};
}

#[async_trait]
impl Table for File {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn place(&self) -> String {
        self.database.path().display().to_string()
    }

    async fn look(&self, operation: &'static str) -> Result<Look, StoreError> {
        let mut session = self.database.session(operation).await?;
        match self.statements().look(session.connection()).await {
            Ok(look) => Ok(look),
            Err(error) => Err(session.fail(error)),
        }
    }

    async fn insert(&self, version: i64) -> Result<bool, StoreError> {
        decide!(self, "acquire", insert(version))
    }

    async fn take(&self, row: &Row, version: i64) -> Result<bool, StoreError> {
        decide!(self, "acquire", take(row, version))
    }

    async fn renew(&self, version: i64) -> Result<bool, StoreError> {
        decide!(self, "renew", renew(version))
    }

    async fn release(&self, operation: &'static str, version: Option<i64>) -> Result<(), StoreError> {
        let mut session = self.database.session(operation).await?;
        match self.statements().release(session.connection(), version).await {
            Ok(()) => Ok(()),
            Err(error) => Err(session.fail(error)),
        }
    }

    async fn erase(&self) -> Result<(), StoreError> {
        let mut session = self.database.session("erase").await?;
        match self.statements().erase(session.connection()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(session.fail(error)),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "File({} in {})", self.seat.component(), self.database.path().display())
    }
}
