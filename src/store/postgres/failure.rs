//! What an error of PostgreSQL means to the election.

use sqlx::Error;

use super::Postgres;
use crate::store::server::{Access, Errors, Meaning};

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

impl Errors for Postgres {
    const ONLY_READS: &'static str = "only takes reads, as a standby does";

    fn is_contention(error: &Error) -> bool {
        matches!(code(error).as_deref(), Some(SERIALIZATION | DEADLOCK | LOCK_NOT_AVAILABLE | CANCELED))
    }

    fn meaning(access: &Access, error: &Error) -> Meaning {
        let (user, database) = (&access.user, &access.database);
        let advice = match code(error).as_deref() {
            Some(READ_ONLY) => return Meaning::OnlyReads,
            Some(CANCELED | LOCK_NOT_AVAILABLE) => return Meaning::TooSlow,
            Some(INVALID_PASSWORD | INVALID_AUTHORIZATION) => {
                format!("does not let user `{user}` in: check the user and --store-opt password-file, and whether the password has expired")
            }
            Some(NO_SUCH_DATABASE) => format!("does not exist: make it, like `CREATE DATABASE {database}`, or name another"),
            Some(NO_RIGHT) => {
                format!(
                    "does not let user `{user}` use the table: run `GRANT SELECT, INSERT, UPDATE, DELETE ON leader_leases TO {user}; GRANT USAGE ON SEQUENCE leader_leases_id_seq TO {user}`"
                )
            }
            Some(NO_SUCH_COLUMN | NO_UNIQUE_KEY | UNIQUE_VIOLATION) => return Meaning::OtherTable,
            _ => return Meaning::Unknown,
        };
        Meaning::Denied(advice)
    }

    fn meaning_at_creation(access: &Access, error: &Error) -> Meaning {
        let user = &access.user;
        match code(error).as_deref() {
            Some(NO_RIGHT | NO_SUCH_SCHEMA) => Meaning::Denied(format!(
                "has no table leader_leases, and user `{user}` may not make it: let it, or make the table as docs/stores.md shows"
            )),
            _ => Self::meaning(access, error),
        }
    }
}
