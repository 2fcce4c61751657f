//! A real PostgreSQL server on loopback.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Error, Row, raw_sql};

use super::database::{Database, Engine, made};

pub(crate) type Postgres = Database<PostgresEngine>;

/// How a server of this kind is made, started and asked.
#[derive(Debug)]
pub(crate) struct PostgresEngine;

/// Whoever is `guarded` needs a password, and whoever is `veiled` TLS; everybody else is let in.
const ACCESS: &str = "local all all trust
host all guarded 127.0.0.1/32 scram-sha-256
hostssl all veiled 127.0.0.1/32 trust
host all veiled 127.0.0.1/32 reject
host replication all 127.0.0.1/32 trust
host all all 127.0.0.1/32 trust
";

impl Engine for PostgresEngine {
    type Connection = PgConnection;
    type Row = PgRow;

    const NAME: &str = "PostgreSQL";
    const PACKAGE: &str = "postgresql";
    const USER: &str = "postgres";
    const SCHEME: &str = "postgres";
    /// As after a crash of one of its helpers.
    const LAST: Signal = Signal::QUIT;
    const FIRST: &str = "postgres";
    const FILL: &str = "CREATE ROLE bellwether LOGIN; CREATE DATABASE election OWNER bellwether";

    fn make(server: &Postgres) {
        server.run("initdb", &["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C"]);
        std::fs::write(server.data().join("pg_hba.conf"), ACCESS).expect("write who may come in");
    }

    fn command(server: &Postgres) -> Command {
        let mut command = server.account.command(&binaries().join("postgres"));
        command.arg("-D").arg(server.data()).args(["-p", &server.address.port().to_string(), "-h", "127.0.0.1"]);
        let folder = format!("unix_socket_directories={}", server.folder.path().display());
        let quick = [&folder, "fsync=off", "shared_buffers=16MB", "autovacuum=off"];
        for setting in quick.into_iter().chain(server.settings.iter().map(String::as_str)) {
            command.args(["-c", setting]);
        }
        command
    }

    async fn connect(server: &Postgres, database: &str) -> Result<PgConnection, Error> {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(server.address.port()).username("postgres");
        options.database(database).disable_statement_logging().connect().await
    }

    async fn run(connection: &mut PgConnection, statement: String) -> Result<Vec<PgRow>, Error> {
        raw_sql(AssertSqlSafe(statement)).fetch_all(connection).await
    }

    fn text(row: &PgRow) -> String {
        row.get(0)
    }
}

impl Postgres {
    /// Runs one of the server's own programs on its data.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) {
        let program = binaries().join(program);
        made::<PostgresEngine>(&program, self.account.command(&program).arg("-D").arg(self.data()).args(arguments));
    }
}

/// Where Debian puts a server's programs, of the newest version that is there.
fn binaries() -> PathBuf {
    let package = PostgresEngine::PACKAGE;
    let versions =
        std::fs::read_dir("/usr/lib/postgresql").unwrap_or_else(|error| panic!("PostgreSQL, of the Debian package {package}: {error}"));
    let folders = versions.map(|version| version.expect("a version").path().join("bin"));
    let number = |folder: &Path| folder.parent().and_then(Path::file_name).and_then(|name| name.to_str()?.parse::<u32>().ok());
    folders.filter(|folder| folder.join("initdb").exists()).max_by_key(|folder| number(folder)).expect("a version with a server")
}
