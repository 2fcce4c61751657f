//! A PostgreSQL primary with a standby.

use std::time::Duration;

use bellwether::store::Renewal;

use crate::port;
use crate::postgres_server::Postgres;
use crate::rig::node;
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
