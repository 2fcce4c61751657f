//! Reading the key, and waiting for a change of it.
//!
//! Every wait begins with a read and waits past the index of that read, so nothing can be missed between the two, and no
//! index of a store that lost its data is waited for. Consul ends a wait by itself after the time that it was given, and
//! takes up to a sixteenth longer; an agent that lets that pass is silent.

use std::time::Duration;

use tokio::time::{sleep, sleep_until};

use super::key::{Reading, State, View};
use super::session::Session;
use super::{Failure, Shared, lock};
use crate::clock;
use crate::store::Leader;

/// How often the session of a holder that lost the key is asked after. It is gone within milliseconds if its owner lives.
const LINGER_POLL: Duration = Duration::from_millis(25);

impl Shared {
    /// Reads the key, and learns from it whose tenure there is to be seen out.
    pub(super) async fn view(&self, reading: Reading) -> Result<View, Failure> {
        let view = self.place.view(&self.agents.ask(self.place.read(reading)).await?)?;
        match &view.state {
            State::Held { session, .. } => {
                let is_ours = self.session.id().is_some_and(|ours| ours == *session);
                let mut rival = lock(&self.rival);
                if is_ours {
                    rival.is_over()
                } else {
                    rival.leads(session)
                }
                lock(&self.delay).is_over();
            }
            State::Free { is_given_back: true, .. } => lock(&self.rival).is_over(),
            State::Free { is_given_back: false, .. } => {}
        }
        Ok(view)
    }

    /// The key, and who leads.
    pub(super) async fn look(&self) -> Result<(View, Option<Leader>), Failure> {
        let view = self.view(Reading::Plain).await?;
        let leader = match &view.state {
            State::Held { leader, .. } => Some(leader.clone()),
            State::Free { .. } => None,
        };
        Ok((view, leader))
    }

    pub(super) async fn changed(&self, seen: Option<&Leader>) -> Result<(), Failure> {
        let (view, leader) = self.look().await?;
        if leader.as_ref() != seen {
            return Ok(());
        }
        let is_candidate = self.session.id().is_some();
        if leader.is_none() && is_candidate && self.someone_lingers().await? {
            return self.until_nobody_lingers().await;
        }
        let next_try = lock(&self.delay).next_try(clock::now()).filter(|_| leader.is_none() && is_candidate);
        match next_try {
            Some(next_try) => tokio::select! {
                () = sleep_until(next_try) => Ok(()),
                heard = self.past(view.index) => heard,
            },
            None => self.past(view.index).await,
        }
    }

    /// Waits until the key has changed past `index`. The wait ends after the caller has asked again in any case.
    async fn past(&self, index: u64) -> Result<(), Failure> {
        let wait = self.ttl / 2;
        self.agents.listen(&self.place.read_past(index, wait), wait + wait / 16).await.map(drop)
    }

    /// Whether the node that held the key before may still think that it leads.
    pub(super) async fn someone_lingers(&self) -> Result<bool, Failure> {
        let Some(session) = lock(&self.rival).session() else { return Ok(false) };
        let info = Session::info(&self.agents, &session).await?;
        Ok(lock(&self.rival).judge(&session, info.as_ref(), clock::now()))
    }

    async fn until_nobody_lingers(&self) -> Result<(), Failure> {
        while self.someone_lingers().await? {
            sleep(LINGER_POLL).await;
        }
        Ok(())
    }
}
