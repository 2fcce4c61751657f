//! Tunnels: what a connection becomes once client and app have agreed on another protocol (RFC 9110 §7.8).
//!
//! Any protocol passes as opaque bytes. Each direction ends by itself: a side that stops sending is told apart from one
//! that is gone (B86, B132), and an error on either side ends both. A tunnel has no idle limit (B137), counts as running,
//! and is cut with the tenure or the leader it was made under.

use std::io;
use std::rc::Rc;

use bytes::Bytes;
use futures_util::future::try_join;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::forward::{HiddenEnd, Ticket};
use crate::api::io::{Wire, WireIo};
use crate::api::ledger::Outcome;

/// How much is read at a time in each direction.
const CHUNK: usize = 16 * 1024;

/// An agreed switch of protocols, waiting for the 101 to be out.
pub(super) struct Tunnel {
    /// The app's, or the leader's, side.
    pub(super) upstream: Rc<Wire>,
    /// What it sent right behind its 101 (B140).
    pub(super) early: Bytes,
    /// When the tunnel must end.
    pub(super) cut: CancellationToken,
    /// The request it came from.
    pub(super) ticket: Ticket,
    /// Kept until the library has let go of the client's side.
    pub(super) hidden: Option<HiddenEnd>,
}

/// Whose connection broke.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Side {
    Client,
    Upstream,
}

impl Tunnel {
    /// Passes bytes both ways until both sides have ended. `early` is what the client sent right behind its request.
    pub(super) async fn run(mut self, client: Rc<Wire>, early: Bytes) {
        self.hidden.take();
        client.lay_bare();
        client.unread(early);
        self.pass(WireIo(Rc::clone(&client)), WireIo(client)).await;
    }

    /// The same for a client that sends `from` there and takes `to` there.
    pub(super) async fn pass(self, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) {
        self.upstream.lay_bare();
        self.upstream.unread(self.early);
        let [upstream_in, upstream_out] = [(); 2].map(|()| WireIo(Rc::clone(&self.upstream)));
        let (there, back) = ((Side::Client, Side::Upstream), (Side::Upstream, Side::Client));
        let both = try_join(pump(there, from, upstream_out), pump(back, upstream_in, to));
        let outcome = tokio::select! {
            ended = both => match ended {
                Ok(_) => Outcome::Answered,
                Err((Side::Client, error)) => {
                    debug!(%error, "the client's side of a tunnel broke");
                    Outcome::Left
                }
                Err((Side::Upstream, error)) => {
                    debug!(%error, "the app's side of a tunnel broke");
                    Outcome::Cut
                }
            },
            () = self.cut.cancelled() => Outcome::Cut,
        };
        self.ticket.end(outcome);
    }
}

/// Passes bytes one way, and then the end.
async fn pump(
    (from_side, to_side): (Side, Side),
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
) -> Result<(), (Side, io::Error)> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = from.read(&mut buffer).await.map_err(|error| (from_side, error))?;
        if read == 0 {
            return to.shutdown().await.map_err(|error| (to_side, error));
        }
        send(&mut to, &buffer[..read]).await.map_err(|error| (to_side, error))?;
    }
}

/// Sends all of it now: the next piece may be long in coming.
async fn send(to: &mut (impl AsyncWrite + Unpin), piece: &[u8]) -> io::Result<()> {
    to.write_all(piece).await?;
    to.flush().await
}
