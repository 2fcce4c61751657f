//! Tunnels: what a connection becomes once client and app have agreed on another protocol (RFC 9110 §7.8).
//!
//! Any protocol passes as opaque bytes. Each direction ends by itself: a side that stops sending is told apart from one
//! that is gone (B86, B132), and an error on either side ends both: who is at the other is reset. But an app that takes no more may
//! have said all it had to say, and that is read to its end first. A tunnel has no idle limit (B137), counts as running, and is cut with the tenure
//! or the leader it was made under.
//!
//! A WebSocket can be told before it is cut, and is: both its ends get a Close frame that says "restart", at the next place
//! where one frame has ended and another has not begun, and a moment to answer it. Where a tenure is lost rather than
//! laid down, or a replica loses its leader, nothing may be said to the app any more, and only the client is told. Whoever
//! cannot be told is cut by a reset, the app included: `docker exec` takes an end for the end of the command's output, and
//! reports success, and its engine for the end of the input. Unix sockets know no resets, and end.

mod far;
mod frames;
#[cfg(test)]
mod fuzz;
mod pump;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::forward::{HiddenEnd, Ticket};
use crate::api::headers::Origin;
use crate::api::io::{Wire, WireIo};
use crate::api::ledger::Outcome;
use frames::Frames;
use pump::{Broken, Goodbyes, Pump, Side, Sink, Source};

pub(super) use far::Far;
pub(super) use pump::CHUNK;

/// How long the ends of a WebSocket get to answer a Close frame.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// How the tunnels to one upstream learn that their time is over.
#[derive(Clone, Debug, Default)]
pub(super) struct Notice {
    /// Those that can be told are to end now.
    pub(super) told: CancellationToken,
    /// All must end now.
    pub(super) cut: CancellationToken,
}

/// An agreed switch of protocols, waiting for the 101 to be out.
pub(super) struct Tunnel {
    /// The app's, or the leader's, side.
    pub(super) upstream: Far,
    /// Which of the two it is.
    pub(super) origin: Origin,
    /// When the tunnel must end.
    pub(super) notice: Notice,
    /// Whether frames of a WebSocket go through it.
    pub(super) websocket: bool,
    /// The request it came from.
    pub(super) ticket: Ticket,
    /// Kept until the library has let go of the client's side.
    pub(super) hidden: Option<HiddenEnd>,
}

/// How a client is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Parting {
    /// It knows how its tunnel ended.
    Told,
    /// It must come to know that it was cut off.
    Cut,
}

/// What comes first in the life of a tunnel.
enum Event {
    /// All that the client sends has been passed on, or that broke.
    Sent(Result<(), Broken>),
    /// All that the upstream sends has been passed on, or that broke.
    Heard(Result<(), Broken>),
    /// The leader's connection ended, and no Close frame was on its way.
    LeaderVanished,
    Told,
    /// The Close frames of both have been passed on.
    Parted,
    /// Its time is over.
    Cut,
}

/// How a tunnel ended.
enum End {
    /// As its ends wanted.
    Plain,
    Broken(Broken),
    LeaderVanished,
    Cut,
}

/// What follows from how a tunnel ended.
struct Verdict {
    outcome: Outcome,
    /// Whether the client of a WebSocket is to hear of it.
    is_to_hear: bool,
    /// Whether a client that cannot is to be cut off.
    is_cut: bool,
}

impl Verdict {
    /// Nothing was lost.
    const WELL: Self = Self { outcome: Outcome::Answered, is_to_hear: false, is_cut: false };
}

impl End {
    /// What follows where goodbyes were not exchanged, of a tunnel to `upstream`.
    fn judge(self, origin: Origin, upstream: &Far) -> Verdict {
        match self {
            Self::Plain => Verdict::WELL,
            Self::Cut => Verdict { outcome: Outcome::Cut, is_to_hear: true, is_cut: true },
            // It may as well be the app that has ended: a leader that is cut off, or dies, leaves a reset.
            Self::LeaderVanished => Verdict { outcome: Outcome::Cut, is_to_hear: true, is_cut: false },
            Self::Broken((Side::Client, error)) => {
                debug!(%error, "the client's side of a tunnel broke");
                Verdict { outcome: Outcome::Left, is_to_hear: false, is_cut: false }
            }
            Self::Broken((Side::Upstream, error)) => {
                debug!(%error, "the app's side of a tunnel broke");
                let is_over = origin == Origin::Leader || upstream.is_fenced_off();
                Verdict { outcome: Outcome::Cut, is_to_hear: is_over, is_cut: is_over || upstream.knows_resets() }
            }
        }
    }
}

impl Tunnel {
    /// Passes bytes both ways until both sides have ended. `early` is what the client sent right behind its request.
    pub(super) async fn run(mut self, client: Rc<Wire>, early: Bytes) {
        self.hidden.take();
        client.lay_bare();
        client.unread(early);
        client.reset_at_drop(true);
        if self.pass(WireIo(Rc::clone(&client)), WireIo(Rc::clone(&client))).await == Parting::Told {
            client.reset_at_drop(false);
        }
    }

    /// The same for a client that sends `from` there and takes `to` there.
    pub(super) async fn pass(self, from: impl AsyncRead + Unpin, to: impl AsyncWrite + Unpin) -> Parting {
        let Self { upstream, origin, notice, websocket, ticket, hidden: _ } = self;
        let core = ticket.core();
        let account = Account::new(ticket);
        // An end would tell it that its input is complete.
        upstream.reset_at_drop(true);
        let frames = || websocket.then(Frames::default);
        let goodbyes = Rc::<Goodbyes>::default();
        let mut there = Pump {
            source: Source::new(from, Side::Client, &core, &account.from_client, frames()),
            sink: Sink::new(upstream.clone(), Side::Upstream),
            goodbyes: Rc::clone(&goodbyes),
        };
        let mut back = Pump {
            source: Source::new(upstream, Side::Upstream, &core, &account.to_client, frames()),
            sink: Sink::new(to, Side::Client),
            goodbyes: Rc::clone(&goodbyes),
        };
        let mut watch = Watch::new(websocket, origin);
        let end = loop {
            match watch.next(&mut there, &mut back, &notice).await {
                Event::Told if there.is_open() && back.is_open() => {
                    dismiss(there, back, account, &notice.cut).await;
                    return Parting::Told;
                }
                // They are about to part already.
                Event::Told => watch.hurry(),
                // Whoever is about to leave, or has left, need not be told.
                Event::LeaderVanished if !there.is_open() => watch.vanishing = false,
                Event::LeaderVanished => break End::LeaderVanished,
                Event::Cut => break End::Cut,
                // It may leave a stream open that it is done with, and has said all it had to say.
                Event::Parted if there.sink.io.is_stream() && goodbyes.are_begun_by_client() => break End::Plain,
                // It has to have the client's, and is the one to end (RFC 6455 §7.1.1); but not all do.
                Event::Parted => watch.hurry(),
                // Who takes no more may have answered before, and what it said is still to be read.
                Event::Sent(Err((Side::Upstream, error))) if watch.refused.is_none() && !there.sink.io.is_fenced_off() => {
                    debug!(%error, "the upstream of a tunnel takes no more");
                    watch.refused = Some(error);
                }
                Event::Sent(Ok(())) => watch.has_sent(&there),
                Event::Heard(Ok(())) => watch.has_heard(&back),
                Event::Sent(Err(broken)) | Event::Heard(Err(broken)) => break End::Broken(broken),
            }
            if watch.is_over() {
                break End::Plain;
            }
        };
        let Verdict { outcome, is_to_hear, is_cut } = match end {
            // However it ended: all had been said.
            End::Cut | End::Broken(_) if goodbyes.are_exchanged() => Verdict::WELL,
            // The upstream has said goodbye, and is gone; only the client took its time.
            End::Cut if watch.heard && back.source.is_closed() => Verdict::WELL,
            end => end.judge(origin, &there.sink.io),
        };
        account.end(outcome);
        if outcome == Outcome::Answered {
            there.sink.io.reset_at_drop(false);
        }
        // The upstream's side goes first: its time is over.
        let (Pump { source: client, .. }, Pump { source: upstream, sink, .. }) = (there, back);
        let says_close = is_to_hear && upstream.is_between() && !upstream.closes() && !client.closes() && !sink.ended;
        let knows = upstream.is_closed();
        drop(upstream);
        if says_close {
            timeout(CLOSE_GRACE, part(client, sink, &frames::close(None))).await.ok();
        } else if knows && !sink.ended {
            timeout(CLOSE_GRACE, part(client, sink, &[])).await.ok();
        } else if is_cut && !knows {
            return Parting::Cut;
        } else {
            timeout(CLOSE_GRACE, linger(client, sink)).await.ok();
        }
        Parting::Told
    }
}

/// What a tunnel looks out for besides its bytes, and how far it has come.
struct Watch {
    /// Whether it can be told.
    told: bool,
    /// Whether the upstream's end may be the leader's.
    vanishing: bool,
    /// When it has to have ended.
    until: Option<Instant>,
    /// Why the upstream takes no more.
    refused: Option<io::Error>,
    /// Whether the client has ended.
    sent: bool,
    /// Whether the upstream has ended, and the client knows.
    heard: bool,
}

impl Watch {
    fn new(websocket: bool, origin: Origin) -> Self {
        Self { told: websocket, vanishing: websocket && origin == Origin::Leader, until: None, refused: None, sent: false, heard: false }
    }

    /// They have a moment left, and need not be told.
    fn hurry(&mut self) {
        self.told = false;
        self.until.get_or_insert_with(|| Instant::now() + CLOSE_GRACE);
    }

    fn has_sent<R: AsyncRead + Unpin>(&mut self, there: &Pump<R, Far>) {
        self.sent = true;
        if there.source.closes() {
            self.hurry();
        }
    }

    fn has_heard<W: AsyncWrite + Unpin>(&mut self, back: &Pump<Far, W>) {
        self.heard = true;
        if back.source.closes() {
            self.hurry();
        }
    }

    /// Whether nothing is left to pass on.
    fn is_over(&self) -> bool {
        self.heard && (self.sent || self.refused.is_some())
    }

    /// Passes bytes until something happens.
    async fn next<R, W>(&self, there: &mut Pump<R, Far>, back: &mut Pump<Far, W>, notice: &Notice) -> Event
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let goodbyes = Rc::clone(&there.goodbyes);
        let sent = async {
            if self.refused.is_some() {
                // It may wait until all of it is taken before it listens.
                return there.source.discard_all().await;
            }
            there.pass().await?;
            there.sink.end().await
        };
        let heard = async {
            let heard = async {
                back.pass().await?;
                if self.vanishing && !back.source.closes() {
                    return Ok(Event::LeaderVanished);
                }
                if let Some(error) = self.refused.as_ref().filter(|error| hides_the_end(error)) {
                    return Err((Side::Upstream, error.kind().into()));
                }
                back.sink.end().await?;
                Ok(Event::Heard(Ok(())))
            };
            heard.await.unwrap_or_else(|broken| Event::Heard(Err(broken)))
        };
        tokio::select! {
            biased;
            sent = sent, if !self.sent => Event::Sent(sent),
            event = heard, if !self.heard => event,
            () = notice.cut.cancelled() => Event::Cut,
            () = notice.told.cancelled(), if self.told => Event::Told,
            () = goodbyes.exchange.notified() => Event::Parted,
            () = sleep_until(self.until.unwrap_or_else(Instant::now)), if self.until.is_some() => Event::Cut,
        }
    }
}

/// Whether a writer that met with `error` has taken a reset from the reader, who comes upon an end in its place. A connection
/// whose end had come before the reset tells its writer that it is closed.
fn hides_the_end(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected)
}

/// Tells both ends of a WebSocket that they have to part, and sees them off.
async fn dismiss<R, W>(mut there: Pump<R, Far>, mut back: Pump<Far, W>, account: Account, cut: &CancellationToken)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let until = Instant::now() + CLOSE_GRACE;
    let to_app = frames::close(Some(fastrand::u32(..).to_be_bytes()));
    let both = async {
        let app_parts = async {
            back.put_in(&frames::close(None)).await?;
            back.source.discard_to_close().await
        };
        join(app_parts, there.put_in(&to_app)).await
    };
    let outcome = tokio::select! {
        biased;
        parted = timeout_at(until, both) => match parted {
            Ok((Ok(()), Ok(()))) => Outcome::Answered,
            Ok((Err((Side::Client, _)), _) | (_, Err((Side::Client, _)))) => Outcome::Left,
            Ok(_) | Err(_) => Outcome::Cut,
        },
        () = cut.cancelled() => Outcome::Cut,
    };
    account.end(outcome);
    if outcome == Outcome::Answered {
        there.sink.io.reset_at_drop(false);
    }
    // The app's side goes first: nobody who waits for the end of the tenure waits for clients.
    let (Pump { source: client, .. }, Pump { sink, .. }) = (there, back);
    timeout_at(until, part(client, sink, &[])).await.ok();
}

/// Says `last` to a client, lets it answer with its own Close frame, and hears it out.
async fn part(mut client: Source<impl AsyncRead + Unpin>, mut to_client: Sink<impl AsyncWrite + Unpin>, last: &[u8]) -> Result<(), Broken> {
    to_client.put(last).await?;
    client.discard_to_close().await?;
    linger(client, to_client).await
}

/// Tells a client that nothing follows, and hears it out, so that no reset takes from it what it was told.
async fn linger(mut client: Source<impl AsyncRead + Unpin>, mut to_client: Sink<impl AsyncWrite + Unpin>) -> Result<(), Broken> {
    to_client.end().await?;
    client.discard_all().await
}

/// The request that a tunnel came from, and what it has carried: taken down with its end, whatever that is.
struct Account {
    ticket: Option<Ticket>,
    from_client: Rc<Cell<u64>>,
    to_client: Rc<Cell<u64>>,
}

impl Account {
    fn new(ticket: Ticket) -> Self {
        Self { ticket: Some(ticket), from_client: Rc::default(), to_client: Rc::default() }
    }

    fn end(mut self, outcome: Outcome) {
        if let Some(ticket) = self.closed() {
            ticket.end(outcome);
        }
    }

    fn closed(&mut self) -> Option<Ticket> {
        let mut ticket = self.ticket.take()?;
        if let Some(entry) = ticket.entry() {
            entry.note_tunnel(self.from_client.get(), self.to_client.get());
        }
        Some(ticket)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        drop(self.closed());
    }
}
