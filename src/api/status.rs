//! What a node knows about itself, gathered from memory when somebody asks: never from the store, so that the answer
//! comes at once also while the store is down.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use super::Ledger;
use super::error::Standing;
use crate::clock;
use crate::node::{Address, BootId};
use crate::replication::{Counters, Role, RoleWatch};

/// Where everything that a node tells about itself is read from.
#[derive(Debug)]
pub struct Status {
    identity: Identity,
    roles: RoleWatch,
    election: Option<ElectionStatus>,
    ledger: Arc<Ledger>,
    stopping: AtomicBool,
    role_since: Mutex<Instant>,
}

/// What of a node stays the same while it runs.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The machine's name.
    pub host: String,
    /// The machine's memory in bytes.
    pub memory: u64,
    /// The election's name.
    pub service: String,
    /// Where the other nodes, or the clients of a lone one, reach this node; `None` where nobody said.
    pub address: Option<Address>,
    /// Which run of the process this is.
    pub boot: BootId,
    /// Whether there is an app to serve.
    pub has_app: bool,
}

/// How the election tells about itself.
#[derive(Clone, Debug)]
pub struct ElectionStatus {
    /// Which store, without secrets.
    pub store: String,
    /// The TTL that this node asks for.
    pub ttl: Duration,
    /// What the candidate counts.
    pub counters: Arc<Counters>,
}

/// One consistent reading.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) role: Role,
    /// The primary's address: this node's own while it leads, its leader's while it follows.
    pub(super) primary: Option<Address>,
    /// The epoch of the tenure that this node is in or follows; 0 while none is known.
    pub(super) epoch: u64,
    pub(super) store: Option<StoreStatus>,
}

/// How the store is doing, as the election last saw it.
#[derive(Debug)]
pub(super) struct StoreStatus {
    pub(super) silent_for: Duration,
    pub(super) ever_answered: bool,
    pub(super) failing: Option<String>,
    /// As granted for this node's latest tenure; as asked before the first.
    pub(super) ttl: Duration,
}

impl StoreStatus {
    /// Whether whoever was primary when the store last answered may have lost the lock since.
    pub(super) fn is_silent(&self) -> bool {
        self.failing.is_some() && self.silent_for > self.ttl
    }

    /// One clause for people.
    pub(super) fn sentence(&self) -> String {
        let seconds = self.silent_for.as_secs();
        match (&self.failing, self.ever_answered) {
            (None, true) => "reachable".to_owned(),
            (None, false) => "not asked yet".to_owned(),
            (Some(_), true) => format!("unreachable for {seconds} s"),
            (Some(_), false) => format!("unreachable since the start, {seconds} s ago"),
        }
    }
}

impl Snapshot {
    /// The primary where it can be told as a fact: a replica's belief is none once the store has been silent for a TTL.
    pub(super) fn confirmed_primary(&self) -> Option<&Address> {
        let doubtful = self.role.leader().is_some() && self.store.as_ref().is_some_and(StoreStatus::is_silent);
        self.primary.as_ref().filter(|_| !doubtful)
    }
}

impl Status {
    /// A status that reads from these; `election` is `None` for a lone node.
    pub fn new(identity: Identity, roles: RoleWatch, election: Option<ElectionStatus>, ledger: Arc<Ledger>) -> Self {
        let role_since = Mutex::new(clock::now());
        Self { identity, roles, election, ledger, stopping: AtomicBool::new(false), role_since }
    }

    /// Remembers when the role changes, for as long as it is polled.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn time_roles(&self) {
        let mut role = self.roles.current();
        loop {
            role = self.roles.changed(&role).await;
            *self.role_since.lock().unwrap_or_else(PoisonError::into_inner) = clock::now();
        }
    }

    /// From now on this node is not ready: it is about to go.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(super) fn roles(&self) -> &RoleWatch {
        &self.roles
    }

    pub(super) fn counters(&self) -> Option<&Counters> {
        self.election.as_ref().map(|election| &*election.counters)
    }

    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let role = self.roles.current();
        let (primary, epoch) = role.primary(self.identity.address.as_ref());
        let (primary, epoch) = (primary.cloned(), epoch.0);
        let store = self.election.as_ref().map(|election| {
            let health = election.counters.store();
            StoreStatus {
                silent_for: health.silent_for,
                ever_answered: health.ever_answered,
                failing: health.failing,
                ttl: election.counters.granted_ttl().unwrap_or(election.ttl),
            }
        });
        Snapshot { role, primary, epoch, store }
    }

    /// What an error of this node says of it, and that a primary can be expected after `retry_after`.
    pub(super) fn standing(&self, retry_after: Duration) -> Standing {
        Standing::of(&self.roles.current(), self.identity.address.as_ref(), retry_after)
    }

    /// Why this node should get no requests: it can neither serve nor forward, or is about to go.
    pub(super) fn unready(&self) -> Option<&'static str> {
        if self.is_stopping() {
            return Some("this node is stopping");
        }
        match self.roles.current() {
            Role::Replica(_) if self.ledger.has_trouble() => Some("the primary takes no requests"),
            Role::Replica(_) => None,
            Role::Primary { .. } if self.identity.has_app => None,
            Role::Primary { .. } => Some("this node is primary and has no --upstream to serve"),
            Role::SteppingDown { .. } => Some("this node is stepping down"),
            Role::Electing => Some("no primary is known"),
        }
    }

    /// Everything, as `/_bellwether/status` shows it.
    pub(super) fn describe(&self) -> Value {
        let Snapshot { role, primary, epoch, store } = self.snapshot();
        let totals = self.ledger.totals();
        let role_since = *self.role_since.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = totals.outcomes.iter().map(|(outcome, count)| ((*outcome).to_owned(), json!(count))).collect();
        let election = self.election.as_ref().zip(store).map(|(election, store)| {
            json!({
                "url": election.store,
                "reachable": store.failing.is_none(),
                "silent_seconds": store.silent_for.as_secs_f64(),
                "ever_answered": store.ever_answered,
                "error": store.failing,
                "ttl_seconds": election.ttl.as_secs_f64(),
                "granted_ttl_seconds": election.counters.granted_ttl().map(|ttl| ttl.as_secs_f64()),
                "role_changes": election.counters.role_changes(),
                "lease_margin_seconds": election.counters.lease_margin().map(|margin| margin.as_secs_f64()),
            })
        });
        json!({
            "id": self.identity.boot.to_string(),
            "host": self.identity.host,
            "version": env!("CARGO_PKG_VERSION"),
            "service": self.identity.service,
            "advertise": self.identity.address.as_ref().map(Address::as_str),
            "role": role.name(),
            "role_age_seconds": clock::now().saturating_duration_since(role_since).as_secs_f64(),
            "primary": primary.as_ref().map_or("", Address::as_str),
            "epoch": epoch,
            "ready": self.unready().is_none(),
            "stopping": self.is_stopping(),
            "held": totals.held,
            "running": totals.running,
            "connections": totals.connections,
            "accepted": totals.accepted,
            "outcomes": Value::Object(outcomes),
            "store": election,
        })
    }

    /// Who this node is and whom it believes primary: what a replica asks its leader before it sends it anything.
    pub(super) fn introduce(&self) -> Value {
        let Snapshot { role, primary, epoch, .. } = self.snapshot();
        json!({
            "service": self.identity.service,
            "id": self.identity.boot.to_string(),
            "role": role.name(),
            "primary": primary.as_ref().map_or("", Address::as_str),
            "epoch": epoch,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replication::RolePublisher;
    use crate::store::{Epoch, Leader};

    fn status() -> (RolePublisher, Status) {
        let (publisher, roles) = RolePublisher::new();
        let identity = Identity {
            host: "host".to_owned(),
            memory: 1,
            service: "default".to_owned(),
            address: Some("10.0.0.1:4000".parse().unwrap()),
            boot: BootId::random(),
            has_app: true,
        };
        (publisher, Status::new(identity, roles, None, Arc::new(Ledger::new(1))))
    }

    #[tokio::test]
    async fn a_node_is_ready_while_it_can_serve_or_forward() {
        // B64: a replica is as ready as the primary.
        let (publisher, status) = status();
        let deadline = clock::now() + Duration::from_secs(60);
        let leader = Leader { address: "10.0.0.2:4000".parse().unwrap(), epoch: Epoch(8) };
        for (role, ready, primary, epoch) in [
            (Role::Electing, false, "", 0),
            (Role::Replica(leader.clone()), true, "10.0.0.2:4000", 8),
            (Role::Primary { epoch: Epoch(9), deadline }, true, "10.0.0.1:4000", 9),
            (Role::SteppingDown { epoch: Epoch(9), deadline }, false, "10.0.0.1:4000", 9),
        ] {
            publisher.publish(role.clone());
            assert_eq!(status.unready().is_none(), ready, "{role:?}");
            let introduction = status.introduce();
            assert_eq!((&introduction["primary"], &introduction["epoch"]), (&primary.into(), &epoch.into()), "{role:?}");
            assert_eq!(introduction["role"], role.name());
        }
        publisher.publish(Role::Replica(leader));
        status.ledger().sheet(0).begin_trouble();
        assert_eq!(status.unready(), Some("the primary takes no requests"));
        publisher.publish(Role::Primary { epoch: Epoch(10), deadline });
        assert_eq!(status.unready(), None, "a former leader's trouble is nobody's");
        status.stop();
        assert_eq!(status.unready(), Some("this node is stopping"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_role_counts_from_its_change() {
        let (publisher, status) = status();
        let age = || status.describe()["role_age_seconds"].as_f64().unwrap();
        let timed = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(age() >= 5.0);
            publisher.publish(Role::Primary { epoch: Epoch(1), deadline: clock::now() + Duration::from_secs(60) });
            tokio::time::sleep(Duration::from_secs(2)).await;
            assert!((2.0..3.0).contains(&age()), "{}", age());
        };
        tokio::select! {
            () = status.time_roles() => unreachable!("it watches for ever"),
            () = timed => {}
        }
    }
}
