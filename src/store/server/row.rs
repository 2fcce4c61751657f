//! The election's row in a database of any kind of server, asked for on connections of a lock's own.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::session::Session;
use super::{Access, Driver, Line, Statements, patience};
use crate::store::contract::StoreError;
use crate::store::sql::{Look, Row, Seat, Table};

/// The row of `seat`, as a [`Table`] of one row.
pub(in crate::store) struct ServerRow<D: Driver, S> {
    seat: Seat,
    statements: S,
    session: Session<D>,
    line: Line<D::Connection>,
    /// For looks that wait for a change: a renewal must not wait for their answers.
    watch: Line<D::Connection>,
}

impl<D: Driver, S: Statements> ServerRow<D, S> {
    pub(in crate::store) fn new(seat: Seat, statements: S, driver: D, access: Access, call_timeout: Duration) -> Self {
        let [line, watch] = [(); 2].map(|()| Line::new(patience(call_timeout)));
        Self { seat, statements, session: Session::new(driver, access, call_timeout), line, watch }
    }

    async fn change(&self, operation: &'static str, statement: String) -> Result<bool, StoreError> {
        let session = self.session.clone();
        self.line.ask(|| self.session.open(), |connection| session.change(operation, connection, statement)).await
    }

    async fn look_on(&self, line: &Line<D::Connection>, operation: &'static str) -> Result<Look, StoreError> {
        let (session, statement) = (self.session.clone(), self.statements.look());
        let look = line.ask(|| self.session.open(), |connection| session.look(operation, connection, statement));
        self.session.bounded(operation, look).await
    }
}

#[async_trait]
impl<D: Driver, S: Statements> Table for ServerRow<D, S> {
    fn seat(&self) -> &Seat {
        &self.seat
    }

    fn place(&self) -> String {
        self.session.to_string()
    }

    async fn look(&self, operation: &'static str) -> Result<Look, StoreError> {
        self.look_on(&self.line, operation).await
    }

    async fn watch(&self) -> Result<Look, StoreError> {
        self.look_on(&self.watch, "watch").await
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

impl<D: Driver, S> fmt::Debug for ServerRow<D, S> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ServerRow({} in {})", self.seat.component(), self.session)
    }
}
