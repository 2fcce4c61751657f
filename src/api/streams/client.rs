//! The end that asks.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::announced::{Announced, Hearing, Listening};
use super::{Shape, Tasks, longest_answer};
use crate::api::Limits;
use crate::api::feed::RequestBody;
use crate::api::io::{Wire, WireIo};

/// A connection to an upstream, and how many requests are on it.
pub(in crate::api) struct Lane {
    sender: SendRequest<RequestBody>,
    streams: Rc<Cell<u32>>,
    most: u32,
    used: bool,
    /// Since when it has carried nothing, as far as is known.
    idle_since: Instant,
    /// Whether it has carried anything since somebody looked.
    worked: bool,
    hearing: Rc<Hearing>,
}

/// A request's share of a connection, until its answer has ended.
pub(in crate::api) struct Stream(Rc<Cell<u32>>);

impl Stream {
    fn new(streams: &Rc<Cell<u32>>) -> Self {
        streams.set(streams.get() + 1);
        Self(Rc::clone(streams))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// How a request fared.
pub(in crate::api) enum Sent {
    Answered(Response<Incoming>, Stream),
    /// Nothing of it has left; here it is again.
    Unsent(Request<RequestBody>),
    /// The upstream says that it has processed nothing of it; it is gone all the same.
    Refused(hyper::Error),
    /// The connection broke, or the upstream gave the request up.
    Lost(hyper::Error),
}

/// Whether an upstream says that it has processed nothing of a request: it reset its stream as refused, or said that it
/// goes and which streams it still serves (RFC 9113 §8.7).
fn is_refusal(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_remote() && (cause.is_go_away() || cause.reason() == Some(h2::Reason::REFUSED_STREAM)))
}

impl Lane {
    /// Begins to speak HTTP/2 over `wire`, and what has to run until the connection ends. That dropped, whatever still runs on
    /// the connection is cut off.
    ///
    /// # Errors
    /// When the connection breaks at once.
    pub(in crate::api) async fn open(
        wire: &Rc<Wire>,
        shape: Shape,
        limits: &Limits,
    ) -> io::Result<(Self, impl Future<Output = ()> + use<>)> {
        let tasks = TaskTracker::new();
        let mut builder = http2::Builder::new(Tasks(tasks.clone()));
        builder
            .initial_stream_window_size(shape.stream_window)
            .initial_connection_window_size(shape.connection_window)
            .initial_max_send_streams(shape.streams as usize)
            .max_concurrent_reset_streams(shape.resets)
            .max_frame_size(shape.frame)
            .max_header_list_size(longest_answer(limits));
        wire.keep_alive();
        let severed = Severed(Rc::clone(wire));
        let (io, hearing) = Listening::new(WireIo(Rc::clone(wire)));
        let (sender, connection) = builder.handshake(TokioIo::new(io)).await.map_err(io::Error::other)?;
        let running = async move {
            let _severed = severed;
            if let Err(error) = connection.await {
                debug!(%error, "a connection with streams to an upstream broke");
            }
            // It takes no more requests; those that are on it may finish.
            tasks.close();
            tasks.wait().await;
        };
        let idle_since = Instant::now();
        Ok((Self { sender, streams: Rc::default(), most: shape.streams, used: false, idle_since, worked: false, hearing }, running))
    }

    /// What the other end has said of itself, if it has.
    pub(in crate::api) fn announced(&self) -> Option<Announced> {
        self.hearing.announced()
    }

    /// Waits until it has, and lets at least one stream be open, for as long as that takes.
    ///
    /// # Errors
    /// When the connection ends before that.
    pub(in crate::api) async fn hear(&self) -> io::Result<Announced> {
        let ended = || io::Error::new(io::ErrorKind::ConnectionReset, "it closed the connection before it spoke HTTP/2");
        self.hearing.until(|announced| announced.streams != Some(0)).await.ok_or_else(ended)
    }

    pub(in crate::api) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Whether there may be one more request: what is more than the other end allows would wait for others to end.
    pub(in crate::api) fn has_room(&self) -> bool {
        let allowed = self.announced().and_then(|announced| announced.streams).unwrap_or(self.most);
        !self.is_closed() && self.streams.get() < self.most.min(allowed)
    }

    /// For how long it has carried nothing; for whoever looks now and then.
    pub(in crate::api) fn idles(&mut self) -> Duration {
        if self.load() > 0 || std::mem::take(&mut self.worked) {
            self.idle_since = Instant::now();
        }
        self.idle_since.elapsed()
    }

    /// How many requests are on it.
    pub(in crate::api) fn load(&self) -> u32 {
        self.streams.get()
    }

    /// Whether a request has gone over it before.
    pub(in crate::api) fn was_used(&self) -> bool {
        self.used
    }

    /// Sends a request and waits for the head of its answer, for as long as that takes. It counts from the call on.
    pub(in crate::api) fn send(&mut self, request: Request<RequestBody>) -> impl Future<Output = Sent> + use<> {
        (self.used, self.worked) = (true, true);
        let (sending, stream) = (self.sender.try_send_request(request), Stream::new(&self.streams));
        async move {
            match sending.await {
                Ok(answer) => Sent::Answered(answer, stream),
                Err(mut error) => match error.take_message() {
                    Some(request) => Sent::Unsent(request),
                    None if is_refusal(error.error()) => Sent::Refused(error.into_error()),
                    None => Sent::Lost(error.into_error()),
                },
            }
        }
    }
}

/// Cuts a connection off when dropped, whatever still runs on it.
struct Severed(Rc<Wire>);

impl Drop for Severed {
    fn drop(&mut self) {
        self.0.sever();
    }
}
