//! What each kind of database server does in its own way.

use async_trait::async_trait;
use sqlx::Error;

use super::Access;
use crate::store::Secret;
use crate::store::sql::{COLUMNS, Look, Row};

/// One kind of database server: its protocol. It keeps no connection; [`row`](super::row) does.
#[async_trait]
pub(in crate::store) trait Driver: Errors + Send + Sync + 'static {
    /// A connection for statements.
    type Connection: Send + 'static;

    /// Opens a connection whose statements may run at once, but for the table, which may be missing.
    async fn connect(&self, access: &Access, password: Option<&Secret>) -> Result<Self::Connection, Error>;

    /// Looks at the table that the name leads to.
    async fn find_table(&self, connection: &mut Self::Connection) -> Result<Found, Error>;

    /// Makes the table, unless somebody was faster.
    async fn create_table(&self, connection: &mut Self::Connection) -> Result<(), Error>;

    /// Reads the row and the clock; nothing where the server takes no writes.
    async fn look(&self, connection: &mut Self::Connection, statement: String) -> Result<Option<Look>, Error>;

    /// Sends a statement and says whether it found a row to change.
    async fn change(&self, connection: &mut Self::Connection, statement: String) -> Result<bool, Error>;
}

/// What one kind of server says when something is wrong.
pub(in crate::store) trait Errors {
    /// What a server is that takes no writes, as people call it.
    const ONLY_READS: &'static str;

    /// Whether the connection is as good after `error` as before: somebody else was in the way.
    fn is_contention(error: &Error) -> bool;

    /// What `error` means to the election.
    fn meaning(access: &Access, error: &Error) -> Meaning;

    /// The same for an error that came of making the table.
    fn meaning_at_creation(access: &Access, error: &Error) -> Meaning;
}

/// The statements about one row, each one message and one transaction of its own.
pub(in crate::store) trait Statements: Send + Sync + 'static {
    /// Reads the row and the clock.
    fn look(&self) -> String;

    /// Starts a tenure where there is no row.
    fn insert(&self, version: i64) -> String;

    /// Starts the next tenure in `row`, unless it has changed since, or is neither expired nor ours.
    fn take(&self, row: &Row, version: i64) -> String;

    /// Extends the tenure of `version`, unless it was given back.
    fn renew(&self, version: i64) -> String;

    /// Ends the tenure of `version`, or whichever is this process's.
    fn release(&self, version: Option<i64>) -> String;

    /// Deletes a row that is over, or this process's.
    fn erase(&self) -> String;
}

/// What lies where the table belongs.
pub(in crate::store) enum Found {
    Nothing,
    /// A table that can hold our row.
    Ours,
    /// Another table, and what is wrong with it.
    Other(String),
}

impl Found {
    /// What a table of these columns is, unless all of ours are among them.
    pub(in crate::store) fn by_columns(names: &[&str]) -> Option<Self> {
        if names.is_empty() {
            return Some(Self::Nothing);
        }
        let has_ours = COLUMNS.iter().all(|ours| names.contains(ours));
        (!has_ours).then(|| Self::Other(format!("of other columns ({})", names.join(", "))))
    }

    /// A table in which the numbering of an election is not one.
    pub(in crate::store) fn without_key() -> Self {
        Self::Other("that may have several rows of one component".to_owned())
    }
}

/// What an error means to the election.
pub(in crate::store) enum Meaning {
    /// The server takes no writes.
    OnlyReads,
    /// A statement took too long, most likely for somebody else's lock on the row.
    TooSlow,
    /// Whoever laid out the table thought of other rows than ours.
    OtherTable,
    /// A person must help. How the sentence goes on that begins with the database.
    Denied(String),
    /// Nothing that the driver knows: it may pass.
    Unknown,
}
