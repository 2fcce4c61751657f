//! The command line: one file per command, with its flags, its help, and nothing of how it is done.
//!
//! What clap reports is turned into one sentence on the first line of standard error: flags and commands that belong to
//! later versions are named as such, so that nobody thinks they were taken.

mod completions;
mod demo;
mod info;
mod manage;
mod observe;
mod plan;
mod refusal;
mod resign;
mod secure;
mod store;

use std::io::Write;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};

pub use manage::Settings;

use crate::config::ConfigError;
use crate::store::OpenError;

const EXAMPLES: &str = "\
Examples:
  bellwether manage --replication --advertise 10.0.0.1:4000 \\
      --upstream http://127.0.0.1:8080 etcd://10.0.0.7:2379
  bellwether info -H 10.0.0.1:4000
  bellwether observe etcd://10.0.0.7:2379
  bellwether plan etcd://10.0.0.7:2379 --replication-ttl 3s
  bellwether store check etcd://10.0.0.7:2379
  bellwether resign -H unix:///run/bellwether-admin.sock

Exit status: 0 done, 1 failed, 2 wrong usage. See `bellwether COMMAND --help` for what each takes.";

/// Keeps one copy of any HTTP service active, and makes every copy answer.
///
/// A node runs beside each copy of the service. Clients talk to any node: the primary serves, the others pass requests
/// on to it, and when it dies another takes over. Which one is primary is decided by a lock in a store.
#[derive(Parser)]
#[command(name = "bellwether", version, after_help = EXAMPLES, arg_required_else_help = true, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node: listen, take part in the election, serve or pass on
    Manage(Box<Settings>),
    /// Ask a node what it is: its role, the primary, its store
    Info(info::Info),
    /// Print each change of leader, straight from the store
    Observe(observe::Observe),
    /// Make the primary hand over to another node
    Resign(resign::Resign),
    /// Say what a failover will cost with these settings, and whether they fit together
    Plan(plan::PlanCommand),
    /// Ask a store itself: does it keep the promises that the election needs?
    Store(store::Store),
    /// Print a completion script for a shell
    Completions(completions::Completions),
    /// Watch a failover on this machine: three nodes, an app, and a primary that is killed
    Demo(demo::Demo),
}

/// How a reading command prints what it found.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Why a command ended without being done.
enum Failure {
    /// It was asked for in the wrong way.
    Usage(anyhow::Error),
    /// It could not be done.
    Failed(anyhow::Error),
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Usage(error.into())
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        // Opening a store sends nothing: what is wrong then was wrong on the command line.
        if error.is::<OpenError>() { Self::Usage(error) } else { Self::Failed(error) }
    }
}

/// Does what the command line says; the exit status is 0 for done, 1 for failed, 2 for wrong usage.
pub fn run() -> ExitCode {
    let outcome = match CommandLine::try_parse() {
        Ok(CommandLine { command }) => match command {
            Command::Manage(settings) => settings.run(),
            Command::Info(info) => info.run(),
            Command::Observe(observe) => observe.run(),
            Command::Resign(resign) => resign.run(),
            Command::Plan(plan) => plan.run(),
            Command::Store(store) => store.run(),
            Command::Completions(completions) => completions.run(),
            Command::Demo(demo) => demo.run(),
        },
        Err(error) => return refusal::explain(&error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Usage(error)) => {
            complain(format_args!("error: {error:#}\n\nFor more information, try '--help'."));
            ExitCode::from(2)
        }
        Err(Failure::Failed(error)) => {
            complain(format_args!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// A single-threaded runtime for a command that is no daemon.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")
}

/// Writes one line, or a page, to standard output, at once. False when nobody reads any more.
fn print(text: std::fmt::Arguments<'_>) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("write to standard output"),
    }
}

/// How long the last words on standard error may wait for a reader.
const UNREAD: Duration = Duration::from_secs(1);

/// Writes to standard error; nobody may be reading it, or only somebody who has stopped.
fn complain(text: std::fmt::Arguments<'_>) {
    let text = format!("{text}\n");
    let (done, written) = mpsc::channel();
    let writer = std::thread::Builder::new().spawn(move || {
        std::io::stderr().write_all(text.as_bytes()).ok();
        done.send(()).ok();
    });
    drop(writer.map(|_| written.recv_timeout(UNREAD)));
}
