//! What comes before HTTP on a connection that is to speak TLS: the handshake, bounded in time, and a readable answer for
//! those who speak plain HTTP to such a port.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;

use crate::api::ahead::Ahead;
use crate::api::error::{Failure, Reason};
use crate::api::io::{Socket, Wire};
use crate::api::ledger::Handshake;
use crate::api::server::{linger, say_last};
use crate::api::session::UNUSED_SWEEPS;
use crate::api::worker::Core;
use crate::tls::{Shown, Tls};

/// How long a handshake may take, unless a head may take less.
const LONGEST: Duration = Duration::from_secs(10);
/// The first byte of whatever begins with a TLS handshake (RFC 8446 §5.1).
const HANDSHAKE: u8 = 22;

/// What whoever speaks plain HTTP to a port with TLS is told.
const SPEAKS_TLS: &str = "this port speaks TLS: use https://, or --tls with the commands docker and bellwether";

/// Whether an answer is the one that a node gives to plain HTTP on a port where it speaks TLS.
pub(super) fn is_refusal_of_plain_http(status: StatusCode, body: &[u8]) -> bool {
    status == StatusCode::BAD_REQUEST && serde_json::from_slice::<Value>(body).is_ok_and(|said| said["message"] == SPEAKS_TLS)
}

/// How a client's connection is protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Channel {
    /// Not at all.
    Plain,
    /// By TLS, where the client has shown this.
    Secured(Shown),
}

/// A connection on which HTTP can begin; `None` when there is none.
pub(super) async fn begin(core: &Rc<Core>, socket: Socket) -> Option<(Socket, Channel)> {
    match (&core.config.tls, socket) {
        // Boxed, so that a connection without TLS has no room for it.
        (Some(tls), Socket::Tcp(stream)) => Box::pin(secure(core, tls, stream)).await,
        (_, socket) => Some((socket, Channel::Plain)),
    }
}

async fn secure(core: &Rc<Core>, tls: &Tls, stream: TcpStream) -> Option<(Socket, Channel)> {
    let limit = core.config.limits.head_timeout.min(LONGEST);
    let shaken = tokio::select! {
        shaken = timeout(limit, shake(tls, stream)) => shaken,
        () = has_closed(core) => return None,
    };
    let (ended, opened) = match shaken {
        Ok(Ok(Shaken::Done(socket, shown))) => (Handshake::Done, Some((socket, Channel::Secured(shown)))),
        Ok(Ok(Shaken::Plain(stream))) => {
            core.sheet.shake(Handshake::Plain);
            refuse(core, stream).await;
            return None;
        }
        // What a probe of a load balancer does.
        Ok(Ok(Shaken::Left)) => return None,
        Ok(Ok(Shaken::Refused(error, stream))) => {
            debug!(%error, "a TLS handshake failed");
            core.sheet.shake(Handshake::Failed);
            linger(&Wire::to_client(Socket::Tcp(stream))).await;
            return None;
        }
        Ok(Err(error)) => {
            debug!(%error, "a TLS handshake failed");
            (Handshake::Failed, None)
        }
        Err(_) => (Handshake::Late, None),
    };
    core.sheet.shake(ended);
    opened
}

/// What came of a connection.
enum Shaken {
    Done(Socket, Shown),
    /// Its other end was told why nothing came of it, and may still be sending what nobody will read.
    Refused(io::Error, TcpStream),
    /// It does not begin like TLS.
    Plain(TcpStream),
    /// It ended before it began.
    Left,
}

async fn shake(tls: &Tls, stream: TcpStream) -> io::Result<Shaken> {
    let mut first = [0];
    Ok(match stream.peek(&mut first).await? {
        0 => Shaken::Left,
        _ if first[0] == HANDSHAKE => match tls.accept(Ahead::new(stream)).await {
            Ok((stream, shown)) => Shaken::Done(Socket::Tls(Box::new(stream.into())), shown),
            Err((error, stream)) => Shaken::Refused(error, stream.tcp),
        },
        _ => Shaken::Plain(stream),
    })
}

/// Says in plain HTTP that this is not the place for it.
async fn refuse(core: &Core, stream: TcpStream) {
    let answer = Failure::not_sent(Reason::BadRequest, SPEAKS_TLS).into_last_words(&core.standing());
    say_last(&Wire::to_client(Socket::Tcp(stream)), &answer).await;
}

/// Returns when the node has been closing for so long that nobody begins any more.
async fn has_closed(core: &Core) {
    loop {
        core.turn.notified().await;
        if core.closing_since().is_some_and(|since| core.sweep().wrapping_sub(since) >= UNUSED_SWEEPS) {
            return;
        }
    }
}
