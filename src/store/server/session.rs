//! Making connections, and saying where they lead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::Error;

use super::{Access, Answered, Driver, Found, Meaning, failure};
use crate::store::contract::StoreError;
use crate::store::sql::Look;

/// All that every connection of one lock has in common.
pub(super) struct Session<D>(Arc<Shared<D>>);

struct Shared<D> {
    driver: D,
    access: Access,
    call_timeout: Duration,
}

impl<D> Clone for Session<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<D: Driver> Session<D> {
    pub(super) fn new(driver: D, access: Access, call_timeout: Duration) -> Self {
        Self(Arc::new(Shared { driver, access, call_timeout }))
    }

    /// Opens a connection for statements, and makes the table where it is missing.
    pub(super) fn open(&self) -> BoxFuture<'static, Result<D::Connection, StoreError>> {
        let session = self.clone();
        Box::pin(async move {
            let Shared { driver, access, .. } = &*session.0;
            let password = access.password().await.map_err(|error| StoreError::denied("connect", error))?;
            let connected = driver.connect(access, password.as_ref()).await;
            let mut connection = connected.map_err(|error| session.judge("connect", error))?;
            session.check_table(&mut connection).await?;
            Ok(connection)
        })
    }

    async fn check_table(&self, connection: &mut D::Connection) -> Result<(), StoreError> {
        let Shared { driver, access, .. } = &*self.0;
        let judge = |error| self.judge("connect", error);
        let mut found = driver.find_table(connection).await.map_err(judge)?;
        if let Found::Nothing = found {
            let created = driver.create_table(connection).await;
            created.map_err(|error| self.word("connect", D::meaning_at_creation(access, &error), error))?;
            found = driver.find_table(connection).await.map_err(judge)?;
        }
        match found {
            Found::Ours => Ok(()),
            Found::Other(what) => {
                Err(StoreError::denied("connect", format!("{self} has a table leader_leases {what}: name another database")))
            }
            Found::Nothing => Err(StoreError::unavailable("connect", format!("{self} lost its table leader_leases"))),
        }
    }

    /// Reads the row and the clock. A server that takes no writes loses its connection.
    pub(super) async fn look(
        self,
        operation: &'static str,
        mut connection: D::Connection,
        statement: String,
    ) -> Answered<D::Connection, Look> {
        match self.0.driver.look(&mut connection, statement).await {
            Ok(None) => (None, Err(StoreError::denied(operation, failure::only_reads::<D>(&self.0.access)))),
            Ok(Some(found)) => (Some(connection), Ok(found)),
            Err(error) => self.failed(operation, connection, error),
        }
    }

    /// Sends one statement and says whether it found a row to change.
    pub(super) async fn change(
        self,
        operation: &'static str,
        mut connection: D::Connection,
        statement: String,
    ) -> Answered<D::Connection, bool> {
        match self.0.driver.change(&mut connection, statement).await {
            Ok(found) => (Some(connection), Ok(found)),
            Err(error) => self.failed(operation, connection, error),
        }
    }

    /// The connection is as good as before where merely somebody was in the way.
    fn failed<T>(&self, operation: &'static str, connection: D::Connection, error: Error) -> Answered<D::Connection, T> {
        (D::is_contention(&error).then_some(connection), Err(self.judge(operation, error)))
    }

    fn judge(&self, operation: &'static str, error: Error) -> StoreError {
        self.word(operation, D::meaning(&self.0.access, &error), error)
    }

    fn word(&self, operation: &'static str, meaning: Meaning, error: Error) -> StoreError {
        failure::judge::<D>(&self.0.access, operation, meaning, error)
    }

    /// Bounds what its caller does not.
    pub(super) async fn bounded<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.0.call_timeout, call).await {
            Ok(outcome) => outcome,
            Err(_) => Err(StoreError::unavailable(operation, format!("{self} did not answer within {:?}", self.0.call_timeout))),
        }
    }
}

impl<D> fmt::Display for Session<D> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.access.fmt(out)
    }
}
