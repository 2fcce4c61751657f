//! A PostgreSQL primary with a standby, and a pooler before it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use bellwether::store::{Attempt, Renewal};
use rustix::process::Signal;
use sqlx::ConnectOptions;
use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::account::{Account, Process};
use crate::port;
use crate::postgres_server::Postgres;
use crate::rig::node;
use crate::sql_reports::{pair, settled};
use crate::sql_rig::{Server, denied, lock_at};
use crate::suite::steps::{PROMPT, lose, release, renew, win};
use crate::wait::wait_for;

const TTL: Duration = Duration::from_secs(3);

/// A standby that follows `primary`, at an address of its own.
async fn standby_of(primary: &Postgres) -> Postgres {
    let mut standby = Postgres::at(port::free(), &[]);
    let (host, port) = ("127.0.0.1", primary.address().port().to_string());
    standby.run("pg_basebackup", &["-h", host, "-p", &port, "-U", "postgres", "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
    standby.restart().await;
    standby
}

/// Waits until a standby has followed its primary so far that it answers `statement` with `text`.
async fn tells(standby: &Postgres, statement: &str, text: &str) {
    wait_for("the standby to follow", PROMPT, async || match standby.texts(statement).await {
        told if told == [text] => Ok(()),
        told => Err(told),
    })
    .await;
}

/// A standby has the row, and must not be asked who leads.
#[tokio::test]
async fn a_standby_is_refused_by_name() {
    let primary = Postgres::start().await;
    let lock = primary.open(1, TTL * 20);
    let _lease = win(&*lock, "nobody else campaigns").await;
    let standby = standby_of(&primary).await;
    let at_standby = lock_at(&standby.url(), &[], &node(2), TTL).expect("open a lock");
    for _ in 0..2 {
        denied(at_standby.leader().await, &["only takes reads, as a standby does", "name the primary"]);
        denied(at_standby.acquire().await, &["only takes reads", &standby.address().to_string()]);
        denied(at_standby.changed(None).await, &["only takes reads"]);
    }
    // Where no table is there to be found, either.
    primary.texts("DROP TABLE leader_leases").await;
    tells(&standby, "SELECT coalesce(to_regclass('leader_leases')::text, '')", "").await;
    let anew = lock_at(&standby.url(), &[], &node(2), TTL).expect("open a lock");
    denied(anew.leader().await, &["only takes reads, as a standby does"]);
}

/// The primary is lost, and its standby takes its place and its address. The holder goes on where it was.
#[tokio::test]
async fn a_promoted_standby_at_the_same_address_has_the_tenure() {
    let mut primary = Postgres::start().await;
    let mut standby = standby_of(&primary).await;
    let (lock, other) = (primary.open(1, TTL * 20), primary.open(2, TTL * 20));
    let mut lease = win(&*lock, "nobody else campaigns").await;
    lose(&*other, "the first holds it").await;
    tells(&standby, "SELECT coalesce(to_regclass('leader_leases')::text, '')", "leader_leases").await;
    tells(&standby, "SELECT version::text FROM leader_leases", &lease.epoch().to_string()).await;
    primary.stop();
    standby.run("pg_ctl", &["promote", "--wait"]);
    standby.stop();
    std::fs::remove_dir_all(primary.data()).expect("remove the lost primary's data");
    std::fs::rename(standby.data(), primary.data()).expect("move the standby's data to the primary's address");
    primary.restart().await;
    // The first call over a connection to the lost server may be lost with it.
    for lock in [&lock, &other] {
        wait_for("the server to be there again", PROMPT, async || lock.leader().await).await;
    }
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*other, "the first holds it still").await;
    release(&mut *lease).await;
    let next = win(&*other, "the first released it").await;
    assert!(next.epoch() > lease.epoch());
}

/// A pooler that gives every transaction another connection.
struct Pooler {
    address: SocketAddr,
    _process: Process,
    _folder: TempDir,
}

impl Pooler {
    async fn before(server: &Postgres) -> Self {
        let (account, folder, address) =
            (Account::new("postgres", "pgbouncer"), tempfile::tempdir().expect("a temporary folder"), port::free());
        account.own(folder.path());
        // With `auth_type = any` everybody becomes the database's own user.
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 user=bellwether port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {}\nauth_type = any\npool_mode = transaction\nunix_socket_dir =\n",
            server.address().port(),
            address.port(),
        );
        let place = folder.path().join("pgbouncer.ini");
        std::fs::write(&place, settings).expect("write the settings");
        let process = Process::start(account.command(Path::new("pgbouncer")).arg(&place), "pgbouncer", Signal::TERM);
        wait_for("the pooler to listen", PROMPT, async || TcpStream::connect(address).await.map(drop)).await;
        Self { address, _process: process, _folder: folder }
    }
}

/// B61: nothing of ours needs a connection to be the same as the last one, and no notice is needed to hear of a change.
#[tokio::test]
async fn a_pooler_in_transaction_mode_costs_no_tenure_and_no_takeover() {
    let server = Postgres::start().await;
    let pooler = Pooler::before(&server).await;
    let pair = pair(&server.url_at(pooler.address), TTL);
    let mut epoch = settled(&pair, PROMPT, "two campaign").await;
    for _ in 0..2 {
        // Some renewals, and time for whoever resigned to be a candidate again.
        sleep(TTL * 3 / 2).await;
        assert_eq!(settled(&pair, PROMPT, "it renews").await, epoch);
        let leads = pair.iter().position(|one| one.roles.current().name() == "primary").expect("one leads");
        assert_eq!(pair[leads].handle.resign().await.expect("a primary resigns").0, epoch);
        // Otherwise the one that resigned is soon back.
        epoch = pair[1 - leads].leads(PROMPT, "the other resigned").await;
    }
    // What our statements set is gone with each of them.
    let left = server.texts("SELECT count(*)::text FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'").await;
    assert_eq!(left, ["0"]);
}

/// A pooler hands on a connection on which another client has listened, and with it what that client was to hear.
#[tokio::test]
async fn notices_for_somebody_else_are_nobodys_failure() {
    let server = Postgres::start().await;
    let pooler = Pooler::before(&server).await;
    let (host, port) = (pooler.address.ip().to_string(), pooler.address.port());
    let options = PgConnectOptions::new_without_pgpass().host(&host).port(port).username("bellwether").database("election");
    let mut other = options.extra_float_digits(None).connect().await.expect("connect to the pooler");
    let lock = lock_at(&server.url_at(pooler.address), &[], &node(1), TTL * 20).expect("open a lock");
    for _ in 0..5 {
        // Nobody else is there, so all have the same connection in turn.
        sqlx::raw_sql("LISTEN leader_leases").execute(&mut other).await.expect("listen");
        let mut lease = match lock.acquire().await {
            Ok(Attempt::Held(lease)) => lease,
            other => panic!("{other:?}"),
        };
        sqlx::raw_sql("LISTEN leader_leases").execute(&mut other).await.expect("listen");
        lease.release().await.expect("the release is told to all, and to us first");
    }
}
