//! A tenure at Consul: the key, under our session, as it was when we took it.

use std::time::Duration;

use async_trait::async_trait;

use super::key::{Reading, State};
use super::session::SessionId;
use super::{Candidacy, Failure, Shared, epoch};
use crate::store::{Epoch, Lease, Renewal, StoreError};

#[derive(Debug)]
pub(super) struct Tenure {
    candidacy: Candidacy,
    session: SessionId,
    /// The index at which the key was taken.
    index: u64,
}

impl Tenure {
    pub(super) fn new(candidacy: Candidacy, session: SessionId, index: u64) -> Self {
        Self { candidacy, session, index }
    }
}

#[async_trait]
impl Lease for Tenure {
    fn epoch(&self) -> Epoch {
        epoch(self.index)
    }

    /// What was asked. Consul keeps a session for up to twice that, which is nobody's to use: only this much is promised.
    fn ttl(&self) -> Duration {
        self.candidacy.shared.ttl
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let shared = &*self.candidacy.shared;
        if shared.session.id().as_ref() != Some(&self.session) {
            // Given up already, by a call whose reply may have been lost.
            return Ok(Renewal::Lost);
        }
        let renewal = shared.renew(&self.session, self.index).await.map_err(|failure| shared.report("renew", failure))?;
        if renewal == Renewal::Lost {
            // Given back with the next call, when the caller serves no more: until then the session tells the others to wait.
            shared.session.spend(Some(&self.session));
        }
        Ok(renewal)
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let shared = &*self.candidacy.shared;
        shared.session.spend(Some(&self.session));
        shared.settle().await.map_err(|failure| shared.report("release", failure))
    }
}

impl Shared {
    /// One renewal of the session and one read of the key, at once. The read alone can tell that the tenure is lost, for a
    /// session that ended has freed its key; it takes both to confirm it. The caller counts from before both
    /// were sent, so the one that comes later grants nothing more.
    async fn renew(&self, session: &SessionId, index: u64) -> Result<Renewal, Failure> {
        let (renewed, view) = tokio::join!(self.session.renew(&self.agents, session), self.view(Reading::Sure));
        let is_ours = match view {
            Ok(view) => match view.state {
                State::Held { session: holder, leader } => {
                    holder == *session && leader.epoch == epoch(index) && leader.address == self.address
                }
                State::Free { .. } => false,
            },
            Err(Failure::Foreign { .. }) => false,
            Err(failure) => return Err(failure),
        };
        match renewed {
            _ if !is_ours => Ok(Renewal::Lost),
            Ok(true) => Ok(Renewal::Held),
            Ok(false) => Err(Failure::Undecided("the session has ended, and the key was read before that or by another cluster")),
            Err(failure) => Err(failure),
        }
    }
}
