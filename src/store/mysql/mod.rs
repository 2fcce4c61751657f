//! The lock as a row of a MySQL or MariaDB database.
//!
//! A lock has two connections of its own: one for the statements that the election calls for, and one to look whether
//! something has changed. Nobody announces a change here, so nodes look at the row again and again, each at times of its own.
//!
//! A server that is read-only, as a replica is, is refused also where our user could write to it all the same, and its
//! connection closed: whoever answers at the same address next may be the primary.

mod failure;
mod statement;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlSslMode};
use sqlx::{ConnectOptions, Error};

use super::contract::Lock;
use super::server::{Access, Driver, Found, ServerRow, statement_timeout};
use super::sql::{self, Look, Seat};
use super::url::Database;
use super::{LockConfig, OpenError, Secret, StoreOptions};

use statement::MysqlStatements;

/// The lock in `database`, whose table is made at the first call if it is missing.
pub(super) fn open(database: &Database, options: &StoreOptions, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let (seat, access) = (Seat::new(config)?, Access::new(database, options)?);
    let statements = MysqlStatements::new(&seat);
    let driver = Mysql { statement_timeout: statement_timeout(config.call_timeout) };
    Ok(sql::lock(ServerRow::new(seat, statements, driver, access, config.call_timeout), ()))
}

struct Mysql {
    statement_timeout: Duration,
}

#[async_trait]
impl Driver for Mysql {
    type Connection = MySqlConnection;

    async fn connect(&self, access: &Access, password: Option<&Secret>) -> Result<MySqlConnection, Error> {
        let mut connection = connect_options(access, password).connect().await?;
        statement::set_up(&mut connection, self.statement_timeout).await?;
        Ok(connection)
    }

    async fn find_table(&self, connection: &mut MySqlConnection) -> Result<Found, Error> {
        statement::find_table(connection).await
    }

    async fn create_table(&self, connection: &mut MySqlConnection) -> Result<(), Error> {
        statement::create_table(connection).await
    }

    async fn look(&self, connection: &mut MySqlConnection, statement: String) -> Result<Option<Look>, Error> {
        statement::look(connection, statement).await
    }

    async fn change(&self, connection: &mut MySqlConnection, statement: String) -> Result<bool, Error> {
        match statement::change(connection, statement).await {
            // Somebody was faster to make the row.
            Err(error) if failure::is_duplicate(&error) => Ok(false),
            found => Ok(found? > 0),
        }
    }
}

fn connect_options(access: &Access, password: Option<&Secret>) -> MySqlConnectOptions {
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
    if let Some(password) = password {
        options = options.password(password.expose());
    }
    if let Some(cacert) = &access.cacert {
        options = options.ssl_mode(MySqlSslMode::VerifyIdentity).ssl_ca_from_pem(cacert.clone());
    }
    if let Some(identity) = &access.identity {
        options = options.ssl_client_cert_from_pem(&identity.cert).ssl_client_key_from_pem(&identity.key);
    }
    options
}
