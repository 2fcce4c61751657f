//! The pieces that a body comes in, from clients and from upstreams alike.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use hyper::body::Incoming;

/// The next frame of a body that is passed on. Pieces of nothing are left out, but for one that ends the body: they are
/// of no use to whom the body is for, and on a connection that many share they are counted as a flood.
pub(super) fn poll_piece(source: &mut Incoming, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    loop {
        let frame = ready!(Pin::new(&mut *source).poll_frame(cx));
        let is_nothing = matches!(&frame, Some(Ok(frame)) if frame.data_ref().is_some_and(Bytes::is_empty));
        if !is_nothing || source.is_end_stream() {
            return Poll::Ready(frame);
        }
    }
}
