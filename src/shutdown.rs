//! The signals that a node listens for. Of the two that end it, the first asks it to go: it hands over, drains and closes;
//! the second means now. SIGHUP asks a daemon to read its settings again, and must not cost a primary.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// SIGTERM and SIGINT, from the moment this is made; neither ends the process by itself any more.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<Signal>,
}

impl Signals {
    /// Starts to listen for both.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hang_up: None })
    }

    /// The same for a daemon, which SIGHUP does not end either: there is nothing to reload, and the log says so.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen_as_daemon() -> io::Result<Self> {
        Ok(Self { hang_up: Some(signal(SignalKind::hangup())?), ..Self::listen()? })
    }

    /// Returns the name of the next signal to arrive that ends the process.
    ///
    /// # Cancel safety
    /// A signal that arrives while nobody waits is returned by the next call.
    pub async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return "SIGTERM",
                _ = self.interrupt.recv() => return "SIGINT",
                () = hung_up(&mut self.hang_up) => {
                    info!(signal = "SIGHUP", "Nothing to reload: settings are read at the start, restart the node to change them");
                }
            }
        }
    }
}

/// Returns at the next SIGHUP; never where nobody listens for it.
async fn hung_up(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}
