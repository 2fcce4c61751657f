//! The end that answers: every request is served as if it had come on a connection of its own.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};
use tokio_util::task::TaskTracker;
use tracing::trace;

use super::watch::{self, Runner, Watch, Watched};
use super::websocket::Asked;
use super::{Shape, longest_request};
use crate::api::dispatch::{self, Gone};
use crate::api::io::WireIo;
use crate::api::ledger::Closing;
use crate::api::session::{Busy, Session};

/// How long the other side has to hear that it is to go, before a connection on which nothing runs is closed under it.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves the connection until it ends: because the other side closes it, because it was idle for as long as a client's
/// may be, or because `ends` says at a turn of the worker that it is to go. It is then told so (GOAWAY, RFC 9113 §6.8): what
/// runs may finish, and nothing is lost of what it sends too late.
pub(in crate::api) async fn serve(session: &Session, shape: Shape, ends: impl Fn() -> bool) {
    let core = Rc::clone(&session.core);
    let limits = core.config.limits;
    let tasks = TaskTracker::new();
    let used = Rc::new(Cell::new(false));
    let mut taking = session.taking();
    // Another node watches over the clients that it serves.
    let watch = (!session.is_shared()).then(|| Watch::new(&core, taking.limit(), shape.streams, !session.peer.is_trusted()));
    let mut builder = http2::Builder::new(Runner { tasks: tasks.clone(), watch: watch.clone() });
    builder
        .initial_stream_window_size(shape.stream_window)
        .initial_connection_window_size(shape.connection_window)
        .max_concurrent_streams(shape.streams)
        .max_pending_accept_reset_streams(shape.resets)
        .max_frame_size(shape.frame)
        .max_send_buf_size(shape.stream_window as usize)
        .max_header_list_size(longest_request(&limits.after_a_hop()))
        .auto_date_header(false)
        .enable_connect_protocol();
    let service = {
        let (used, tasks) = (Rc::clone(&used), tasks.clone());
        service_fn(move |request| {
            used.set(true);
            answer(session.for_stream(&tasks), request, tasks.clone())
        })
    };
    session.wire.keep_alive();
    let mut connection = pin!(builder.serve_connection(TokioIo::new(WireIo(Rc::clone(&session.wire))), service));
    let limit = session.head_timeout();
    let mut idle = interval_at(Instant::now() + limit, limit);
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut look = pin!(sleep(taking.limit().unwrap_or_default().min(limits.head_timeout)));
    let mut told = None;
    loop {
        let is_to_end = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    trace!(%error, "a connection with streams broke");
                    if is_flood(&error) {
                        core.sheet.close_by(Closing::Flood);
                    }
                }
                return;
            }
            () = spent(watch.as_deref()) => {
                core.sheet.close_by(Closing::Flood);
                connection.as_mut().graceful_shutdown();
                // As far as that needs no waiting.
                drop(connection.as_mut().now_or_never());
                return;
            }
            () = core.streams_turn.notified() => ends(),
            _ = idle.tick() => {
                let idles = !used.take() && tasks.is_empty();
                if idles && told.is_none() {
                    core.sheet.close_by(Closing::Idle);
                }
                idles || session.is_surplus()
            }
            () = look.as_mut(), if taking.limit().is_some() => {
                let due = taking.look(&session.wire).unwrap_or_default();
                if due.is_zero() {
                    core.sheet.close_by(Closing::Stalled);
                    return;
                }
                let due = watch.as_ref().and_then(|watch| watch.look()).map_or(due, |streams| due.min(streams));
                look.as_mut().reset(Instant::now() + due.min(limits.head_timeout));
                false
            }
        };
        if !is_to_end {
            continue;
        }
        match told {
            None => {
                told = Some(Instant::now());
                connection.as_mut().graceful_shutdown();
            }
            // The other side has had its time to go; what it sent before it knew has come.
            Some(since) if since.elapsed() >= FAREWELL && tasks.is_empty() => return,
            Some(_) => {}
        }
    }
}

/// Returns when a client has taken too many requests back; never where nobody counts.
async fn spent(watch: Option<&Watch>) {
    match watch {
        Some(watch) => watch.is_spent().await,
        None => std::future::pending().await,
    }
}

/// Whether the library has ended a connection because the other side asks too much of it (RFC 9113 §10.5).
fn is_flood(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| cause.is_library() && cause.reason() == Some(h2::Reason::ENHANCE_YOUR_CALM))
}

/// A request on a stream of its own.
async fn answer(session: Rc<Session>, mut request: Request<Incoming>, tasks: TaskTracker) -> Result<Response<Watched>, Gone> {
    watch::begin();
    let websocket = Asked::turn(&mut request);
    let mut answer = dispatch::serve(Busy::new(&session), request).await?;
    if let Some(websocket) = websocket {
        websocket.turn_back(&mut answer, &session, &tasks);
    }
    Ok(answer.map(|body| Watched::new(body.for_stream())))
}
