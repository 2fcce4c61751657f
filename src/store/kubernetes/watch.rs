//! Hearing of changes: one watch, which outlives the calls that wait on it.

use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::failure::Failure;
use super::lines::Lines;
use super::place::Place;
use super::record::Record;
use crate::clock;
use crate::node::Node;
use crate::store::contract::{Leader, StoreError};

/// A watch in progress.
pub(super) struct Watch {
    lines: Lines,
    /// When it was last heard of.
    heard: Instant,
}

/// What a watch's line says.
enum Event {
    /// The object is now this.
    State(Record),
    /// The object with this `uid` is gone.
    Deleted(String),
    /// A sign of life.
    Bookmark,
    /// The watch has to begin anew, from the present state.
    Over,
}

/// Returns when the view may differ from `seen`: at once where it does already, at an event, when the holder's time is over, and when
/// the watch has ended.
///
/// # Cancel safety
/// Dropped at any point, the watch stays for the next call.
pub(super) async fn changed(place: &Place, node: &Node, slot: &mut Option<Watch>, seen: Option<&Leader>) -> Result<(), StoreError> {
    loop {
        let holder = place.view.leader(&place.words())?;
        if holder.as_ref().map(|(leader, _)| leader) != seen {
            return Ok(());
        }
        let time = holder.map(|(_, left)| left).or_else(|| place.view.bereft(node));
        // A holder is heard of at least each time that it renews, so a watch that is silent for longer leads nowhere.
        if let (Some(watch), Some(lasts)) = (&*slot, place.view.record().and_then(|record| record.lasts()))
            && clock::now() - watch.heard > lasts
        {
            *slot = None;
        }
        let watch = match slot {
            Some(watch) => watch,
            None => {
                let from = place.view.record();
                let lines = place.watch(from.as_deref()).await.map_err(|failure| failure.into_store_error("watch"))?;
                slot.insert(Watch { lines, heard: clock::now() })
            }
        };
        let event = tokio::select! {
            event = watch.next(place) => event,
            // Just past the time of whoever holds it, or has lost its object.
            () = sleep(time.unwrap_or_default() + Duration::from_millis(1)), if time.is_some() => return Ok(()),
        };
        match event {
            Ok(Event::State(record)) => place.view.note_late(record),
            Ok(Event::Deleted(uid)) => place.view.note_deletion(&uid),
            Ok(Event::Bookmark) => {}
            // Whoever waited looks for itself now, and the next watch begins with what it sees.
            Ok(Event::Over) => {
                *slot = None;
                return Ok(());
            }
            Err(failure) => {
                *slot = None;
                return Err(failure.into_store_error("watch"));
            }
        }
    }
}

impl Watch {
    async fn next(&mut self, place: &Place) -> Result<Event, Failure> {
        let line = self.lines.next().await.map_err(|error| place.unanswered(format!("broke a watch off: {error}")))?;
        self.heard = clock::now();
        let Some(line) = line else { return Ok(Event::Over) };
        Event::read(&line).ok_or_else(|| place.unanswered("sent a watch something that is no event"))
    }
}

impl Event {
    fn read(line: &[u8]) -> Option<Self> {
        let mut event: Value = serde_json::from_slice(line).ok()?;
        let object = event["object"].take();
        match event["type"].as_str()? {
            "ADDED" | "MODIFIED" => Record::read(object).map(Self::State),
            "DELETED" => Record::read(object).map(|record| Self::Deleted(record.uid().to_owned())),
            "BOOKMARK" => Some(Self::Bookmark),
            // 410 when the server has forgotten the changes since then; whatever else it may be, a new look is the answer.
            "ERROR" => Some(Self::Over),
            _ => None,
        }
    }
}
