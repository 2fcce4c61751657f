//! What a wrong command line is answered: one sentence first, then what clap has to add.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::complain;

/// Commands of the documented command line that this version does not have.
const LATER_COMMANDS: [&str; 11] = ["run", "list", "join", "why", "history", "events", "handover", "pause", "resume", "drill", "man"];

/// Flags of the documented command line that this version does not have.
const LATER_FLAGS: [&str; 8] = [
    "--health-path",
    "--health-interval",
    "--health-timeout",
    "--health-retry",
    "--priority",
    "--no-campaign",
    "--on-promote",
    "--on-demote",
];

/// Prints what `error` means and returns the status to exit with.
pub(super) fn explain(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        error.print().ok();
        return ExitCode::SUCCESS;
    }
    match sentence(error) {
        Some(sentence) => complain(format_args!("error: {sentence}\n\nFor more information, try '--help'.")),
        None if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            complain(format_args!("error: say which command, for example `bellwether manage`\n\n{error}"));
        }
        None => complain(format_args!("{}", error.to_string().trim_end())),
    }
    ExitCode::from(2)
}

/// A better first line than clap's own, where there is one.
fn sentence(error: &clap::Error) -> Option<String> {
    let named = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => Some(texts.join(", ")),
        _ => None,
    };
    let version = env!("CARGO_PKG_VERSION");
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let argument = named(ContextKind::InvalidArg)?;
            if LATER_FLAGS.contains(&argument.as_str()) {
                Some(format!("{argument} is not in this version ({version}) yet, leave it out"))
            } else if argument.contains("://") {
                // Not shown: it may hold a password.
                Some("more than one STORE is given, name one".to_owned())
            } else if after_dashes() {
                Some(format!("this version ({version}) does not run a command of yours yet, leave out everything from `--` on"))
            } else {
                None
            }
        }
        ErrorKind::InvalidSubcommand => {
            let command = named(ContextKind::InvalidSubcommand)?;
            LATER_COMMANDS.contains(&command.as_str()).then(|| {
                format!("the command `{command}` is not in this version ({version}) yet, see `bellwether --help` for those that are")
            })
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = named(ContextKind::InvalidArg)?;
            let usage = error.get(ContextKind::Usage).map(ToString::to_string).unwrap_or_default();
            Some(format!("{missing} is missing, give it as the usage shows\n\n{usage}"))
        }
        _ => None,
    }
}

/// Whether the command line has a `--`, behind which a command of the user's would stand.
fn after_dashes() -> bool {
    std::env::args_os().any(|argument| argument == "--")
}
