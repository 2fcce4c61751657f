//! Joining the line, keeping our place in it, finding ourselves at its head, and leaving it.

use std::time::Duration;

use tracing::warn;

use super::connection::Connection;
use super::failure::Failure;
use super::look::Glance;
use super::message::{Code, Kind, Request};
use super::proof::{Answer, Proof};
use super::{Candidate, Shared, Unanswered};
use crate::store::Leader;

/// Where joining the line has put us.
pub(super) enum Outcome {
    /// At its head, under a session with this time limit.
    First(Candidate, Duration),
    /// Behind somebody, of whom the store may not say who it is.
    Behind(Option<Leader>),
}

/// What shows, before the line is read, that our node is there.
enum Proven {
    /// That it was created took the quorum.
    ByCreation,
    /// It was asked for along with the line, if we were the first before.
    Asked(Option<Proof>),
}

impl Shared {
    /// Takes or keeps our place in the line. We lead only if our own node was the first in a line that was read after the
    /// quorum had agreed, in this call, that the node is there.
    pub(super) async fn join(&self, connection: &Connection) -> Result<Outcome, Failure> {
        self.settle(connection).await?;
        self.find_attempted(connection).await?;
        let (candidate, proof, glance) = match self.candidate_in(connection.session) {
            Some(candidate) => {
                let proof = candidate.is_first.then(|| self.ask_for_proof(connection, &candidate));
                (candidate, Proven::Asked(proof), self.glance(connection, false))
            }
            None => {
                let (candidate, glance) = self.create(connection).await?;
                (candidate, Proven::ByCreation, glance)
            }
        };
        let proven = match proof {
            Proven::ByCreation => true,
            Proven::Asked(None) => false,
            Proven::Asked(Some(proof)) => match proof.holds(&candidate).await? {
                true => true,
                false => return Ok(self.give_up(&candidate)),
            },
        };
        let (line, guess) = self.line(glance).await?;
        if !line.has(&candidate.name) {
            return Ok(self.give_up(&candidate));
        }
        let others = line.own(&self.place).filter(|name| *name != candidate.name).map(str::to_owned).collect::<Vec<_>>();
        if !others.is_empty() {
            // Late effects of calls that got no answer. Nobody leads by them.
            self.state().spent.extend(others);
            self.settle(connection).await?;
            return Ok(Outcome::Behind(None));
        }
        if line.first() == Some(&candidate.name) {
            self.has_come_first(&candidate);
            return match proven || self.ask_for_proof(connection, &candidate).holds(&candidate).await? {
                true => Ok(Outcome::First(candidate, connection.granted)),
                false => Ok(self.give_up(&candidate)),
            };
        }
        match self.leader_of(connection, &line, guess, false).await {
            Ok(leader) => Ok(Outcome::Behind(leader)),
            // Gone since the line was read.
            Err(failure) if failure.is_no_node() => Ok(Outcome::Behind(None)),
            Err(failure) => Err(failure),
        }
    }

    /// Takes away every node of an earlier candidacy.
    pub(super) async fn settle(&self, connection: &Connection) -> Result<(), Failure> {
        let spent = self.state().spent.clone();
        let deletions = spent.into_iter().map(|name| (connection.send(&Request::delete(&self.place.path(&name))), name));
        for (deletion, name) in deletions.collect::<Vec<_>>() {
            match deletion.await?.done() {
                Ok(()) => {}
                Err(failure) if failure.is_no_node() => {}
                Err(failure) => return Err(failure),
            }
            self.state().spent.retain(|other| *other != name);
        }
        Ok(())
    }

    /// Takes away everything that is ours.
    pub(super) async fn quit(&self, connection: &Connection) -> Result<(), Failure> {
        self.find_attempted(connection).await?;
        self.spend(None);
        self.settle(connection).await
    }

    /// Takes away the election's two folders, and those above that we had to create, if nobody uses them.
    pub(super) async fn remove_folders(&self, connection: &Connection) -> Result<(), Failure> {
        let made = self.state().made.clone();
        let ours = self.place.folders().rev().enumerate().filter(|(above, folder)| *above < 2 || made.iter().any(|made| made == folder));
        let deletions = ours.map(|(_, folder)| connection.send(&Request::delete(folder))).collect::<Vec<_>>();
        for deletion in deletions {
            match deletion.await?.done() {
                Ok(()) | Err(Failure::Refused(Code::NO_NODE | Code::NOT_EMPTY)) => {}
                Err(failure) => return Err(failure),
            }
        }
        self.state().made.clear();
        Ok(())
    }

    /// Looks for a node whose creation got no answer: for its name, and then whether it lives under our session.
    async fn find_attempted(&self, connection: &Connection) -> Result<(), Failure> {
        let Some(attempt) = self.attempt_in(connection.session) else { return Ok(()) };
        let mut names = attempt.names;
        if names.is_empty() {
            let (line, _) = self.line(self.glance(connection, false)).await?;
            names.extend(line.own(&self.place).map(str::to_owned));
            self.state().attempted = Some(Unanswered { session: attempt.session, names: names.clone() });
        }
        let looks = names.into_iter().map(|name| (connection.send(&Request::exists(&self.place.path(&name), false)), name));
        for (look, name) in looks.collect::<Vec<_>>() {
            match look.await?.stat() {
                Ok(stat) if stat.owner == connection.session => {
                    self.found(Candidate { name, session: stat.owner, created: stat.created, is_first: false });
                    return Ok(());
                }
                Ok(_) => {}
                Err(failure) if failure.is_no_node() => {}
                Err(failure) => return Err(failure),
            }
        }
        self.state().attempted = None;
        Ok(())
    }

    /// The creation that got no answer, if it was in this session: what an earlier one has left goes with it.
    fn attempt_in(&self, session: i64) -> Option<Unanswered> {
        let mut state = self.state();
        state.attempted = state.attempted.take().filter(|attempt| attempt.session == session);
        state.attempted.clone()
    }

    /// Creates our candidate, with its folders where they may be missing, and asks for the line behind it.
    async fn create(&self, connection: &Connection) -> Result<(Candidate, Glance), Failure> {
        if self.state().has_folders {
            match self.create_candidate(connection).await {
                Err(failure) if failure.is_no_node() => self.state().has_folders = false,
                outcome => return outcome,
            }
        }
        // All in one flight, for over a slow way there may be no time for two.
        let send = |folder: &str| Box::pin(connection.send(&Request::create(folder, b"", Kind::Folder, self.rights))) as Answer;
        let folders = self.place.folders().map(|folder| (folder.to_owned(), send(folder))).collect();
        let (folders, candidate) = tokio::join!(self.create_folders(folders), self.create_candidate(connection));
        match (folders, candidate) {
            (_, Ok(candidate)) => {
                self.state().has_folders = true;
                Ok(candidate)
            }
            (Err(folders), Err(failure)) if failure.is_no_node() => Err(folders),
            (_, Err(failure)) => Err(failure),
        }
    }

    async fn create_candidate(&self, connection: &Connection) -> Result<(Candidate, Glance), Failure> {
        let address = self.address.as_str().as_bytes();
        let request = Request::create(&self.place.new_candidate(), address, Kind::Candidate, self.rights);
        self.state().attempted = Some(Unanswered { session: connection.session, names: Vec::new() });
        let created = connection.send(&request);
        let glance = self.glance(connection, false);
        match created.await?.created() {
            Ok((path, stat)) => {
                let name = self.place.name(&path).to_owned();
                let candidate = Candidate { name, session: stat.owner, created: stat.created, is_first: false };
                self.found(candidate.clone());
                Ok((candidate, glance))
            }
            Err(failure) => {
                self.state().attempted = None;
                Err(failure)
            }
        }
    }

    /// Creates the folders that are missing. Some of those above may not be ours to create, but there already.
    async fn create_folders(&self, answers: Vec<(String, Answer)>) -> Result<(), Failure> {
        let mut outcome = Ok(());
        for (folder, answer) in answers {
            outcome = match (outcome, answer.await?.done()) {
                (_, Ok(())) => {
                    self.state().made.push(folder);
                    Ok(())
                }
                (_, Err(Failure::Refused(Code::NODE_EXISTS))) => Ok(()),
                // The one above it could not be created, and that is what counts.
                (Err(above), Err(failure)) if failure.is_no_node() => Err(above),
                (_, Err(failure)) => Err(failure),
            };
        }
        outcome
    }

    fn found(&self, candidate: Candidate) {
        let mut state = self.state();
        (state.candidate, state.attempted) = (Some(candidate), None);
    }

    fn has_come_first(&self, candidate: &Candidate) {
        if let Some(present) = self.state().candidate.as_mut().filter(|present| present.name == candidate.name) {
            present.is_first = true;
        }
    }

    fn give_up(&self, candidate: &Candidate) -> Outcome {
        let node = self.place.path(&candidate.name);
        warn!(node, "somebody deleted or changed this candidate's node, joining the line anew");
        self.spend(Some(candidate));
        Outcome::Behind(None)
    }
}
