//! A real store for a cluster under test, and the faults that befall it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::consul::Consul;
use super::etcd::Etcd;
use super::kazoo::Kazoo;
use super::kubernetes::Kubernetes;
use super::mariadb::Mariadb;
use super::postgres::Postgres;
use super::zookeeper::ZooKeeper;

/// Which store a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Consul,
    Etcd,
    Kubernetes,
    Mysql,
    Postgres,
    Sqlite,
    ZooKeeper,
}

impl Kind {
    /// How long a silent holder's lock lasts at the longest, before this machine takes its time.
    pub(crate) fn lasts(self, ttl: Duration) -> Duration {
        match self {
            // And then its lock-delay of a second.
            Self::Consul => ttl * 2 + Duration::from_secs(1),
            Self::Etcd | Self::Kubernetes | Self::Mysql | Self::Postgres | Self::Sqlite | Self::ZooKeeper => ttl,
        }
    }

    /// Whether epochs start again when the store has lost its data.
    pub(crate) fn counts_anew(self) -> bool {
        match self {
            Self::Consul | Self::Etcd | Self::ZooKeeper => true,
            // A row that is made anew starts above every earlier one, and a Lease above what its next holder has seen.
            Self::Kubernetes | Self::Mysql | Self::Postgres | Self::Sqlite => false,
        }
    }
}

/// A running store. Its data lies in the test's folder.
#[derive(Debug)]
pub(crate) enum Store {
    Consul(Consul),
    Etcd(Etcd),
    Kubernetes(Kubernetes),
    Mysql(Mariadb),
    Postgres(Postgres),
    Sqlite(Sqlite),
    ZooKeeper(ZooKeeper),
}

/// What an operator types.
const DELETE_LEADER: &str = "DELETE FROM leader_leases WHERE component = 'default'";

impl Store {
    /// Starts an empty store with its data in `folder`.
    pub(crate) async fn start(kind: Kind, folder: &Path) -> Self {
        match kind {
            Kind::Consul => Self::Consul(Consul::start().await),
            Kind::Etcd => Self::Etcd(Etcd::start().await),
            Kind::Kubernetes => Self::Kubernetes(Kubernetes::start().await),
            Kind::Mysql => Self::Mysql(Mariadb::start().await),
            Kind::Postgres => Self::Postgres(Postgres::start().await),
            Kind::Sqlite => Self::Sqlite(Sqlite { file: folder.join("election.db"), held: None }),
            Kind::ZooKeeper => Self::ZooKeeper(ZooKeeper::start(1, "").await),
        }
    }

    /// The store as commands take it: its URL, and the options that it needs, with spaces between them.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Consul(consul) => consul.url(),
            Self::Etcd(etcd) => etcd.url(),
            Self::Kubernetes(_) => self.url_by(self.server()),
            Self::Mysql(server) => server.url(),
            Self::Postgres(server) => server.url(),
            Self::Sqlite(sqlite) => format!("sqlite://{}", sqlite.file.display()),
            Self::ZooKeeper(zookeeper) => zookeeper.url(),
        }
    }

    /// The same, for whoever reaches its server at `address`.
    pub(crate) fn url_by(&self, address: SocketAddr) -> String {
        match self {
            Self::Kubernetes(kubernetes) => format!("{} --store-opt kubeconfig={}", kubernetes.url(), kubernetes.kubeconfig_to(address)),
            Self::Consul(_) | Self::Etcd(_) | Self::Mysql(_) | Self::Postgres(_) | Self::Sqlite(_) | Self::ZooKeeper(_) => {
                self.url().replace(&self.server().to_string(), &address.to_string())
            }
        }
    }

    /// Where the server of a store that has one is reached.
    pub(crate) fn server(&self) -> SocketAddr {
        match self {
            Self::Consul(consul) => consul.address(),
            Self::Etcd(etcd) => etcd.address(),
            Self::Kubernetes(kubernetes) => kubernetes.address(),
            Self::Mysql(server) => server.address(),
            Self::Postgres(server) => server.address(),
            Self::Sqlite(_) => panic!("SQLite has no server"),
            Self::ZooKeeper(zookeeper) => zookeeper.address(0),
        }
    }

    /// Freezes the server, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Consul(consul) => consul.signal(signal),
            Self::Etcd(etcd) => etcd.signal(signal),
            Self::Kubernetes(kubernetes) => kubernetes.freeze(signal == Signal::STOP),
            Self::Mysql(_) | Self::Postgres(_) | Self::Sqlite(_) => panic!("databases are not frozen"),
            Self::ZooKeeper(zookeeper) => zookeeper.signal(0, signal),
        }
    }

    /// The store stops answering: a server that is gone, or a file that another process keeps locked.
    pub(crate) async fn fail(&mut self) {
        match self {
            Self::Consul(consul) => consul.stop().await,
            Self::Etcd(etcd) => etcd.stop().await,
            Self::Kubernetes(kubernetes) => kubernetes.stop(),
            Self::Mysql(server) => server.stop(),
            Self::Postgres(server) => server.stop(),
            Self::Sqlite(sqlite) => sqlite.lock().await,
            Self::ZooKeeper(zookeeper) => zookeeper.stop(0),
        }
    }

    /// The store is back with all that it knew.
    pub(crate) async fn recover(&mut self) {
        match self {
            Self::Consul(consul) => consul.restart().await,
            Self::Etcd(etcd) => etcd.restart().await,
            Self::Kubernetes(kubernetes) => kubernetes.restart().await,
            Self::Mysql(server) => server.restart().await,
            Self::Postgres(server) => server.restart().await,
            Self::Sqlite(sqlite) => sqlite.unlock().await,
            Self::ZooKeeper(zookeeper) => zookeeper.restart(0).await,
        }
    }

    /// The store is back and has forgotten everything.
    pub(crate) async fn recover_empty(&mut self) {
        match self {
            Self::Consul(consul) => consul.restart_empty().await,
            Self::Etcd(etcd) => etcd.restart_empty().await,
            Self::Kubernetes(kubernetes) => kubernetes.restart_empty().await,
            Self::Mysql(server) => server.restart_empty().await,
            Self::Postgres(server) => server.restart_empty().await,
            Self::Sqlite(sqlite) => {
                // In this order: a tenure that began before the file went would overlap with the next one.
                sqlite.remove();
                sqlite.unlock().await;
            }
            Self::ZooKeeper(zookeeper) => {
                zookeeper.wipe(0);
                zookeeper.restart(0).await;
            }
        }
    }

    /// Deletes the present leader's record, as an operator may.
    pub(crate) async fn delete_leader(&self) {
        match self {
            Self::Consul(consul) => consul.delete("bellwether/default/leader").await,
            Self::Etcd(etcd) => etcd.delete_leader("bellwether/default/leader/").await,
            Self::Kubernetes(kubernetes) => kubernetes.delete("default"),
            Self::Mysql(server) => drop(server.query(DELETE_LEADER).await),
            Self::Postgres(server) => drop(server.query(DELETE_LEADER).await),
            Self::Sqlite(sqlite) => sqlite.delete_leader().await,
            Self::ZooKeeper(zookeeper) => Kazoo::start(zookeeper.address(0)).delete_leader("/bellwether/default/leader").await,
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
            Self::Consul(_) | Self::Etcd(_) | Self::Kubernetes(_) | Self::Sqlite(_) | Self::ZooKeeper(_) => {
                panic!("only database servers are asked")
            }
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
