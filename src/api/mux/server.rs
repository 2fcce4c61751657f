//! The primary's end.

use bytes::Bytes;
use http::{Response, StatusCode};

use super::{ELSEWHERE, SHAPE, Seat, name_protocol};
use crate::api::body::ResponseBody;
use crate::api::session::{Next, Session};
use crate::api::streams;

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

/// Serves the connection until it ends, `early` being what came right behind the request for it.
pub(in crate::api) async fn serve(session: &Session, early: Bytes, _seat: Seat) {
    session.wire.lay_bare();
    session.wire.unread(early);
    streams::serve(session, SHAPE, || session.is_to_end()).await;
}
