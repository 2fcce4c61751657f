//! The statements about one row. Each is one message and one transaction of its own, and where it decides, the database's
//! clock decides.
//!
//! `clock_timestamp()` is the time at which a row is really written, also after a wait for somebody else's lock on it. The
//! columns count in UTC, whatever zone a session shows them in.

use std::time::Duration;

use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Error, Row as _, raw_sql};

use crate::store::server::{Found, Statements, quoted};
use crate::store::sql::{Look, Row, Seat};

/// Where the beginning and the end of tenures are announced, with the component's name.
pub(super) const CHANNEL: &str = "leader_leases";

/// Comes before all else, for notices are no part of an answer and end the connection that gets one: behind a pooler another
/// client may have listened on the connection to the server that is ours for this statement. On one of our own it does nothing.
const QUIET: &str = "UNLISTEN *";

/// The statements about one row, as one process sends them.
pub(super) struct PostgresStatements {
    component: String,
    holder: String,
    /// From the present to the end of a lease.
    ttl: String,
    /// What comes before each statement, in the same transaction: how long it may take, and that what it writes shall be
    /// on disk before we hear of it, for an epoch that was given out must not be forgotten.
    settings: String,
    announcement: String,
}

impl PostgresStatements {
    pub(super) fn new(seat: &Seat, statement_timeout: Duration) -> Self {
        let component = quoted(seat.component());
        Self {
            holder: quoted(seat.holder()),
            ttl: format!("interval '{} milliseconds'", seat.ttl().as_millis()),
            settings: settings(statement_timeout),
            announcement: format!("NOTIFY {CHANNEL}, {component}"),
            component,
        }
    }
}

impl Statements for PostgresStatements {
    fn look(&self) -> String {
        let Self { component, settings, .. } = self;
        format!(
            "{settings}; SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now,
                current_setting('transaction_read_only') = 'on' AS only_reads,
                component, holder_id, version, expires_at::text AS expires_at,
                CASE WHEN isfinite(expires_at) THEN (extract(epoch FROM expires_at - clock_timestamp()) * 1000)::bigint
                    WHEN expires_at < clock_timestamp() THEN -1 END AS remaining
            FROM (SELECT 1) AS one LEFT JOIN leader_leases ON component = {component}"
        )
    }

    fn insert(&self, version: i64) -> String {
        let Self { component, holder, ttl, settings, announcement } = self;
        format!(
            "{settings}; INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
            VALUES ({component}, {holder}, clock_timestamp(), clock_timestamp() + {ttl}, {version})
            ON CONFLICT (component) DO NOTHING; {announcement}"
        )
    }

    fn take(&self, row: &Row, version: i64) -> String {
        let Self { component, holder, ttl, settings, announcement } = self;
        let (holder_before, version_before) = (quoted(&row.holder_id), row.version);
        format!(
            "{settings}; UPDATE leader_leases
            SET holder_id = {holder}, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + {ttl}, version = {version}
            WHERE component = {component} AND holder_id = {holder_before} AND version = {version_before}
                AND (holder_id = {holder} OR expires_at < clock_timestamp()); {announcement}"
        )
    }

    fn renew(&self, version: i64) -> String {
        let Self { component, holder, ttl, settings, .. } = self;
        // The beginning follows a clock that was set back, or the end might come to lie before it.
        format!(
            "{settings}; UPDATE leader_leases
            SET acquired_at = least(acquired_at, clock_timestamp()), expires_at = clock_timestamp() + {ttl}
            WHERE component = {component} AND holder_id = {holder} AND version = {version} AND expires_at > acquired_at"
        )
    }

    fn release(&self, version: Option<i64>) -> String {
        let Self { component, holder, settings, announcement, .. } = self;
        let version = version.map(|version| format!("AND version = {version}")).unwrap_or_default();
        format!(
            "{settings}; UPDATE leader_leases SET expires_at = least(acquired_at, clock_timestamp()) - interval '1 second'
            WHERE component = {component} AND holder_id = {holder} {version}; {announcement}"
        )
    }

    fn erase(&self) -> String {
        let Self { component, holder, settings, announcement, .. } = self;
        format!(
            "{settings}; DELETE FROM leader_leases
            WHERE component = {component} AND (holder_id = {holder} OR expires_at < clock_timestamp()); {announcement}"
        )
    }
}

fn settings(statement_timeout: Duration) -> String {
    format!("{QUIET}; SET LOCAL statement_timeout = {}; SET LOCAL synchronous_commit = on", statement_timeout.as_millis())
}

/// Reads the row and the clock; nothing where the server takes no writes.
pub(super) async fn look(connection: &mut PgConnection, look: String) -> Result<Option<Look>, Error> {
    // Run to its end, so that nothing of the answer is left for the next statement.
    let found = raw_sql(AssertSqlSafe(look)).fetch_all(connection).await?.pop().ok_or(Error::RowNotFound)?;
    if found.try_get("only_reads")? {
        return Ok(None);
    }
    let row = match found.try_get::<Option<i64>, _>("version")? {
        Some(version) => Some(Row {
            component: found.try_get("component")?,
            holder_id: found.try_get("holder_id")?,
            version,
            expires_at: found.try_get("expires_at")?,
            left: found.try_get("remaining")?,
        }),
        None => None,
    };
    Ok(Some(Look { now: found.try_get("now")?, row }))
}

/// Sends a statement and says how many rows it changed.
pub(super) async fn change(connection: &mut PgConnection, statement: String) -> Result<u64, Error> {
    Ok(raw_sql(AssertSqlSafe(statement)).execute(connection).await?.rows_affected())
}

/// Looks at the table that the name leads to.
pub(super) async fn find_table(connection: &mut PgConnection) -> Result<Found, Error> {
    const FIND: &str = "UNLISTEN *; SELECT attname::text, format_type(atttypid, NULL)
        FROM pg_attribute WHERE attrelid = to_regclass('leader_leases') AND attnum > 0 AND NOT attisdropped ORDER BY attnum";
    // A unique key of this column alone, and of all rows.
    const FIND_KEY: &str = "UNLISTEN *; SELECT 1 FROM pg_index JOIN pg_attribute ON attrelid = indrelid AND attnum = indkey[0]
        WHERE indrelid = to_regclass('leader_leases') AND attname = 'component'
            AND indisunique AND indisvalid AND indnkeyatts = 1 AND indpred IS NULL";
    let columns = raw_sql(FIND).fetch_all(&mut *connection).await?;
    let columns = columns.iter().map(|column| Ok((column.try_get(0)?, column.try_get(1)?)));
    let columns = columns.collect::<Result<Vec<(String, String)>, Error>>()?;
    if let Some(found) = Found::by_columns(&columns.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()) {
        return Ok(found);
    }
    // Times without a zone would be compared in the zone of whoever asks.
    let zoneless = columns.iter().find(|(name, kind)| name.ends_with("_at") && kind != "timestamp with time zone");
    if let Some((name, kind)) = zoneless {
        return Ok(Found::Other(format!("whose {name} is a {kind}, not a timestamp with time zone")));
    }
    if raw_sql(FIND_KEY).fetch_all(connection).await?.is_empty() {
        return Ok(Found::without_key());
    }
    Ok(Found::Ours)
}

/// Makes the table as gorm would. The lock is for those who make it at the same moment, which PostgreSQL does not bear.
pub(super) async fn create_table(connection: &mut PgConnection, statement_timeout: Duration) -> Result<(), Error> {
    const CREATE: &str = "SELECT pg_advisory_xact_lock(hashtext('leader_leases'));
        CREATE TABLE IF NOT EXISTS leader_leases (
            id bigserial PRIMARY KEY,
            component varchar(64) NOT NULL,
            holder_id varchar(255) NOT NULL,
            acquired_at timestamptz NOT NULL,
            expires_at timestamptz NOT NULL,
            version bigint NOT NULL DEFAULT 0
        );
        CREATE UNIQUE INDEX IF NOT EXISTS idx_leader_leases_component ON leader_leases (component)";
    let create = format!("{}; {CREATE}", settings(statement_timeout));
    raw_sql(AssertSqlSafe(create)).execute(connection).await?;
    Ok(())
}
