//! The two signals that end a node. The first asks it to go: it hands over, drains and closes. The second means now.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, from the moment this is made; neither ends the process by itself any more.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Starts to listen for both.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Returns the name of the next signal to arrive.
    ///
    /// # Cancel safety
    /// A signal that arrives while nobody waits is returned by the next call.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
