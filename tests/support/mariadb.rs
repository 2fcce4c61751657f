//! A real MariaDB server on loopback.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::account::{Account, Process};
use super::port;

/// How long the server may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);
/// The package that has it.
const PACKAGE: &str = "mariadb-server";

/// A server for a few rows, of which many run at once. The kernel has requests for native I/O for a few servers only.
const SMALL: [&str; 4] = ["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=8M", "--key-buffer-size=1M", "--innodb-use-native-aio=0"];

/// A server with its data in a folder of its own and a database `election` of the user `bellwether`.
#[derive(Debug)]
pub(crate) struct Mariadb {
    process: Option<Process>,
    address: SocketAddr,
    account: Account,
    settings: Vec<String>,
    folder: TempDir,
}

impl Mariadb {
    /// Starts an empty server.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more settings.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let (account, folder) = (Account::new("mysql", PACKAGE), tempfile::tempdir().expect("a temporary folder"));
        account.own(folder.path());
        let settings = settings.iter().map(|setting| format!("--{setting}")).collect();
        let mut server = Self { process: None, address: port::free(), account, settings, folder };
        server.make();
        server.restart().await;
        server.fill().await;
        server
    }

    fn make(&self) {
        let mut command = self.account.command(Path::new("mariadb-install-db"));
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]).args(SMALL);
        command.arg(format!("--datadir={}", self.data().display())).arg(format!("--tmpdir={}", self.folder.path().display()));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let made = command.output().unwrap_or_else(|error| panic!("run mariadb-install-db, of the Debian package {PACKAGE}: {error}"));
        let said = [made.stdout, made.stderr].concat();
        assert!(made.status.success(), "mariadb-install-db: {} {}", made.status, String::from_utf8_lossy(&said));
    }

    async fn fill(&self) {
        self.execute("CREATE DATABASE election; CREATE USER bellwether@'%'; GRANT ALL ON election.* TO bellwether@'%'").await;
    }

    /// As `manage` takes it.
    pub(crate) fn url(&self) -> String {
        format!("mysql://bellwether@{}/election", self.address)
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
        let inside = |name: &str| self.folder.path().join(name).display().to_string();
        let mut command = self.account.command(Path::new("mariadbd"));
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2"]);
        command.args(SMALL).arg(format!("--tmpdir={}", self.folder.path().display()));
        command.args([format!("--port={}", self.address.port()), format!("--datadir={}", inside("data"))]);
        command.args([format!("--socket={}", inside("socket")), format!("--pid-file={}", inside("pid"))]).args(&self.settings);
        let log = std::fs::File::create(inside("log")).expect("a log");
        let mut process = Process::start(command.stderr(log), PACKAGE, Signal::KILL);
        let until = Instant::now() + START;
        while let Err(error) = self.connect("mysql").await {
            let log = || std::fs::read_to_string(inside("log")).unwrap_or_default();
            assert!(process.ended().is_none(), "MariaDB did not start: {}", log());
            assert!(Instant::now() < until, "MariaDB does not answer: {error} {}", log());
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
    pub(crate) async fn connect(&self, database: &str) -> Result<MySqlConnection, sqlx::Error> {
        let socket = self.folder.path().join("socket");
        let options = MySqlConnectOptions::new().socket(socket).username("root").database(database);
        options.disable_statement_logging().connect().await
    }

    /// What a superuser does; each statement by itself.
    pub(crate) async fn execute(&self, statements: &str) {
        let mut connection = self.connect("mysql").await.expect("a connection");
        for statement in statements.split(';') {
            sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut connection).await.expect("a statement of the server's");
        }
    }

    /// What somebody does in the election's database, in one go.
    pub(crate) async fn query(&self, statement: &str) -> Vec<MySqlRow> {
        let mut connection = self.connect("election").await.expect("a connection");
        let rows = sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).fetch_all(&mut connection).await;
        rows.unwrap_or_else(|error| panic!("{statement}: {error}"))
    }
}
