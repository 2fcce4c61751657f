//! A tenure at etcd: our key, the first in the line, under our lease.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::GetResponse;

use super::endpoints::Connection;
use super::failure::Failure;
use super::session::{Beat, Granted};
use super::{Queue, Shared, epoch};
use crate::store::{Epoch, Lease, Renewal, StoreError};

#[derive(Debug)]
pub(super) struct Tenure {
    queue: Queue,
    granted: Granted,
    /// The revision that created our key.
    created: i64,
}

impl Tenure {
    pub(super) fn new(queue: Queue, granted: Granted, created: i64) -> Self {
        Self { queue, granted, created }
    }
}

#[async_trait]
impl Lease for Tenure {
    fn epoch(&self) -> Epoch {
        epoch(self.created)
    }

    fn ttl(&self) -> Duration {
        self.granted.ttl
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let (shared, lease, created) = (&*self.queue.shared, self.granted.lease, self.created);
        if shared.session.lease() != Some(self.granted) {
            // Given up already, by a call whose reply may have been lost.
            return Ok(Renewal::Lost);
        }
        let renewal = shared.endpoints.call("renew", |connection| async move { shared.renew(&connection, lease, created).await }).await?;
        if renewal == Renewal::Lost {
            // Given back with the next call, when the caller serves no more: until then the lease tells the others to wait.
            shared.session.spend(Some(lease));
        }
        Ok(renewal)
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let shared = &*self.queue.shared;
        shared.session.spend(Some(self.granted.lease));
        shared.endpoints.call("release", |connection| async move { shared.session.settle(&connection).await }).await
    }
}

impl Shared {
    /// One heartbeat and one read of our key, at once: either of them can tell that the tenure is lost, and it takes both
    /// to confirm it. The caller counts from before both were sent, so the one that comes later grants nothing more.
    async fn renew(&self, connection: &Connection, lease: i64, created: i64) -> Result<Renewal, Failure> {
        let mut records = connection.client.kv_client();
        let read = records.get(self.place.key_of(lease), None);
        let (beat, read) = tokio::join!(self.session.beat(connection, lease), read);
        let read = read.map_err(Failure::from);
        let unchanged = |answer: &GetResponse| {
            answer.kvs().first().is_some_and(|record| record.create_revision() == created && self.is_ours(record, lease))
        };
        match (beat, read) {
            (Ok(Beat::Gone), _) => Ok(Renewal::Lost),
            (_, Ok(answer)) if !unchanged(&answer) => Ok(Renewal::Lost),
            (Ok(beat), Ok(answer)) => {
                let header = answer.header().ok_or(Failure::Undecided("the answer has no term"))?;
                self.session.agree(beat, header.raft_term())?;
                Ok(Renewal::Held)
            }
            (Err(failure), _) | (_, Err(failure)) => Err(failure),
        }
    }
}
