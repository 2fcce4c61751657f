//! One connection of a client: what is spoken on it, and how it ends.

use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, timeout};
use tracing::trace;

use crate::api::error::{Failure, Reason};
use crate::api::gate::Pass;
use crate::api::headers::Peer;
use crate::api::io::{Socket, Wire, WireIo};
use crate::api::ledger::{Closing, Outcome};
use crate::api::preface::Protocol;
use crate::api::session::{Busy, Next, Session};
use crate::api::streams::Shape;
use crate::api::worker::Core;
use crate::api::{Limits, dispatch, handshake, mux, preface, streams};

/// How much of a message is read at a time, at most; also bounds what a slow reader makes this node keep.
pub(super) const BUFFER: usize = 128 * 1024;
/// How long a client that was answered early may go on sending before its connection is reset under it.
const LINGER: Duration = Duration::from_secs(2);

/// How connections of clients and other nodes speak HTTP/1.1. The library's own limit on the time for a head would cost
/// each request a timer; see [`serve_until_idle`] for ours.
pub(super) fn builder(limits: Limits) -> http1::Builder {
    // Whether a request comes from a client or by way of another node is only known once it has been read.
    let most = limits.after_a_hop();
    let mut builder = http1::Builder::new();
    builder
        .header_read_timeout(None)
        .auto_date_header(false)
        .half_close(false)
        .max_headers(most.head_lines)
        .max_header_size(most.head_bytes)
        .max_buf_size(most.head_bytes.max(BUFFER));
    builder
}

/// Serves one connection until it ends; at the end of the worker's time, until it is idle.
pub(super) async fn serve(core: Rc<Core>, socket: Socket, address: Option<IpAddr>, pass: Pass) {
    let _counted = Counted::new(&core);
    let Some((socket, channel)) = handshake::begin(&core, socket).await else { return };
    let wire = Wire::to_client(socket);
    let peer = Peer::new(address, &core.config).over(channel);
    let session = Session::new(&core, &wire, peer, Rc::new(pass));
    let protocol = if core.config.http2 { preface::protocol(&session).await } else { Some(Protocol::Http1) };
    match protocol {
        Some(Protocol::Http1) => serve_http1(&session, wire).await,
        Some(Protocol::Http2) => {
            let shape = if session.peer.is_trusted() { Shape::PROXY } else { Shape::CLIENT };
            // A proxy can go to the new primary at once. To many a client that hears it (httpx, Chromium), GOAWAY costs the next
            // request, and this node serves it in any role.
            let goes = session.peer.is_trusted();
            // Who connects after a step-down finds the node in its new role.
            let met = core.step_downs();
            Box::pin(streams::serve(&session, shape, || core.is_closing() || (goes && core.step_downs() != met))).await;
        }
        None => core.sheet.close_by(Closing::Idle),
    }
}

async fn serve_http1(session: &Rc<Session>, wire: Rc<Wire>) {
    let service = service_fn(|request| {
        session.note(&request);
        dispatch::serve(Busy::new(session), request)
    });
    wire.expect_head();
    let mut connection = session.core.http.serve_connection(TokioIo::new(WireIo(Rc::clone(&wire))), service);
    let ended = serve_until_idle(session, &mut connection).await;
    if let Some(next) = session.next() {
        let early = connection.into_parts().read_buf;
        wire.end_head();
        return match next {
            Next::Tunnel(tunnel) => Box::pin(tunnel.run(wire, early)).await,
            Next::Mux(seat) => Box::pin(mux::serve(session, early, seat)).await,
        };
    }
    let core = &session.core;
    match ended {
        Ended::Late => {
            let begun = !connection.into_parts().read_buf.is_empty();
            core.sheet.close_by(if begun { Closing::SlowHead } else { Closing::Idle });
            if begun {
                let failure = Failure::not_sent(Reason::RequestTimeout, "the request's head did not come to its end in time");
                Box::pin(say_last(&wire, &failure.into_last_words(&core.standing()))).await;
            }
            return;
        }
        Ended::Stalled => {
            core.sheet.close_by(Closing::Stalled);
            return core.drop_as(Outcome::Stalled, || drop(connection));
        }
        Ended::Left => return,
        Ended::Served(served) => match served {
            // A connection that might have become a tunnel is handed out without its last bytes being flushed.
            Ok(()) if session.asked_upgrade() => drop((&mut connection).await),
            Ok(()) => {}
            Err(error) => {
                trace!(%error, "client connection broke");
                // An answer broke off: an end would say that it is whole.
                if error.is_user() && session.knows_no_chunks() {
                    return wire.reset_at_drop(true);
                }
            }
        },
    }
    drop(connection);
    if session.left_unread() {
        Box::pin(linger(&wire)).await;
    }
}

/// How the HTTP/1.1 of a connection ended.
enum Ended {
    /// As the client and the library made it end.
    Served(hyper::Result<()>),
    /// No head came in time.
    Late,
    /// The client took nothing of what it was sent.
    Stalled,
    /// The client has left behind a body that nobody reads.
    Left,
}

/// Drives a connection; tells it once to end when it is idle, when the node's time is up. One timer lasts for a whole limit,
/// and looks only then whether the time was spent waiting for the client.
async fn serve_until_idle<C>(session: &Session, connection: &mut C) -> Ended
where
    C: Graceful + Unpin,
{
    let core = &session.core;
    let mut turn = pin!(core.turn.notified());
    let mut taking = session.taking();
    let limit = session.head_timeout();
    let mut patience = pin!(sleep(taking.limit().map_or(limit, |other| limit.min(other))));
    let (mut told, mut registered) = (false, false);
    poll_fn(|cx| {
        let mut served = Pin::new(&mut *connection).poll(cx);
        if served.is_pending() && !told && session.is_to_end() {
            told = true;
            connection.end_when_idle();
            served = Pin::new(&mut *connection).poll(cx);
        }
        if let Poll::Ready(served) = served {
            return Poll::Ready(Ended::Served(served));
        }
        if session.has_left() {
            return Poll::Ready(Ended::Left);
        }
        session.look();
        // A task's waker stays the same, so that one registration lasts until the node closes, and costs later polls
        // nothing; from then on each turn is waited for anew.
        if !registered || core.is_closing() {
            while turn.as_mut().poll(cx).is_ready() {
                turn.set(core.turn.notified());
            }
        }
        if !registered || patience.is_elapsed() {
            while patience.as_mut().poll(cx).is_ready() {
                let left = session.head_timeout().saturating_sub(session.waited());
                if left.is_zero() {
                    return Poll::Ready(Ended::Late);
                }
                let due = taking.look(&session.wire);
                if due.is_some_and(|due| due.is_zero()) {
                    return Poll::Ready(Ended::Stalled);
                }
                let left = due.map_or(left, |due| left.min(due));
                patience.as_mut().reset(Instant::now() + left);
            }
        }
        if !registered {
            session.is_driven_by(cx.waker());
        }
        registered = true;
        Poll::Pending
    })
    .await
}

/// What [`serve_until_idle`] needs of the library's connection.
trait Graceful: Future<Output = hyper::Result<()>> {
    fn end_when_idle(&mut self);
}

impl<I, S, B> Graceful for http1::Connection<I, S>
where
    S: hyper::service::HttpService<Incoming, ResBody = B>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn end_when_idle(&mut self) {
        Pin::new(self).graceful_shutdown();
    }
}

/// Says the last thing on a connection of which nobody else says anything any more. Whoever does not take it has left.
pub(super) async fn say_last(wire: &Rc<Wire>, words: &[u8]) {
    if let Ok(Ok(())) = timeout(LINGER, WireIo(Rc::clone(wire)).write_all(words)).await {
        linger(wire).await;
    }
}

/// Reads on for a moment after the last answer, so that it is not lost to the reset that closing would cause.
pub(super) async fn linger(wire: &Rc<Wire>) {
    let mut io = WireIo(Rc::clone(wire));
    let reading = async {
        io.shutdown().await?;
        let mut buffer = vec![0; 16 * 1024];
        while io.read(&mut buffer).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    timeout(LINGER, reading).await.ok();
}

/// Counts a connection while it is open.
struct Counted<'a>(&'a Core);

impl<'a> Counted<'a> {
    fn new(core: &'a Core) -> Self {
        core.sheet.open_connection();
        Self(core)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.sheet.close_connection();
    }
}
