//! A real MariaDB server on loopback.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Error, Row, raw_sql};

use super::database::{Database, Engine, made};

pub(crate) type Mariadb = Database<MariadbEngine>;

/// How a server of this kind is made, started and asked.
#[derive(Debug)]
pub(crate) struct MariadbEngine;

/// A server for a few rows, of which many run at once. The kernel has requests for native I/O for a few servers only.
const SMALL: [&str; 4] = ["--innodb-buffer-pool-size=8M", "--innodb-log-file-size=8M", "--key-buffer-size=1M", "--innodb-use-native-aio=0"];

impl Engine for MariadbEngine {
    type Connection = MySqlConnection;
    type Row = MySqlRow;

    const NAME: &str = "MariaDB";
    const PACKAGE: &str = "mariadb-server";
    const USER: &str = "mysql";
    const SCHEME: &str = "mysql";
    const LAST: Signal = Signal::KILL;
    const FIRST: &str = "mysql";
    const FILL: &str = "CREATE DATABASE election; CREATE USER bellwether@'%'; GRANT ALL ON election.* TO bellwether@'%'";

    fn make(server: &Mariadb) {
        let program = Path::new("mariadb-install-db");
        let mut command = server.account.command(program);
        command.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]).args(SMALL);
        command.arg(format!("--datadir={}", server.data().display())).arg(format!("--tmpdir={}", server.folder.path().display()));
        made::<Self>(program, &mut command);
    }

    fn command(server: &Mariadb) -> Command {
        let inside = |name: &str| server.inside(name).display().to_string();
        let mut command = server.account.command(Path::new("mariadbd"));
        command.args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve", "--innodb-flush-log-at-trx-commit=2"]);
        command.args(SMALL).arg(format!("--tmpdir={}", server.folder.path().display()));
        command.args([format!("--port={}", server.address.port()), format!("--datadir={}", inside("data"))]);
        command.args([format!("--socket={}", inside("socket")), format!("--pid-file={}", inside("pid"))]);
        command.args(server.settings.iter().map(|setting| format!("--{setting}")));
        command
    }

    async fn connect(server: &Mariadb, database: &str) -> Result<MySqlConnection, Error> {
        let options = MySqlConnectOptions::new().socket(server.inside("socket")).username("root").database(database);
        options.disable_statement_logging().connect().await
    }

    async fn run(connection: &mut MySqlConnection, statement: String) -> Result<Vec<MySqlRow>, Error> {
        raw_sql(AssertSqlSafe(statement)).fetch_all(connection).await
    }

    fn text(row: &MySqlRow) -> String {
        row.get(0)
    }
}
