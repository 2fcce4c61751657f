//! Making connections, and saying where they lead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions, Error};

use super::failure;
use super::statement::{self, Found};
use crate::store::contract::StoreError;
use crate::store::server::{Access, Answered};

/// All that every connection of one lock has in common.
#[derive(Clone)]
pub(super) struct Session(Arc<Shared>);

struct Shared {
    access: Access,
    call_timeout: Duration,
}

impl Session {
    pub(super) fn new(access: Access, call_timeout: Duration) -> Self {
        Self(Arc::new(Shared { access, call_timeout }))
    }

    /// Opens a connection for statements, and makes the table where it is missing.
    pub(super) fn open(&self) -> BoxFuture<'static, Result<MySqlConnection, StoreError>> {
        let session = self.clone();
        Box::pin(async move {
            let judge = |error| session.judge("connect", error);
            let mut connection = session.options().await?.connect().await.map_err(judge)?;
            // Shorter than the caller's patience, so that a row that somebody else has locked is reported as such, and the
            // next call finds an idle connection.
            let statement_timeout = (session.0.call_timeout * 2 / 3).max(Duration::from_millis(10));
            statement::set_up(&mut connection, statement_timeout).await.map_err(judge)?;
            session.check_table(&mut connection).await?;
            Ok(connection)
        })
    }

    async fn options(&self) -> Result<MySqlConnectOptions, StoreError> {
        let access = &self.0.access;
        let password = access.password().await.map_err(|error| StoreError::denied("connect", error))?;
        let mut options = MySqlConnectOptions::new()
            .host(&access.host)
            .port(access.port)
            .username(&access.user)
            .database(&access.database)
            // What a connection needs is set in one statement of ours.
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None)
            .set_names(false)
            .ssl_mode(MySqlSslMode::Preferred)
            .disable_statement_logging();
        if let Some(password) = &password {
            options = options.password(password.expose());
        }
        if let Some(cacert) = &access.cacert {
            options = options.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca_from_pem(cacert.clone());
        }
        if let Some(identity) = &access.identity {
            options = options.ssl_client_cert_from_pem(&identity.cert).ssl_client_key_from_pem(&identity.key);
        }
        Ok(options)
    }

    async fn check_table(&self, connection: &mut MySqlConnection) -> Result<(), StoreError> {
        let judge = |error| self.judge("connect", error);
        let mut found = statement::find_table(connection).await.map_err(judge)?;
        if let Found::Nothing = found {
            statement::create_table(connection).await.map_err(|error| failure::judge_creation(&self.0.access, error))?;
            found = statement::find_table(connection).await.map_err(judge)?;
        }
        match found {
            Found::Ours => Ok(()),
            Found::Other(what) => {
                Err(StoreError::denied("connect", format!("{self} has a table leader_leases {what}: name another database")))
            }
            Found::Nothing => Err(StoreError::unavailable("connect", format!("{self} lost its table leader_leases"))),
        }
    }

    pub(super) fn judge(&self, operation: &'static str, error: Error) -> StoreError {
        failure::judge(&self.0.access, operation, error)
    }

    /// What became of a statement. The connection is as good as before where merely somebody was in the way.
    pub(super) fn answered<T>(
        &self,
        operation: &'static str,
        connection: MySqlConnection,
        answer: Result<T, Error>,
    ) -> Answered<MySqlConnection, T> {
        match answer {
            Ok(answer) => (Some(connection), Ok(answer)),
            Err(error) => (failure::is_contention(&error).then_some(connection), Err(self.judge(operation, error))),
        }
    }

    /// What a server that takes no writes is told apart by.
    pub(super) fn only_reads(&self, operation: &'static str) -> StoreError {
        failure::only_reads(&self.0.access, operation, None)
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

impl fmt::Display for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.access.fmt(out)
    }
}
