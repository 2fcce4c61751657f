//! Trying for the key, finding that we have it, and giving it back.

use tracing::{info, warn};

use super::key::{Outcome as Change, Reading, State, View};
use super::session::{Present, Session, SessionId};
use super::{Failure, Shared, lock};
use crate::clock;
use crate::store::Leader;

/// What an attempt has come to.
pub(super) enum Outcome {
    /// Our session holds the key since this index.
    Leads { session: SessionId, index: u64 },
    /// It does not; who does, where that is known.
    Waits(Option<Leader>),
}

impl Shared {
    /// Keeps our session alive and takes the key if it is free. We lead only when, in this call, our session was renewed
    /// or made, and the key was read or taken under it.
    pub(super) async fn join(&self) -> Result<Outcome, Failure> {
        self.settle().await?;
        let to_see_out = lock(&self.rival).to_see_out();
        let (session, view, lingers) =
            tokio::join!(self.session.keep(&self.agents), self.view(Reading::Sure), self.lingers(to_see_out.as_ref()));
        let (view, session, mut lingers) = (view?, session?, lingers?);
        if to_see_out.is_none() {
            // The key has been taken away from somebody only now, or from nobody.
            let news = lock(&self.rival).to_see_out();
            lingers = self.lingers(news.as_ref()).await?;
        }
        match view.state {
            State::Held { session: holder, leader } if holder == session => Ok(self.adopt(session, &leader)),
            State::Held { leader, .. } => Ok(Outcome::Waits(Some(leader))),
            State::Free { .. } if lingers => Ok(Outcome::Waits(None)),
            State::Free { index, .. } => self.take(session, index).await,
        }
    }

    /// The key is ours already: the answer that would have said so was lost.
    fn adopt(&self, session: SessionId, leader: &Leader) -> Outcome {
        if leader.address != self.address {
            warn!(key = self.place.as_str(), address = %leader.address, "somebody wrote another address over this node's, campaigning anew");
            self.session.spend(Some(&session));
            return Outcome::Waits(None);
        }
        self.session.holds(&session, leader.epoch.0);
        Outcome::Leads { session, index: leader.epoch.0 }
    }

    async fn take(&self, session: SessionId, index: Option<u64>) -> Result<Outcome, Failure> {
        let answer = self.agents.ask(self.place.take(index, &session, &self.address)).await?;
        match Change::of(&answer)? {
            Change::Done(index) => {
                self.session.holds(&session, index);
                lock(&self.delay).is_over();
                Ok(Outcome::Leads { session, index })
            }
            Change::Delayed => {
                if lock(&self.delay).holds_back(clock::now()) {
                    info!(key = self.place.as_str(), "waiting for Consul's lock-delay: the last holder's session ended without a word");
                }
                Ok(Outcome::Waits(None))
            }
            Change::Refused => {
                lock(&self.delay).came_late();
                Ok(Outcome::Waits(None))
            }
        }
    }

    /// Gives back the session of every earlier candidacy, and the key with it.
    pub(super) async fn settle(&self) -> Result<(), Failure> {
        for Present { id, holds_since } in self.session.spent() {
            let held = match holds_since {
                Some(index) => Some(index),
                None => self.taken_unheard(&id).await?,
            };
            if let Some(index) = held {
                // Otherwise somebody has written over it, and the end of the session frees it as it is.
                let answer = self.agents.ask(self.place.give_back(index, &id)).await?;
                Change::of(&answer)?;
            }
            Session::destroy(&self.agents, &id).await?;
            self.session.settled(&id);
        }
        Ok(())
    }

    /// Deletes the key that an election leaves behind, unless somebody holds it.
    pub(super) async fn erase(&self) -> Result<(), Failure> {
        let State::Free { index: Some(index), .. } = self.view(Reading::Sure).await?.state else { return Ok(()) };
        let answer = self.agents.ask(self.place.delete(index)).await?;
        Change::of(&answer).map(drop)
    }

    /// Since when `id` holds the key, if it took it in a call whose answer was lost.
    async fn taken_unheard(&self, id: &SessionId) -> Result<Option<u64>, Failure> {
        match self.view(Reading::Sure).await {
            Ok(View { state: State::Held { session, leader }, .. }) if session == *id && leader.address == self.address => {
                Ok(Some(leader.epoch.0))
            }
            Ok(_) | Err(Failure::Foreign { .. }) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}
