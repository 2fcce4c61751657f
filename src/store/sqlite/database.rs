//! The file, opened when it is first needed and again whenever it is no longer the one that was opened.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::ConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteSynchronous};
use tokio::sync::{Mutex, MutexGuard};

use super::failure;
use super::table;
use crate::store::contract::StoreError;

/// The one connection of a lock. Calls take turns on it.
pub(super) struct Database {
    path: PathBuf,
    busy_timeout: Duration,
    slot: Mutex<Slot>,
}

/// Opening survives the call that began it: making a database takes several writes, and on a slow disk they may
/// together last longer than any one call.
enum Slot {
    Closed,
    Opening(BoxFuture<'static, Result<Opened, StoreError>>),
    Open(Opened),
}

struct Opened {
    connection: SqliteConnection,
    file: FileId,
}

/// Which file a path leads to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileId {
    device: u64,
    inode: u64,
}

impl From<Metadata> for FileId {
    fn from(metadata: Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// What lies at `path` now, if anything; never waits for a disk on this thread.
async fn file_at(path: &Path) -> Option<FileId> {
    let path = path.to_owned();
    let looked = tokio::task::spawn_blocking(move || std::fs::metadata(path).map(FileId::from));
    looked.await.ok()?.ok()
}

impl Database {
    pub(super) fn new(path: &Path, busy_timeout: Duration) -> Self {
        Self { path: path.to_owned(), busy_timeout, slot: Mutex::new(Slot::Closed) }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The connection, for one call.
    ///
    /// # Cancel safety
    /// Dropping it at any point leaves the connection to the next call; a statement under way ends first.
    pub(super) async fn session(&self, operation: &'static str) -> Result<Session<'_>, StoreError> {
        let mut slot = self.slot.lock().await;
        if let Slot::Open(opened) = &*slot
            && file_at(&self.path).await != Some(opened.file)
        {
            *slot = Slot::Closed;
        }
        if let Slot::Closed = &*slot {
            *slot = Slot::Opening(Box::pin(open(self.path.clone(), self.busy_timeout, operation)));
        }
        if let Slot::Opening(opening) = &mut *slot {
            let opened = opening.await;
            *slot = Slot::Closed;
            *slot = Slot::Open(opened?);
        }
        Ok(Session { path: &self.path, operation, slot })
    }
}

/// Opens the file, makes it and the table where they are missing, and checks that the table is ours to use.
async fn open(path: PathBuf, busy_timeout: Duration, operation: &'static str) -> Result<Opened, StoreError> {
    let judge = |error| failure::judge(&path, operation, error);
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true)
        .busy_timeout(busy_timeout)
        // An epoch that was given out must not be forgotten in a power cut, or it would be given out again.
        .synchronous(SqliteSynchronous::Full)
        .thread_name(|_| "store-sqlite".to_owned())
        .disable_statement_logging();
    let mut connection = options.connect().await.map_err(judge)?;
    table::prefer_wal(&mut connection).await.map_err(judge)?;
    table::create(&mut connection).await.map_err(judge)?;
    if let Err(columns) = table::check_columns(&mut connection).await.map_err(judge)? {
        let found = format!("{} has a table leader_leases of other columns ({columns}): name another file", path.display());
        return Err(StoreError::denied(operation, found));
    }
    table::create_index(&mut connection).await.map_err(judge)?;
    match file_at(&path).await {
        Some(file) => Ok(Opened { connection, file }),
        None => Err(StoreError::unavailable(operation, moved(&path))),
    }
}

fn moved(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} was removed or replaced meanwhile", path.display()))
}

/// One call's turn on the connection.
pub(super) struct Session<'a> {
    path: &'a Path,
    operation: &'static str,
    slot: MutexGuard<'a, Slot>,
}

impl Session<'_> {
    pub(super) fn connection(&mut self) -> &mut SqliteConnection {
        match &mut *self.slot {
            Slot::Open(opened) => &mut opened.connection,
            Slot::Closed | Slot::Opening(_) => unreachable!("a session begins with an open connection and ends with it"),
        }
    }

    /// Ends the session after `error`. Whatever is not mere contention may mean that the file is not what it was.
    pub(super) fn fail(mut self, error: sqlx::Error) -> StoreError {
        if !failure::is_contention(&error) {
            *self.slot = Slot::Closed;
        }
        failure::judge(self.path, self.operation, error)
    }

    /// Makes sure that what was just decided was decided in the file that everybody sees: the statement may have met
    /// one that was removed or replaced a moment before.
    pub(super) async fn confirm(mut self) -> Result<(), StoreError> {
        let file = file_at(self.path).await;
        match &*self.slot {
            Slot::Open(opened) if file == Some(opened.file) => Ok(()),
            Slot::Open(_) | Slot::Closed | Slot::Opening(_) => {
                *self.slot = Slot::Closed;
                Err(StoreError::unavailable(self.operation, moved(self.path)))
            }
        }
    }
}
