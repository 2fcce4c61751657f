//! What the tests of the database servers have in common: one set of words for both kinds of server, locks, whole
//! candidates, and sentences that errors must have.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::store::{Lock, LockConfig, OpenError, StoreError, StoreOption, StoreOptions, StoreUrl};
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Row};

use crate::harness::call_timeout;
use crate::mariadb_server::Mariadb;
use crate::postgres_server::Postgres;

/// Makes a test of each of these functions for each kind of server.
macro_rules! on_each_server {
    ($($test:ident)*) => {
        mod on_postgres {
            $(#[tokio::test] async fn $test() { super::$test::<crate::postgres_server::Postgres>().await; })*
        }
        mod on_mariadb {
            $(#[tokio::test] async fn $test() { super::$test::<crate::mariadb_server::Mariadb>().await; })*
        }
    };
}

pub(crate) use on_each_server;

/// The lock of `node` at `url`, with these store options.
pub(crate) fn lock_at(url: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    service_at(url, "default", options, node, ttl)
}

/// The same for another service than the one by default.
pub(crate) fn service_at(url: &str, service: &str, options: &[String], node: &Node, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
    let url: StoreUrl = url.parse().expect("a store URL");
    let options = options.iter().map(|option| option.parse::<StoreOption>().expect("a store option"));
    let options = StoreOptions::new(options).expect("options that come once");
    let election = url.election(service).expect("a service's name");
    url.open(&options, LockConfig { election, node: node.clone(), ttl, call_timeout: call_timeout(ttl) })
}

/// Checks that a call was refused for good, in a sentence with these words.
#[track_caller]
pub(crate) fn denied<T: std::fmt::Debug>(result: Result<T, StoreError>, words: &[&str]) {
    match result {
        Err(error @ StoreError::Denied { .. }) => {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{words:?}: {text}");
        }
        other => panic!("{words:?}: {other:?}"),
    }
}

/// A real server, whichever it is.
pub(crate) trait Server: Sized {
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

    async fn make() -> Self;
    fn url_at(&self, address: SocketAddr) -> String;
    fn place(&self) -> SocketAddr;
    fn folder(&self) -> PathBuf;
    fn crash(&mut self);
    async fn come_back(&mut self);
    async fn come_back_empty(&mut self);
    /// What an administrator does, each statement by itself.
    async fn administer(&self, statements: &str);
    /// The first column of what somebody asks of the election's database, as text.
    async fn texts(&self, statement: &str) -> Vec<String>;
    /// Locks the leader's row, until the value is dropped.
    async fn lock_row(&self) -> Box<dyn Send>;

    fn here(&self) -> String {
        self.url_at(self.place())
    }

    /// The lock of a node of its own.
    fn open(&self, port: u16, ttl: Duration) -> Arc<dyn Lock> {
        lock_at(&self.here(), &[], &node(port), ttl).expect("open a lock")
    }

    /// Keeps a copy of all data, as a backup does.
    async fn back_up(&mut self) {
        self.crash();
        let copy = self.folder().with_extension("copy");
        copied("cp", &["-a", &self.folder().display().to_string(), &copy.display().to_string()]);
        self.come_back().await;
    }

    /// Comes back with the data of the copy, at the same address.
    async fn restore(&mut self) {
        self.crash();
        std::fs::remove_dir_all(self.folder()).expect("remove the data");
        std::fs::rename(self.folder().with_extension("copy"), self.folder()).expect("put the copy in place");
        self.come_back().await;
    }
}

fn copied(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("run a program of every system");
    assert!(status.success(), "{program} {arguments:?}: {status}");
}

pub(crate) fn node(port: u16) -> Node {
    Node::new(format!("127.0.0.1:{port}").parse().expect("an address"))
}

const LOCK_ROW: &str = "SELECT * FROM leader_leases WHERE component = 'default' FOR UPDATE";

impl Server for Postgres {
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

    async fn make() -> Self {
        Self::start().await
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("postgres://bellwether@{address}/election")
    }

    fn place(&self) -> SocketAddr {
        self.address()
    }

    fn folder(&self) -> PathBuf {
        self.data()
    }

    fn crash(&mut self) {
        self.stop();
    }

    async fn come_back(&mut self) {
        self.restart().await;
    }

    async fn come_back_empty(&mut self) {
        self.restart_empty().await;
    }

    async fn administer(&self, statements: &str) {
        self.execute(statements).await;
    }

    async fn texts(&self, statement: &str) -> Vec<String> {
        self.query(statement).await.iter().map(|row| row.get(0)).collect()
    }

    async fn lock_row(&self) -> Box<dyn Send> {
        let mut connection: PgConnection = self.connect("election").await.expect("a connection");
        sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; {LOCK_ROW}"))).execute(&mut connection).await.expect("lock the row");
        Box::new(connection)
    }
}

impl Server for Mariadb {
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

    async fn make() -> Self {
        Self::start().await
    }

    fn url_at(&self, address: SocketAddr) -> String {
        format!("mysql://bellwether@{address}/election")
    }

    fn place(&self) -> SocketAddr {
        self.address()
    }

    fn folder(&self) -> PathBuf {
        self.data()
    }

    fn crash(&mut self) {
        self.stop();
    }

    async fn come_back(&mut self) {
        self.restart().await;
    }

    async fn come_back_empty(&mut self) {
        self.restart_empty().await;
    }

    async fn administer(&self, statements: &str) {
        self.execute(statements).await;
    }

    async fn texts(&self, statement: &str) -> Vec<String> {
        self.query(statement).await.iter().map(|row| row.get(0)).collect()
    }

    async fn lock_row(&self) -> Box<dyn Send> {
        let mut connection: MySqlConnection = self.connect("election").await.expect("a connection");
        sqlx::raw_sql(AssertSqlSafe(format!("BEGIN; {LOCK_ROW}"))).execute(&mut connection).await.expect("lock the row");
        Box::new(connection)
    }
}
