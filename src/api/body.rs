//! What clients are answered: streamed as it comes, with what has to be settled when it ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::api::forward::Tail;
use crate::api::piece::poll_piece;

/// The body of an answer to a client. Nothing in it is boxed.
pub(super) enum ResponseBody {
    /// An answer of this node itself, or what is left of one.
    Whole(Bytes),
    /// An upstream's answer, passed on as it comes.
    Stream(Incoming, Option<Tail>),
    /// One that broke. Told at once, the library would not send what of the answer it had not sent yet, its head included.
    Broken(Option<hyper::Error>),
    /// No body, though the head states a length: 0, or the one that a body would have had (HEAD, 304).
    Bodiless(u64),
}

impl ResponseBody {
    pub(super) fn empty() -> Self {
        Self::Whole(Bytes::new())
    }

    /// The same for HTTP/2, where an answer without a body ends with its head, whatever length that states.
    pub(super) fn for_stream(self) -> Self {
        match self {
            Self::Bodiless(_) => Self::empty(),
            other => other,
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        match this {
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Bodiless(_) => Poll::Ready(None),
            Self::Stream(source, tail) => {
                let frame = ready!(poll_piece(source, cx));
                if let (Some(tail), Some(Ok(frame))) = (tail.as_mut(), &frame) {
                    tail.note_bytes(frame.data_ref().map_or(0, Bytes::len));
                }
                match &frame {
                    // Nothing follows trailers, and the library does not ask whether anything does.
                    Some(Ok(frame)) if !frame.is_trailers() && !source.is_end_stream() => {}
                    Some(Ok(_)) | None => tail.take().into_iter().for_each(Tail::finish),
                    Some(Err(error)) => tail.take().into_iter().for_each(|tail| tail.cut(error)),
                }
                if let Some(Err(error)) = frame {
                    *this = Self::Broken(Some(error));
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(frame)
            }
            Self::Broken(error) => Poll::Ready(error.take().map(Err)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(source, _) => source.is_end_stream(),
            Self::Bodiless(_) | Self::Broken(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(source, _) => source.size_hint(),
            Self::Bodiless(length) => SizeHint::with_exact(*length),
            Self::Broken(_) => SizeHint::default(),
        }
    }
}
