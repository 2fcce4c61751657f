//! What an error of SQLite means to the election, in a sentence that names the file.

use std::path::Path;

use crate::store::contract::StoreError;
use crate::store::sql::Failure;

/// Whether the connection can be used again after `error`: contention passes, everything else may be the file's end.
pub(super) fn is_contention(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(SQLITE_BUSY | SQLITE_LOCKED))
}

/// The contract's word for `error`.
pub(super) fn judge(path: &Path, operation: &'static str, error: sqlx::Error) -> StoreError {
    let code = primary_code(&error);
    let (denied, sentence) = match code {
        Some(SQLITE_BUSY | SQLITE_LOCKED) => (false, "is locked by another process for longer than a call may take"),
        // Moved away under us; the next call opens what is there now.
        Some(SQLITE_READONLY) if extended_code(&error) == Some(SQLITE_READONLY_DBMOVED) => (false, "was moved or replaced"),
        Some(SQLITE_PERM | SQLITE_READONLY | SQLITE_AUTH) => {
            (true, "cannot be written: let the user of this process write it and its folder")
        }
        // SQLite does not say why. A folder that is gone may come back; in one that is there, a person must help.
        Some(SQLITE_CANTOPEN) if path.parent().is_some_and(Path::is_dir) => {
            (true, "cannot be opened or made: let the user of this process write it and its folder")
        }
        Some(SQLITE_CANTOPEN) => (false, "cannot be opened: its folder is gone"),
        Some(SQLITE_CORRUPT | SQLITE_NOTADB) => (true, "is no usable SQLite database: name another file, or remove this one"),
        Some(SQLITE_CONSTRAINT) => (true, "has a table leader_leases that does not take our row: name another file"),
        Some(_) | None => (false, "failed"),
    };
    let failure = Failure::new(format!("{} {sentence}", path.display()), error);
    if denied { StoreError::denied(operation, failure) } else { StoreError::unavailable(operation, failure) }
}

// https://www.sqlite.org/rescode.html
const SQLITE_PERM: u32 = 3;
const SQLITE_BUSY: u32 = 5;
const SQLITE_LOCKED: u32 = 6;
const SQLITE_READONLY: u32 = 8;
const SQLITE_CORRUPT: u32 = 11;
const SQLITE_CANTOPEN: u32 = 14;
const SQLITE_CONSTRAINT: u32 = 19;
const SQLITE_AUTH: u32 = 23;
const SQLITE_NOTADB: u32 = 26;
const SQLITE_READONLY_DBMOVED: u32 = 8 | 4 << 8;

fn extended_code(error: &sqlx::Error) -> Option<u32> {
    error.as_database_error()?.code()?.parse().ok()
}

fn primary_code(error: &sqlx::Error) -> Option<u32> {
    extended_code(error).map(|code| code & 0xff)
}
