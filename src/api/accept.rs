//! How connections come in: accepted from a listener of either kind, and let in as long as there is room.

use std::io;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::api::error::{Failure, Reason};
use crate::api::io::Socket;
use crate::api::ledger::Closing;
use crate::api::server;
use crate::api::worker::Core;

/// How long a worker rests when the system gives it no connection: it is out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// How often it says so.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// What a client is told that is one too many.
pub(super) const TOO_MANY: &str = "as many clients are connected to this node as may be";

/// Accepts until `stop`, and then empties the backlog: closing a listener resets what waits there.
pub(super) async fn accept(listener: impl Accept, core: Rc<Core>, connections: TaskTracker, stop: CancellationToken) {
    let mut door = Door { core, connections, warned: None };
    let mut warned: Option<Instant> = None;
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            accepted = listener.accept() => match accepted {
                Ok((socket, peer)) => door.let_in(socket, peer),
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    // What fails now fails again until somebody lets go of something: said now and then, not each time.
                    if warned.is_none_or(|before| before.elapsed() >= WARN_EVERY) {
                        warned = Some(Instant::now());
                        warn!(%error, "no connection accepted, trying again");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    match listener.into_backlog() {
        Ok(backlog) => backlog.for_each(|(socket, peer)| door.let_in(socket, peer)),
        Err(error) => warn!(%error, "connections that waited to be accepted are reset"),
    }
}

/// Where connections come in.
struct Door {
    core: Rc<Core>,
    connections: TaskTracker,
    warned: Option<Instant>,
}

impl Door {
    /// Serves a connection, if there is room for it.
    fn let_in(&mut self, socket: Socket, peer: Option<IpAddr>) {
        let core = &self.core;
        if let Some(pass) = core.gate.enter() {
            drop(self.connections.spawn_local(server::serve(Rc::clone(core), socket, peer, pass)));
            return;
        }
        core.sheet.close_by(Closing::Refused);
        let most = core.config.max_connections;
        if self.warned.is_none_or(|before| before.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            warn!(most, "more connections than --max-connections and its reserve allow, sending clients away");
        }
        let speaks_tls = core.config.tls.is_some() && matches!(socket, Socket::Tcp(_));
        if !speaks_tls {
            socket.turn_away(&Failure::not_sent(Reason::TooManyConnections, TOO_MANY).into_last_words(&core.standing()));
        }
    }
}

/// A listener of either kind.
pub(super) trait Accept: Sized {
    async fn accept(&self) -> io::Result<(Socket, Option<IpAddr>)>;

    /// Takes what waits in the backlog. Asks the system itself, which knows of connections before the runtime does.
    fn into_backlog(self) -> io::Result<impl Iterator<Item = (Socket, Option<IpAddr>)>>;
}

impl Accept for TcpListener {
    async fn accept(&self) -> io::Result<(Socket, Option<IpAddr>)> {
        let (stream, peer) = Self::accept(self).await?;
        Ok((Socket::Tcp(stream), Some(peer.ip())))
    }

    fn into_backlog(self) -> io::Result<impl Iterator<Item = (Socket, Option<IpAddr>)>> {
        let listener = self.into_std()?;
        Ok(std::iter::from_fn(move || {
            let (stream, peer) = accept_now(|| listener.accept())?;
            stream.set_nonblocking(true).ok()?;
            Some((Socket::Tcp(TcpStream::from_std(stream).ok()?), Some(peer.ip())))
        }))
    }
}

impl Accept for UnixListener {
    async fn accept(&self) -> io::Result<(Socket, Option<IpAddr>)> {
        let (stream, _peer) = Self::accept(self).await?;
        Ok((Socket::Unix(stream), None))
    }

    fn into_backlog(self) -> io::Result<impl Iterator<Item = (Socket, Option<IpAddr>)>> {
        let listener = self.into_std()?;
        Ok(std::iter::from_fn(move || {
            let (stream, _peer) = accept_now(|| listener.accept())?;
            stream.set_nonblocking(true).ok()?;
            Some((Socket::Unix(UnixStream::from_std(stream).ok()?), None))
        }))
    }
}

/// The next connection of a listener that does not block, if there is one.
fn accept_now<T>(accept: impl Fn() -> io::Result<T>) -> Option<T> {
    loop {
        match accept() {
            Ok(accepted) => return Some(accepted),
            Err(error) if is_of_one_connection(&error) => {}
            Err(_) => return None,
        }
    }
}

/// Whether an error of `accept` is that of a connection which was gone before it was accepted.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
    )
}
