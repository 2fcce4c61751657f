//! The lock in etcd v3, kept as etcd's own election recipe does.
//!
//! Every candidate has one key, `PREFIX/SERVICE/leader/LEASE` (in hex), which lives under that lease and holds its
//! address and nothing else. The oldest key leads, and the revision that created it is the epoch. So `etcdctl elect` and
//! any client of the recipe can follow the election or take part in it.
//!
//! A key goes with its lease, which etcd's own clock ends. What etcd does not promise is handled here: a key may be
//! deleted while its owner lives ([`rivals`]), a member may be silent ([`endpoints`]), and a heartbeat may be confirmed
//! by a leader that etcd has already replaced ([`Session::agree`]).
//!
//! A call that is dropped leaves behind what it has learnt, so that over a slow way each call gets further than the one
//! before: at rest, every call needs one round trip.

mod access;
mod endpoints;
mod failure;
mod join;
mod line;
mod look;
mod rivals;
mod session;
mod tenure;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::KeyValue;

use self::access::Access;
use self::endpoints::Endpoints;
use self::join::Outcome;
use self::line::Place;
use self::rivals::Rivals;
use self::session::Session;
use self::tenure::Tenure;
use super::{Attempt, Epoch, Leader, Lock, LockConfig, OpenError, StoreError, StoreOptions};
use crate::node::Address;

/// The lock of one node at the cluster of these `endpoints`. Nothing is sent before its first call.
///
/// # Errors
/// [`OpenError`] when a password or certificate cannot be read.
pub(super) fn open(endpoints: &[Address], options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let access = Access::new(endpoints, options)?;
    Ok(Arc::new(Queue::new(access, config)))
}

/// One node's view of the line of candidates, and its own place in it.
#[derive(Clone)]
struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    address: Address,
    ttl: Duration,
    endpoints: Endpoints,
    session: Session,
    rivals: Mutex<Rivals>,
    /// Keys that were warned of, while they are there.
    strangers: Mutex<HashSet<String>>,
}

impl Queue {
    fn new(access: Access, config: LockConfig) -> Self {
        let place = Place::new(config.election.key());
        let shared = Shared {
            endpoints: Endpoints::new(access, place.clone(), config.call_timeout),
            place,
            address: config.node.address,
            ttl: config.ttl,
            session: Session::default(),
            rivals: Mutex::default(),
            strangers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Lock for Queue {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &*self.shared;
        let outcome = shared.endpoints.call("acquire", |connection| async move { shared.join(&connection).await }).await?;
        Ok(match outcome {
            Outcome::First { granted, created } => Attempt::Held(Box::new(Tenure::new(self.clone(), granted, created))),
            Outcome::Behind(leader) => Attempt::Taken(leader),
        })
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.session.spend(None);
        shared.endpoints.call("withdraw", |connection| async move { shared.session.settle(&connection).await }).await
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let shared = &*self.shared;
        let (_, leader) = shared.endpoints.call("read the leader", |connection| async move { shared.look(&connection).await }).await?;
        Ok(leader)
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        self.shared.changed(seen).await
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &*self.shared;
        out.debug_struct("Queue").field("place", &shared.place.as_str()).field("endpoints", &shared.endpoints).finish_non_exhaustive()
    }
}

impl Shared {
    /// Whether `record` is our own key as we wrote it, under `lease`.
    fn is_ours(&self, record: &KeyValue, lease: i64) -> bool {
        record.lease() == lease && record.value() == self.address.as_str().as_bytes()
    }
}

/// The epoch of a tenure whose key was created by this revision.
fn epoch(created: i64) -> Epoch {
    Epoch(u64::try_from(created).unwrap_or(0))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock can panic")
}
