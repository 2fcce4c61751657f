//! Lines that are written by a thread of their own.
//!
//! Nobody who has a line waits for whoever reads it: lines for which there is no room are lost, counted, and said to be. So
//! they may appear a moment after what they tell of, in their order.

use std::io::{self, Write};
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

/// How many bytes of lines may wait to be written.
const ROOM: usize = 1024 * 1024;

/// Where lines are handed in.
#[derive(Debug, Default)]
pub(super) struct Lines {
    waiting: Mutex<Waiting>,
    /// Notified when there is something to write, and when all of it has been.
    changed: Condvar,
    lost: Arc<AtomicU64>,
}

#[derive(Debug, Default)]
struct Waiting {
    text: Vec<u8>,
    /// Whether the thread is busy with what was there before.
    writing: bool,
}

/// The log, as whoever started it can wait for its end.
#[derive(Debug)]
pub struct Log {
    lines: Arc<Lines>,
}

impl Lines {
    /// Begins to write to `out` what is handed in, for as long as the process lives.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(out: impl Write + Send + 'static) -> io::Result<(Arc<Self>, Log)> {
        let lines = Arc::new(Self::default());
        let log = Log { lines: Arc::clone(&lines) };
        let source = Arc::clone(&lines);
        std::thread::Builder::new().name("bellwether-log".to_owned()).spawn(move || source.write_to(out))?;
        Ok((lines, log))
    }

    fn write_to(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        let mut said = 0;
        loop {
            {
                let idle = |waiting: &mut Waiting| waiting.text.is_empty();
                let mut waiting = self.changed.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
                mem::swap(&mut waiting.text, &mut batch);
                waiting.writing = true;
            }
            // What cannot be written is lost; a disk that is full may have room for the next line.
            out.write_all(&batch).ok();
            batch.clear();
            let lost = self.lost.load(Ordering::Relaxed);
            if lost > said {
                warn!(lines = lost - said, "lines of this log were lost: whoever reads it is too slow");
                said = lost;
            }
            self.lock().writing = false;
            self.changed.notify_all();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for &Lines {
    /// Takes all of it, or loses all of it: it is one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.lock();
        if waiting.text.len() + line.len() > ROOM {
            self.lost.fetch_add(1, Ordering::Relaxed);
        } else {
            waiting.text.extend_from_slice(line);
            self.changed.notify_all();
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// How many lines were lost so far.
    pub fn lost(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.lines.lost)
    }

    /// Returns when everything is written that was handed in, but after `limit` in any case: nobody may be reading.
    pub fn finish(self, limit: Duration) {
        let busy = |waiting: &mut Waiting| waiting.writing || !waiting.text.is_empty();
        drop(self.lines.changed.wait_timeout_while(self.lines.lock(), limit, busy));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn lines_that_nobody_reads_are_bounded_and_those_kept_come_whole_and_in_order() {
        let (mut reader, writer) = pipe().unwrap();
        let (lines, log) = Lines::start(writer).unwrap();
        let mut handed_in = 0;
        while lines.lost.load(Ordering::Relaxed) < 10 {
            handed_in += 1;
            assert!(handed_in < 1_000_000, "there is room for everything");
            (&*lines).write_all(format!("line {handed_in:0100}\n").as_bytes()).unwrap();
        }
        let reading = std::thread::spawn(move || {
            let mut text = vec![0; (handed_in - 10) * 106];
            reader.read_exact(&mut text).unwrap();
            String::from_utf8(text).unwrap()
        });
        log.finish(SOON);
        let text = reading.join().unwrap();
        let numbers = text.lines().map(|line| line.strip_prefix("line ").unwrap().parse::<usize>().unwrap()).collect::<Vec<_>>();
        assert!(numbers.is_sorted_by(|one, next| one < next));
    }

    #[test]
    fn a_reader_that_is_gone_costs_lines_and_nothing_else() {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let (lines, log) = Lines::start(writer).unwrap();
        (&*lines).write_all(b"never read\n").unwrap();
        log.finish(SOON);
        let waiting = lines.lock();
        assert!(waiting.text.is_empty() && !waiting.writing);
    }
}
