//! ONE: proof that no two nodes were primary at once, from what they say of themselves.
//!
//! Each node is asked as often as it answers. A node that says twice that it is primary under one epoch was so in
//! between, since an epoch is served without a break. So each tenure has a *certain* span: from the arrival of its first
//! such answer to the sending of the question to its last. Two certain spans that overlap are two primaries.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::http::{Client, Method, request};
use super::place::Place;

/// From one answer of a node to the next question.
const ASK_EVERY: Duration = Duration::from_millis(4);
/// How long a node may take to say what it is. A stopped one says it late, which the spans allow for.
const PATIENCE: Duration = Duration::from_secs(20);

/// One node's time as primary, as far as it is certain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tenure {
    pub(crate) node: SocketAddr,
    pub(crate) epoch: u64,
    pub(crate) from: Instant,
    pub(crate) until: Instant,
}

impl Tenure {
    /// For how long both are certain.
    pub(crate) fn overlap(&self, other: &Self) -> Duration {
        self.until.min(other.until).saturating_duration_since(self.from.max(other.from))
    }
}

/// Asks all nodes, until it is dropped.
#[derive(Debug)]
pub(crate) struct One {
    tenures: Arc<Mutex<Vec<Tenure>>>,
    _asking: JoinSet<()>,
}

impl One {
    pub(crate) fn watch(nodes: impl IntoIterator<Item: Into<Place>>) -> Self {
        let tenures = Arc::<Mutex<Vec<Tenure>>>::default();
        let mut asking = JoinSet::new();
        for node in nodes {
            asking.spawn(ask(node.into(), Arc::clone(&tenures)));
        }
        Self { tenures, _asking: asking }
    }

    /// All tenures seen so far, in the order of their beginning.
    pub(crate) fn tenures(&self) -> Vec<Tenure> {
        let mut tenures = self.tenures.lock().expect("no panic under this lock").clone();
        tenures.sort_by_key(|tenure| tenure.from);
        tenures
    }

    /// The longest time for which two nodes were primary, for certain.
    pub(crate) fn longest_overlap(&self) -> Duration {
        let tenures = self.tenures();
        let pairs = tenures.iter().enumerate().flat_map(|(at, one)| tenures[at + 1..].iter().map(move |other| (one, other)));
        pairs.map(|(one, other)| one.overlap(other)).max().unwrap_or_default()
    }

    /// # Panics
    /// When two nodes were primary at once, or a later tenure had a lower epoch.
    pub(crate) fn assert_never_two(&self) {
        let tenures = self.tenures();
        assert_eq!(self.longest_overlap(), Duration::ZERO, "two primaries at once: {tenures:#?}");
        assert!(tenures.is_sorted_by_key(|tenure| tenure.epoch), "an epoch fell: {tenures:#?}");
    }
}

async fn ask(place: Place, tenures: Arc<Mutex<Vec<Tenure>>>) {
    let node = place.address;
    let client = Client::new(place);
    loop {
        let sent = Instant::now();
        if let Ok(answer) = client.send_within(PATIENCE, request(Method::GET, "/info", "")).await {
            let (info, received) = (answer.json(), Instant::now());
            if info["Role"] == "primary" {
                let epoch = info["Epoch"].as_u64().expect("a number as Epoch");
                enter(&mut tenures.lock().expect("no panic under this lock"), Tenure { node, epoch, from: received, until: sent });
            }
        }
        sleep(ASK_EVERY).await;
    }
}

/// Extends the tenure that the answer belongs to. `until` lies before `from` as long as there is one answer only, so that
/// it overlaps nothing.
fn enter(tenures: &mut Vec<Tenure>, seen: Tenure) {
    match tenures.iter_mut().find(|tenure| tenure.node == seen.node && tenure.epoch == seen.epoch) {
        Some(known) => known.until = known.until.max(seen.until),
        None => tenures.push(seen),
    }
}
