//! What an error of MySQL or MariaDB means to the election.

use sqlx::Error;
use sqlx::mysql::MySqlDatabaseError;

use super::Mysql;
use crate::store::server::{Access, Errors, Meaning};

// https://dev.mysql.com/doc/mysql-errors/8.0/en/server-error-reference.html
// https://mariadb.com/kb/en/mariadb-error-code-reference/
const NO_ACCESS_TO_DATABASE: u16 = 1044;
const ACCESS_DENIED: u16 = 1045;
const NO_SUCH_DATABASE: u16 = 1049;
const DUPLICATE: u16 = 1062;
const NO_RIGHT_ON_TABLE: u16 = 1142;
const NO_RIGHT_ON_COLUMN: u16 = 1143;
const LOCK_WAIT: u16 = 1205;
const DEADLOCK: u16 = 1213;
const PREVENTED_BY_OPTION: u16 = 1290;
const INTERRUPTED: u16 = 1317;
const NO_DEFAULT: u16 = 1364;
const ACCESS_DENIED_WITHOUT_PASSWORD: u16 = 1698;
const READ_ONLY_TRANSACTION: u16 = 1792;
const PASSWORD_MUST_CHANGE: u16 = 1820;
const READ_ONLY_MODE: u16 = 1836;
const PASSWORD_EXPIRED: u16 = 1862;
const STATEMENT_TIMEOUT: u16 = 1969;
const ACCOUNT_LOCKED_MYSQL: u16 = 3118;
const ACCOUNT_LOCKED_MARIADB: u16 = 4151;

fn number(error: &Error) -> Option<u16> {
    Some(error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>()?.number())
}

/// Whether the row that was to be made is there already.
pub(super) fn is_duplicate(error: &Error) -> bool {
    number(error) == Some(DUPLICATE)
}

impl Errors for Mysql {
    const ONLY_READS: &'static str = "is read-only, as a replica is";

    fn is_contention(error: &Error) -> bool {
        matches!(number(error), Some(LOCK_WAIT | DEADLOCK | INTERRUPTED | STATEMENT_TIMEOUT))
    }

    fn meaning(access: &Access, error: &Error) -> Meaning {
        let (user, database) = (&access.user, &access.database);
        let advice = match number(error) {
            Some(PREVENTED_BY_OPTION | READ_ONLY_TRANSACTION | READ_ONLY_MODE) => return Meaning::OnlyReads,
            Some(LOCK_WAIT | INTERRUPTED | STATEMENT_TIMEOUT) => return Meaning::TooSlow,
            Some(ACCESS_DENIED | ACCESS_DENIED_WITHOUT_PASSWORD | ACCOUNT_LOCKED_MYSQL | ACCOUNT_LOCKED_MARIADB) => {
                format!("does not let user `{user}` in: check the user and --store-opt password-file")
            }
            Some(PASSWORD_MUST_CHANGE | PASSWORD_EXPIRED) => {
                format!("does not let user `{user}` in, for the password has expired: set another, and put it into the password-file")
            }
            Some(NO_ACCESS_TO_DATABASE | NO_SUCH_DATABASE) => {
                format!("does not exist, or not for user `{user}`: make it, like `CREATE DATABASE {database}`, or grant rights on it")
            }
            Some(NO_RIGHT_ON_TABLE | NO_RIGHT_ON_COLUMN) => {
                format!(
                    "does not let user `{user}` use the table: run `GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.leader_leases TO {user}`"
                )
            }
            Some(NO_DEFAULT) => return Meaning::OtherTable,
            _ => return Meaning::Unknown,
        };
        Meaning::Denied(advice)
    }

    fn meaning_at_creation(access: &Access, error: &Error) -> Meaning {
        let user = &access.user;
        match number(error) {
            Some(NO_RIGHT_ON_TABLE) => Meaning::Denied(format!(
                "has no table leader_leases that user `{user}` may see, and the user may not make it: let it, or make the table as docs/stores.md shows"
            )),
            _ => Self::meaning(access, error),
        }
    }
}
