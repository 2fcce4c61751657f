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
    url.open(&options, LockConfig { election, node: node.clone(), ttl, call_timeout: ttl / 6 })
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

    async fn make() -> Self;
    fn url_at(&self, address: SocketAddr) -> String;
    fn place(&self) -> SocketAddr;
    fn folder(&self) -> PathBuf;
    fn crash(&mut self);
    async fn come_back(&mut self);
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
