//! What an error of PostgreSQL means to the election, in a sentence that names the database.

use sqlx::Error;

use crate::store::contract::StoreError;
use crate::store::server::Access;
use crate::store::sql::Failure;

// https://www.postgresql.org/docs/current/errcodes-appendix.html
const UNIQUE_VIOLATION: &str = "23505";
const READ_ONLY: &str = "25006";
const INVALID_AUTHORIZATION: &str = "28000";
const INVALID_PASSWORD: &str = "28P01";
const NO_SUCH_DATABASE: &str = "3D000";
const NO_SUCH_SCHEMA: &str = "3F000";
const SERIALIZATION: &str = "40001";
const DEADLOCK: &str = "40P01";
const NO_RIGHT: &str = "42501";
const NO_SUCH_COLUMN: &str = "42703";
const NO_UNIQUE_KEY: &str = "42P10";
const LOCK_NOT_AVAILABLE: &str = "55P03";
const CANCELED: &str = "57014";

/// What SQLSTATE says, if the server said anything.
fn code(error: &Error) -> Option<String> {
    error.as_database_error()?.code().map(|code| code.into_owned())
}

/// Whether the connection is as good after `error` as before: somebody else was in the way.
pub(super) fn is_contention(error: &Error) -> bool {
    matches!(code(error).as_deref(), Some(SERIALIZATION | DEADLOCK | LOCK_NOT_AVAILABLE | CANCELED))
}

/// The contract's word for `error`.
pub(super) fn judge(access: &Access, operation: &'static str, error: Error) -> StoreError {
    let (user, database) = (&access.user, &access.database);
    let advice = match code(&error).as_deref() {
        Some(READ_ONLY) => return only_reads(access, operation, Some(error)),
        Some(CANCELED | LOCK_NOT_AVAILABLE) => {
            let sentence = format!("{access} was too slow: somebody may keep the row locked");
            return StoreError::unavailable(operation, Failure::new(sentence, error));
        }
        Some(INVALID_PASSWORD | INVALID_AUTHORIZATION) => {
            format!("does not let user `{user}` in: check the user and --store-opt password-file, and whether the password has expired")
        }
        Some(NO_SUCH_DATABASE) => format!("does not exist: make it, like `CREATE DATABASE {database}`, or name another"),
        Some(NO_RIGHT) => {
            format!(
                "does not let user `{user}` use the table: run `GRANT SELECT, INSERT, UPDATE ON leader_leases TO {user}; GRANT USAGE ON SEQUENCE leader_leases_id_seq TO {user}`"
            )
        }
        Some(NO_SUCH_COLUMN | NO_UNIQUE_KEY | UNIQUE_VIOLATION) => {
            "has a table leader_leases that does not take our row: name another database".to_owned()
        }
        _ if is_about_tls(&error) => "is not reached by TLS as it is asked for: check --store-opt cacert, cert and key".to_owned(),
        _ => return StoreError::unavailable(operation, Failure::new(format!("{access} failed"), error)),
    };
    StoreError::denied(operation, Failure::new(format!("{access} {advice}"), error))
}

/// The same for an error that came of making the table.
pub(super) fn judge_creation(access: &Access, error: Error) -> StoreError {
    let user = &access.user;
    match code(&error).as_deref() {
        Some(NO_RIGHT | NO_SUCH_SCHEMA) => {
            let sentence = format!(
                "{access} has no table leader_leases, and user `{user}` may not make it: let it, or make the table as docs/stores.md shows"
            );
            StoreError::denied("connect", Failure::new(sentence, error))
        }
        _ => judge(access, "connect", error),
    }
}

/// A standby, or a server that was told to take no writes.
pub(super) fn only_reads(access: &Access, operation: &'static str, error: Option<Error>) -> StoreError {
    let sentence = format!("{access} only takes reads, as a standby does: name the primary");
    match error {
        Some(error) => StoreError::denied(operation, Failure::new(sentence, error)),
        None => StoreError::denied(operation, sentence),
    }
}

fn is_about_tls(error: &Error) -> bool {
    match error {
        Error::Tls(_) | Error::Configuration(_) => true,
        // A certificate that is refused, by either side, ends the handshake like this.
        Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}
