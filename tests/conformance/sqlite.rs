//! The store in an SQLite file, in real time. Each client has a connection of its own, as a process would.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bellwether::node::Node;
use bellwether::store::{Lock, LockConfig, StoreOptions, StoreUrl};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Row};
use tempfile::TempDir;

use crate::harness::{Harness, call_timeout};
use crate::rig::node;
use crate::suite::conformance;

/// A database in a folder of its own, and what an operator does with it.
pub(crate) struct File {
    folder: TempDir,
    path: PathBuf,
}

impl File {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // A folder of its own inside, so that it can be taken away.
        let inner = folder.path().join("data");
        std::fs::create_dir(&inner).expect("a folder inside");
        Self { path: inner.join("election.db"), folder }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn folder(&self) -> &Path {
        self.path.parent().expect("a database has a folder")
    }

    pub(crate) fn url(&self) -> StoreUrl {
        format!("sqlite://{}", self.path.display()).parse().expect("a path without surprises")
    }

    /// The store's client, with the durations that a candidate would give it.
    pub(crate) fn open(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        let election = self.url().election("default").expect("a service");
        let config = LockConfig { election, node: node.clone(), ttl, call_timeout: call_timeout(ttl) };
        self.url().open(&StoreOptions::default(), config).expect("a lock")
    }

    /// Another program's connection.
    pub(crate) async fn connect(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(&self.path).create_if_missing(true);
        options.disable_statement_logging().connect().await.expect("a connection")
    }

    /// What another program does in one go.
    pub(crate) async fn execute(&self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.connect().await).await.expect(sql);
    }

    /// All rows, every column of each.
    pub(crate) async fn rows(&self) -> Vec<Vec<String>> {
        let sql = "SELECT component, holder_id, CAST(acquired_at AS TEXT), CAST(expires_at AS TEXT), CAST(version AS TEXT)
            FROM leader_leases ORDER BY component";
        let rows = sqlx::query(sql).fetch_all(&mut self.connect().await).await.expect("rows");
        rows.iter().map(|row| (0..5).map(|column| row.get(column)).collect()).collect()
    }

    /// Takes the folder away, with everything in it.
    pub(crate) fn hide(&self) {
        std::fs::rename(self.folder(), self.folder.path().join("away")).expect("the folder moves away");
    }

    /// Brings the folder back.
    pub(crate) fn show(&self) {
        std::fs::rename(self.folder.path().join("away"), self.folder()).expect("the folder comes back");
    }
}

#[async_trait]
impl Harness for File {
    async fn start() -> Self {
        let file = Self::new();
        file.open(&node(9), file.ttl() * 30).leader().await.expect("the table is made");
        file
    }

    fn lock(&self, node: &Node, ttl: Duration) -> Arc<dyn Lock> {
        self.open(node, ttl)
    }

    fn ttl(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn slack(&self) -> Duration {
        Duration::from_secs(20)
    }

    async fn delete_record(&self) {
        self.execute("DELETE FROM leader_leases WHERE component = 'default'").await;
    }

    async fn write_foreign(&self) {
        self.execute(
            "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
            VALUES ('default', 'web-1-0b9e2c1e-7d5c-4f0e-9d2a-2f6a3c1b5e77', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:30+00:00', 7)",
        )
        .await;
    }

    async fn dump(&self) -> String {
        format!("{:?}", self.rows().await)
    }

    async fn restart(&self) {
        self.hide();
        tokio::time::sleep(self.ttl() / 10).await;
        self.show();
    }
}

conformance!(File);
