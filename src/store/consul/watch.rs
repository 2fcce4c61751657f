//! Reading the key, and waiting for a change of it.
//!
//! Every wait begins with a read and waits past the index of that read, so nothing can be missed between the two, and no
//! index of a store that lost its data is waited for. Consul ends a wait by itself after the time that it was given, and
//! takes up to a sixteenth longer; an agent that lets that pass is silent.

use std::time::Duration;

use tokio::time::sleep;

use super::key::{Reading, State, View};
use super::session::{Session, SessionId};
use super::{Failure, Shared, lock};
use crate::clock;
use crate::store::Leader;

/// How often the session of a holder that lost the key is asked after. It is gone within milliseconds if its owner lives.
const LINGER_POLL: Duration = Duration::from_millis(25);

/// Consul itself ends a wait after ten minutes, whatever was asked.
const LONGEST_WAIT: Duration = Duration::from_secs(5 * 60);

impl Shared {
    /// Reads the key, and learns from it whose tenure there is to be seen out.
    pub(super) async fn view(&self, reading: Reading) -> Result<View, Failure> {
        let view = self.place.view(&self.agents.ask(self.place.read(reading)).await?)?;
        match &view.state {
            State::Held { session, .. } => {
                let is_ours = self.session.id().is_some_and(|ours| ours == *session);
                let mut rival = lock(&self.rival);
                match is_ours {
                    true => rival.is_over(),
                    false => rival.leads(session),
                }
                lock(&self.delay).is_over();
            }
            State::Free { is_given_back: true, .. } => lock(&self.rival).is_over(),
            State::Free { is_given_back: false, .. } => lock(&self.rival).lost_key(),
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
        if leader.is_some() || self.session.id().is_none() {
            return self.past(view.index).await;
        }
        // A candidate that found the key free, and yet not to be had, hears when it is.
        if lock(&self.rival).to_see_out().is_some() {
            return self.until_nobody_lingers().await;
        }
        let pause = lock(&self.delay).pause(clock::now());
        match pause {
            Some(pause) => tokio::select! {
                () = sleep(pause) => Ok(()),
                heard = self.past(view.index) => heard,
            },
            None => self.past(view.index).await,
        }
    }

    /// Waits until the key has changed past `index`. The wait ends after the caller has asked again in any case.
    async fn past(&self, index: u64) -> Result<(), Failure> {
        let wait = (self.ttl / 2).min(LONGEST_WAIT);
        self.agents.listen(&self.place.read_past(index, wait), wait + wait / 16).await.map(drop)
    }

    /// Whether the node behind this session, which held the key before, may still think that it leads.
    pub(super) async fn lingers(&self, session: Option<&SessionId>) -> Result<bool, Failure> {
        let Some(session) = session else { return Ok(false) };
        let info = Session::info(&self.agents, session).await?;
        Ok(lock(&self.rival).judge(session, info.as_ref(), clock::now()))
    }

    async fn until_nobody_lingers(&self) -> Result<(), Failure> {
        loop {
            let to_see_out = lock(&self.rival).to_see_out();
            if !self.lingers(to_see_out.as_ref()).await? {
                return Ok(());
            }
            sleep(LINGER_POLL).await;
        }
    }
}
