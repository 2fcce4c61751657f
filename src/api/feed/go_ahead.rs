//! What a client waits for that sent `Expect: 100-continue` (RFC 9110 §10.1.1).

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::time::Sleep;

/// How long an upstream may ignore that a client waits for a 100; clients wait about as long.
const PATIENCE: Duration = Duration::from_secs(1);

/// An upstream's word, or its silence for long enough, that a client need not wait with its body any longer.
#[derive(Default)]
pub(in crate::api) struct GoAhead {
    given: AtomicBool,
    waker: AtomicWaker,
}

impl GoAhead {
    /// Opens the way.
    pub(in crate::api) fn give(&self) {
        self.given.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(super) fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Ready when the way is open: at the latest when `patience`, begun here, has run out.
    pub(super) fn poll_given(&self, cx: &mut Context<'_>, patience: &mut Option<Pin<Box<Sleep>>>) -> Poll<()> {
        if self.is_given() {
            return Poll::Ready(());
        }
        self.waker.register(cx.waker());
        if self.is_given() {
            return Poll::Ready(());
        }
        let patience = patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
        ready!(patience.as_mut().poll(cx));
        self.give();
        Poll::Ready(())
    }
}
