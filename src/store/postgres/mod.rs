//! The lock as a row of a PostgreSQL database.
//!
//! A lock has three connections of its own: one for the statements that the election calls for, one to look whether
//! something has changed, and one that listens for the notices that whoever begins or ends a tenure sends with it. A notice
//! is only a hint. Where none can come, because a pooler lies in between or because an operator changed the row by hand, the
//! row is looked at from time to time all the same.
//!
//! A server that only takes reads, as a standby does, is refused, and its connection closed: whoever answers at the same
//! address next may be the primary.

mod failure;
mod listening;
mod session;
mod statement;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::PgConnection;

use super::contract::{Lock, StoreError};
use super::server::{self, Access, Line};
use super::sql::{self, Look, Row, Seat, Table};
use super::url::Database;
use super::{LockConfig, OpenError, StoreOptions, Takeover};

use listening::Listening;
use session::Session;
use statement::Statements;

/// The lock in `database`, whose table is made at the first call if it is missing.
pub(super) fn open(database: &Database, options: &StoreOptions, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let (seat, access) = (Seat::new(config)?, Access::new(database, options)?);
    let session = Session::new(access, &config.node.address, config.call_timeout);
    let statements = Statements::new(&seat, session.statement_timeout());
    let [line, watch] = [(); 2].map(|()| Line::new(server::patience(config.call_timeout)));
    Ok(sql::lock(Postgres { seat, statements, session, line, watch, listening: Listening::default() }))
}

/// The election's row in one database.
struct Postgres {
    seat: Seat,
    statements: Statements,
    session: Session,
    line: Line<PgConnection>,
    /// For looks that wait for a change: a renewal must not wait for their answers.
    watch: Line<PgConnection>,
    listening: Listening,
}

impl Postgres {
    /// Sends one statement and says whether it changed a row.
    async fn change(&self, operation: &'static str, statement: String) -> Result<bool, StoreError> {
        let session = self.session.clone();
        let ask = |mut connection| async move {
            let changed = statement::change(&mut connection, statement).await;
            session.answered(operation, connection, changed.map(|rows| rows > 0))
        };
        self.line.ask(|| self.session.open(), ask).await
    }

    async fn look_on(&self, line: &Line<PgConnection>, operation: &'static str) -> Result<Look, StoreError> {
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
impl Table for Postgres {
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

    /// Much less often than where nothing is announced.
    fn next_look(&self) -> Duration {
        Takeover::next_look(self.seat.ttl()) * 5
    }

    async fn hint(&self, pause: Duration) -> bool {
        let notice = self.listening.notice(&self.session, self.seat.component());
        tokio::time::timeout(pause, notice).await.is_ok()
    }

    async fn unannounced(&self) {
        self.listening.close().await;
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Postgres({} in {})", self.seat.component(), self.session)
    }
}
