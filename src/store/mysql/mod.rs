//! The lock as a row of a MySQL or MariaDB database.
//!
//! A lock has two connections of its own: one for the statements that the election calls for, and one to look whether
//! something has changed. Nobody announces a change here, so nodes look at the row again and again, each at times of its own.
//!
//! A server that is read-only, as a replica is, is refused also where our user could write to it all the same, and its
//! connection closed: whoever answers at the same address next may be the primary.

mod failure;
mod session;
mod statement;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::mysql::MySqlConnection;

use super::contract::{Lock, StoreError};
use super::server::{self, Access, Line};
use super::sql::{self, Look, Row, Seat, Table};
use super::url::Database;
use super::{LockConfig, OpenError, StoreOptions};

use session::Session;
use statement::Statements;

/// The lock in `database`, whose table is made at the first call if it is missing.
pub(super) fn open(database: &Database, options: &StoreOptions, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let (seat, access) = (Seat::new(config)?, Access::new(database, options)?);
    let [line, watch] = [(); 2].map(|()| Line::new(server::patience(config.call_timeout)));
    Ok(sql::lock(Mysql { statements: Statements::new(&seat), seat, session: Session::new(access, config.call_timeout), line, watch }))
}

/// The election's row in one database.
struct Mysql {
    seat: Seat,
    statements: Statements,
    session: Session,
    line: Line<MySqlConnection>,
    /// For looks that wait for a change: a renewal must not wait for their answers.
    watch: Line<MySqlConnection>,
}

impl Mysql {
    /// Sends one statement and says whether it found a row to change.
    async fn change(&self, operation: &'static str, statement: String) -> Result<bool, StoreError> {
        let session = self.session.clone();
        let ask = |mut connection| async move {
            let found = match statement::change(&mut connection, statement).await {
                // Somebody was faster to make the row.
                Err(error) if failure::is_duplicate(&error) => Ok(0),
                other => other,
            };
            session.answered(operation, connection, found.map(|rows| rows > 0))
        };
        self.line.ask(|| self.session.open(), ask).await
    }

    async fn look_on(&self, line: &Line<MySqlConnection>, operation: &'static str) -> Result<Look, StoreError> {
        let (session, look) = (self.session.clone(), self.statements.look());
        let ask = |mut connection| async move {
            match statement::look(&mut connection, look).await {
                Ok(None) => (None, Err(session.only_reads(operation))),
                Ok(Some(found)) => (Some(connection), Ok(found)),
                Err(error) => session.answered(operation, connection, Err(error)),
            }
        };
        line.ask(|| self.session.open(), ask).await
    }
}

#[async_trait]
impl Table for Mysql {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn place(&self) -> String {
        self.session.to_string()
    }

    async fn look(&self, operation: &'static str) -> Result<Look, StoreError> {
        self.session.bounded(operation, self.look_on(&self.line, operation)).await
    }

    async fn watch(&self) -> Result<Look, StoreError> {
        self.session.bounded("watch", self.look_on(&self.watch, "watch")).await
    }

    async fn insert(&self, version: i64) -> Result<bool, StoreError> {
        self.change("acquire", self.statements.insert(version)).await
    }

    async fn take(&self, row: &Row, version: i64) -> Result<bool, StoreError> {
        self.change("acquire", self.statements.take(row, version)).await
    }

    async fn renew(&self, version: i64) -> Result<bool, StoreError> {
        self.change("renew", self.statements.renew(version)).await
    }

    async fn release(&self, operation: &'static str, version: Option<i64>) -> Result<(), StoreError> {
        self.change(operation, self.statements.release(version)).await.map(drop)
    }

    async fn erase(&self) -> Result<(), StoreError> {
        self.change("erase", self.statements.erase()).await.map(drop)
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Mysql({} in {})", self.seat.component(), self.session)
    }
}
