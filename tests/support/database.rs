//! A real database server on loopback, of whichever kind.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::account::{Account, Process};
use super::port;

/// How long the server may take to start on a busy machine.
const START: Duration = Duration::from_secs(60);

/// What is different about one kind of server.
pub(crate) trait Engine: Debug + Send + Sync + Sized + 'static {
    type Connection: Send;
    type Row: Send;

    const NAME: &str;
    /// The Debian package that has it.
    const PACKAGE: &str;
    /// The user of the machine that it runs as.
    const USER: &str;
    /// How its URLs begin.
    const SCHEME: &str;
    /// The signal that ends it at once, with all its helpers.
    const LAST: Signal;
    /// The database that is there at first.
    const FIRST: &str;
    /// Makes the database `election` and the user `bellwether`.
    const FILL: &str;

    /// Makes the files of an empty server.
    fn make(server: &Database<Self>);

    /// Starts it on its files.
    fn command(server: &Database<Self>) -> Command;

    /// A superuser's connection.
    fn connect(server: &Database<Self>, database: &str) -> impl Future<Output = Result<Self::Connection, sqlx::Error>> + Send;

    /// Runs a statement to its end.
    fn run(connection: &mut Self::Connection, statement: String) -> impl Future<Output = Result<Vec<Self::Row>, sqlx::Error>> + Send;

    /// The first column of a row, which is text.
    fn text(row: &Self::Row) -> String;
}

/// A server with its data in a folder of its own and a database `election` of the user `bellwether`.
#[derive(Debug)]
pub(crate) struct Database<E> {
    process: Option<Process>,
    pub(super) address: SocketAddr,
    pub(super) account: Account,
    pub(super) settings: Vec<String>,
    pub(super) folder: TempDir,
    engine: PhantomData<E>,
}

impl<E: Engine> Database<E> {
    /// Starts an empty server.
    pub(crate) async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// The same with more settings.
    pub(crate) async fn start_with(settings: &[&str]) -> Self {
        let mut server = Self::at(port::free(), settings);
        E::make(&server);
        server.restart().await;
        server.execute(E::FILL).await;
        server
    }

    /// A server that is still to be made.
    pub(crate) fn at(address: SocketAddr, settings: &[&str]) -> Self {
        let (account, folder) = (Account::new(E::USER, E::PACKAGE), tempfile::tempdir().expect("a temporary folder"));
        account.own(folder.path());
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        Self { process: None, address, account, settings, folder, engine: PhantomData }
    }

    /// As `manage` takes it.
    pub(crate) fn url(&self) -> String {
        format!("{}://bellwether@{}/election", E::SCHEME, self.address)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where its data lies.
    pub(crate) fn data(&self) -> PathBuf {
        self.inside("data")
    }

    /// What has this name in its folder.
    pub(super) fn inside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends the server as a crash does.
    pub(crate) fn stop(&mut self) {
        self.process = None;
    }

    /// Starts the server again with its data.
    pub(crate) async fn restart(&mut self) {
        let log = self.inside("log");
        let mut command = E::command(self);
        let mut process = Process::start(command.stderr(std::fs::File::create(&log).expect("a log")), E::PACKAGE, E::LAST);
        let until = Instant::now() + START;
        while let Err(error) = E::connect(self, E::FIRST).await {
            let log = || std::fs::read_to_string(&log).unwrap_or_default();
            assert!(process.ended().is_none(), "{} did not start: {}", E::NAME, log());
            assert!(Instant::now() < until, "{} does not answer: {error} {}", E::NAME, log());
            sleep(Duration::from_millis(20)).await;
        }
        self.process = Some(process);
    }

    /// Starts the server again without its data.
    pub(crate) async fn restart_empty(&mut self) {
        std::fs::remove_dir_all(self.data()).expect("remove the server's data");
        E::make(self);
        self.restart().await;
        self.execute(E::FILL).await;
    }

    /// What a superuser does; each statement by itself.
    pub(crate) async fn execute(&self, statements: &str) {
        let mut connection = E::connect(self, E::FIRST).await.expect("a connection");
        for statement in statements.split(';') {
            E::run(&mut connection, statement.to_owned()).await.expect("a statement of the server's");
        }
    }

    /// What somebody does in the election's database, in one go. Returns the first column of what was found.
    pub(crate) async fn query(&self, statement: &str) -> Vec<String> {
        let mut connection = E::connect(self, "election").await.expect("a connection");
        let rows = E::run(&mut connection, statement.to_owned()).await;
        rows.unwrap_or_else(|error| panic!("{statement}: {error}")).iter().map(E::text).collect()
    }
}

/// Runs a program that makes files of a server.
///
/// # Panics
/// When it fails, with what it said.
pub(super) fn made<E: Engine>(program: &Path, command: &mut Command) {
    let program = program.display();
    let made = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).output();
    let made = made.unwrap_or_else(|error| panic!("run {program}, of the Debian package {}: {error}", E::PACKAGE));
    let said = [made.stdout, made.stderr].concat();
    assert!(made.status.success(), "{program}: {} {}", made.status, String::from_utf8_lossy(&said));
}
