//! The signals that a node listens for. Of the two that end it, the first asks it to go: it hands over, drains and closes;
//! the second means now. SIGHUP asks a daemon to read again what it can, and must not cost a primary.

use std::fmt;
use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and SIGINT, from the moment this is made; neither ends the process by itself any more.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Option<HangUp>,
}

/// SIGHUP, and what to do then.
struct HangUp {
    signal: Signal,
    act: Box<dyn Fn() + Send>,
}

impl Signals {
    /// Starts to listen for both.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())?, hang_up: None })
    }

    /// The same for a daemon, which SIGHUP does not end either: each time it comes, `act` is called.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn listen_as_daemon(act: impl Fn() + Send + 'static) -> io::Result<Self> {
        let hang_up = HangUp { signal: signal(SignalKind::hangup())?, act: Box::new(act) };
        Ok(Self { hang_up: Some(hang_up), ..Self::listen()? })
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
                () = hung_up(&mut self.hang_up) => {}
            }
        }
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Signals").field("hangs_up", &self.hang_up.is_none()).finish_non_exhaustive()
    }
}

/// Returns at the next SIGHUP, when what is to be done then is done; never where nobody listens for it.
async fn hung_up(hang_up: &mut Option<HangUp>) {
    match hang_up {
        Some(HangUp { signal, act }) => {
            signal.recv().await;
            act();
        }
        None => std::future::pending().await,
    }
}
