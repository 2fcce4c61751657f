//! What a person sees of the demo: one line for each change of a role, each event, and each second.

use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::cast::{Cast, State};
use super::load::Tally;

/// Where the demo is told as it happens. Says nothing when only the result is wanted.
pub(super) struct Screen {
    started: Instant,
    /// Standard output, where the story is to be told.
    out: Option<Mutex<io::Stdout>>,
    colours: bool,
    unread: CancellationToken,
}

impl Screen {
    /// A screen whose clock starts now. `unread` is cancelled when nobody reads what is written.
    pub(super) fn new(silent: bool, unread: CancellationToken) -> Self {
        let out = io::stdout();
        let colours = out.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|set| set.is_empty());
        Self { started: Instant::now(), out: (!silent).then(|| Mutex::new(out)), colours, unread }
    }

    /// Since the demo started.
    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// A line as it is.
    pub(super) fn line(&self, text: &str) {
        let Some(out) = &self.out else { return };
        let mut out = out.lock().unwrap_or_else(PoisonError::into_inner);
        if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
            self.unread.cancel();
        }
    }

    /// The table's head, for nodes with these names.
    pub(super) fn head<'a>(&self, names: impl Iterator<Item = &'a str>) {
        let nodes = names.map(|name| format!("{name:<14}")).collect::<String>();
        self.line(&self.dim(&format!("{:>6}  {nodes}{:<14}{:>9}{:>11}", "time", "epoch", "answered", "in flight")));
    }

    /// One row of the table: what every node is, and how the clients fare.
    pub(super) fn row(&self, cast: &Cast, tally: &Tally) {
        let time = self.time();
        let nodes = cast.0.iter().map(|state| self.role(state)).collect::<String>();
        let epoch = cast.primary().map_or_else(|| "–".to_owned(), |(_, epoch)| epoch.to_string());
        self.line(&format!("{time}  {nodes}{epoch:<14}{:>9}{:>11}", tally.answered, tally.in_flight()));
    }

    /// Something that the demo does or notices.
    pub(super) fn event(&self, text: &str) {
        self.line(&format!("{}  {}", self.time(), self.bold(text)));
    }

    fn time(&self) -> String {
        format!("{:>6.2}", self.elapsed().as_secs_f64())
    }

    fn role(&self, state: &State) -> String {
        // Padded first: a terminal's colour codes have no width.
        let word = format!("{:<14}", state.word());
        match state.word() {
            "primary" => self.coloured("1;32", &word),
            "down" => self.coloured("31", &word),
            "replica" => word,
            _ => self.coloured("33", &word),
        }
    }

    fn bold(&self, text: &str) -> String {
        self.coloured("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.coloured("2", text)
    }

    fn coloured(&self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

impl std::fmt::Debug for Screen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Screen").field("elapsed", &self.elapsed()).finish_non_exhaustive()
    }
}
