//! A real store for a cluster under test, and the faults that befall it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::etcd::Etcd;
use super::mariadb::Mariadb;
use super::postgres::Postgres;

/// Which store a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Etcd,
    Mysql,
    Postgres,
    Sqlite,
}

/// A running store. Its data lies in the test's folder.
#[derive(Debug)]
pub(crate) enum Store {
    Etcd(Etcd),
    Mysql(Mariadb),
    Postgres(Postgres),
    Sqlite(Sqlite),
}

/// What an operator types.
const DELETE_LEADER: &str = "DELETE FROM leader_leases WHERE component = 'default'";

impl Store {
    /// Starts an empty store with its data in `folder`.
    pub(crate) async fn start(kind: Kind, folder: &Path) -> Self {
        match kind {
            Kind::Etcd => Self::Etcd(Etcd::start().await),
            Kind::Mysql => Self::Mysql(Mariadb::start().await),
            Kind::Postgres => Self::Postgres(Postgres::start().await),
            Kind::Sqlite => Self::Sqlite(Sqlite { file: folder.join("election.db"), held: None }),
        }
    }

    /// The store as `manage` takes it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Etcd(etcd) => etcd.url(),
            Self::Mysql(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::Sqlite(sqlite) => format!("sqlite://{}", sqlite.file.display()),
        }
    }

    /// The same, reached at `address` instead.
    ///
    /// # Panics
    /// When the store is a file.
    pub(crate) fn url_at(&self, address: SocketAddr) -> String {
        self.url().replace(&self.address().to_string(), &address.to_string())
    }

    /// Where clients reach the server.
    ///
    /// # Panics
    /// When the store is a file.
    pub(crate) fn address(&self) -> SocketAddr {
        match self {
            Self::Etcd(etcd) => etcd.address(),
            Self::Mysql(server) => server.address(),
            Self::Postgres(server) => server.address(),
            Self::Sqlite(_) => panic!("nobody reaches a file over the network"),
        }
    }

    /// The store stops answering: a server that is gone, or a file that another process keeps locked.
    pub(crate) async fn fail(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.stop().await,
            Self::Mysql(server) => server.stop(),
            Self::Postgres(server) => server.stop(),
            Self::Sqlite(sqlite) => sqlite.lock().await,
        }
    }

    /// The store is back with all that it knew.
    pub(crate) async fn recover(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.restart().await,
            Self::Mysql(server) => server.restart().await,
            Self::Postgres(server) => server.restart().await,
            Self::Sqlite(sqlite) => sqlite.unlock().await,
        }
    }

    /// The store is back and has forgotten everything.
    pub(crate) async fn recover_empty(&mut self) {
        match self {
            Self::Etcd(etcd) => etcd.restart_empty().await,
            Self::Mysql(server) => server.restart_empty().await,
            Self::Postgres(server) => server.restart_empty().await,
            Self::Sqlite(sqlite) => {
                sqlite.unlock().await;
                sqlite.remove();
            }
        }
    }

    /// Deletes the present leader's record, as an operator may.
    pub(crate) async fn delete_leader(&self) {
        match self {
            Self::Etcd(etcd) => etcd.delete_leader("bellwether/default/leader/").await,
            Self::Mysql(server) => drop(server.query(DELETE_LEADER).await),
            Self::Postgres(server) => drop(server.query(DELETE_LEADER).await),
            Self::Sqlite(sqlite) => sqlite.delete_leader().await,
        }
    }

    /// How many elections a database's table knows of.
    ///
    /// # Panics
    /// When the store is no database server.
    pub(crate) async fn rows(&self) -> usize {
        const ROWS: &str = "SELECT component FROM leader_leases";
        match self {
            Self::Mysql(server) => server.query(ROWS).await.len(),
            Self::Postgres(server) => server.query(ROWS).await.len(),
            Self::Etcd(_) | Self::Sqlite(_) => panic!("only database servers are asked"),
        }
    }

    /// Makes the leader's record look as if it had been written that much earlier.
    pub(crate) async fn age(&self, by: Duration) {
        let Self::Sqlite(sqlite) = self else { panic!("only a row in SQLite can be rewritten") };
        sqlite.age(by).await;
    }
}

/// An SQLite file and, during an outage, the connection that keeps it locked.
#[derive(Debug)]
pub(crate) struct Sqlite {
    file: PathBuf,
    held: Option<SqliteConnection>,
}

impl Sqlite {
    async fn open(&self) -> SqliteConnection {
        SqliteConnectOptions::new().filename(&self.file).connect().await.expect("open the election's file")
    }

    async fn lock(&mut self) {
        let mut connection = self.open().await;
        // Readers are shut out too, as they are by a lock that somebody forgot in the rollback journal's mode.
        sqlx::query("BEGIN EXCLUSIVE").execute(&mut connection).await.expect("lock the election's file");
        self.held = Some(connection);
    }

    async fn unlock(&mut self) {
        if let Some(connection) = self.held.take() {
            connection.close().await.expect("unlock the election's file");
        }
    }

    fn remove(&self) {
        for end in ["", "-wal", "-shm", "-journal"] {
            let file = PathBuf::from(format!("{}{end}", self.file.display()));
            if file.exists() {
                std::fs::remove_file(file).expect("remove the election's file");
            }
        }
    }

    async fn age(&self, by: Duration) {
        let earlier = |column| format!("{column} = strftime('%Y-%m-%d %H:%M:%f', {column}, '-{} seconds') || '+00:00'", by.as_secs());
        let update = format!("UPDATE leader_leases SET {}, {}", earlier("acquired_at"), earlier("expires_at"));
        let aged = sqlx::query(sqlx::AssertSqlSafe(update));
        let aged = aged.execute(&mut self.open().await).await.expect("age the record");
        assert_eq!(aged.rows_affected(), 1, "there was a record to age");
    }

    async fn delete_leader(&self) {
        let mut connection = self.open().await;
        let deleted = sqlx::query("DELETE FROM leader_leases").execute(&mut connection).await.expect("delete the record");
        assert_eq!(deleted.rows_affected(), 1, "there was a record to delete");
    }
}
