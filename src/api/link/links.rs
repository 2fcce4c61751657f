//! The leaders that one worker has to do with.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{debug, warn};

use super::Link;
use crate::api::Limits;
use crate::api::worker::Core;
use crate::node::BootId;
use crate::store::Leader;
use crate::tls::Tls;

/// How long requests that run at a leader may go on after another one was elected, unless half a TTL is less.
const GRACE: Duration = Duration::from_secs(2);

/// The leaders that one worker forwards to: the present one, and those that requests still run at.
pub(in crate::api) struct Links {
    boot: BootId,
    tls: Option<Tls>,
    limits: Limits,
    grace: Duration,
    current: RefCell<Option<Rc<Link>>>,
    leaving: RefCell<Vec<(Instant, Rc<Link>)>>,
}

impl Links {
    pub(in crate::api) fn new(boot: BootId, limits: Limits, ttl: Duration, tls: Option<Tls>) -> Self {
        Self { boot, tls, limits, grace: GRACE.min(ttl / 2), current: RefCell::default(), leaving: RefCell::default() }
    }

    /// The link to `leader`, made at its first request. No other leader gets another request.
    pub(in crate::api) fn to(&self, leader: &Leader) -> Rc<Link> {
        if let Some(link) = self.current.borrow().as_ref().filter(|link| link.leader == *leader) {
            return Rc::clone(link);
        }
        self.keep_only(Some(leader));
        let link = self.returning(leader).unwrap_or_else(|| Rc::new(Link::new(leader.clone(), self.boot, self.limits, self.tls.as_ref())));
        *self.current.borrow_mut() = Some(Rc::clone(&link));
        link
    }

    /// The link to the present leader, if it is in trouble.
    pub(in crate::api) fn troubled(&self) -> Option<Rc<Link>> {
        self.current.borrow().as_ref().filter(|link| link.trouble.borrow().is_some()).cloned()
    }

    /// A leader that was out of sight for a moment, in the same tenure.
    fn returning(&self, leader: &Leader) -> Option<Rc<Link>> {
        let mut leaving = self.leaving.borrow_mut();
        let index = leaving.iter().position(|(_, link)| link.leader == *leader)?;
        let (_, link) = leaving.swap_remove(index);
        link.pool.revive();
        Some(link)
    }

    /// Closes what is idle at any other leader (B77). What runs there gets a moment to finish: a leader that is frozen
    /// never would.
    pub(in crate::api) fn keep_only(&self, leader: Option<&Leader>) {
        let gone = self.current.borrow_mut().take_if(|link| Some(&link.leader) != leader);
        if let Some(link) = gone {
            link.pool.retire();
            link.mux.retire();
            self.leaving.borrow_mut().push((Instant::now() + self.grace, link));
        }
    }

    /// Has those tunnels end that can be told to: this node is about to.
    pub(in crate::api) fn tell(&self) {
        let leaving = self.leaving.borrow();
        for link in self.current.borrow().iter().chain(leaving.iter().map(|(_, link)| link)) {
            link.pool.tell();
        }
    }

    /// Closes what is idle for too long, and cuts what is lost or has had its grace; called now and then.
    pub(in crate::api) fn sweep(&self, core: &Rc<Core>) {
        let current = self.current.borrow().clone();
        if let Some(link) = current {
            link.pool.sweep();
            if link.is_lost(core) {
                warn!(leader = %link.leader.address, "the leader has stopped answering: cutting what waits for it");
                self.current.borrow_mut().take();
                link.pool.cut();
            }
        }
        let now = Instant::now();
        self.leaving.borrow_mut().retain(|(until, link)| {
            if now >= *until {
                debug!(leader = %link.leader.address, "cutting what still runs at a former leader");
                link.pool.cut();
            }
            now < *until
        });
    }
}
