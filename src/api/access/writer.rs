//! The thread that writes the lines.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;
use tracing::warn;

use super::entry::Entry;
use super::line::line;
use super::{AccessLog, Format, ROOM};
use crate::wall;

/// How much is written at a time.
const BUFFER: usize = 64 * 1024;

/// The end of the log, as whoever started it can wait for it.
#[derive(Debug)]
pub struct Writer {
    ended: oneshot::Receiver<()>,
}

impl AccessLog {
    /// Begins to write to `out` what is handed in, in the name of the node at `node`.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(format: Format, node: String, out: impl Write + Send + 'static) -> io::Result<(Self, Writer)> {
        let (entries, handed_in) = sync_channel(ROOM);
        let (done, ended) = oneshot::channel();
        let lost = Arc::new(AtomicU64::new(0));
        let log = Self { entries, lost: Arc::clone(&lost) };
        std::thread::Builder::new().name("bellwether-access".to_owned()).spawn(move || {
            if let Err(error) = write_all(&handed_in, format, &node, out, &lost) {
                warn!(%error, "the access log cannot be written, and ends here");
            }
            // Nobody need be waiting.
            done.send(()).ok();
        })?;
        Ok((log, Writer { ended }))
    }
}

impl Writer {
    /// Returns when everything is written that was handed in, but after `limit` in any case: nobody may be reading.
    pub async fn finish(self, limit: Duration) {
        timeout(limit, self.ended).await.ok();
    }
}

fn write_all(handed_in: &Receiver<Box<Entry>>, format: Format, node: &str, out: impl Write, lost: &AtomicU64) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(BUFFER, out);
    let mut said = 0;
    while let Ok(first) = handed_in.recv() {
        let at = wall::stamp();
        for entry in std::iter::once(first).chain(handed_in.try_iter().take(ROOM)) {
            out.write_all(line(&entry, format, &at, node).as_bytes())?;
        }
        out.flush()?;
        let lost = lost.load(Ordering::Relaxed);
        if lost > said {
            warn!(lines = lost - said, "lines of the access log were lost: whoever reads it is too slow");
            said = lost;
        }
    }
    Ok(())
}
