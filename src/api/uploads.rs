//! Long bodies on their way, and whether their clients are still there.
//!
//! While an upstream takes nothing of a body, nobody reads the connection that it comes over, and the HTTP library cannot
//! see its end behind what waits there. So the system is asked instead, which sees it at once (`EPOLLRDHUP`, epoll_ctl(2)),
//! if it has come: over TCP, an end follows what was sent before it, and waits for room like that. A reset overtakes it.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use crate::api::feed::Feed;
use crate::api::session::Session;

/// How often that is: through two nodes, an app hears of a client's departure within a second.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The long bodies of one worker that have not come to their end.
#[derive(Default)]
pub(super) struct Uploads {
    running: RefCell<Vec<Upload>>,
}

struct Upload {
    feed: Weak<Feed>,
    session: Weak<Session>,
}

impl Uploads {
    /// Looks after a body that comes over the connection of `session`, until it has come to its end or is dropped.
    pub(super) fn enrol(&self, feed: &Rc<Feed>, session: &Rc<Session>) {
        self.running.borrow_mut().push(Upload { feed: Rc::downgrade(feed), session: Rc::downgrade(session) });
    }

    /// Whether there are any.
    pub(super) fn are_running(&self) -> bool {
        !self.running.borrow().is_empty()
    }

    /// Ends the connections of those whose clients have left.
    pub(super) fn look(&self) {
        self.running.borrow_mut().retain(|upload| {
            let Some(session) = upload.session.upgrade() else { return false };
            let runs = upload.feed.upgrade().is_some_and(|feed| feed.is_unfinished());
            let left = runs && session.wire.is_abandoned();
            if left {
                session.leave();
            }
            runs && !left
        });
    }
}
