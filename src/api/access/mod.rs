//! The access log: a line for each request when it has ended, on standard output.
//!
//! Nothing of it is made, kept or asked for while it is off. While it is on, workers hand what they know of a request to a
//! thread of its own, and never wait for it: lines for which there is no room are lost, counted, and said to be.

mod entry;
mod line;
mod writer;

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};

pub(super) use entry::Entry;
pub use writer::Writer;

/// How many requests may wait to be written.
const ROOM: usize = 8 * 1024;

/// How a line is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// For people, and for tools that split at spaces.
    Text,
    /// One JSON object a line.
    Json,
}

/// Neither of the two formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the access log is `text` or `json`")]
pub struct FormatError;

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(FormatError),
        }
    }
}

/// Where workers hand in what is to be written. The log ends when the last of these is dropped.
#[derive(Clone, Debug)]
pub struct AccessLog {
    entries: SyncSender<Box<Entry>>,
    lost: Arc<AtomicU64>,
}

impl AccessLog {
    /// How many lines were lost so far.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lost)
    }

    fn hand_in(&self, entry: Box<Entry>) {
        match self.entries.try_send(entry) {
            // Who cannot write has said so, once.
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => drop(self.lost.fetch_add(1, Ordering::Relaxed)),
        }
    }
}
