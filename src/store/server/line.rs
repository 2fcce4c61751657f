//! The one connection that a lock has, opened when it is first needed and again after whatever went wrong with it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::{Instant, timeout};

use crate::store::contract::StoreError;

/// One connection, on which calls take turns. It is nobody else's: no pool hands it out, recycles it or counts its age.
pub(in crate::store) struct Line<C> {
    slot: Mutex<Slot<C>>,
    patience: Duration,
}

/// Opening survives the call that began it: it takes several round trips, which on a slow network may together last longer
/// than any one call.
enum Slot<C> {
    Closed,
    Opening { since: Instant, opening: BoxFuture<'static, Result<C, StoreError>> },
    Open(C),
}

impl<C> Line<C> {
    /// A line whose opening is given up, and begun anew, after `patience`.
    pub(in crate::store) fn new(patience: Duration) -> Self {
        Self { slot: Mutex::new(Slot::Closed), patience }
    }

    /// The connection, for one call; `open` makes one where there is none.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the opening goes on with the next call.
    pub(in crate::store) async fn turn(
        &self,
        open: impl FnOnce() -> BoxFuture<'static, Result<C, StoreError>>,
    ) -> Result<Turn<'_, C>, StoreError> {
        let mut slot = self.slot.lock().await;
        if let Slot::Opening { since, .. } = &*slot
            && since.elapsed() >= self.patience
        {
            *slot = Slot::Closed;
        }
        if let Slot::Closed = &*slot {
            *slot = Slot::Opening { since: Instant::now(), opening: open() };
        }
        let mut is_new = false;
        if let Slot::Opening { since, opening } = &mut *slot {
            let left = self.patience.saturating_sub(since.elapsed());
            let opened = timeout(left, opening).await;
            *slot = Slot::Closed;
            match opened {
                Ok(opened) => *slot = Slot::Open(opened?),
                Err(_) => return Err(StoreError::unavailable("connect", format!("no connection within {:?}", self.patience))),
            }
            is_new = true;
        }
        Ok(Turn { slot, is_new })
    }

    /// Closes the connection, if there is one.
    pub(in crate::store) async fn close(&self) {
        *self.slot.lock().await = Slot::Closed;
    }
}

/// One call's turn on the connection.
pub(in crate::store) struct Turn<'a, C> {
    slot: MutexGuard<'a, Slot<C>>,
    /// Whether nobody had a turn on this connection before.
    pub(in crate::store) is_new: bool,
}

impl<C> Turn<'_, C> {
    /// The connection, to be given back when the answer to what was sent is there. One that is not given back, because the
    /// call failed or was dropped, is closed: a later call would get the answer to this one.
    pub(in crate::store) fn take(&mut self) -> C {
        match std::mem::replace(&mut *self.slot, Slot::Closed) {
            Slot::Open(connection) => connection,
            Slot::Closed | Slot::Opening { .. } => unreachable!("a turn begins with an open connection, and takes it once"),
        }
    }

    pub(in crate::store) fn give_back(mut self, connection: C) {
        *self.slot = Slot::Open(connection);
    }

    /// The connection in its place, for what may be dropped half way.
    pub(in crate::store) fn borrow(&mut self) -> &mut C {
        match &mut *self.slot {
            Slot::Open(connection) => connection,
            Slot::Closed | Slot::Opening { .. } => unreachable!("a turn begins with an open connection, and ends with it"),
        }
    }

    pub(in crate::store) fn close(mut self) {
        *self.slot = Slot::Closed;
    }
}

#[cfg(test)]
mod tests {
    use std::future::{Future, pending, ready};
    use std::task::Poll;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn opens(number: u32) -> BoxFuture<'static, Result<u32, StoreError>> {
        Box::pin(ready(Ok(number)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_was_not_given_back_is_opened_anew() {
        let line = Line::new(PATIENCE);
        let mut turn = line.turn(|| opens(1)).await.unwrap();
        assert!(turn.is_new);
        let connection = turn.take();
        turn.give_back(connection);
        let mut turn = line.turn(|| opens(2)).await.unwrap();
        assert_eq!((turn.is_new, turn.take()), (false, 1));
        drop(turn);
        let mut turn = line.turn(|| opens(3)).await.unwrap();
        assert_eq!((turn.is_new, turn.take()), (true, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn opening_goes_on_with_the_next_call() {
        let line = Line::new(PATIENCE);
        let slow = || -> BoxFuture<'static, Result<u32, StoreError>> {
            Box::pin(async {
                tokio::time::sleep(PATIENCE * 2 / 3).await;
                Ok(1)
            })
        };
        assert!(timeout(PATIENCE / 2, line.turn(slow)).await.is_err());
        let begun = Instant::now();
        let mut turn = line.turn(|| opens(2)).await.unwrap();
        assert_eq!(turn.take(), 1);
        assert!(begun.elapsed() < PATIENCE / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_that_leads_nowhere_is_begun_anew() {
        let line = Line::new(PATIENCE);
        let nowhere = || -> BoxFuture<'static, Result<u32, StoreError>> { Box::pin(pending()) };
        let error = line.turn(nowhere).await.map(drop).unwrap_err().to_string();
        assert!(error.contains("no connection within 3s"), "{error}");
        {
            let mut dropped = std::pin::pin!(line.turn(nowhere));
            std::future::poll_fn(|context| Poll::Ready(assert!(dropped.as_mut().poll(context).is_pending()))).await;
        }
        tokio::time::advance(PATIENCE).await;
        assert_eq!(line.turn(|| opens(2)).await.unwrap().take(), 2);
    }
}
