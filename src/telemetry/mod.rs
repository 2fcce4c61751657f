//! What the process says of itself on standard error: one line per event, as text or as JSON.
//!
//! A command writes its lines as they come up. A daemon must not: whoever reads them may stop reading, and a write that waits
//! would have a renewal or a request wait for it. Its lines are written by a thread of their own, [`Log`].

mod lines;

use std::io::{self, IsTerminal};
use std::str::FromStr;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use lines::Lines;
pub use lines::Log;

/// How log lines are written, and which.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Config {
    /// Text or JSON.
    pub format: LogFormat,
    /// What is worth a line.
    pub level: LogLevel,
}

/// How a log line is written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum LogFormat {
    /// For people; in colour on a terminal.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// What is worth a log line: a level, or directives like `info,bellwether::api=debug`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogLevel(String);

/// Why a text says nothing about logging.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Neither of the two formats.
    #[error("the log format is `text` or `json`")]
    Format,
    /// Neither a level nor a list of directives.
    #[error("the log level is off, error, warn, info, debug or trace, or directives like info,bellwether::api=debug")]
    Level,
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(TelemetryError::Format),
        }
    }
}

impl Default for LogLevel {
    fn default() -> Self {
        Self("info".to_owned())
    }
}

impl LogLevel {
    /// Warnings and errors only: what a command says that is not a daemon.
    pub fn warn() -> Self {
        Self("warn".to_owned())
    }

    /// What a command says that shows something of a store: warnings and errors, and that the store answers again. What a
    /// database's server remarks by the way is not among them.
    pub fn of_an_observer() -> Self {
        Self("warn,sqlx=error,bellwether::replication::calls=info".to_owned())
    }

    /// A bare level is about this program; the libraries below it say at most their warnings, and those that speak HTTP not even
    /// these: a client could have them said as often as it likes.
    fn directives(&self) -> String {
        match self.0.as_str() {
            level @ ("warn" | "info" | "debug" | "trace") => format!("warn,h2=error,hyper=error,bellwether={level}"),
            other => other.to_owned(),
        }
    }
}

impl FromStr for LogLevel {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, TelemetryError> {
        let known = matches!(text, "off" | "error" | "warn" | "info" | "debug" | "trace");
        // A lone word that is no level would be taken for the name of a module.
        if known || (text.contains('=') && EnvFilter::builder().parse(text).is_ok()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(TelemetryError::Level)
        }
    }
}

/// Starts writing the log lines of a command; call it once, first thing.
pub fn init(config: &Config) {
    write_to(io::stderr, config);
}

/// The same for a daemon, none of whose parts ever waits for its log.
///
/// # Errors
/// When the system gives no thread.
pub fn init_as_daemon(config: &Config) -> io::Result<Log> {
    let (lines, log) = Lines::start(io::stderr())?;
    write_to(lines, config);
    Ok(log)
}

fn write_to(out: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, config: &Config) {
    let filter = EnvFilter::new(config.level.directives());
    // A line that cannot be written, because nobody reads standard error any more, is lost: saying so there would be a panic.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(out).log_internal_errors(false);
    match config.format {
        LogFormat::Text => lines.with_target(false).with_ansi(wants_colour()).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Colour is for a terminal whose user did not say no (<https://no-color.org>).
fn wants_colour() -> bool {
    std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_checked_before_anything_starts() {
        for text in ["off", "warn", "debug", "info,bellwether::api=debug"] {
            assert!(text.parse::<LogLevel>().is_ok(), "{text}");
        }
        for text in ["", "verbose", "Info", "bellwether=loud"] {
            assert_eq!(text.parse::<LogLevel>(), Err(TelemetryError::Level), "{text}");
        }
    }

    #[test]
    fn debugging_this_program_does_not_debug_its_libraries() {
        assert_eq!("debug".parse::<LogLevel>().unwrap().directives(), "warn,h2=error,hyper=error,bellwether=debug");
        assert_eq!("error".parse::<LogLevel>().unwrap().directives(), "error");
    }
}
