//! The one record, and what a request does to it at the instant at which it arrives.

use std::time::Duration;

use tokio::time::Instant;

use super::Holder;
use crate::node::{BootId, Node};
use crate::store::contract::{Attempt, Epoch, Leader, Lease, Renewal, StoreError};

/// The record and the numbering, which outlives it.
#[derive(Default)]
pub(super) struct Table {
    record: Option<Record>,
    last_epoch: u64,
}

enum Record {
    Held(Holder),
    Foreign(Vec<u8>),
}

/// What came of an attempt to start a tenure.
pub(super) enum Decision {
    Held(Epoch),
    Taken(Leader),
}

impl Decision {
    /// The contract's word for it, given what makes a lease of an epoch.
    pub(super) fn attempt(self, lease: impl FnOnce(Epoch) -> Box<dyn Lease>) -> Attempt {
        match self {
            Self::Held(epoch) => Attempt::Held(lease(epoch)),
            Self::Taken(leader) => Attempt::Taken(Some(leader)),
        }
    }
}

impl Table {
    /// Starts a tenure unless somebody else is in one. A process that is in one already starts the next: the reply to
    /// its last attempt may have been lost, and a late release of the older tenure must not end this one.
    pub(super) fn acquire(&mut self, node: &Node, ttl: Duration, at: Instant) -> Result<Decision, StoreError> {
        match self.leader(at)? {
            Some(leader) if !self.is_held_by(node.boot, at) => Ok(Decision::Taken(leader)),
            Some(_) | None => {
                self.last_epoch += 1;
                let epoch = Epoch(self.last_epoch);
                self.record = Some(Record::Held(Holder { node: node.clone(), epoch, expires: at + ttl }));
                Ok(Decision::Held(epoch))
            }
        }
    }

    pub(super) fn renew(&mut self, boot: BootId, epoch: Epoch, ttl: Duration, at: Instant) -> Renewal {
        match &mut self.record {
            Some(Record::Held(holder)) if holder.node.boot == boot && holder.epoch == epoch && holder.expires > at => {
                holder.expires = at + ttl;
                Renewal::Held
            }
            Some(_) | None => Renewal::Lost,
        }
    }

    pub(super) fn release(&mut self, boot: BootId, epoch: Epoch) {
        if matches!(&self.record, Some(Record::Held(holder)) if holder.node.boot == boot && holder.epoch == epoch) {
            self.record = None;
        }
    }

    pub(super) fn withdraw(&mut self, boot: BootId, at: Instant) {
        if self.is_held_by(boot, at) {
            self.record = None;
        }
    }

    pub(super) fn leader(&self, at: Instant) -> Result<Option<Leader>, StoreError> {
        match &self.record {
            Some(Record::Foreign(found)) => Err(StoreError::foreign("the record in memory", found)),
            Some(Record::Held(_)) | None => Ok(self.holder(at).map(|holder| Leader { address: holder.node.address, epoch: holder.epoch })),
        }
    }

    pub(super) fn holder(&self, at: Instant) -> Option<Holder> {
        match &self.record {
            Some(Record::Held(holder)) if holder.expires > at => Some(holder.clone()),
            Some(Record::Held(_) | Record::Foreign(_)) | None => None,
        }
    }

    pub(super) fn expires(&self) -> Option<Instant> {
        match &self.record {
            Some(Record::Held(holder)) => Some(holder.expires),
            Some(Record::Foreign(_)) | None => None,
        }
    }

    pub(super) fn value(&self, at: Instant) -> Option<Vec<u8>> {
        match &self.record {
            Some(Record::Foreign(found)) => Some(found.clone()),
            Some(Record::Held(_)) | None => self.holder(at).map(|holder| holder.node.address.as_str().into()),
        }
    }

    pub(super) fn delete(&mut self) {
        self.record = None;
    }

    pub(super) fn write_foreign(&mut self, found: &[u8]) {
        self.record = Some(Record::Foreign(found.to_owned()));
    }

    fn is_held_by(&self, boot: BootId, at: Instant) -> bool {
        self.holder(at).is_some_and(|holder| holder.node.boot == boot)
    }
}
