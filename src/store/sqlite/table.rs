//! The table and its statements. Each one is atomic, and where it decides, the database's clock decides.
//!
//! Statements are always run to their end: the transaction of one that returns rows commits only then, and only then is
//! it known whether it could.

use sqlx::sqlite::SqliteConnection;
use sqlx::{Error, query, query_as, query_scalar};

use super::failure;
use crate::store::sql::{COLUMNS, Look, Row, Seat};

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
    let columns: Vec<String> = query_scalar("SELECT name FROM pragma_table_info('leader_leases')").fetch_all(connection).await?;
    let complete = COLUMNS.iter().all(|ours| columns.iter().any(|column| column == ours));
    Ok(if complete { Ok(()) } else { Err(columns.join(", ")) })
}

/// The clock, and the component, the holder, the version, the expiry and what is left until then, whatever they are.
type RawLook = (i64, Option<Vec<u8>>, Option<Vec<u8>>, Option<i64>, Option<Vec<u8>>, Option<i64>);

/// The statements about one row, as one process sends them.
pub(super) struct Statements<'a> {
    seat: &'a Seat,
    /// The TTL as a modifier of SQLite's times.
    lasting: String,
}

impl<'a> Statements<'a> {
    pub(super) fn new(seat: &'a Seat) -> Self {
        let ttl = seat.ttl();
        Self { seat, lasting: format!("+{}.{:03} seconds", ttl.as_secs(), ttl.subsec_millis()) }
    }

    pub(super) async fn look(&self, connection: &mut SqliteConnection) -> Result<Look, Error> {
        // Whatever the columns hold, for SQLite lets anybody write anything into them.
        const LOOK: &str = "SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER), CAST(component AS BLOB),
                CAST(holder_id AS BLOB), CAST(version AS INTEGER), CAST(expires_at AS BLOB),
                CAST(round((unixepoch(expires_at, 'subsec') - unixepoch('now', 'subsec')) * 1000) AS INTEGER)
            FROM (SELECT 1) LEFT JOIN leader_leases ON component = ?1";
        let looks: Vec<RawLook> = query_as(LOOK).bind(self.seat.component()).fetch_all(connection).await?;
        let (now, component, holder_id, version, expires_at, left) = looks.into_iter().next().ok_or(Error::RowNotFound)?;
        let text = |bytes: Option<Vec<u8>>| String::from_utf8_lossy(&bytes.unwrap_or_default()).into_owned();
        let row = version.map(|version| Row {
            component: text(component),
            holder_id: text(holder_id),
            version,
            expires_at: text(expires_at),
            left,
        });
        Ok(Look { now, row })
    }

    pub(super) async fn insert(&self, connection: &mut SqliteConnection, version: i64) -> Result<bool, Error> {
        const INSERT: &str = concat!(
            "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version) VALUES (?1, ?2, ",
            now!(),
            ", ",
            later!("?3"),
            ", ?4) ON CONFLICT (component) DO NOTHING"
        );
        let insertion = query(INSERT).bind(self.seat.component()).bind(self.seat.holder()).bind(&self.lasting).bind(version);
        Ok(insertion.execute(connection).await?.rows_affected() > 0)
    }

    pub(super) async fn take(&self, connection: &mut SqliteConnection, row: &Row, version: i64) -> Result<bool, Error> {
        const TAKE: &str = concat!(
            "UPDATE leader_leases SET holder_id = ?2, acquired_at = ",
            now!(),
            ", expires_at = ",
            later!("?3"),
            ", version = ?4
            WHERE component = ?1 AND holder_id = ?5 AND version = ?6
                AND (holder_id = ?2 OR unixepoch(expires_at, 'subsec') < unixepoch('now', 'subsec'))"
        );
        let taking = query(TAKE).bind(self.seat.component()).bind(self.seat.holder()).bind(&self.lasting).bind(version);
        Ok(taking.bind(&row.holder_id).bind(row.version).execute(connection).await?.rows_affected() > 0)
    }

    pub(super) async fn renew(&self, connection: &mut SqliteConnection, version: i64) -> Result<bool, Error> {
        // The beginning follows a clock that was set back, or the end might come to lie before it.
        const RENEW: &str = concat!(
            "UPDATE leader_leases SET acquired_at = min(acquired_at, ",
            now!(),
            "), expires_at = ",
            later!("?2"),
            " WHERE component = ?1 AND holder_id = ?3 AND version = ?4 AND expires_at > acquired_at"
        );
        let renewal = query(RENEW).bind(self.seat.component()).bind(&self.lasting).bind(self.seat.holder()).bind(version);
        Ok(renewal.execute(connection).await?.rows_affected() > 0)
    }

    pub(super) async fn release(&self, connection: &mut SqliteConnection, version: Option<i64>) -> Result<(), Error> {
        const RELEASE: &str = concat!(
            "UPDATE leader_leases SET expires_at = strftime('%Y-%m-%d %H:%M:%f', min(acquired_at, ",
            now!(),
            "), '-1 seconds') || '+00:00' WHERE component = ?1 AND holder_id = ?2 AND version = coalesce(?3, version)"
        );
        query(RELEASE).bind(self.seat.component()).bind(self.seat.holder()).bind(version).execute(connection).await?;
        Ok(())
    }

    pub(super) async fn erase(&self, connection: &mut SqliteConnection) -> Result<(), Error> {
        const ERASE: &str = "DELETE FROM leader_leases WHERE component = ?1
            AND (holder_id = ?2 OR unixepoch(expires_at, 'subsec') < unixepoch('now', 'subsec'))";
        query(ERASE).bind(self.seat.component()).bind(self.seat.holder()).execute(connection).await?;
        Ok(())
    }
}
