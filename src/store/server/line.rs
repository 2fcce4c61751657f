//! A connection of a lock's own, opened when it is first needed and again after whatever went wrong with it.

use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::store::contract::StoreError;

/// One connection, on which calls take turns. It is nobody else's: no pool hands it out, recycles it or counts its age.
pub(super) struct Line<C> {
    slot: Mutex<Slot<C>>,
    patience: Patience,
}

/// How long a line waits for what a call has left behind.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// From the beginning of an opening to its end.
    pub(super) open: Duration,
    /// From the sending of a statement to its answer.
    pub(super) answer: Duration,
}

/// What is under way survives the call that began it. Opening takes several round trips, which on a slow network may
/// together last longer than any one call. And a statement whose answer nobody waits for any more must still get it: it
/// would be taken for the answer to the next one.
enum Slot<C> {
    Closed,
    Opening { until: Instant, opening: BoxFuture<'static, Result<C, StoreError>> },
    Open(C),
    Busy { until: Instant, answer: BoxFuture<'static, Option<C>> },
}

impl<C: Send + 'static> Line<C> {
    pub(super) fn new(patience: Patience) -> Self {
        Self { slot: Mutex::new(Slot::Closed), patience }
    }

    /// Sends a statement and waits for its answer; `open` makes a connection where there is none.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what is under way goes on, and the next call begins after it.
    pub(super) async fn ask<T, A>(
        &self,
        open: impl FnOnce() -> BoxFuture<'static, Result<C, StoreError>>,
        statement: impl FnOnce(C) -> A,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        A: Future<Output = Answered<C, T>> + Send + 'static,
    {
        let mut slot = self.slot.lock().await;
        let asking = statement(self.connection(&mut slot, open).await?);
        let (outcome, waiting) = oneshot::channel();
        let answer = Box::pin(async move {
            let (connection, answer) = asking.await;
            outcome.send(answer).ok();
            connection
        }) as BoxFuture<'static, Option<C>>;
        let until = Instant::now() + self.patience.answer;
        *slot = Slot::Busy { until, answer };
        if let Slot::Busy { answer, .. } = &mut *slot {
            let left = answer.await;
            *slot = left.map_or(Slot::Closed, Slot::Open);
        }
        waiting.await.expect("an answer was sent before its future ended")
    }

    /// Takes the connection out of its slot, after whatever is under way on it.
    async fn connection(
        &self,
        slot: &mut Slot<C>,
        open: impl FnOnce() -> BoxFuture<'static, Result<C, StoreError>>,
    ) -> Result<C, StoreError> {
        if let Slot::Busy { until, answer } = slot {
            let left = timeout_at(*until, answer).await.ok().flatten();
            *slot = left.map_or(Slot::Closed, Slot::Open);
        }
        match slot {
            Slot::Opening { until, .. } if Instant::now() < *until => {}
            Slot::Closed | Slot::Opening { .. } => *slot = Slot::Opening { until: Instant::now() + self.patience.open, opening: open() },
            Slot::Open(_) | Slot::Busy { .. } => {}
        }
        if let Slot::Opening { until, opening } = slot {
            let opened = timeout_at(*until, opening).await;
            *slot = Slot::Closed;
            return opened
                .unwrap_or_else(|_| Err(StoreError::unavailable("connect", format!("no connection within {:?}", self.patience.open))));
        }
        match std::mem::replace(slot, Slot::Closed) {
            Slot::Open(connection) => Ok(connection),
            Slot::Closed | Slot::Opening { .. } | Slot::Busy { .. } => unreachable!("what was under way has ended"),
        }
    }
}

/// What became of a statement: the connection, unless it is no longer usable, and the outcome.
pub(super) type Answered<C, T> = (Option<C>, Result<T, StoreError>);

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tokio::time::{sleep, timeout};

    use super::*;

    const PATIENCE: Patience = Patience { open: Duration::from_secs(3), answer: Duration::from_secs(1) };

    fn opens(number: u32) -> BoxFuture<'static, Result<u32, StoreError>> {
        Box::pin(ready(Ok(number)))
    }

    fn nowhere() -> BoxFuture<'static, Result<u32, StoreError>> {
        Box::pin(pending())
    }

    /// Asks a connection for its number, which takes some time.
    async fn ask(line: &Line<u32>, number: u32, time: Duration) -> Result<u32, StoreError> {
        ask_opened_by(line, || opens(number), time).await
    }

    async fn ask_opened_by(
        line: &Line<u32>,
        open: impl FnOnce() -> BoxFuture<'static, Result<u32, StoreError>>,
        time: Duration,
    ) -> Result<u32, StoreError> {
        let answer = |connection| async move {
            sleep(time).await;
            (Some(connection), Ok(connection))
        };
        line.ask(open, answer).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_kept_until_something_goes_wrong_with_it() {
        let line = Line::new(PATIENCE);
        assert_eq!(ask(&line, 1, Duration::ZERO).await.unwrap(), 1);
        assert_eq!(ask(&line, 2, Duration::ZERO).await.unwrap(), 1);
        let broken = |_| ready((None, Err::<(), _>(StoreError::unavailable("test", "broken"))));
        line.ask(|| opens(3), broken).await.unwrap_err();
        assert_eq!(ask(&line, 4, Duration::ZERO).await.unwrap(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_waits_for_is_not_taken_for_the_next_one() {
        let line = Line::new(PATIENCE);
        let half = PATIENCE.answer / 2;
        assert!(timeout(half / 2, ask(&line, 1, half)).await.is_err());
        let begun = Instant::now();
        assert_eq!(ask(&line, 2, half).await.unwrap(), 1);
        assert_eq!(begun.elapsed(), half / 2 + half);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_does_not_come_costs_the_connection() {
        let line = Line::new(PATIENCE);
        assert!(timeout(PATIENCE.answer, ask(&line, 1, PATIENCE.answer * 100)).await.is_err());
        let begun = Instant::now();
        assert_eq!(ask(&line, 2, Duration::ZERO).await.unwrap(), 2);
        assert!(begun.elapsed() < Duration::from_millis(2), "it was waited for already");
        assert!(timeout(PATIENCE.answer / 4, ask(&line, 3, PATIENCE.answer * 100)).await.is_err());
        assert_eq!(ask(&line, 4, Duration::ZERO).await.unwrap(), 4);
        assert!(begun.elapsed() < PATIENCE.answer + Duration::from_millis(2));
    }

    #[tokio::test(start_paused = true)]
    async fn opening_goes_on_with_the_next_call() {
        let line = Line::new(PATIENCE);
        let slow = || -> BoxFuture<'static, Result<u32, StoreError>> {
            Box::pin(async {
                sleep(PATIENCE.open * 2 / 3).await;
                Ok(1)
            })
        };
        assert!(timeout(PATIENCE.open / 2, ask_opened_by(&line, slow, Duration::ZERO)).await.is_err());
        let begun = Instant::now();
        assert_eq!(ask(&line, 2, Duration::ZERO).await.unwrap(), 1);
        assert!(begun.elapsed() < PATIENCE.open / 2);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_that_leads_nowhere_is_begun_anew() {
        let line = Line::new(PATIENCE);
        let error = ask_opened_by(&line, nowhere, Duration::ZERO).await.unwrap_err().to_string();
        assert!(error.contains("no connection within 3s"), "{error}");
        assert!(timeout(PATIENCE.open / 2, ask_opened_by(&line, nowhere, Duration::ZERO)).await.is_err());
        sleep(PATIENCE.open).await;
        assert_eq!(ask(&line, 2, Duration::ZERO).await.unwrap(), 2);
    }
}
