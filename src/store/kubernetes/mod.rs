//! The lock as a Lease of Kubernetes, `coordination.k8s.io/v1`, written as client-go's leader election writes it.
//!
//! The API server keeps the record and lets only one of several writers through, by `resourceVersion` and `uid`. It ends no lock:
//! that is for whoever waits, by its own clock, see [`view`]. Each lock is for as long as its record says, whoever wrote it.
//!
//! `holderIdentity` is `ADDRESS_BOOT-ID`. A holder of another form, as other programs write it, is a rival whose time is
//! honoured, and to whom nobody can be sent. A lock that is given back keeps its object, without a holder, so that the
//! count of tenures goes on; see [`Record::taken`] for the epoch.

mod access;
mod answer;
mod channel;
mod exec;
mod failure;
mod kubeconfig;
mod lines;
mod pem;
mod place;
mod record;
mod stamp;
mod tenure;
mod view;
mod watch;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Mutex;

use super::contract::{Attempt, Leader, Lock, StoreError};
use super::{LockConfig, OpenError, StoreOptions};
use crate::node::Node;

use access::Access;
use failure::Failure;
use place::{Place, Written};
use record::Record;
use tenure::KubernetesLease;
use view::Standing;
use watch::Watch;

/// The longest name of an object.
const LONGEST_NAME: usize = 253;

/// The lock in `namespace` of the cluster that the options, or else this process's surroundings, lead to.
pub(super) fn open(namespace: &str, options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let name = name_of(&config)?;
    let access = Access::find(options, |name| std::env::var(name).ok())?;
    let place = Place::new(access, namespace, name, &config);
    Ok(Arc::new(KubernetesLock { shared: Arc::new(Shared { place, node: config.node, ttl: config.ttl }), watch: Mutex::new(None) }))
}

/// `PREFIX-SERVICE`, which must be a name that Kubernetes takes.
fn name_of(config: &LockConfig) -> Result<String, OpenError> {
    let name = format!("{}-{}", config.election.prefix(), config.election.service());
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(allowed) && !label.starts_with('-') && !label.ends_with('-');
    match name.len() <= LONGEST_NAME && name.split('.').all(is_label) {
        true => Ok(name),
        false => Err(OpenError::Place(format!(
            "`{name}` is no name for a Lease: use a service of the characters a-z 0-9 - and ., with a letter or digit at the end"
        ))),
    }
}

/// What a lock and its lease have in common.
struct Shared {
    place: Place,
    node: Node,
    ttl: Duration,
}

impl Shared {
    async fn acquire(&self) -> Result<Option<Arc<Record>>, Failure> {
        let present = self.place.look().await?;
        if !self.place.view.is_free_for(&self.node) {
            return Ok(None);
        }
        let record = match present {
            Some(record) => record,
            None => match self.place.create().await? {
                Written::Done(record) => record,
                Written::Passed => match self.place.look().await? {
                    Some(record) => record,
                    None => return Err(Failure::Contended),
                },
            },
        };
        if !self.place.view.is_free_for(&self.node) {
            return Ok(None);
        }
        let taken = record.taken(&self.node, self.ttl, self.place.view.greatest());
        match self.place.replace(&record, &taken).await? {
            Written::Done(record) => Ok(Some(record)),
            Written::Passed => self.place.look().await.map(|_| None),
        }
    }

    async fn erase(&self) -> Result<(), Failure> {
        let Some(record) = self.place.look().await? else { return Ok(()) };
        if !record.names(&self.node) && self.place.view.standing() != Standing::Free {
            return Ok(());
        }
        self.place.delete(&record).await?;
        match self.place.look().await? {
            Some(present) if present.uid() == record.uid() => Err(Failure::Contended),
            Some(_) | None => Ok(()),
        }
    }
}

/// This process's view of the Lease.
struct KubernetesLock {
    shared: Arc<Shared>,
    watch: Mutex<Option<Watch>>,
}

#[async_trait]
impl Lock for KubernetesLock {
    /// A record of this very process begins the next tenure: the reply to its last attempt was lost, or it let its lease run
    /// out, and what it then sent for that one must not touch this.
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &self.shared;
        match shared.acquire().await.map_err(|failure| failure.into_store_error("acquire"))? {
            Some(record) => {
                // A leader waits for nobody: the server need not tell it of its own renewals.
                if let Ok(mut watch) = self.watch.try_lock() {
                    *watch = None;
                }
                Ok(Attempt::Held(Box::new(KubernetesLease::new(Arc::clone(shared), &record))))
            }
            None => Ok(Attempt::Taken(shared.place.view.stranger(&shared.node, &shared.place.words())?)),
        }
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.give_back(|record| record.names(&shared.node)).await.map_err(|failure| failure.into_store_error("withdraw"))
    }

    async fn erase(&self) -> Result<(), StoreError> {
        self.shared.erase().await.map_err(|failure| failure.into_store_error("erase"))
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let place = &self.shared.place;
        place.look().await.map_err(|failure| failure.into_store_error("leader"))?;
        Ok(place.view.leader(&place.words())?.map(|(leader, _)| leader))
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        watch::changed(&self.shared.place, &self.shared.node, &mut *self.watch.lock().await, seen).await
    }
}

impl fmt::Debug for KubernetesLock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KubernetesLock({:?})", self.shared.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Election;

    #[test]
    fn a_lease_has_a_name_that_kubernetes_takes() {
        let named = |service: &str| {
            let election = Election::new(Election::DEFAULT_PREFIX, service).unwrap();
            let node = Node::new("h:1".parse().unwrap());
            name_of(&LockConfig { election, node, ttl: Duration::ZERO, call_timeout: Duration::ZERO }).map_err(|error| error.to_string())
        };
        for service in ["default", "a", "web-2", "v1.web", "7"] {
            assert_eq!(named(service), Ok(format!("bellwether-{service}")));
        }
        for service in ["Web", "a_b", "web-", "web.", ".web", "a..b", "v1.-web"] {
            let error = named(service).unwrap_err();
            assert!(error.contains(&format!("`bellwether-{service}`")) && error.contains("a-z 0-9"), "{error}");
        }
    }
}
