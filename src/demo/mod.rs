//! `bellwether demo`: three nodes, three copies of an app and their clients on this machine, and a primary that dies.
//!
//! The nodes are processes of this very binary, as a user would start them; the app and the clients live in the demo
//! itself. Nothing is installed and nothing is left behind. The demo measures what the clients saw, and fails when that
//! is not what it promises.

mod app;
mod cast;
mod client;
mod folder;
mod load;
mod node;
mod screen;
mod story;
mod summary;

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use self::screen::Screen;
use self::story::Stage;
pub use self::summary::{Change, Fate, Summary};

/// The lock's TTL in the demo: short, so that the wait after the crash is.
const TTL: Duration = Duration::from_secs(2);
/// The whole story ends within this, whatever happens.
const LONGEST: Duration = Duration::from_secs(27);

/// How the demo is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Keep the nodes running after the summary, until the process is asked to end.
    pub stay: bool,
    /// Tell nothing while it happens: the caller wants the [`Summary`] alone.
    pub silent: bool,
}

/// Why there was nothing to measure.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The system refused something that the demo needs.
    #[error("{operation}: {source}")]
    System {
        /// What was tried, for people.
        operation: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A node ended although nobody asked it to.
    #[error("{node} ended with {status}; its log ends with:\n{log}")]
    NodeEnded {
        /// Which one.
        node: String,
        /// How.
        status: String,
        /// Its last lines.
        log: String,
    },
    /// Something that should have happened did not, in time.
    #[error("waited in vain for {awaited}; {nodes}")]
    TooLate {
        /// What was waited for.
        awaited: String,
        /// What the nodes were instead, and the last lines of their logs.
        nodes: String,
    },
    /// A signal ended the demo before its summary, or nobody reads its output any more.
    #[error("interrupted before the end; the nodes are stopped and the folder is removed")]
    Interrupted,
}

impl DemoError {
    fn system(operation: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { operation, source }
    }
}

/// Tells the whole story and returns what was measured. Everything that it started has ended when it returns.
///
/// `finish` is called with the summary once it is there; with [`Options::stay`] the nodes then run on until a signal
/// comes.
///
/// # Errors
/// [`DemoError`] when there is nothing to measure.
pub async fn run(options: Options, finish: impl FnOnce(&Summary)) -> Result<Summary, DemoError> {
    let unread = CancellationToken::new();
    let mut interrupted = pin!(interruption(unread.clone())?);
    let screen = Screen::new(options.silent, unread);
    let mut stage = Stage::set(&screen).await?;
    let told = tokio::select! {
        told = timeout(LONGEST, stage.tell()) => told.unwrap_or_else(|_| Err(stage.too_late())),
        () = &mut interrupted => Err(DemoError::Interrupted),
    };
    if let Ok(summary) = &told {
        finish(summary);
        if options.stay {
            stage.invite();
            tokio::select! {
                never = stage.stay() => match never {},
                () = interrupted => screen.line("ended: the nodes are stopped and the folder is removed"),
            }
        }
    }
    stage.close().await;
    told
}

/// Returns on SIGINT, SIGTERM and SIGHUP, so that each of them ends the nodes and removes the folder; and when nobody
/// reads the output any more.
fn interruption(unread: CancellationToken) -> Result<impl Future<Output = ()>, DemoError> {
    let listen = |kind| signal(kind).map_err(DemoError::system("listen for signals"));
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let mut hang_up = listen(SignalKind::hangup())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
            () = unread.cancelled() => {}
        }
    })
}
