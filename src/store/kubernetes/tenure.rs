//! One tenure: the record while it has our name and this epoch.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::Shared;
use super::failure::Failure;
use super::place::Written;
use super::record::Record;
use crate::store::contract::{Epoch, Lease, Renewal, StoreError};

pub(super) struct KubernetesLease {
    shared: Arc<Shared>,
    uid: String,
    epoch: Epoch,
}

impl KubernetesLease {
    pub(super) fn new(shared: Arc<Shared>, record: &Record) -> Self {
        Self { shared, uid: record.uid().to_owned(), epoch: record.epoch() }
    }

    fn is_named_by(&self, record: &Record) -> bool {
        record.names(&self.shared.node) && record.uid() == self.uid && record.epoch() == self.epoch
    }
}

#[async_trait]
impl Lease for KubernetesLease {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn ttl(&self) -> Duration {
        self.shared.ttl
    }

    /// One request, unless somebody else has touched the object since we last saw it.
    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let named = |record: &Record| self.is_named_by(record);
        let renewed = self.shared.rewrite(named, Record::renewed).await;
        match renewed.map_err(|failure| failure.into_store_error("renew"))? {
            Some(_) => Ok(Renewal::Held),
            None => Ok(Renewal::Lost),
        }
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let named = |record: &Record| self.is_named_by(record);
        self.shared.give_back(named).await.map_err(|failure| failure.into_store_error("release"))
    }
}

impl Shared {
    /// Writes what `change` makes of the record, as long as `applies` to it. Nothing if it does not, or no longer.
    pub(super) async fn rewrite(
        &self,
        applies: impl Fn(&Record) -> bool,
        change: impl Fn(&Record) -> serde_json::Value,
    ) -> Result<Option<Arc<Record>>, Failure> {
        if let Some(known) = self.place.view.record().filter(|known| applies(known))
            && let Written::Done(record) = self.place.replace(&known, &change(&known)).await?
        {
            return Ok(Some(record));
        }
        // It is not what we knew. Somebody may only have put a label on it.
        let Some(present) = self.place.look().await?.filter(|present| applies(present)) else { return Ok(None) };
        match self.place.replace(&present, &change(&present)).await? {
            Written::Done(record) => Ok(Some(record)),
            Written::Passed => Err(Failure::Contended),
        }
    }

    /// Takes our name out of the record, where `applies`.
    pub(super) async fn give_back(&self, applies: impl Fn(&Record) -> bool) -> Result<(), Failure> {
        self.rewrite(applies, Record::released).await.map(drop)
    }
}

impl fmt::Debug for KubernetesLease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "KubernetesLease({}, epoch {})", self.shared.place.words(), self.epoch)
    }
}
