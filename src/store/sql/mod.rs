//! The lock as a row of the table `leader_leases`: what all databases have in common.
//!
//! The table is laid out as Dubbo Admin lays it out, so one table serves both, each with its own rows. `component` names
//! the election, `holder_id` is `ADDRESS/BOOT-ID`, and `version` is the epoch: it rises with each tenure and is left alone
//! by renewals.
//!
//! A [`Table`] is one such row in one kind of database: single statements, each atomic, which read the database's clock
//! themselves. The database's clock is some machine's wall clock, which can be set. A holder that was seen to renew is
//! therefore believed for as long as it then had left on the monotonic clock, too: see [`Sightings`].
//!
//! A row whose holder is not of our form is somebody else's and is never touched, not even when it has expired: whoever
//! wrote it may follow other rules.

mod failure;
mod notice;
mod row;
mod sighting;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;

use super::contract::{Attempt, Epoch, Leader, Lease, Lock, Renewal, StoreError};

pub(super) use failure::Failure;
pub(super) use notice::Notices;
pub(super) use row::{COLUMNS, Look, Row, Seat};

use sighting::Sightings;

/// One election's row in one database, asked and changed by single statements.
///
/// Whatever a dropped call had sent may still take effect; it can do no harm, for each statement names the tenure that it
/// is about.
#[async_trait]
pub(super) trait Table: Send + Sync + fmt::Debug + 'static {
    /// Whose row it is, and as whom we write it.
    fn seat(&self) -> &Seat;

    /// Where the row lies, for people.
    fn place(&self) -> String;

    /// Reads the row and the clock.
    async fn look(&self, operation: &'static str) -> Result<Look, StoreError>;

    /// The same for whoever waits for a change. Where answers may take long it must be in nobody's way, least of all in a
    /// renewal's.
    async fn watch(&self) -> Result<Look, StoreError> {
        self.look("watch").await
    }

    /// Starts a tenure where there is no row; false if somebody was faster.
    async fn insert(&self, version: i64) -> Result<bool, StoreError>;

    /// Starts the next tenure in `row`; false if the row has changed since, or is neither expired nor ours.
    async fn take(&self, row: &Row, version: i64) -> Result<bool, StoreError>;

    /// Extends the tenure of `version`; false if it is not there any more. One that was given back stays given back: its
    /// end lies before its beginning. One that has merely expired goes on, for nobody has led since.
    async fn renew(&self, version: i64) -> Result<bool, StoreError>;

    /// Ends the tenure of `version`, or whichever is this process's. The row stays, for it keeps the numbering.
    async fn release(&self, operation: &'static str, version: Option<i64>) -> Result<(), StoreError>;

    /// Deletes the row of an election that is over, or this process's.
    async fn erase(&self) -> Result<(), StoreError>;
}

/// The lock that `table` keeps, of whose changes one hears by `notices`.
pub(super) fn lock(table: impl Table, notices: impl Notices) -> Arc<dyn Lock> {
    let (notices, sightings) = (Box::new(notices), Sightings::default());
    Arc::new(RowLock(Arc::new(Shared { table, notices, sightings, greatest: AtomicI64::new(0) })))
}

/// What a lock and its lease have in common.
struct Shared<T> {
    table: T,
    notices: Box<dyn Notices>,
    sightings: Sightings,
    /// The greatest version that this process has seen, also in rows that were deleted since.
    greatest: AtomicI64,
}

impl<T: Table> Shared<T> {
    /// Whom `row` names, and how long it is still to be believed; nothing if its tenure is over.
    fn holder(&self, row: Option<&Row>) -> Result<Option<(Leader, Duration)>, StoreError> {
        let Some(row) = row else { return Ok(None) };
        let Some(leader) = self.table.seat().leader_of(row) else {
            let place = format!("row `{}` of leader_leases in {}", row.component, self.table.place());
            let found = format!("{} until {}", row.holder_id, row.expires_at);
            return Err(StoreError::foreign(place, found.as_bytes()));
        };
        self.greatest.fetch_max(row.version, Ordering::Relaxed);
        Ok(self.sightings.left(row).map(|left| (leader, left)))
    }

    /// The holder of `row`, if it is another process.
    fn stranger(&self, row: Option<&Row>) -> Result<Option<Leader>, StoreError> {
        let ours = row.is_some_and(|row| self.table.seat().is_ours(row));
        Ok(self.holder(row)?.filter(|_| !ours).map(|(leader, _)| leader))
    }

    /// Starts a tenure in the row that was found, or where there was none, and returns its version unless somebody was
    /// faster.
    ///
    /// The version is above the row's and above all that this process has seen; and it is no less than the database's
    /// milliseconds, which no numbering by one tenure at a time has reached before. So it is also above the tenures that a
    /// deleted row, a restored backup or a promoted copy does not know of.
    async fn take(&self, found: &Look) -> Result<Option<i64>, StoreError> {
        let before = found.row.as_ref().map_or(0, |row| row.version).max(self.greatest.load(Ordering::Relaxed));
        let version = found.now.max(before + 1);
        let taken = match &found.row {
            Some(row) => self.table.take(row, version).await?,
            None => self.table.insert(version).await?,
        };
        Ok(taken.then_some(version))
    }
}

/// This process's view of the row.
struct RowLock<T>(Arc<Shared<T>>);

#[async_trait]
impl<T: Table> Lock for RowLock<T> {
    /// A live row of this very process begins the next tenure: the reply to its last attempt was lost, or it let its
    /// lease run out, and what it then sent for that one must not touch this.
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &self.0;
        // Read first, so that waiting candidates never ask for the write lock that the holder needs.
        let found = shared.table.look("acquire").await?;
        if let Some(stranger) = shared.stranger(found.row.as_ref())? {
            return Ok(Attempt::Taken(Some(stranger)));
        }
        if let Some(version) = shared.take(&found).await? {
            return Ok(Attempt::Held(Box::new(RowLease { shared: Arc::clone(shared), version })));
        }
        let faster = shared.table.look("acquire").await?;
        Ok(Attempt::Taken(shared.stranger(faster.row.as_ref())?))
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        self.0.table.release("withdraw", None).await
    }

    async fn erase(&self) -> Result<(), StoreError> {
        self.0.table.erase().await
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let found = self.0.table.look("leader").await?;
        Ok(self.0.holder(found.row.as_ref())?.map(|(leader, _)| leader))
    }

    /// No database tells of what an operator does to the row, and some tell nobody of anything; so this looks again and
    /// again. A look waits for nobody and writes nothing.
    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        let Shared { table, notices, .. } = &*self.0;
        let mut announced = true;
        loop {
            let found = table.watch().await?;
            let holder = self.0.holder(found.row.as_ref())?;
            if holder.as_ref().map(|(leader, _)| leader) != seen {
                if !announced {
                    notices.unannounced().await;
                }
                return Ok(());
            }
            let pause = notices.next_look(table.seat().ttl());
            // Just past the expiry, if that comes first.
            let left = holder.map(|(_, left)| left + Duration::from_millis(1));
            announced = notices.hint(pause.min(left.unwrap_or(pause))).await;
        }
    }
}

impl<T: Table> fmt::Debug for RowLock<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("RowLock").field(&self.0.table).finish()
    }
}

/// One tenure: the row while it has our holder and this version.
struct RowLease<T> {
    shared: Arc<Shared<T>>,
    version: i64,
}

#[async_trait]
impl<T: Table> Lease for RowLease<T> {
    fn epoch(&self) -> Epoch {
        Epoch(u64::try_from(self.version).expect("versions are counted up from one that is no less than 0"))
    }

    fn ttl(&self) -> Duration {
        self.shared.table.seat().ttl()
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let renewed = self.shared.table.renew(self.version).await?;
        Ok(if renewed { Renewal::Held } else { Renewal::Lost })
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        self.shared.table.release("release", Some(self.version)).await
    }
}

impl<T: Table> fmt::Debug for RowLease<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RowLease").field("version", &self.version).field("table", &self.shared.table).finish()
    }
}
