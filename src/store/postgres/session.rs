//! Making connections, and saying where they lead.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgListener, PgPoolOptions, PgSslMode};
use sqlx::{ConnectOptions, Error};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::failure;
use super::statement::{self, CHANNEL, Found};
use crate::node::Address;
use crate::store::contract::{Cause, StoreError};
use crate::store::server::{Access, Answered};

/// All that every connection of one lock has in common.
#[derive(Clone)]
pub(super) struct Session(Arc<Shared>);

struct Shared {
    access: Access,
    /// What operators see of us in `pg_stat_activity`.
    name: String,
    call_timeout: Duration,
}

impl Session {
    pub(super) fn new(access: Access, address: &Address, call_timeout: Duration) -> Self {
        Self(Arc::new(Shared { access, name: format!("bellwether {address}"), call_timeout }))
    }

    /// Shorter than the caller's patience, so that a row that somebody else has locked is reported as such, and the next
    /// call finds an idle connection.
    pub(super) fn statement_timeout(&self) -> Duration {
        (self.0.call_timeout * 2 / 3).max(Duration::from_millis(10))
    }

    /// Opens a connection for statements, and makes the table where it is missing.
    pub(super) fn open(&self) -> BoxFuture<'static, Result<PgConnection, StoreError>> {
        let session = self.clone();
        Box::pin(async move {
            let options = session.options().await?;
            let mut connection = options.connect().await.map_err(|error| session.judge("connect", error))?;
            session.check_table(&mut connection).await?;
            Ok(connection)
        })
    }

    /// Opens a connection that listens; nothing where that cannot be had for now, which takes a TTL to find out, so that it
    /// is not tried with every look at the row.
    pub(super) fn listen(&self) -> BoxFuture<'static, Option<PgListener>> {
        let session = self.clone();
        Box::pin(async move {
            let until = Instant::now() + session.0.call_timeout * 3;
            match timeout_at(until, session.try_listen()).await {
                Ok(Ok(listener)) => Some(listener),
                Ok(Err(_)) | Err(_) => {
                    sleep_until(until).await;
                    None
                }
            }
        })
    }

    async fn try_listen(&self) -> Result<PgListener, Cause> {
        let options = self.options().await?;
        // A pool of one: the library has no other way to listen.
        let pool = PgPoolOptions::new().max_connections(1).test_before_acquire(false).idle_timeout(None).max_lifetime(None);
        // That a network is slow is no news of its own.
        let pool = pool.acquire_slow_threshold(Duration::MAX);
        let mut listener = PgListener::connect_with(&pool.connect_lazy_with(options)).await?;
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(listener)
    }

    /// Nothing of it comes from the environment or from files that are not named in our options.
    async fn options(&self) -> Result<PgConnectOptions, StoreError> {
        let access = &self.0.access;
        let password = access.password().await.map_err(|error| StoreError::denied("connect", error))?;
        let mut options = PgConnectOptions::new_without_pgpass()
            .host(&access.host)
            .port(access.port)
            .username(&access.user)
            .database(&access.database)
            .password(password.as_ref().map_or("", |password| password.expose()))
            .application_name(&self.0.name)
            // Poolers know no such parameter.
            .extra_float_digits(None)
            .ssl_mode(PgSslMode::Prefer)
            .disable_statement_logging();
        if let Some(cacert) = &access.cacert {
            options = options.ssl_mode(PgSslMode::VerifyFull).ssl_root_cert_from_pem(cacert.clone());
        }
        if let Some(identity) = &access.identity {
            options = options.ssl_client_cert_from_pem(&identity.cert).ssl_client_key_from_pem(&identity.key);
        }
        Ok(options)
    }

    async fn check_table(&self, connection: &mut PgConnection) -> Result<(), StoreError> {
        let judge = |error| self.judge("connect", error);
        let mut found = statement::find_table(connection).await.map_err(judge)?;
        if let Found::Nothing = found {
            let created = statement::create_table(connection, self.statement_timeout()).await;
            created.map_err(|error| failure::judge_creation(&self.0.access, error))?;
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
        connection: PgConnection,
        answer: Result<T, Error>,
    ) -> Answered<PgConnection, T> {
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
