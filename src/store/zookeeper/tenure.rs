//! A tenure at ZooKeeper: our node, the first in the line, under our session.

use std::time::Duration;

use async_trait::async_trait;

use super::{Candidate, Queue, epoch};
use crate::store::{Epoch, Lease, Renewal, StoreError};

#[derive(Debug)]
pub(super) struct Tenure {
    queue: Queue,
    candidate: Candidate,
    granted: Duration,
}

impl Tenure {
    pub(super) fn new(queue: Queue, candidate: Candidate, granted: Duration) -> Self {
        Self { queue, candidate, granted }
    }
}

#[async_trait]
impl Lease for Tenure {
    fn epoch(&self) -> Epoch {
        epoch(self.candidate.created)
    }

    fn ttl(&self) -> Duration {
        self.granted
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let (shared, candidate) = (&*self.queue.shared, &self.candidate);
        if shared.candidate_in(candidate.session).is_none_or(|present| present.name != candidate.name) {
            // Given up already, by a call whose reply may have been lost.
            return Ok(Renewal::Lost);
        }
        let renew = |connection: std::sync::Arc<super::connection::Connection>| async move {
            let same = connection.session == candidate.session;
            Ok(same && shared.ask_for_proof(&connection, candidate).holds(candidate).await?)
        };
        if shared.ensemble.call("renew", renew).await? {
            return Ok(Renewal::Held);
        }
        // Its node, if there still is one, is taken away with the next call, when the caller serves no more.
        shared.spend(Some(candidate));
        Ok(Renewal::Lost)
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let shared = &*self.queue.shared;
        shared.spend(Some(&self.candidate));
        shared.ensemble.call("release", |connection| async move { shared.settle(&connection).await }).await
    }
}
