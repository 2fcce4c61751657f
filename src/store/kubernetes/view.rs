//! What this process last saw of the record, and for how long it has been so on this process's own clock.
//!
//! Times in the record come from other machines' clocks and are compared with nothing. A lock is over when its record has
//! not changed for as long as the record itself says that it lasts, counted from when this process first saw it so; the holder
//! counts from before it sent what was seen, so it has stopped by then, however wrong any wall clock is.
//!
//! The same goes for a holder whose object was deleted, or lost with the server's data: it has not been told yet, and serves on
//! until it asks. Whoever has seen it does not lead before its time is over. A holder of another make is left to the person who
//! deletes its object.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::record::{Holder, Record, identity};
use crate::clock;
use crate::node::Node;
use crate::store::contract::{Epoch, Leader, StoreError};

pub(super) struct View {
    state: Mutex<State>,
}

struct State {
    /// Nothing before the first look, and where there is no object.
    seen: Option<Seen>,
    /// Whose object is gone, although it may still serve.
    bereft: Option<Bereft>,
    /// The greatest epoch in any record of a node's.
    greatest: Epoch,
}

#[derive(Clone)]
struct Seen {
    record: Arc<Record>,
    /// When it was first seen as it is.
    since: Instant,
}

struct Bereft {
    holder: String,
    until: Instant,
}

/// How the lock stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Standing {
    Free,
    /// A node's, for this long unless it renews.
    Held(Leader, Duration),
    /// Somebody's of another make.
    Foreign(String),
}

impl std::fmt::Debug for View {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "View({:?})", self.standing())
    }
}

impl View {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { seen: None, bereft: None, greatest: Epoch(0) }) }
    }

    /// Takes in a record that was received just now.
    pub(super) fn note(&self, record: Record) -> Arc<Record> {
        self.state().note(Arc::new(record))
    }

    /// Takes in a record that comes late, unless a later state of the object is known.
    pub(super) fn note_late(&self, record: Record) {
        let mut state = self.state();
        let is_news = state.seen.as_ref().is_none_or(|seen| seen.record.version() < record.version());
        if is_news {
            state.note(Arc::new(record));
        }
    }

    /// Takes in that there is no object.
    pub(super) fn note_absence(&self) {
        self.state().lose();
    }

    /// Takes in, late, that an object was deleted.
    pub(super) fn note_deletion(&self, uid: &str) {
        let mut state = self.state();
        if state.seen.as_ref().is_some_and(|seen| seen.record.uid() == uid) {
            state.lose();
        }
    }

    pub(super) fn record(&self) -> Option<Arc<Record>> {
        self.state().seen.as_ref().map(|seen| Arc::clone(&seen.record))
    }

    pub(super) fn greatest(&self) -> Epoch {
        self.state().greatest
    }

    pub(super) fn standing(&self) -> Standing {
        let Some(seen) = self.state().seen.clone() else { return Standing::Free };
        let left = |lasts: Duration| (seen.since + lasts).saturating_duration_since(clock::now());
        match seen.record.holder() {
            Holder::Nobody => Standing::Free,
            Holder::Node { lasts, .. } if left(lasts).is_zero() => Standing::Free,
            Holder::Node { address, lasts, .. } => Standing::Held(Leader { address, epoch: seen.record.epoch() }, left(lasts)),
            Holder::Other { lasts: Some(lasts), .. } if left(lasts).is_zero() => Standing::Free,
            Holder::Other { identity, .. } => Standing::Foreign(identity.to_owned()),
        }
    }

    /// How long another process than `node` may still serve although its object is gone.
    pub(super) fn bereft(&self, node: &Node) -> Option<Duration> {
        let state = self.state();
        let bereft = state.bereft.as_ref().filter(|bereft| bereft.holder != identity(node))?;
        Some(bereft.until.saturating_duration_since(clock::now())).filter(|left| !left.is_zero())
    }

    /// Whether `node` may take the lock.
    pub(super) fn is_free_for(&self, node: &Node) -> bool {
        let is_ours = self.record().is_some_and(|record| record.names(node));
        (is_ours || self.standing() == Standing::Free) && self.bereft(node).is_none()
    }

    /// The leader, and how long it is still to be believed.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when the lock is somebody's whom nobody can be sent to.
    pub(super) fn leader(&self, place: &str) -> Result<Option<(Leader, Duration)>, StoreError> {
        match self.standing() {
            Standing::Free => Ok(None),
            Standing::Held(leader, left) => Ok(Some((leader, left))),
            Standing::Foreign(identity) => Err(StoreError::foreign(place, identity.as_bytes())),
        }
    }

    /// The leader, if it is another process than `node`.
    ///
    /// # Errors
    /// As with [`leader`](Self::leader).
    pub(super) fn stranger(&self, node: &Node, place: &str) -> Result<Option<Leader>, StoreError> {
        if self.record().is_some_and(|record| record.names(node)) {
            return Ok(None);
        }
        Ok(self.leader(place)?.map(|(leader, _)| leader))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// There is no object any more.
    fn lose(&mut self) {
        let Some(Seen { record, since }) = self.seen.take() else { return };
        // Of somebody of another make, a person was told to remove it.
        if let Holder::Node { lasts, .. } = record.holder() {
            self.bereft = Some(Bereft { holder: record.identity().unwrap_or_default().to_owned(), until: since + lasts });
        }
    }

    fn note(&mut self, record: Arc<Record>) -> Arc<Record> {
        if matches!(record.holder(), Holder::Node { .. }) {
            self.greatest = self.greatest.max(record.epoch());
        }
        let since = match &self.seen {
            Some(seen) if seen.record.says_the_same_as(&record) => seen.since,
            Some(_) | None => clock::now(),
        };
        // It has asked since, and got another tenure.
        self.bereft.take_if(|bereft| record.identity() == Some(&bereft.holder));
        self.seen = Some(Seen { record: Arc::clone(&record), since });
        record
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(version: u64, holder: &str, seconds: &Value, renewed: &str) -> Record {
        let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": seconds, "renewTime": renewed, "leaseTransitions": 1});
        Record::read(json!({"metadata": {"uid": "u", "resourceVersion": version.to_string()}, "spec": spec})).unwrap()
    }

    const NODE: &str = "10.0.0.1:4000_00000000000000ab";

    /// B13: whatever the times in the record say, only what this process sees counts; and B12: for as long as the record says.
    #[tokio::test(start_paused = true)]
    async fn a_lock_is_over_when_it_was_seen_unchanged_for_as_long_as_it_lasts() {
        let view = View::new();
        view.note(record(1, NODE, &json!(30), "1999-01-01T00:00:00.000000Z"));
        tokio::time::advance(Duration::from_secs(29)).await;
        assert!(matches!(view.standing(), Standing::Held(..)), "{:?}", view.standing());
        // Seen again as it was, although something beside the election has changed.
        view.note(record(2, NODE, &json!(30), "1999-01-01T00:00:00.000000Z"));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(view.standing(), Standing::Free);
        view.note(record(3, NODE, &json!(30), "1998-01-01T00:00:00.000000Z"));
        assert!(matches!(view.standing(), Standing::Held(..)), "it has changed, whichever way its clock went");
    }

    /// B65: whoever is of another make is honoured for its time, and for ever if it has none.
    #[tokio::test(start_paused = true)]
    async fn a_rival_of_another_make_has_its_time() {
        let (timed, endless) = (View::new(), View::new());
        timed.note(record(1, "x", &json!(10), ""));
        endless.note(record(1, "x", &Value::Null, ""));
        assert_eq!(timed.standing(), Standing::Foreign("x".to_owned()));
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(timed.standing(), Standing::Free);
        tokio::time::advance(Duration::from_secs(100_000)).await;
        assert_eq!(endless.standing(), Standing::Foreign("x".to_owned()));
    }

    /// A deletion is known to the holder only when it asks.
    #[tokio::test(start_paused = true)]
    async fn a_holder_whose_object_is_gone_has_its_time() {
        let (view, us) = (View::new(), Node::new("10.0.0.2:4000".parse().unwrap()));
        view.note(record(1, NODE, &json!(10), "a"));
        tokio::time::advance(Duration::from_secs(4)).await;
        view.note_deletion("u");
        view.note_absence();
        assert_eq!((view.standing(), view.is_free_for(&us)), (Standing::Free, false));
        // Somebody who knew nothing of it makes another object.
        view.note(record(3, "", &json!(1), "b"));
        assert!(!view.is_free_for(&us));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(view.is_free_for(&us));

        view.note(record(4, NODE, &json!(10), "c"));
        view.note_absence();
        let holder = Node { address: "10.0.0.1:4000".parse().unwrap(), boot: "00000000000000ab".parse().unwrap() };
        assert!(view.is_free_for(&holder), "it is its own");
        view.note(record(5, NODE, &json!(10), "d"));
        view.note(record(6, "", &json!(1), "e"));
        assert!(view.is_free_for(&us), "it led again, and gave back");
    }

    #[tokio::test(start_paused = true)]
    async fn late_news_changes_nothing_that_is_known_better() {
        let view = View::new();
        view.note(record(5, NODE, &json!(10), "b"));
        view.note_late(record(4, "", &json!(10), "a"));
        view.note_deletion("another");
        assert_eq!(view.record().unwrap().version(), 5);
        view.note_late(record(6, "", &json!(10), "c"));
        assert_eq!(view.standing(), Standing::Free);
        view.note_deletion("u");
        assert!(view.record().is_none());
    }
}
