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
mod statement;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Error};

use super::contract::Lock;
use super::server::{Access, Driver, Found, ServerRow, statement_timeout};
use super::sql::{self, Look, Seat};
use super::url::Database;
use super::{LockConfig, OpenError, Secret, StoreOptions};

use listening::{Ear, Listening};
use statement::PostgresStatements;

/// The lock in `database`, whose table is made at the first call if it is missing.
pub(super) fn open(database: &Database, options: &StoreOptions, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let (seat, access) = (Seat::new(config)?, Access::new(database, options)?);
    let name = format!("bellwether {}", config.node.address);
    let driver = Postgres { name, statement_timeout: statement_timeout(config.call_timeout) };
    let statements = PostgresStatements::new(&seat, driver.statement_timeout);
    let ear = Ear { driver: driver.clone(), access: access.clone(), call_timeout: config.call_timeout };
    let listening = Listening::new(ear, seat.component());
    Ok(sql::lock(ServerRow::new(seat, statements, driver, access, config.call_timeout), listening))
}

#[derive(Clone)]
struct Postgres {
    /// What operators see of us in `pg_stat_activity`.
    name: String,
    statement_timeout: Duration,
}

impl Postgres {
    /// Nothing of it comes from the environment or from files that are not named in our options.
    fn connect_options(&self, access: &Access, password: Option<&Secret>) -> PgConnectOptions {
        let mut options = PgConnectOptions::new_without_pgpass()
            .host(&access.host)
            .port(access.port)
            .username(&access.user)
            .database(&access.database)
            .password(password.map_or("", Secret::expose))
            .application_name(&self.name)
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
        options
    }
}

#[async_trait]
impl Driver for Postgres {
    type Connection = PgConnection;

    async fn connect(&self, access: &Access, password: Option<&Secret>) -> Result<PgConnection, Error> {
        self.connect_options(access, password).connect().await
    }

    async fn find_table(&self, connection: &mut PgConnection) -> Result<Found, Error> {
        statement::find_table(connection).await
    }

    async fn create_table(&self, connection: &mut PgConnection) -> Result<(), Error> {
        statement::create_table(connection, self.statement_timeout).await
    }

    async fn look(&self, connection: &mut PgConnection, statement: String) -> Result<Option<Look>, Error> {
        statement::look(connection, statement).await
    }

    async fn change(&self, connection: &mut PgConnection, statement: String) -> Result<bool, Error> {
        Ok(statement::change(connection, statement).await? > 0)
    }
}
