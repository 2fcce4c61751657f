//! The words in which each kind of database server is told and asked the same things.

use crate::mariadb_server::Mariadb;
use crate::postgres_server::Postgres;

/// Statements of one kind of server, and what it answers to them.
pub(crate) trait Words {
    /// Statements after which it takes no writes, and after which it does again.
    const READ_ONLY: &str;
    const WRITABLE: &str;
    /// What the administrator of a server runs to end everybody's connections but his own.
    const END_CONNECTIONS: &str;
    /// The session that an administrator's tool opens has this zone from now on.
    const FAR_ZONE: &str;
    /// How long the lease has still to run, in milliseconds.
    const REMAINING: &str;
    /// The columns of the table, what they are said to be, and the names of its unique keys of `component` alone.
    const COLUMNS: &str;
    const GORM: [&str; 6];
    const UNIQUE_INDEX: &str;
    /// Tables of the name that cannot be ours, and words that say why.
    const OTHER_TABLES: &[(&str, &str)];
    /// Makes the table one in which names that differ in their case are the same, where there are such tables.
    const BLIND_TO_CASE: Option<&str>;
    /// Makes `guarded`, who needs the password `hunter2`; changes it to `hunter3`; lets that expire.
    const GUARDED: &str;
    const NEW_PASSWORD: &str;
    const EXPIRED_PASSWORD: &str;
    /// Makes `limited`, who may not make tables; lets him read the table; and lets him do all that the documents ask for.
    const LIMITED: &str;
    const GRANT_READING: &str;
    const GRANT_ALL_NEEDED: &[&str];
    /// A row in our place of another make.
    const FOREIGN: &str;
    /// All rows, in a form that shows every change.
    const DUMP: &str;
}

impl Words for Postgres {
    const READ_ONLY: &str = "ALTER SYSTEM SET default_transaction_read_only = on;SELECT pg_reload_conf()";
    const WRITABLE: &str = "ALTER SYSTEM RESET default_transaction_read_only;SELECT pg_reload_conf()";
    const END_CONNECTIONS: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'bellwether'";
    const FAR_ZONE: &str = "ALTER SYSTEM SET timezone = 'Pacific/Kiritimati';ALTER ROLE bellwether SET timezone = 'Pacific/Pago_Pago';\
        SELECT pg_reload_conf()";
    const REMAINING: &str = "SELECT (extract(epoch FROM expires_at - now()) * 1000)::bigint::text FROM leader_leases";

    const COLUMNS: &str = "SELECT concat_ws(' ', column_name, udt_name, character_maximum_length, is_nullable, column_default)
        FROM information_schema.columns WHERE table_name = 'leader_leases' ORDER BY ordinal_position";
    const GORM: [&str; 6] = [
        "id int8 NO nextval('leader_leases_id_seq'::regclass)",
        "component varchar 64 NO",
        "holder_id varchar 255 NO",
        "acquired_at timestamptz NO",
        "expires_at timestamptz NO",
        "version int8 NO 0",
    ];
    const UNIQUE_INDEX: &str =
        "SELECT indexname::text FROM pg_indexes WHERE tablename = 'leader_leases' AND indexdef LIKE '%UNIQUE%(component)'";
    const OTHER_TABLES: &[(&str, &str)] = &[
        ("component text, owner text", "of other columns (component, owner): name another database"),
        (
            "id bigserial PRIMARY KEY, component varchar(64) UNIQUE, holder_id text, acquired_at timestamp, expires_at timestamp, version bigint",
            "whose acquired_at is a timestamp without time zone",
        ),
        (
            "id bigserial PRIMARY KEY, component varchar(64), holder_id text, acquired_at timestamptz, expires_at timestamptz, version bigint",
            "that may have several rows of one component",
        ),
    ];
    const BLIND_TO_CASE: Option<&str> = None;
    const GUARDED: &str = "CREATE ROLE guarded LOGIN PASSWORD 'hunter2' IN ROLE bellwether;ALTER DATABASE election OWNER TO guarded";
    const NEW_PASSWORD: &str = "ALTER ROLE guarded PASSWORD 'hunter3'";
    const EXPIRED_PASSWORD: &str = "ALTER ROLE guarded VALID UNTIL '2000-01-01'";
    const LIMITED: &str = "CREATE ROLE limited LOGIN";
    const GRANT_READING: &str = "GRANT SELECT ON leader_leases TO limited";
    const GRANT_ALL_NEEDED: &[&str] =
        &["GRANT SELECT, INSERT, UPDATE ON leader_leases TO limited", "GRANT USAGE ON SEQUENCE leader_leases_id_seq TO limited"];
    const FOREIGN: &str = "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
        VALUES ('default', 'web-1-0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77', '2026-01-01 00:00:00+00', '2026-01-01 00:00:30+00', 7)";
    const DUMP: &str = "SELECT leader_leases::text FROM leader_leases ORDER BY component";
}

impl Words for Mariadb {
    const READ_ONLY: &str = "SET GLOBAL read_only = 1";
    const WRITABLE: &str = "SET GLOBAL read_only = 0";
    const END_CONNECTIONS: &str = "KILL USER bellwether@'%'";
    const FAR_ZONE: &str = "SET GLOBAL time_zone = '+13:00'";
    const REMAINING: &str = "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(3), expires_at) DIV 1000 AS CHAR) FROM leader_leases";

    const COLUMNS: &str =
        "SELECT CAST(concat_ws(' ', column_name, column_type, is_nullable, nullif(column_key, ''), column_default) AS CHAR)
        FROM information_schema.columns WHERE table_name = 'leader_leases' ORDER BY ordinal_position";
    const GORM: [&str; 6] = [
        "id bigint(20) unsigned NO PRI",
        "component varchar(64) NO UNI",
        "holder_id varchar(255) NO",
        "acquired_at datetime(3) NO",
        "expires_at datetime(3) NO",
        "version bigint(20) NO 0",
    ];
    const UNIQUE_INDEX: &str = "SELECT index_name FROM information_schema.statistics
        WHERE table_name = 'leader_leases' AND column_name = 'component' AND non_unique = 0";
    const OTHER_TABLES: &[(&str, &str)] = &[
        ("component text, owner text", "of other columns (component, owner): name another database"),
        (
            "id bigint AUTO_INCREMENT PRIMARY KEY, component varchar(64) UNIQUE, holder_id text, acquired_at datetime(3),
                expires_at datetime, version bigint",
            "whose expires_at is a datetime(0), not a datetime(3)",
        ),
        (
            "id bigint AUTO_INCREMENT PRIMARY KEY, component varchar(64), holder_id varchar(255), acquired_at datetime(3),
                expires_at datetime(3), version bigint, UNIQUE (component, holder_id)",
            "that may have several rows of one component",
        ),
    ];
    const BLIND_TO_CASE: Option<&str> = Some("ALTER TABLE leader_leases CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci");
    const GUARDED: &str = "CREATE USER guarded@'%' IDENTIFIED BY 'hunter2';GRANT ALL ON election.* TO guarded@'%'";
    const NEW_PASSWORD: &str = "ALTER USER guarded@'%' IDENTIFIED BY 'hunter3'";
    const EXPIRED_PASSWORD: &str = "ALTER USER guarded@'%' PASSWORD EXPIRE";
    const LIMITED: &str = "CREATE USER limited@'%';GRANT CREATE TEMPORARY TABLES ON election.* TO limited@'%'";
    const GRANT_READING: &str = "GRANT SELECT ON election.leader_leases TO limited@'%'";
    const GRANT_ALL_NEEDED: &[&str] = &["GRANT SELECT, INSERT, UPDATE ON election.leader_leases TO limited@'%'"];
    const FOREIGN: &str = "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
        VALUES ('default', 'web-1-0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77', '2026-01-01 00:00:00', '2026-01-01 00:00:30', 7)";
    const DUMP: &str =
        "SELECT concat_ws(' ', id, component, holder_id, acquired_at, expires_at, version) FROM leader_leases ORDER BY component";
}
