//! The lock as a row of an SQLite file, for nodes on one machine.
//!
//! The table is `leader_leases`, laid out as Dubbo Admin lays it out, so one table serves both, each with its own rows.
//! `component` names the election, `holder_id` is `ADDRESS/BOOT-ID`, and `version` is the epoch: it rises with each
//! tenure and is left alone by renewals. Every decision is one atomic statement that reads the database's clock itself,
//! and every statement is its own transaction, so that a call that nobody waits for any more leaves nothing open.
//!
//! The database's clock is this machine's wall clock, which can be set. A holder that was seen to renew is therefore
//! believed for as long as it then had left on the monotonic clock, too: see [`Sightings`].
//!
//! A row whose holder is not of our form is somebody else's and is never touched, not even when it has expired: whoever
//! wrote it may follow other rules. The file is made with the permissions that the process's umask leaves; it holds no
//! secret, but whoever can write it decides who leads.

mod database;
mod failure;
mod sighting;
mod table;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::contract::{Attempt, Epoch, Leader, Lease, Lock, Renewal, StoreError};
use super::{LockConfig, OpenError, Takeover};

use database::Database;
use sighting::Sightings;
use table::{Row, Seat};

/// What the columns can hold.
const LONGEST_COMPONENT: usize = 64;
const LONGEST_HOLDER: usize = 255;

/// The lock in the file at `path`, which is made at the first call if it is missing.
pub(super) fn open(path: &Path, config: &LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    check_place(path)?;
    let (component, holder) = (config.election.component(), format!("{}/{}", config.node.address, config.node.boot));
    if component.len() > LONGEST_COMPONENT {
        return Err(OpenError::Place(format!(
            "`{component}` is longer than the {LONGEST_COMPONENT} characters of a row's name: shorten the service or the prefix"
        )));
    }
    if holder.len() > LONGEST_HOLDER {
        return Err(OpenError::Place(format!("the address {} is too long for the store: advertise a shorter name", config.node.address)));
    }
    // What the table keeps: whole milliseconds.
    let ttl = Duration::from_millis(u64::try_from(config.ttl.as_millis()).unwrap_or(u64::MAX));
    Ok(Arc::new(SqliteLock(Arc::new(Shared {
        seat: Seat::new(component, holder, ttl),
        database: Database::new(path, busy_timeout(config.call_timeout)),
        sightings: Sightings::default(),
        greatest: AtomicI64::new(0),
        ttl,
    }))))
}

/// A file can be made later, its folder cannot.
fn check_place(path: &Path) -> Result<(), OpenError> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if path.is_dir() {
        return Err(OpenError::Place(format!("{} is a folder: name the database file in it", path.display())));
    }
    if !folder.is_dir() {
        return Err(OpenError::Place(format!("the folder {} does not exist: make it, or name another file", folder.display())));
    }
    Ok(())
}

/// Shorter than the caller's patience, so that a locked database is reported as such and the next call finds an idle
/// connection; never so long that a retry within the TTL would come too late.
fn busy_timeout(call_timeout: Duration) -> Duration {
    (call_timeout * 3 / 4).clamp(Duration::from_millis(10), Duration::from_secs(5))
}

/// What a lock and its lease have in common.
struct Shared {
    seat: Seat,
    database: Database,
    sightings: Sightings,
    /// The greatest version that this process has seen, also in rows that were deleted since.
    greatest: AtomicI64,
    ttl: Duration,
}

impl Shared {
    /// Whom `row` names, and how long it is still to be believed; nothing if its tenure is over.
    fn holder(&self, row: Option<&Row>) -> Result<Option<(Leader, Duration)>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let Some(leader) = leader_of(row) else {
            let place = format!("row `{}` of leader_leases in {}", self.seat.component(), self.database.path().display());
            let found = format!("{} until {}", row.holder_id, row.expires_at);
            return Err(StoreError::foreign(place, found.as_bytes()));
        };
        self.greatest.fetch_max(row.version, Ordering::Relaxed);
        Ok(self.sightings.left(row).map(|left| (leader, left)))
    }

    /// The holder of `row`, if it is another process.
    fn stranger(&self, row: Option<&Row>) -> Result<Option<Leader>, StoreError> {
        let ours = row.is_some_and(|row| self.seat.is_ours(row));
        Ok(self.holder(row)?.filter(|_| !ours).map(|(leader, _)| leader))
    }

    async fn row(&self, operation: &'static str) -> Result<Option<Row>, StoreError> {
        let mut session = self.database.session(operation).await?;
        match self.seat.read(session.connection()).await {
            Ok(row) => Ok(row),
            Err(error) => Err(session.fail(error)),
        }
    }

    /// Starts a tenure in `row`, or where there is none, and returns its version unless somebody was faster.
    async fn take(&self, row: Option<&Row>) -> Result<Option<i64>, StoreError> {
        let seen = self.greatest.load(Ordering::Relaxed);
        let mut session = self.database.session("acquire").await?;
        let taken = match row {
            Some(row) => self.seat.take(session.connection(), row, seen).await,
            None => self.seat.insert(session.connection(), seen).await,
        };
        match taken {
            Ok(version) => session.confirm().await.map(|()| version),
            Err(error) => Err(session.fail(error)),
        }
    }

    async fn release(&self, operation: &'static str, version: Option<i64>) -> Result<(), StoreError> {
        let mut session = self.database.session(operation).await?;
        match self.seat.release(session.connection(), version).await {
            Ok(()) => Ok(()),
            Err(error) => Err(session.fail(error)),
        }
    }
}

/// Whom a row of our form names.
fn leader_of(row: &Row) -> Option<Leader> {
    let (address, boot) = row.holder_id.rsplit_once('/')?;
    let is_boot_id = boot.len() == 16 && boot.bytes().all(|byte| byte.is_ascii_hexdigit());
    let address = address.parse().ok().filter(|_| is_boot_id && row.left.is_some())?;
    Some(Leader { address, epoch: epoch(row.version)? })
}

/// A version that others can follow.
fn epoch(version: i64) -> Option<Epoch> {
    u64::try_from(version).ok().filter(|_| version < i64::MAX).map(Epoch)
}

/// This process's view of the row.
struct SqliteLock(Arc<Shared>);

#[async_trait]
impl Lock for SqliteLock {
    /// A live row of this very process begins the next tenure: the reply to its last attempt was lost, or it let its
    /// lease run out, and what it then sent for that one must not touch this.
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &self.0;
        // Read first, so that waiting candidates never ask for the write lock that the holder needs.
        let row = shared.row("acquire").await?;
        if let Some(stranger) = shared.stranger(row.as_ref())? {
            return Ok(Attempt::Taken(Some(stranger)));
        }
        if let Some(version) = shared.take(row.as_ref()).await? {
            return Ok(Attempt::Held(Box::new(SqliteLease { shared: Arc::clone(shared), version })));
        }
        let faster = shared.row("acquire").await?;
        Ok(Attempt::Taken(shared.stranger(faster.as_ref())?))
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        self.0.release("withdraw", None).await
    }

    async fn erase(&self) -> Result<(), StoreError> {
        let mut session = self.0.database.session("erase").await?;
        match self.0.seat.erase(session.connection()).await {
            Ok(()) => Ok(()),
            Err(error) => Err(session.fail(error)),
        }
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let row = self.0.row("leader").await?;
        Ok(self.0.holder(row.as_ref())?.map(|(leader, _)| leader))
    }

    /// SQLite tells nobody of a change by another process, so this looks again and again; a look in the write-ahead log
    /// waits for nobody and writes nothing.
    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        loop {
            let row = self.0.row("watch").await?;
            let holder = self.0.holder(row.as_ref())?;
            if holder.as_ref().map(|(leader, _)| leader) != seen {
                return Ok(());
            }
            let pause = Takeover::next_look(self.0.ttl);
            // Just past the expiry, if that comes first.
            let left = holder.map(|(_, left)| left + Duration::from_millis(1));
            tokio::time::sleep(pause.min(left.unwrap_or(pause))).await;
        }
    }
}

impl fmt::Debug for SqliteLock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SqliteLock({} in {})", self.0.seat.component(), self.0.database.path().display())
    }
}

/// One tenure: the row while it has our holder and this version.
struct SqliteLease {
    shared: Arc<Shared>,
    version: i64,
}

#[async_trait]
impl Lease for SqliteLease {
    fn epoch(&self) -> Epoch {
        epoch(self.version).expect("a lease is made of a version that is an epoch")
    }

    fn ttl(&self) -> Duration {
        self.shared.ttl
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let mut session = self.shared.database.session("renew").await?;
        match self.shared.seat.renew(session.connection(), self.version).await {
            Ok(renewed) => session.confirm().await.map(|()| if renewed { Renewal::Held } else { Renewal::Lost }),
            Err(error) => Err(session.fail(error)),
        }
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        self.shared.release("release", Some(self.version)).await
    }
}

impl fmt::Debug for SqliteLease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "SqliteLease({}, version {})", self.shared.seat.component(), self.version)
    }
}
