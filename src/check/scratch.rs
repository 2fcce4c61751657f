//! A place in the store for the time of a check: an election that nobody else has.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::call;
use super::finding::{Flaw, named};
use crate::node::Node;
use crate::store::{Attempt, Lock, LockConfig, NameError, OpenError, StoreError, StoreOptions, StoreUrl};

/// How long a driver may take for one call before it gives up: a check has more patience than an election.
const CALL_TIMEOUT: Duration = Duration::from_secs(3);

type Open = dyn Fn(Node, Duration) -> Result<Arc<dyn Lock>, OpenError> + Send + Sync;

/// An election of its own, whose locks are all known, so that nothing of it need be left behind.
pub struct Scratch {
    place: String,
    open: Box<Open>,
    opened: Mutex<Vec<Arc<dyn Lock>>>,
}

/// Why a store did not say which TTL it grants.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It cannot be opened at all.
    #[error(transparent)]
    Closed(OpenError),
    /// It did not answer.
    #[error(transparent)]
    Unavailable(StoreError),
    /// It answered that it will not.
    #[error("{0}")]
    Refused(String),
}

impl Scratch {
    /// A scratch election in `store`, named `bellwether-check-` and something random, under the same prefix as the user's.
    ///
    /// # Errors
    /// [`NameError`] when the store's prefix leaves no room for the name.
    pub fn of(store: &StoreUrl, options: &StoreOptions) -> Result<Self, NameError> {
        let election = store.election(&format!("bellwether-check-{:08x}", fastrand::u32(..)))?;
        let (store, options, place) = (store.clone(), options.clone(), election.to_string());
        Ok(Self::with(place, move |node, ttl| {
            store.open(&options, LockConfig { election: election.clone(), node, ttl, call_timeout: CALL_TIMEOUT })
        }))
    }

    /// A scratch election of which `open` makes the locks.
    pub fn with(place: String, open: impl Fn(Node, Duration) -> Result<Arc<dyn Lock>, OpenError> + Send + Sync + 'static) -> Self {
        Self { place, open: Box::new(open), opened: Mutex::default() }
    }

    /// Where it is, for people.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// The TTL that the store grants when it is asked for `ttl`. The scratch place is empty afterwards.
    ///
    /// # Errors
    /// [`AskError`] when it grants none.
    pub async fn ask(&self, ttl: Duration) -> Result<Duration, AskError> {
        let granted = self.granted(ttl).await;
        let cleared = self.clear().await;
        granted.and_then(|granted| cleared.map(|()| granted)).map_err(|flaw| match flaw {
            Flaw::Closed(error) => AskError::Closed(error),
            Flaw::Undecided(error @ StoreError::Unavailable { .. }) => AskError::Unavailable(error),
            flaw @ (Flaw::Undecided(_) | Flaw::Broken(_)) => AskError::Refused(flaw.to_string()),
        })
    }

    pub(super) async fn granted(&self, ttl: Duration) -> Result<Duration, Flaw> {
        let lock = self.lock(ttl)?;
        let outcome = match call::acquire(&*lock).await {
            Ok(Attempt::Held(lease)) => Ok(lease.ttl()),
            Ok(Attempt::Taken(by)) => {
                Err(Flaw::broken(format!("a lock that nobody has was refused, as if held by {}", named(by.as_ref()))))
            }
            Err(error) => Err(error.into()),
        };
        call::withdraw(&*lock).await?;
        outcome
    }

    /// Locks as processes of their own see them, one for each TTL, after all that were made before are withdrawn.
    pub(super) async fn afresh<const COUNT: usize>(&self, ttls: [Duration; COUNT]) -> Result<[Arc<dyn Lock>; COUNT], Flaw> {
        self.withdraw().await?;
        let locks = ttls.into_iter().map(|ttl| self.lock(ttl)).collect::<Result<Vec<_>, _>>()?;
        Ok(locks.try_into().expect("a lock for each TTL"))
    }

    /// The lock as a process of its own sees it.
    pub(super) fn lock(&self, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
        let number = self.opened().len() + 1;
        self.lock_at(&format!("check-{number}.invalid:1"), ttl)
    }

    pub(super) fn lock_at(&self, address: &str, ttl: Duration) -> Result<Arc<dyn Lock>, OpenError> {
        let lock = (self.open)(Node::new(address.parse().expect("an address")), ttl)?;
        self.opened().push(Arc::clone(&lock));
        Ok(lock)
    }

    /// Gives back whatever any lock made so far still holds. Dropped on the way, it forgets none of them.
    async fn withdraw(&self) -> Result<(), Flaw> {
        let opened = self.opened().clone();
        let mut outcome = Ok(());
        for lock in &opened {
            outcome = outcome.and(call::withdraw(&**lock).await);
        }
        // One stays, to clear the place with.
        self.opened().truncate(1);
        Ok(outcome?)
    }

    /// Leaves the place as empty as it was.
    pub(super) async fn clear(&self) -> Result<(), Flaw> {
        let withdrawn = self.withdraw().await;
        let Some(lock) = self.opened().first().cloned() else { return withdrawn };
        call::erase(&*lock).await?;
        match call::leader(&*lock).await? {
            None => withdrawn,
            Some(leader) => Err(Flaw::broken(format!("{} is still named as leader in {}", leader.address, self.place))),
        }
    }

    /// Leaves the place as empty as it was, after a check that was broken off.
    ///
    /// # Errors
    /// A sentence that names the place, when something may be left in it.
    pub async fn abandon(&self) -> Result<(), String> {
        self.clear().await.map_err(|flaw| format!("something may be left in {}: {flaw}", self.place))
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, Vec<Arc<dyn Lock>>> {
        self.opened.lock().expect("nothing panics with this locked")
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Scratch({})", self.place)
    }
}
