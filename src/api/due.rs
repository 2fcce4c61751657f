//! Answers that are due: how long an app may take for the head of one, where that has a limit.
//!
//! It is the app's turn once it has the whole request, and while it takes nothing of what is there for it; whatever it takes,
//! and whatever the client still owes, begins the time anew. From the head on an answer may take as long as it likes.
//!
//! No request has a timer for it. One that is not answered at once takes a place in a list, which costs no allocation as places
//! are used again, and the sweep looks through that.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::api::debt::sweeps;
use crate::api::feed::{Feed, Progress};
use crate::api::pool::Loss;

/// What of one upstream is due.
pub(super) struct Due {
    limit: Duration,
    most_sweeps: u32,
    list: RefCell<List>,
}

#[derive(Default)]
struct List {
    places: Vec<Option<Awaited>>,
    free: Vec<usize>,
}

/// A request that waits for its answer.
struct Awaited {
    waker: Waker,
    feed: Option<Rc<Feed>>,
    /// How far its body was at the last sweep.
    seen: Option<Progress>,
    /// For how many sweeps it has been the app's turn.
    sweeps: u32,
    is_late: bool,
}

impl Due {
    pub(super) fn new(limit: Duration) -> Self {
        Self { limit, most_sweeps: sweeps(limit), list: RefCell::default() }
    }

    /// Looks at all that wait; called at each sweep.
    pub(super) fn sweep(&self) {
        for awaited in self.list.borrow_mut().places.iter_mut().flatten() {
            awaited.look(self.most_sweeps);
        }
    }

    fn enter(&self, awaited: Awaited) -> Place<'_> {
        let list = &mut *self.list.borrow_mut();
        let index = match list.free.pop() {
            Some(index) => {
                list.places[index] = Some(awaited);
                index
            }
            None => {
                list.places.push(Some(awaited));
                list.places.len() - 1
            }
        };
        Place { due: self, index }
    }
}

impl Awaited {
    fn look(&mut self, most: u32) {
        let progress = self.feed.as_ref().map(|feed| feed.progress());
        let waits_for_app = progress.is_none_or(|now| !now.is_clients_turn && self.seen == progress);
        self.seen = progress;
        self.sweeps = if waits_for_app { self.sweeps + 1 } else { 0 };
        if self.sweeps >= most && !std::mem::replace(&mut self.is_late, true) {
            self.waker.wake_by_ref();
        }
    }
}

/// One request's place in the list, until this is dropped.
struct Place<'a> {
    due: &'a Due,
    index: usize,
}

impl Place<'_> {
    /// Whether the answer is late. From now on `waker` is woken when it is.
    fn is_late(&self, waker: &Waker) -> bool {
        let mut list = self.due.list.borrow_mut();
        let awaited = list.places[self.index].as_mut().expect("a place is free only after this");
        awaited.waker.clone_from(waker);
        awaited.is_late
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut list = self.due.list.borrow_mut();
        list.places[self.index] = None;
        list.free.push(self.index);
    }
}

/// Waits for the head of the answer to a request with the body `feed`; gives the exchange up where that comes too late for `due`.
pub(super) async fn in_time<T>(due: Option<&Due>, feed: Option<Rc<Feed>>, answer: impl Future<Output = T>) -> Result<T, Loss> {
    let (mut answer, mut feed, mut place) = (pin!(answer), feed, None);
    poll_fn(|cx| {
        if let Poll::Ready(answer) = answer.as_mut().poll(cx) {
            return Poll::Ready(Ok(answer));
        }
        let Some(due) = due else { return Poll::Pending };
        let place = place.get_or_insert_with(|| {
            due.enter(Awaited { waker: cx.waker().clone(), feed: feed.take(), seen: None, sweeps: 0, is_late: false })
        });
        if place.is_late(cx.waker()) { Poll::Ready(Err(Loss::Late(due.limit))) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::task::Context;

    use super::*;
    use crate::api::worker::SWEEP_EVERY;

    fn sweep(due: &Due, times: u32) {
        (0..times).for_each(|_| due.sweep());
    }

    #[test]
    fn an_answer_is_late_after_the_limit_and_never_before() {
        let due = Due::new(SWEEP_EVERY * 4);
        let mut cx = Context::from_waker(Waker::noop());
        let mut late = Box::pin(in_time(Some(&due), None, pending::<()>()));
        assert!(late.as_mut().poll(&mut cx).is_pending());
        // The first may come at once.
        sweep(&due, 4);
        assert!(late.as_mut().poll(&mut cx).is_pending());
        sweep(&due, 1);
        assert!(matches!(late.as_mut().poll(&mut cx), Poll::Ready(Err(Loss::Late(limit))) if limit == SWEEP_EVERY * 4));
    }

    #[test]
    fn places_are_used_again() {
        let due = Due::new(SWEEP_EVERY);
        let mut cx = Context::from_waker(Waker::noop());
        for _ in 0..3 {
            let mut waiting = [(); 2].map(|()| Box::pin(in_time(Some(&due), None, pending::<()>())));
            assert!(waiting.iter_mut().all(|waiting| waiting.as_mut().poll(&mut cx).is_pending()));
        }
        assert_eq!((due.list.borrow().places.len(), due.list.borrow().free.len()), (2, 2));
        let mut at_once = Box::pin(in_time(Some(&due), None, async { "answer" }));
        assert!(matches!(at_once.as_mut().poll(&mut cx), Poll::Ready(Ok("answer"))));
        assert_eq!(due.list.borrow().free.len(), 2, "what is answered at once takes no place");
    }

    #[test]
    fn nothing_is_late_without_a_limit() {
        let mut cx = Context::from_waker(Waker::noop());
        let mut waiting = Box::pin(in_time(None, None, pending::<()>()));
        assert!(waiting.as_mut().poll(&mut cx).is_pending());
    }
}
