//! A real store for a cluster under test, and the faults that befall it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::consul::Consul;
use super::etcd::Etcd;
use super::kubernetes::Kubernetes;

/// Which store a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Consul,
    Etcd,
    Kubernetes,
    Sqlite,
}

impl Kind {
    /// How long a silent holder's lock lasts at the longest, before this machine takes its time.
    pub(crate) fn lasts(self, ttl: Duration) -> Duration {
        match self {
            // And then its lock-delay of a second.
            Self::Consul => ttl * 2 + Duration::from_secs(1),
            Self::Etcd | Self::Kubernetes | Self::Sqlite => ttl,
        }
    }

    /// Whether epochs start again when the store has lost its data.
    pub(crate) fn counts_anew(self) -> bool {
        match self {
            Self::Consul | Self::Etcd => true,
            // A row that is made anew starts above every earlier one, and a Lease above what its next holder has seen.
            Self::Kubernetes | Self::Sqlite => false,
        }
    }
}

/// A running store. Its data lies in the test's folder.
#[derive(Debug)]
pub(crate) enum Store {
    Consul(Consul),
    Etcd(Etcd),
    Kubernetes(Kubernetes),
    Sqlite(Sqlite),
}

impl Store {
    /// Starts an empty store with its data in `folder`.
    pub(crate) async fn start(kind: Kind, folder: &Path) -> Self {
        match kind {
            Kind::Consul => Self::Consul(Consul::start().await),
            Kind::Etcd => Self::Etcd(Etcd::start().await),
            Kind::Kubernetes => Self::Kubernetes(Kubernetes::start().await),
            Kind::Sqlite => Self::Sqlite(Sqlite { file: folder.join("election.db"), held: None }),
        }
    }

    /// The store as commands take it: its URL, and the options that it needs, with spaces between them.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Consul(consul) => consul.url(),
            Self::Etcd(etcd) => etcd.url(),
            Self::Kubernetes(_) => self.url_by(self.server()),
            Self::Sqlite(sqlite) => format!("sqlite://{}", sqlite.file.display()),
        }
    }

    /// The same, for whoever reaches its server at `address`.
    pub(crate) fn url_by(&self, address: SocketAddr) -> String {
        match self {
            Self::Kubernetes(kubernetes) => format!("{} --store-opt kubeconfig={}", kubernetes.url(), kubernetes.kubeconfig_to(address)),
            Self::Consul(_) | Self::Etcd(_) | Self::Sqlite(_) => self.url().replace(&self.server().to_string(), &address.to_string()),
        }
    }

    /// Where the server of a store that has one is reached.
    pub(crate) fn server(&self) -> SocketAddr {
        match self {
            Self::Consul(consul) => consul.address(),
            Self::Etcd(etcd) => etcd.address(),
            Self::Kubernetes(kubernetes) => kubernetes.address(),
            Self::Sqlite(_) => panic!("SQLite has no server"),
        }
    }

    /// Freezes the server, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        match self {
            Self::Consul(consul) => consul.signal(signal),
            Self::Etcd(etcd) => etcd.signal(signal),
            Self::Kubernetes(kubernetes) => kubernetes.freeze(signal == Signal::STOP),
            Self::Sqlite(_) => panic!("SQLite has no server"),
        }
    }

    /// The store stops answering: a server that is gone, or a file that another process keeps locked.
    pub(crate) async fn fail(&mut self) {
        match self {
            Self::Consul(consul) => consul.stop().await,
            Self::Etcd(etcd) => etcd.stop().await,
            Self::Kubernetes(kubernetes) => kubernetes.stop(),
            Self::Sqlite(sqlite) => sqlite.lock().await,
        }
    }

    /// The store is back with all that it knew.
    pub(crate) async fn recover(&mut self) {
        match self {
            Self::Consul(consul) => consul.restart().await,
            Self::Etcd(etcd) => etcd.restart().await,
            Self::Kubernetes(kubernetes) => kubernetes.restart().await,
            Self::Sqlite(sqlite) => sqlite.unlock().await,
        }
    }

    /// The store is back and has forgotten everything.
    pub(crate) async fn recover_empty(&mut self) {
        match self {
            Self::Consul(consul) => consul.restart_empty().await,
            Self::Etcd(etcd) => etcd.restart_empty().await,
            Self::Kubernetes(kubernetes) => kubernetes.restart_empty().await,
            Self::Sqlite(sqlite) => {
                sqlite.unlock().await;
                sqlite.remove();
            }
        }
    }

    /// Deletes the present leader's record, as an operator may.
    pub(crate) async fn delete_leader(&self) {
        match self {
            Self::Consul(consul) => consul.delete("bellwether/default/leader").await,
            Self::Etcd(etcd) => etcd.delete_leader("bellwether/default/leader/").await,
            Self::Kubernetes(kubernetes) => kubernetes.delete("default"),
            Self::Sqlite(sqlite) => sqlite.delete_leader().await,
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
