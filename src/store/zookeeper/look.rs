//! Reading the line: who leads it, and what else lies in its place.

use tracing::warn;

use super::connection::Connection;
use super::failure::Failure;
use super::line::Line;
use super::message::{Reply, Request};
use super::proof::Answer;
use super::{Shared, epoch};
use crate::store::{Leader, StoreError};

/// The line was asked for, and with it the data of the one that was its first before.
pub(super) struct Glance {
    children: Answer,
    guess: Option<(String, Answer)>,
}

/// The name of a node, and the answer to a read of its data.
pub(super) type Guess = (String, Reply);

impl Shared {
    /// Asks for the line, and lets more be asked before it is here. A watch is set on the leader, if it still is the same.
    pub(super) fn glance(&self, connection: &Connection, watch: bool) -> Glance {
        let first = self.state().first.clone();
        let children = connection.send(&Request::children(self.place.folder(), false));
        let data = |name: String| (Box::pin(connection.send(&Request::data(&self.place.path(&name), watch))) as Answer, name);
        Glance { children: Box::pin(children), guess: first.map(data).map(|(answer, name)| (name, answer)) }
    }

    /// The line as it was asked for; a folder that is not there has none.
    pub(super) async fn line(&self, glance: Glance) -> Result<(Line, Option<Guess>), Failure> {
        let line = match glance.children.await?.children() {
            Ok(children) => Line::new(children),
            Err(failure) if failure.is_no_node() => Line::default(),
            Err(failure) => return Err(failure),
        };
        self.warn_of_strangers(&line);
        let guess = match glance.guess {
            Some((name, answer)) => Some((name, answer.await?)),
            None => None,
        };
        Ok((line, guess))
    }

    /// The first in the line, with its address.
    ///
    /// # Errors
    /// That there is no such node, where it is gone by now.
    pub(super) async fn leader_of(
        &self,
        connection: &Connection,
        line: &Line,
        guess: Option<Guess>,
        watch: bool,
    ) -> Result<Option<Leader>, Failure> {
        let Some(first) = line.first() else { return Ok(None) };
        let path = self.place.path(first);
        self.state().first = Some(first.to_owned());
        let reply = match guess {
            Some((name, reply)) if name == first => reply,
            _ => connection.send(&Request::data(&path, watch)).await?,
        };
        let (data, stat) = reply.data()?;
        let address = std::str::from_utf8(&data).ok().and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| Failure::Store(StoreError::foreign(path, &data)))?;
        Ok(Some(Leader { address, epoch: epoch(stat.created) }))
    }

    /// Reads the line and who leads it. With `watch`, the end of that leader is an event.
    pub(super) async fn look(&self, connection: &Connection, watch: bool) -> Result<(Line, Option<Leader>), Failure> {
        for _ in 0..2 {
            let (line, guess) = self.line(self.glance(connection, watch)).await?;
            match self.leader_of(connection, &line, guess, watch).await {
                Ok(leader) => return Ok((line, leader)),
                // It has gone since the line was read: there is a new line.
                Err(failure) if failure.is_no_node() => {}
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Undecided("the line of candidates changed twice while it was read"))
    }

    fn warn_of_strangers(&self, line: &Line) {
        let known = &mut self.state().strangers;
        for node in line.strangers.iter().filter(|name| !known.contains(*name)) {
            warn!(node, folder = self.place.folder(), "ignoring a node in the election's place that is no candidate's");
        }
        *known = line.strangers.iter().cloned().collect();
    }
}
