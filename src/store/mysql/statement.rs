//! The statements about one row. Each is one message and one transaction of its own, and where it decides, the database's
//! clock decides.
//!
//! `UTC_TIMESTAMP` is the time at which a statement was received, in every session's zone the same, and the same on a
//! replica that repeats the statement. A statement that had to wait for somebody else's lock on the row so grants less
//! than it could, and takes a lease over later than it could.

use std::time::Duration;

use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Error, Row as _, raw_sql};

use crate::store::server::{Found, Statements, quoted};
use crate::store::sql::{Look, Row, Seat};

const NOW: &str = "UTC_TIMESTAMP(3)";
/// True where a server takes writes. A user may have the right to write to one that is read-only, and must not elect there.
/// The variable is a number in some versions and a word in others.
const WRITABLE: &str = "@@global.read_only IN ('0', 'OFF')";

/// The statements about one row, as one process sends them.
pub(super) struct MysqlStatements {
    component: String,
    holder: String,
    /// The end of a lease that begins now.
    until: String,
    /// Later than any lease that begins now can end, unless the clock was set back.
    too_late: String,
    /// The row. The index finds names that differ in their case, too.
    ours: String,
}

impl MysqlStatements {
    pub(super) fn new(seat: &Seat) -> Self {
        let component = quoted(seat.component());
        let after = |ttl: Duration| format!("{NOW} + INTERVAL {} MICROSECOND", ttl.as_micros());
        Self {
            holder: quoted(seat.holder()),
            until: after(seat.ttl()),
            too_late: after(seat.ttl() * 2),
            ours: format!("component = {component} AND BINARY component = {component} AND {WRITABLE}"),
            component,
        }
    }
}

impl Statements for MysqlStatements {
    fn look(&self) -> String {
        let Self { component, .. } = self;
        format!(
            "SELECT CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS SIGNED) AS now, {WRITABLE} AS writable,
                CAST(component AS BINARY) AS component, CAST(holder_id AS BINARY) AS holder_id, version,
                CAST(expires_at AS CHAR) AS expires_at,
                TIMESTAMPDIFF(MICROSECOND, {NOW}, expires_at) DIV 1000 AS remaining
            FROM (SELECT 1) AS one LEFT JOIN leader_leases ON component = {component}"
        )
    }

    /// Fails with [`is_duplicate`](super::failure::is_duplicate) where somebody was faster.
    fn insert(&self, version: i64) -> String {
        let Self { component, holder, until, .. } = self;
        format!(
            "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
            SELECT {component}, {holder}, {NOW}, {until}, {version} FROM (SELECT 1) AS one WHERE {WRITABLE}"
        )
    }

    fn take(&self, row: &Row, version: i64) -> String {
        let Self { holder, until, ours, .. } = self;
        let (holder_before, version_before) = (quoted(&row.holder_id), row.version);
        format!(
            "UPDATE leader_leases SET holder_id = {holder}, acquired_at = {NOW}, expires_at = {until}, version = {version}
            WHERE {ours} AND holder_id = {holder_before} AND version = {version_before}
                AND (holder_id = {holder} OR expires_at < {NOW})"
        )
    }

    fn renew(&self, version: i64) -> String {
        let Self { holder, until, too_late, ours, .. } = self;
        // The beginning follows a clock that was set back, or the end might come to lie before it. A renewal that waited for
        // longer than the next one takes nothing from it.
        format!(
            "UPDATE leader_leases SET acquired_at = least(acquired_at, {NOW}),
                expires_at = if(expires_at BETWEEN {until} AND {too_late}, expires_at, {until})
            WHERE {ours} AND holder_id = {holder} AND version = {version} AND expires_at > acquired_at"
        )
    }

    fn release(&self, version: Option<i64>) -> String {
        let Self { holder, ours, .. } = self;
        let version = version.map(|version| format!("AND version = {version}")).unwrap_or_default();
        format!(
            "UPDATE leader_leases SET expires_at = least(acquired_at, {NOW}) - INTERVAL 1 SECOND
            WHERE {ours} AND holder_id = {holder} {version}"
        )
    }

    fn erase(&self) -> String {
        let Self { holder, ours, .. } = self;
        format!("DELETE FROM leader_leases WHERE {ours} AND (holder_id = {holder} OR expires_at < {NOW})")
    }
}

/// Reads the row and the clock; nothing where the server takes no writes.
pub(super) async fn look(connection: &mut MySqlConnection, look: String) -> Result<Option<Look>, Error> {
    // Run to its end, so that nothing of the answer is left for the next statement.
    let found = raw_sql(AssertSqlSafe(look)).fetch_all(connection).await?.pop().ok_or(Error::RowNotFound)?;
    if found.try_get::<i64, _>("writable")? == 0 {
        return Ok(None);
    }
    let text = |column| Ok::<_, Error>(String::from_utf8_lossy(found.try_get::<&[u8], _>(column)?).into_owned());
    let row = match found.try_get::<Option<i64>, _>("version")? {
        Some(version) => Some(Row {
            component: text("component")?,
            holder_id: text("holder_id")?,
            version,
            expires_at: found.try_get("expires_at")?,
            left: found.try_get("remaining")?,
        }),
        None => None,
    };
    Ok(Some(Look { now: found.try_get("now")?, row }))
}

/// Sends a statement and says how many rows it found to change, also where nothing of them changed.
pub(super) async fn change(connection: &mut MySqlConnection, statement: String) -> Result<u64, Error> {
    Ok(raw_sql(AssertSqlSafe(statement)).execute(connection).await?.rows_affected())
}

/// What a connection must have, for no statement can carry it: how long a statement may take, and that each one is a
/// transaction of its own. Waits for a lock, on a row or on the table, are counted in whole seconds; MariaDB also bounds the
/// whole statement.
pub(super) async fn set_up(connection: &mut MySqlConnection, statement_timeout: Duration) -> Result<(), Error> {
    let (seconds, exactly) = (statement_timeout.as_secs().max(1), statement_timeout.as_secs_f64());
    let settings = format!(
        "SET SESSION autocommit = 1, time_zone = '+00:00', lock_wait_timeout = {seconds}, innodb_lock_wait_timeout = {seconds}
            /*M! , max_statement_time = {exactly} */"
    );
    raw_sql(AssertSqlSafe(settings)).execute(connection).await?;
    Ok(())
}

/// Looks at the table that the name leads to.
pub(super) async fn find_table(connection: &mut MySqlConnection) -> Result<Found, Error> {
    const COLUMNS_FOUND: &str = "SELECT CAST(column_name AS CHAR), CAST(data_type AS CHAR), CAST(coalesce(datetime_precision, 0) AS SIGNED)
        FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'leader_leases' ORDER BY ordinal_position";
    // A unique key of this column alone.
    const KEYS_FOUND: &str = "SELECT index_name FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'leader_leases' AND non_unique = 0
        GROUP BY index_name HAVING count(*) = 1 AND max(column_name) = 'component'";
    let columns = raw_sql(COLUMNS_FOUND).fetch_all(&mut *connection).await?;
    let columns = columns.iter().map(|column| Ok((column.try_get(0)?, column.try_get(1)?, column.try_get(2)?)));
    let columns = columns.collect::<Result<Vec<(String, String, i64)>, Error>>()?;
    if let Some(found) = Found::by_columns(&columns.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>()) {
        return Ok(found);
    }
    // An end that is rounded to whole seconds may come half a second early.
    if let Some((name, kind, digits)) = columns.iter().find(|(name, _, digits)| name.ends_with("_at") && *digits < 3) {
        return Ok(Found::Other(format!("whose {name} is a {kind}({digits}), not a datetime(3)")));
    }
    if raw_sql(KEYS_FOUND).fetch_all(connection).await?.is_empty() {
        return Ok(Found::without_key());
    }
    Ok(Found::Ours)
}

/// Makes the table as gorm would, but in a form in which names that differ in their case are different names.
pub(super) async fn create_table(connection: &mut MySqlConnection) -> Result<(), Error> {
    const CREATE: &str = "CREATE TABLE IF NOT EXISTS leader_leases (
            id bigint unsigned AUTO_INCREMENT PRIMARY KEY,
            component varchar(64) NOT NULL,
            holder_id varchar(255) NOT NULL,
            acquired_at datetime(3) NOT NULL,
            expires_at datetime(3) NOT NULL,
            version bigint NOT NULL DEFAULT 0,
            UNIQUE INDEX idx_leader_leases_component (component)
        ) ENGINE = InnoDB CHARACTER SET utf8mb4 COLLATE utf8mb4_bin";
    raw_sql(CREATE).execute(connection).await?;
    Ok(())
}
