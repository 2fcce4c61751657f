//! What the demo measured, whether that is what it should have shown, and how both are told.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::load::Tally;

/// How clients fared while the primary changed.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// The longest time in which no client got any answer.
    pub gap_ms: u128,
    /// How many requests waited for the new primary.
    pub held: u64,
    /// How many requests failed.
    pub failed: u64,
    /// How many requests their clients took to another node, because their own was gone.
    pub moved_on: u64,
}

impl Change {
    pub(super) fn between(before: &Tally, after: &Tally, gap: Duration) -> Self {
        Self {
            gap_ms: gap.as_millis(),
            held: after.held - before.held,
            failed: after.failures() - before.failures(),
            moved_on: after.moved_on - before.moved_on,
        }
    }
}

/// What the app's record says of POSTs whose clients cannot know.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Fate {
    /// They were executed, once.
    pub executed: usize,
    /// They were not.
    pub not_executed: usize,
}

/// The measured result of one demo.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// The gap of the crash, which is the longer one.
    pub gap_ms: u128,
    /// Requests that clients sent.
    pub sent: u64,
    /// Requests that the app answered.
    pub answered: u64,
    /// Answered requests that had waited for a primary.
    pub held: u64,
    /// Requests taken to another node by their clients.
    pub moved_on: u64,
    /// Requests that failed, by cause.
    pub failed: BTreeMap<String, u64>,
    /// How many of those were GETs.
    pub failed_gets: u64,
    /// What became of the POSTs that failed as `maybe-executed`.
    pub maybe_executed: Fate,
    /// POSTs that the app executed more than once.
    pub executed_twice: usize,
    /// Whether the app refused a write under the epoch of the killed primary.
    pub late_write_refused: bool,
    /// Whether the killed node came back as a replica.
    pub rejoined: bool,
    /// Each epoch under which requests were answered, and how many.
    pub epochs: BTreeMap<u64, u64>,
    /// The primary was killed with SIGKILL.
    pub crash: Change,
    /// The next primary was asked to end with SIGTERM.
    pub planned: Change,
    /// How long the whole demo took.
    pub seconds: f64,
}

impl Summary {
    /// What the demo should have shown and did not, in a sentence.
    pub fn shortcoming(&self) -> Option<String> {
        let planned = self.planned.failed;
        let unclear = self.failed.keys().find(|cause| !cause.contains("maybe-executed"));
        match () {
            () if self.answered == 0 => Some("no request was answered".to_owned()),
            () if self.executed_twice > 0 => Some(format!("{} POSTs were executed twice", self.executed_twice)),
            () if self.failed_gets > 0 => Some(format!("{} GETs failed", self.failed_gets)),
            () if planned > 0 && self.epochs.len() > 3 => {
                Some("a primary lost its lock though nothing had happened to it: this machine is too busy for a demo".to_owned())
            }
            () if planned > 0 => Some(format!("{planned} requests failed during the planned change")),
            () if !self.late_write_refused => Some("a write under an epoch that was over was not refused".to_owned()),
            () if !self.rejoined => Some("the killed node did not come back as a replica".to_owned()),
            () if self.epochs.len() < 3 => Some(format!("requests were served under {} epochs, not 3", self.epochs.len())),
            () => unclear.map(|cause| format!("{} POSTs failed with `{cause}`", self.failed[cause])),
        }
    }

    /// The summary for people. Its last lines are the gap and the counts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("a string takes any text");
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "What the clients saw")?;
        for (name, change) in [("crash, kill -9", &self.crash), ("planned, SIGTERM", &self.planned)] {
            writeln!(
                out,
                "  {name:<18}no answer for {:>5} ms   {:>4} requests waited   {:>3} failed",
                change.gap_ms, change.held, change.failed
            )?;
        }
        writeln!(out, "  {:<18}{} requests were taken to another node because their own was gone", "moved on", self.moved_on)?;
        if self.failures() > 0 {
            let Fate { executed, not_executed } = self.maybe_executed;
            writeln!(out, "  {:<18}POSTs that ran when their node died, and were not sent again:", "failed")?;
            writeln!(out, "  {:<18}the app's record says that {executed} were executed and {not_executed} were not.", "")?;
        }
        writeln!(out, "  {:<18}{}", "executed twice", self.executed_twice)?;
        writeln!(out)?;
        writeln!(out, "gap: {} ms", self.gap_ms)?;
        writeln!(
            out,
            "sent: {}  answered: {}  held: {}  moved on: {}  failed: {}",
            self.sent,
            self.answered,
            self.held,
            self.moved_on,
            self.failures()
        )?;
        for (cause, times) in &self.failed {
            writeln!(out, "  failed, {cause}: {times}")?;
        }
        let epochs = self.epochs.iter().map(|(epoch, answers)| format!("{epoch} ({answers})")).collect::<Vec<_>>();
        write!(out, "epochs: {}", epochs.join("  "))
    }

    fn failures(&self) -> u64 {
        self.failed.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let change = |gap_ms, failed| Change { gap_ms, held: 200, failed, moved_on: 50 };
        Summary {
            gap_ms: 1900,
            sent: 1203,
            answered: 1200,
            held: 210,
            moved_on: 77,
            failed: [("upstream-failed (maybe-executed)".to_owned(), 3)].into(),
            failed_gets: 0,
            maybe_executed: Fate { executed: 2, not_executed: 1 },
            executed_twice: 0,
            late_write_refused: true,
            rejoined: true,
            epochs: [(5, 400), (6, 400), (7, 400)].into(),
            crash: change(1900, 3),
            planned: change(30, 0),
            seconds: 11.5,
        }
    }

    #[test]
    fn the_last_lines_are_the_gap_and_the_counts() {
        let text = summary().text();
        let (_, counts) = text.split_once("\ngap: 1900 ms\n").unwrap();
        assert!(counts.starts_with("sent: 1203  answered: 1200  held: 210  moved on: 77  failed: 3\n"), "{counts}");
        assert!(counts.ends_with("\nepochs: 5 (400)  6 (400)  7 (400)"), "{counts}");
        assert!(text.lines().all(|line| line.chars().count() <= 90), "{text}");
    }

    #[test]
    fn each_broken_promise_is_a_shortcoming() {
        assert_eq!(summary().shortcoming(), None);
        let lost = |change: fn(&mut Summary)| {
            let mut summary = summary();
            change(&mut summary);
            summary.shortcoming().unwrap()
        };
        assert_eq!(lost(|it| it.failed_gets = 2), "2 GETs failed");
        assert_eq!(lost(|it| it.executed_twice = 1), "1 POSTs were executed twice");
        assert_eq!(lost(|it| it.planned.failed = 4), "4 requests failed during the planned change");
        assert_eq!(lost(|it| it.failed = [("status 500".to_owned(), 1)].into()), "1 POSTs failed with `status 500`");
        assert!(lost(|it| it.late_write_refused = false).contains("not refused"));
        assert!(lost(|it| it.rejoined = false).contains("did not come back"));
        assert!(lost(|it| it.epochs = [(5, 400), (6, 400)].into()).contains("under 2 epochs"));
    }
}
