//! The table and its statements. Each one is atomic, and where it decides, the database's clock decides.
//!
//! Statements are always run to their end: the transaction of one that returns rows commits only then, and only then is
//! it known whether it could.

use std::time::Duration;

use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, query, query_as, query_scalar};

use super::failure;

/// The present in the form that both SQLite and gorm read, and whose texts sort as the times do.
macro_rules! now {
    () => {
        "strftime('%Y-%m-%d %H:%M:%f', 'now') || '+00:00'"
    };
}

/// The present and a modifier like `+10.000 seconds`.
macro_rules! later {
    ($by:literal) => {
        concat!("strftime('%Y-%m-%d %H:%M:%f', 'now', ", $by, ") || '+00:00'")
    };
}

/// Switches the file to the write-ahead log, in which readers never wait. It works without; so one that cannot be
/// switched just now, because others have it open, is used as it is.
pub(super) async fn prefer_wal(connection: &mut SqliteConnection) -> Result<(), Error> {
    match query("PRAGMA journal_mode = WAL").fetch_all(connection).await {
        Err(error) if !failure::is_contention(&error) => Err(error),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Makes the table where it is missing, as gorm would. Whether it is ours is still to be checked.
pub(super) async fn create(connection: &mut SqliteConnection) -> Result<(), Error> {
    const TABLE: &str = "CREATE TABLE IF NOT EXISTS leader_leases (
        id integer PRIMARY KEY AUTOINCREMENT,
        component varchar(64) NOT NULL,
        holder_id varchar(255) NOT NULL,
        acquired_at datetime NOT NULL,
        expires_at datetime NOT NULL,
        version bigint NOT NULL DEFAULT 0
    )";
    query(TABLE).execute(connection).await?;
    Ok(())
}

/// Makes the table's index where it is missing, as gorm would.
pub(super) async fn create_index(connection: &mut SqliteConnection) -> Result<(), Error> {
    const INDEX: &str = "CREATE UNIQUE INDEX IF NOT EXISTS idx_leader_leases_component ON leader_leases (component)";
    query(INDEX).execute(connection).await?;
    Ok(())
}

/// Whether the table has our columns; if not, which it has instead.
pub(super) async fn check_columns(connection: &mut SqliteConnection) -> Result<Result<(), String>, Error> {
    const OURS: [&str; 6] = ["id", "component", "holder_id", "acquired_at", "expires_at", "version"];
    let columns: Vec<String> = query_scalar("SELECT name FROM pragma_table_info('leader_leases')").fetch_all(connection).await?;
    let complete = OURS.iter().all(|ours| columns.iter().any(|column| column == ours));
    Ok(if complete { Ok(()) } else { Err(columns.join(", ")) })
}

/// The election's row as it was read.
pub(super) struct Row {
    pub(super) holder_id: String,
    pub(super) version: i64,
    pub(super) expires_at: String,
    /// By the database's clock, in milliseconds; nothing if `expires_at` is no time.
    pub(super) left: Option<i64>,
}

/// The holder, the version, the expiry and what is left until then, whatever they are.
type RawRow = (Vec<u8>, i64, Vec<u8>, Option<i64>);

/// The one row that an election has, seen from one process.
pub(super) struct Seat {
    component: String,
    /// What this process writes as `holder_id`.
    holder: String,
    /// The TTL as a modifier of SQLite's times.
    lasting: String,
}

impl Seat {
    pub(super) fn new(component: String, holder: String, ttl: Duration) -> Self {
        let lasting = format!("+{}.{:03} seconds", ttl.as_secs(), ttl.subsec_millis());
        Self { component, holder, lasting }
    }

    pub(super) fn component(&self) -> &str {
        &self.component
    }

    pub(super) fn is_ours(&self, row: &Row) -> bool {
        row.holder_id == self.holder
    }

    pub(super) async fn read(&self, connection: &mut SqliteConnection) -> Result<Option<Row>, Error> {
        // Whatever the columns hold, for SQLite lets anybody write anything into them.
        const READ: &str = "SELECT CAST(holder_id AS BLOB), CAST(version AS INTEGER), CAST(expires_at AS BLOB),
                CAST(round((unixepoch(expires_at, 'subsec') - unixepoch('now', 'subsec')) * 1000) AS INTEGER)
            FROM leader_leases WHERE component = ?1";
        let rows: Vec<RawRow> = query_as(READ).bind(&self.component).fetch_all(connection).await?;
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let row = rows.into_iter().next();
        Ok(row.map(|(holder_id, version, expires_at, left)| Row {
            holder_id: text(holder_id),
            version,
            expires_at: text(expires_at),
            left,
        }))
    }

    /// Starts a tenure where there is no row, and returns its version unless somebody else was faster.
    ///
    /// The numbering begins at the database's milliseconds, which no numbering by one tenure at a time has reached
    /// before, nor below what this process has `seen`, should the clock have been set back.
    pub(super) async fn insert(&self, connection: &mut SqliteConnection, seen: i64) -> Result<Option<i64>, Error> {
        const INSERT: &str = concat!(
            "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version) VALUES (?1, ?2, ",
            now!(),
            ", ",
            later!("?3"),
            ", max(CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), ?4 + 1))
            ON CONFLICT (component) DO NOTHING RETURNING version"
        );
        let versions = query_scalar(INSERT).bind(&self.component).bind(&self.holder).bind(&self.lasting).bind(seen);
        Ok(versions.fetch_all(connection).await?.pop())
    }

    /// Starts the next tenure in `row`, and returns its version unless the row has changed since, or is neither
    /// expired nor ours.
    pub(super) async fn take(&self, connection: &mut SqliteConnection, row: &Row, seen: i64) -> Result<Option<i64>, Error> {
        const TAKE: &str = concat!(
            "UPDATE leader_leases SET holder_id = ?2, acquired_at = ",
            now!(),
            ", expires_at = ",
            later!("?3"),
            ", version = max(version, ?4) + 1
            WHERE component = ?1 AND holder_id = ?5 AND version = ?6
                AND (holder_id = ?2 OR unixepoch(expires_at, 'subsec') < unixepoch('now', 'subsec'))
            RETURNING version"
        );
        let versions = query_scalar(TAKE).bind(&self.component).bind(&self.holder).bind(&self.lasting).bind(seen);
        Ok(versions.bind(&row.holder_id).bind(row.version).fetch_all(connection).await?.pop())
    }

    /// Extends the tenure of `version`; says whether it was still there. One that was given back stays given back: its
    /// end lies before its beginning. One that has merely expired goes on, for nobody has led since.
    pub(super) async fn renew(&self, connection: &mut SqliteConnection, version: i64) -> Result<bool, Error> {
        // The beginning follows a clock that was set back, or the end might come to lie before it.
        const RENEW: &str = concat!(
            "UPDATE leader_leases SET acquired_at = min(acquired_at, ",
            now!(),
            "), expires_at = ",
            later!("?2"),
            " WHERE component = ?1 AND holder_id = ?3 AND version = ?4 AND expires_at > acquired_at"
        );
        let renewal = query(RENEW).bind(&self.component).bind(&self.lasting).bind(&self.holder).bind(version);
        Ok(renewal.execute(connection).await?.rows_affected() > 0)
    }

    /// Deletes the row of an election that is over, or this process's.
    pub(super) async fn erase(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        const ERASE: &str = "DELETE FROM leader_leases WHERE component = ?1
            AND (holder_id = ?2 OR unixepoch(expires_at, 'subsec') < unixepoch('now', 'subsec'))";
        query(ERASE).bind(&self.component).bind(&self.holder).execute(connection).await?;
        Ok(())
    }

    /// Ends the tenure of `version`, or whichever is this process's. The row stays, for it keeps the numbering.
    pub(super) async fn release(&self, connection: &mut SqliteConnection, version: Option<i64>) -> Result<(), Error> {
        const RELEASE: &str = concat!(
            "UPDATE leader_leases SET expires_at = strftime('%Y-%m-%d %H:%M:%f', min(acquired_at, ",
            now!(),
            "), '-1 seconds') || '+00:00' WHERE component = ?1 AND holder_id = ?2 AND version = coalesce(?3, version)"
        );
        query(RELEASE).bind(&self.component).bind(&self.holder).bind(version).execute(connection).await?;
        Ok(())
    }
}
