//! A real PostgreSQL server on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::account::{Account, Process};
use super::port;

/// How long the server may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// The package that has it.
const PACKAGE: &str = "postgresql";
/// Whoever is `guarded` needs a password, and whoever is `veiled` TLS; everybody else is let in.
const ACCESS: &str = "local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
hostssl all veiled 127.0.0.1/32 trust
host all veiled 127.0.0.1/32 reject
host replication all 127.0.0.1/32 trust
host all all 127.0.0.1/32 trust
";

/// A server with its data in a folder of its own and a database `election` of the user `bellwether`.
#[derive(Debug)]
pub(crate) struct Postgres {
    process: Option<Process>,
    address: SocketAddr,
    account: Account,
    settings: Vec<String>,
    folder: TempDir,
}

impl Postgres {
    /// Starts an empty server.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more settings.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let mut server = Self::at(port::free(), settings);
        server.make();
        server.restart().await;
        server.fill().await;
        server
    }

    /// A server that is still to be made.
    pub(crate) fn at(address: SocketAddr, settings: &[&str]) -> Self {
        let (account, folder) = (Account::new("postgres", PACKAGE), tempfile::tempdir().expect("a temporary folder"));
        account.own(folder.path());
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self { process: None, address, account, settings, folder }
    }

    fn make(&self) {
        self.run("initdb", &["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        std::fs::write(self.data().join("pg_hba.conf"), ACCESS).expect("write who may come in");
    }

    /// Runs one of the server's own programs on its data.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let status = self.account.command(&binaries().join(program)).arg("-D").arg(self.data()).args(arguments).status();
        let status = status.unwrap_or_else(|error| panic!("run {program}, of the Debian package {PACKAGE}: {error}"));
        assert!(status.success(), "{program}: {status}");
    }

    async fn fill(&self) {
        self.execute("CREATE ROLE bellwether LOGIN; CREATE DATABASE election OWNER bellwether").await;
    }

    /// As `manage` takes it.
    pub(crate) fn url(&self) -> String {
        format!("postgres://bellwether@{}/election", self.address)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its data lies.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Ends the server as a crash does.
    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the server again with its data.
    pub(crate) async fn restart(&mut self) {
        let mut command = self.account.command(&binaries().join("postgres"));
        command.arg("-D").arg(self.data()).args(["-p", &self.address.port().to_string(), "-h", "127.0.0.1"]);
        let folder = format!("unix_socket_directories={}", self.folder.path().display());
        let quick = [&folder, "fsync=off", "shared_buffers=16MB", "autovacuum=off"];
        for setting in quick.into_iter().chain(self.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        let log = std::fs::File::create(self.folder.path().join("log")).expect("a log");
        // It ends at once, with all its helpers, as after a crash of one of them.
        let mut process = Process::start(command.stderr(log), PACKAGE, Signal::QUIT);
        let until = Instant::now() + START;
        while let Err(error) = self.connect("postgres").await {
            let log = || std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            assert!(process.ended().is_none(), "PostgreSQL did not start: {}", log());
            assert!(Instant::now() < until, "PostgreSQL does not answer: {error} {}", log());
            sleep(Duration::from_millis(20)).await;
        }
        self.process = Some(process);
    }

    /// Starts the server again without its data.
    pub(crate) async fn restart_empty(&mut self) {
        std::fs::remove_dir_all(self.data()).expect("remove the server's data");
        self.make();
        self.restart().await;
        self.fill().await;
    }

    /// A superuser's connection.
    pub(crate) async fn connect(&self, database: &str) -> Result<PgConnection, sqlx::Error> {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.address.port()).username("postgres");
        options.database(database).disable_statement_logging().connect().await
    }

    /// What a superuser does; each statement by itself.
    pub(crate) async fn execute(&self, statements: &str) {
        let mut connection = self.connect("postgres").await.expect("a connection");
        for statement in statements.split(';') {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.expect("a statement of the server's");
        }
    }

    /// What somebody does in the election's database, in one go.
    pub(crate) async fn query(&self, statement: &str) -> Vec<PgRow> {
        let mut connection = self.connect("election").await.expect("a connection");
        let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await;
        rows.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }
}

/// Where Debian puts a server's programs, of the newest version that is there.
fn binaries() -> PathBuf {
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").unwrap_or_else(|error| panic!("PostgreSQL, of the Debian package {PACKAGE}: {error}"));
    let folders = versions.map(|version| version.expect("a version").path().join("bin"));
    let number = |folder: &Path| folder.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok());
    folders.filter(|folder| folder.join("initdb").exists()).max_by_key(|folder| number(folder)).expect("a version with a server")
}
