//! What the tests of the database servers have in common: one set of deeds for every kind of server, locks, the suite's
//! harness, and sentences that errors must have.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, OpenError, StoreError};
use tokio::sync::Mutex;

use crate::database::{Database, Engine};
use crate::harness::Harness;
use crate::rig::{self, node};
use crate::sql_words::Words;

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
    rig::service_at(url, "default", options, node, ttl)
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
pub(crate) trait Server: Words + Sized {
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

const LOCK_ROW: &str = "BEGIN; SELECT * FROM leader_leases WHERE component = 'default' FOR UPDATE";

impl<E: Engine> Server for Database<E>
where
    Self: Words,
{
    async fn make() -> Self {
        Self::start().await
    }

    fn url_at(&self, address: SocketAddr) -> String {
        self.url().replace(&self.address().to_string(), &address.to_string())
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
        self.query(statement).await
    }

    async fn lock_row(&self) -> Box<dyn Send> {
        let mut connection = E::connect(self, "election").await.expect("a connection");
        E::run(&mut connection, LOCK_ROW.to_owned()).await.expect("lock the row");
        Box::new(connection)
    }
}

/// A store that one test has for itself.
pub(crate) struct OnServer<E> {
    url: String,
    server: Mutex<Database<E>>,
}

#[async_trait]
impl<E: Engine> Harness for OnServer<E>
where
    Database<E>: Words,
{
    async fn start() -> Self {
        let server = Database::start().await;
        let store = Self { url: server.url(), server: Mutex::new(server) };
        store.lock(&node(9), store.ttl() * 30).leader().await.expect("the table is made");
        store
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        lock_at(&self.url, &[], node, ttl).expect("open a lock")
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(2)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(5)
    }

    async fn delete_record(&self) {
        self.server.lock().await.query("DELETE FROM leader_leases WHERE component = 'default'").await;
    }

    async fn write_foreign(&self) {
        self.server.lock().await.query(Database::<E>::FOREIGN).await;
    }

    async fn dump(&self) -> String {
        self.server.lock().await.query(Database::<E>::DUMP).await.join("\n")
    }

    async fn restart(&self) {
        let mut server = self.server.lock().await;
        server.stop();
        server.restart().await;
    }
}
