//! The primary's end: every request that comes over it is served as if it had come on a connection of its own.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;
use tracing::trace;

use super::{CONNECTION_WINDOW, ELSEWHERE, FRAME, STREAM_WINDOW, STREAMS, Seat, Tasks, longest_request, name_protocol, switched};
use crate::api::body::ResponseBody;
use crate::api::dispatch::{self, Gone};
use crate::api::session::{Busy, Next, Session};

/// Agrees to a shared connection, or asks for it to be tried at another worker.
pub(in crate::api) fn accept(session: &Session) -> Response<ResponseBody> {
    let mut answer = Response::new(ResponseBody::empty());
    if let Some(seat) = session.core.seats.take(session.core.index) {
        session.becomes(Next::Mux(seat));
        *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        name_protocol(answer.headers_mut());
    } else {
        *answer.status_mut() = ELSEWHERE;
    }
    answer
}

/// Serves the connection until it ends: because the other node closes it, because it was idle for as long as a client's
/// may be, or because this node is closing.
pub(in crate::api) async fn serve(session: &Session, early: Bytes, _seat: Seat) {
    let core = Rc::clone(&session.core);
    let limits = core.config.limits;
    let tasks = TaskTracker::new();
    let used = Rc::new(Cell::new(true));
    let mut builder = http2::Builder::new(Tasks(tasks.clone()));
    builder
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(STREAMS)
        .max_frame_size(FRAME)
        .max_send_buf_size(STREAM_WINDOW as usize)
        .max_header_list_size(longest_request(&limits.after_a_hop()))
        .auto_date_header(false);
    let service = {
        let (core, wire, peer, used) = (Rc::clone(&core), Rc::clone(&session.wire), session.peer.clone(), Rc::clone(&used));
        service_fn(move |request| {
            used.set(true);
            answer(Session::new(&core, &wire, peer.clone()), request)
        })
    };
    let connection = builder.serve_connection(TokioIo::new(switched(&session.wire, early)), service);
    let mut connection = pin!(connection);
    let mut idle = interval(limits.head_timeout);
    idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = false;
    loop {
        let ends = tokio::select! {
            biased;
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    trace!(%error, "a shared connection broke");
                }
                return;
            }
            () = core.turn.notified() => session.is_to_end(),
            _ = idle.tick() => !used.take() && tasks.is_empty(),
        };
        if ends && std::mem::replace(&mut told, true) {
            // The other node has had its time to go.
            return;
        }
        if ends {
            connection.as_mut().graceful_shutdown();
        }
    }
}

/// A request on a stream of its own.
async fn answer(session: Rc<Session>, request: Request<Incoming>) -> Result<Response<ResponseBody>, Gone> {
    let answer = dispatch::serve(Busy::new(&session), request).await?;
    Ok(answer.map(ResponseBody::for_stream))
}
