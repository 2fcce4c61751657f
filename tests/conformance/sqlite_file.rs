//! What an SQLite file adds to the promises: its table, other programs, and what befalls files.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bellwether::node::Node;
use bellwether::replication::{Candidate, Role, RoleWatch, Timing};
use bellwether::store::{Attempt, Epoch, Lease, Lock, LockConfig, Renewal, StoreError, StoreOptions};
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::task::JoinSet;
use tokio::time::{self, Instant};
use tokio_util::sync::CancellationToken;

use crate::harness::call_timeout;
use crate::rig::node;
use crate::sqlite::File;
use crate::wait::wait_for;

const TTL: Duration = Duration::from_secs(60);

/// Repeats a call while the file is merely busy.
async fn held(lock: &dyn Lock) -> Box<dyn Lease> {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        match lock.acquire().await {
            Ok(Attempt::Held(lease)) => return lease,
            Err(StoreError::Unavailable { .. }) | Ok(Attempt::Taken(_)) if Instant::now() < until => time::sleep(TTL / 1_000).await,
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn denied<T: std::fmt::Debug>(result: Result<T, StoreError>, words: &[&str]) {
    match result {
        Err(error @ StoreError::Denied { .. }) => {
            let text = error.to_string();
            assert!(words.iter().all(|word| text.contains(word)), "{text}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_table_is_the_one_that_gorm_would_make() {
    let file = File::new();
    file.open(&node(1), TTL).leader().await.unwrap();
    let mut other = file.connect().await;
    let columns: Vec<(String, String, bool, Option<String>, bool)> =
        sqlx::query_as("SELECT name, lower(type), \"notnull\", dflt_value, pk FROM pragma_table_info('leader_leases')")
            .fetch_all(&mut other)
            .await
            .unwrap();
    let column = |name: &str, kind: &str, not_null, default: Option<&str>, key| {
        (name.to_owned(), kind.to_owned(), not_null, default.map(str::to_owned), key)
    };
    assert_eq!(
        columns,
        [
            column("id", "integer", false, None, true),
            column("component", "varchar(64)", true, None, false),
            column("holder_id", "varchar(255)", true, None, false),
            column("acquired_at", "datetime", true, None, false),
            column("expires_at", "datetime", true, None, false),
            column("version", "bigint", true, Some("0"), false),
        ]
    );
    let unique: Vec<(String, bool)> =
        sqlx::query_as("SELECT name, \"unique\" FROM pragma_index_list('leader_leases')").fetch_all(&mut other).await.unwrap();
    assert_eq!(unique, [("idx_leader_leases_component".to_owned(), true)]);
}

#[tokio::test]
async fn the_row_says_who_leads_since_when_until_when_and_under_which_epoch() {
    let file = File::new();
    let leader = node(4001);
    let lock = file.open(&leader, Duration::from_secs(10));
    let mut lease = held(&*lock).await;
    let rows = file.rows().await;
    let [component, holder, acquired, expires, version] = &rows[0][..] else { panic!("{rows:?}") };
    assert_eq!((component.as_str(), holder), ("default", &format!("127.0.0.1:4001/{}", leader.boot)));
    assert_eq!(version, &lease.epoch().to_string());
    let mut other = file.connect().await;
    let seconds: f64 = sqlx::query_scalar("SELECT unixepoch(?1, 'subsec') - unixepoch(?2, 'subsec')")
        .bind(expires)
        .bind(acquired)
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert!((seconds - 10.0).abs() < 0.002, "{acquired} {expires}");
    for time in [acquired, expires] {
        assert!(time.len() == "2026-11-29 12:00:00.000+00:00".len() && time.ends_with("+00:00"), "{time}");
    }

    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    lease.release().await.unwrap();
    let rows = file.rows().await;
    assert_eq!((&rows[0][1], &rows[0][4]), (holder, version), "the row is kept, for it keeps the numbering");
    assert!(rows[0][3] < *acquired, "{rows:?}");
    let next = held(&*lock).await;
    assert!(next.epoch() > lease.epoch());
}

#[tokio::test]
async fn the_numbering_begins_at_the_milliseconds_of_the_database() {
    let file = File::new();
    file.open(&node(1), TTL).leader().await.unwrap();
    let mut other = file.connect().await;
    let mut now = async || -> i64 {
        sqlx::query_scalar("SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER)").fetch_one(&mut other).await.unwrap()
    };
    let before = now().await;
    let lease = held(&*file.open(&node(1), TTL)).await;
    let after = now().await;
    let epoch = i64::try_from(lease.epoch().0).unwrap();
    assert!((before..=after).contains(&epoch), "{before} {epoch} {after}");
}

#[tokio::test]
async fn other_components_of_the_table_are_left_alone() {
    let file = File::new();
    let lock = file.open(&node(1), TTL);
    lock.leader().await.unwrap();
    file.execute(
        "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
        VALUES ('discovery', 'web-1-0b9e2c1e', '2026-01-01 00:00:00.123456789+01:00', '2026-01-01 00:00:30.5+01:00', 41)",
    )
    .await;
    let theirs = file.rows().await;
    let mut lease = held(&*lock).await;
    lease.renew().await.unwrap();
    lease.release().await.unwrap();
    lock.withdraw().await.unwrap();
    let rows = file.rows().await;
    assert_eq!((rows.len(), &rows[1..]), (2, &theirs[..]));
}

#[tokio::test]
async fn a_row_that_is_not_of_our_form_is_somebody_elses() {
    for row in [
        "'web-1-0b9e2c1e-7d5c', '2026-01-01 00:00:00+00:00', '2126-01-01 00:00:00+00:00', 7",
        "'10.0.0.1:4000', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00', 7",
        "'10.0.0.1:4000/0123', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00', 7",
        "'/0123456789abcdef', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00', 7",
        "'10.0.0.1:4000/0123456789abcdef', '2026-01-01 00:00:00+00:00', 'tomorrow', 7",
        "'10.0.0.1:4000/0123456789abcdef', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00', -1",
        "x'ff00fe', '2026-01-01 00:00:00+00:00', '2026-01-01 00:00:00+00:00', 7",
    ] {
        let file = File::new();
        let lock = file.open(&node(1), TTL);
        lock.leader().await.unwrap();
        let sql = format!("INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version) VALUES ('default', {row})");
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&mut file.connect().await).await.unwrap();
        let refused = lock.acquire().await;
        assert!(matches!(refused, Err(StoreError::Foreign { .. })), "{row}: {refused:?}");
        let changed = lock.changed(None).await;
        assert!(matches!(changed, Err(StoreError::Foreign { .. })), "{row}: {changed:?}");
    }
}

#[tokio::test]
async fn at_no_time_do_two_hold_the_same_epoch() {
    let file = Arc::new(File::new());
    let mut racers = JoinSet::new();
    for port in 1..=6 {
        let file = Arc::clone(&file);
        racers.spawn(async move {
            let lock = file.open(&node(port), TTL);
            let mut epochs = Vec::new();
            while epochs.len() < 15 {
                let mut lease = held(&*lock).await;
                epochs.push(lease.epoch());
                while lease.release().await.is_err() {}
            }
            epochs
        });
    }
    let each = racers.join_all().await;
    assert!(each.iter().all(|epochs| epochs.is_sorted()), "{each:?}");
    let mut all: Vec<_> = each.concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 6 * 15, "each tenure has an epoch of its own");
}

/// B144: another program keeps the database locked.
#[tokio::test]
async fn a_database_locked_for_a_while_costs_nothing_and_for_longer_a_ttl_at_most() {
    let file = File::new();
    let timing = Timing::new(Duration::from_secs(5)).unwrap();
    let mut election = Election::start(&file, timing);
    let first = election.primary().await;
    let mut intruder = file.connect().await;

    // Each begins at another point between two renewals, and the last one in the midst of one.
    for _ in 0..4 {
        intruder_locks(&mut intruder, Duration::from_secs(2)).await;
        time::sleep(timing.renew_every() * 5 / 4).await;
        assert_eq!(election.primary().await, first, "two seconds are no reason to lose the lock");
    }

    intruder_locks(&mut intruder, Duration::from_secs(22)).await;
    let unlocked = Instant::now();
    let second = election.primary().await;
    assert!(second > first, "{second} after {first}");
    // One TTL is the promise, the other is for a busy machine.
    assert!(unlocked.elapsed() < timing.ttl() * 2, "{:?}", unlocked.elapsed());
    election.stop().await;
}

async fn intruder_locks(intruder: &mut SqliteConnection, how_long: Duration) {
    sqlx::raw_sql("BEGIN IMMEDIATE; UPDATE leader_leases SET id = id").execute(&mut *intruder).await.expect("the intruder's lock");
    time::sleep(how_long).await;
    sqlx::raw_sql("ROLLBACK").execute(intruder).await.expect("the intruder's end");
}

/// Two candidates on one file.
struct Election {
    roles: Vec<RoleWatch>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Election {
    fn start(file: &File, timing: Timing) -> Self {
        let (stop, mut tasks, mut roles) = (CancellationToken::new(), JoinSet::new(), Vec::new());
        for port in [1, 2] {
            let node = node(port);
            let (candidate, _, role) = Candidate::new(file.open(&node, timing.ttl()), node, timing);
            tasks.spawn(candidate.run(stop.clone()));
            roles.push(role);
        }
        Self { roles, tasks, stop }
    }

    /// The epoch of whichever is primary, as soon as one is.
    async fn primary(&self) -> Epoch {
        let is_primary = |role: &Role| matches!(role, Role::Primary { .. });
        let (one, other) = (self.roles[0].wait_until(is_primary), self.roles[1].wait_until(is_primary));
        let leads = async {
            tokio::select! { role = one => role, role = other => role }
        };
        let role = time::timeout(Duration::from_secs(20), leads).await.expect("nobody became primary");
        let both = self.roles.iter().filter(|role| is_primary(&role.current())).count();
        assert!(both <= 1, "{:?}", self.roles);
        role.tenure().expect("a primary is in a tenure")
    }

    async fn stop(&mut self) {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("a candidate ends without a panic");
        }
    }
}

#[tokio::test]
async fn a_dropped_call_leaves_no_transaction_open() {
    let file = File::new();
    let lock = file.open(&node(1), TTL);
    let mut lease = held(&*lock).await;
    let mut intruder = file.connect().await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut intruder).await.unwrap();
    for _ in 0..3 {
        drop(time::timeout(Duration::from_millis(20), lease.renew()).await);
        drop(time::timeout(Duration::from_millis(20), lease.release()).await);
    }
    sqlx::raw_sql("ROLLBACK").execute(&mut intruder).await.unwrap();
    // With a transaction left open, this would wait in vain.
    sqlx::raw_sql("BEGIN EXCLUSIVE; COMMIT").execute(&mut intruder).await.unwrap();
    intruder.close().await.unwrap();
}

#[tokio::test]
async fn a_database_that_cannot_be_switched_to_the_write_ahead_log_works_as_it_is() {
    let file = File::new();
    file.open(&node(1), TTL).leader().await.unwrap();
    let mut other = file.connect().await;
    // A lock that was dropped closes its connection in its own time.
    wait_for("the dropped lock to let go of its connection", Duration::from_secs(20), async || {
        sqlx::raw_sql("PRAGMA journal_mode = DELETE").execute(&mut other).await
    })
    .await;
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut other).await.unwrap();
    let (first, second) = (file.open(&node(1), TTL), file.open(&node(2), TTL));
    assert_eq!(first.leader().await.unwrap(), None);
    assert_eq!(second.leader().await.unwrap(), None);
    sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();

    let mut lease = held(&*first).await;
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
    assert!(matches!(second.acquire().await, Ok(Attempt::Taken(Some(_)))));
    let mode: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut other).await.unwrap();
    assert_eq!(mode, "delete");
}

#[tokio::test]
async fn a_file_that_is_deleted_or_replaced_is_opened_anew() {
    let file = File::new();
    let (first, second) = (file.open(&node(1), TTL), file.open(&node(2), TTL));
    let mut lost = held(&*first).await;
    let aside = file.folder().join("aside.db");
    fs::rename(file.path(), &aside).unwrap();
    // Whoever comes first makes the new file; the old one is nobody's, though both still have it open.
    assert_eq!(lost.renew().await.unwrap(), Renewal::Lost);
    let mut lease = held(&*second).await;
    assert!(lease.epoch() > lost.epoch(), "{} after {}", lease.epoch(), lost.epoch());
    assert!(matches!(first.acquire().await, Ok(Attempt::Taken(Some(_)))));

    // An old copy put in place is older than what has been seen.
    for suffix in ["", "-wal", "-shm"] {
        fs::remove_file(format!("{}{suffix}", file.path().display())).ok();
    }
    fs::rename(&aside, file.path()).unwrap();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Lost);
    let next = held(&*first).await;
    assert!(next.epoch() > lost.epoch());
}

#[tokio::test]
async fn a_folder_that_vanishes_and_comes_back_heals() {
    let file = File::new();
    let lock = file.open(&node(1), TTL);
    let mut lease = held(&*lock).await;
    file.hide();
    let gone = lease.renew().await;
    let Err(StoreError::Unavailable { .. }) = &gone else { panic!("{gone:?}") };
    let text = lock.leader().await.unwrap_err().to_string();
    assert!(text.contains("folder is gone") && text.contains("election.db"), "{text}");
    file.show();
    assert_eq!(lease.renew().await.unwrap(), Renewal::Held);
}

/// A file that SQLite itself may only read: its header asks for a newer writer. File permissions would not stop root.
#[tokio::test]
async fn a_file_that_cannot_be_written_is_denied_by_name() {
    let file = File::new();
    let lock = file.open(&node(1), TTL);
    lock.leader().await.unwrap();
    file.execute("PRAGMA wal_checkpoint(TRUNCATE)").await;
    drop(lock);
    const WRITE_VERSION: u64 = 18;
    fs::File::options().write(true).open(file.path()).unwrap().write_all_at(&[9], WRITE_VERSION).unwrap();
    denied(file.open(&node(1), TTL).acquire().await, &["election.db", "cannot be written"]);
}

#[tokio::test]
async fn a_file_that_is_no_database_is_denied_and_left_alone() {
    let file = File::new();
    let text = "not a database, but long enough to be taken for one ".repeat(20);
    fs::write(file.path(), &text).unwrap();
    denied(file.open(&node(1), TTL).acquire().await, &["election.db", "no usable SQLite database"]);
    assert_eq!(fs::read_to_string(file.path()).unwrap(), text);
}

#[tokio::test]
async fn a_table_of_other_columns_is_denied_and_left_alone() {
    for (table, columns) in [
        ("CREATE TABLE leader_leases (component text, owner text)", "component, owner"),
        ("CREATE TABLE leader_leases (name text, owner text)", "name, owner"),
    ] {
        let file = File::new();
        file.execute(table).await;
        denied(file.open(&node(1), TTL).acquire().await, &["election.db", columns, "another file"]);
        let indices: i64 = sqlx::query_scalar("SELECT count(*) FROM pragma_index_list('leader_leases')")
            .fetch_one(&mut file.connect().await)
            .await
            .unwrap();
        assert_eq!(indices, 0, "{table}");
    }
}

#[tokio::test]
async fn what_could_never_work_is_refused_before_anything_is_written() {
    let file = File::new();
    let refuse = |url: String, host: &str| {
        let url: bellwether::store::StoreUrl = url.parse().unwrap();
        let election = url.election("default").unwrap();
        let node = Node::new(format!("{host}:1").parse().unwrap());
        let config = LockConfig { election, node, ttl: TTL, call_timeout: call_timeout(TTL) };
        url.open(&StoreOptions::default(), config).map(drop).unwrap_err().to_string()
    };
    let text = refuse(format!("sqlite://{}/none/x.db", file.folder().display()), "h");
    assert!(text.contains("/none does not exist: make it"), "{text}");
    let text = refuse(format!("sqlite://{}", file.folder().display()), "h");
    assert!(text.contains("is a folder"), "{text}");
    let text = refuse(file.url().to_string(), &"h".repeat(250));
    assert!(text.contains("too long"), "{text}");
    assert!(!file.path().exists());
}
