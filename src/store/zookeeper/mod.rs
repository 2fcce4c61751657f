//! The lock in ZooKeeper, as its own recipe for elections and Curator's `LeaderLatch` keep it.
//!
//! Every candidate has one ephemeral sequential node `/PREFIX/SERVICE/leader/_c_UUID-latch-NNNNNNNNNN`, which lives under
//! its session and holds its address and nothing else. The lowest number leads, each candidate waits for the one before
//! it, and the transaction that created the leader's node (its `czxid`) is the epoch.
//!
//! A node goes with its session, which the servers' own clocks end. What they do not promise is handled here. Reads come
//! from whichever server one is connected to, and it may not know yet that it was cut off, or that our session has ended
//! elsewhere: so a tenure is confirmed by a transaction that changes nothing, which takes the whole quorum ([`proof`]).
//! And heartbeats reach the server that counts the session's time by way of the one we are connected to: so they are more
//! frequent than the margin that the candidate keeps ([`watch`]).
//!
//! A call that is dropped leaves behind what it has learnt, so that over a slow way each call gets further than the one
//! before: at rest, every call needs one round trip.

mod connection;
mod ensemble;
mod failure;
mod join;
mod jute;
mod line;
mod look;
mod message;
mod proof;
mod tenure;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use self::ensemble::{Access, Ensemble};
use self::join::Outcome;
use self::line::Place;
use self::message::Rights;
use self::tenure::Tenure;
use super::{Attempt, Epoch, Leader, Lock, LockConfig, OpenError, StoreError, StoreOptions};
use crate::node::Address;

/// The lock of one node at the ensemble of these `members`. Nothing is sent before its first call.
///
/// # Errors
/// [`OpenError`] when the password or a certificate cannot be used.
pub(super) fn open(members: &[Address], options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let access = Access::new(options)?;
    Ok(Arc::new(Queue::new(members, access, config)))
}

/// One node's view of the line of candidates, and its own place in it.
#[derive(Clone)]
struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    address: Address,
    rights: Rights,
    ensemble: Ensemble,
    state: Mutex<State>,
}

/// What earlier calls have left behind.
#[derive(Default)]
struct State {
    /// Our candidate.
    candidate: Option<Candidate>,
    /// Whether the election's folder is known to have been there.
    has_folders: bool,
    /// Folders that we have created, outermost first.
    made: Vec<String>,
    /// A creation that got no answer.
    attempted: Option<Unanswered>,
    /// Candidates of earlier tenures, until they are known to be gone.
    spent: Vec<String>,
    /// Who was the first when the line was last read: its address is asked for along with the next line.
    first: Option<String>,
    /// Nodes that were warned of, while they are there.
    strangers: HashSet<String>,
}

/// A candidate that may have been created without our knowing it.
#[derive(Clone, Debug)]
struct Unanswered {
    session: i64,
    /// Nodes that may be it, once they were looked for.
    names: Vec<String>,
}

/// A node that we have created.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Candidate {
    name: String,
    /// The session that it lives under.
    session: i64,
    /// The transaction that created it.
    created: i64,
    /// Whether it was seen to be the first.
    is_first: bool,
}

impl Queue {
    fn new(members: &[Address], access: Access, config: LockConfig) -> Self {
        let place = Place::new(&config.election.key(), config.node.boot);
        let rights = if access.has_user() { Rights::Ours } else { Rights::Open };
        let ensemble = Ensemble::new(members, access, place.folder().to_owned(), config.ttl, config.call_timeout);
        let state = Mutex::default();
        Self { shared: Arc::new(Shared { place, address: config.node.address, rights, ensemble, state }) }
    }
}

#[async_trait]
impl Lock for Queue {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &*self.shared;
        let outcome = shared.ensemble.call("acquire", |connection| async move { shared.join(&connection).await }).await?;
        Ok(match outcome {
            Outcome::First(candidate, granted) => Attempt::Held(Box::new(Tenure::new(self.clone(), candidate, granted))),
            Outcome::Behind(leader) => Attempt::Taken(leader),
        })
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.spend(None);
        if shared.has_nothing() {
            return Ok(());
        }
        shared.ensemble.call("withdraw", |connection| async move { shared.quit(&connection).await }).await
    }

    async fn erase(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.ensemble.call("erase", |connection| async move { shared.remove_folders(&connection).await }).await
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let shared = &*self.shared;
        let (_, leader) =
            shared.ensemble.call("read the leader", |connection| async move { shared.look(&connection, false).await }).await?;
        Ok(leader)
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        self.shared.changed(seen).await
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &*self.shared;
        out.debug_struct("Queue").field("place", &shared.place.folder()).field("members", &shared.ensemble).finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    /// Our candidate, if it lives under this session: that of an earlier one has gone with it.
    fn candidate_in(&self, session: i64) -> Option<Candidate> {
        self.state().candidate.clone().filter(|candidate| candidate.session == session)
    }

    /// The candidacy, or this one if it still is the present one, is over: the next call takes its node away.
    fn spend(&self, candidate: Option<&Candidate>) {
        let mut state = self.state();
        let meant = |present: &mut Candidate| candidate.is_none_or(|candidate| candidate.name == present.name);
        if let Some(spent) = state.candidate.take_if(meant) {
            state.spent.push(spent.name);
        }
    }

    fn has_nothing(&self) -> bool {
        let state = self.state();
        state.attempted.is_none() && state.spent.is_empty()
    }
}

/// The epoch of a tenure whose node was created by this transaction.
fn epoch(created: i64) -> Epoch {
    Epoch(u64::try_from(created).unwrap_or(0))
}
