//! What can go wrong between one client and the store.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Server;
use crate::node::BootId;

/// The wire of one client, to be made to lie. Faults last until they are taken back; those left to chance follow the
/// store's seed.
///
/// Whatever was sent before a wire was cut still arrives at the store: that is the case that hurts.
#[derive(Clone)]
pub struct Faults {
    server: Arc<Server>,
    client: BootId,
}

/// The state of one wire.
#[derive(Clone, Default)]
pub(super) struct Link {
    pub(super) reach: Reach,
    pub(super) delay: Range<Duration>,
    pub(super) reply_delay: Range<Duration>,
    pub(super) lost_replies: f64,
    pub(super) spurious: f64,
}

/// What becomes of a request on its way.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Reach {
    /// It arrives.
    #[default]
    Open,
    /// It vanishes, and nobody says so.
    Cut,
    /// Its sender is told at once that it cannot be sent.
    Refused,
}

impl Faults {
    pub(super) fn new(server: Arc<Server>, client: BootId) -> Self {
        Self { server, client }
    }

    /// Requests and replies vanish: calls wait until their caller gives up.
    pub fn partition(&self) {
        self.set(|link| link.reach = Reach::Cut);
    }

    /// Calls fail at once.
    pub fn refuse(&self) {
        self.set(|link| link.reach = Reach::Refused);
    }

    /// Ends a [`partition`](Self::partition) or [`refuse`](Self::refuse).
    pub fn heal(&self) {
        self.set(|link| link.reach = Reach::Open);
    }

    /// Each request takes a while, drawn from `range`, before it takes effect.
    pub fn delay(&self, range: Range<Duration>) {
        self.set(|link| link.delay = range);
    }

    /// Each reply takes a while, drawn from `range`, after the request took effect.
    pub fn delay_replies(&self, range: Range<Duration>) {
        self.set(|link| link.reply_delay = range);
    }

    /// A request takes effect and its reply never comes, with this probability.
    pub fn lose_replies(&self, probability: f64) {
        self.set(|link| link.lost_replies = probability);
    }

    /// `changed` returns although nothing did, with this probability.
    pub fn spurious(&self, probability: f64) {
        self.set(|link| link.spurious = probability);
    }

    /// Takes every fault back.
    pub fn calm(&self) {
        self.set(|link| *link = Link::default());
    }

    fn set(&self, set: impl FnOnce(&mut Link)) {
        self.server.change(|state| set(state.links.entry(self.client).or_default()));
    }
}
