//! Waiting for a change in the line.
//!
//! Every wait begins with a read that sets its watches, so nothing can be missed between the two, and neither a moved nor
//! a lost session leaves a watch that will not come. Watches of earlier waits stay where they are: what they bring is one
//! hint too many.
//!
//! While it waits, it pings. A member that has gone silent is found so; and the session is heard of, at the server that
//! counts its time, at least this often. That matters for renewals: they are confirmed by the quorum, but that they count
//! as a heartbeat is passed on by the connected member only a little later. Should it be lost with that member, then the
//! session's time runs from the ping before, which must not be older than the margin that the candidate keeps.

use std::sync::Arc;

use tokio::sync::watch::Receiver;

use super::Shared;
use super::connection::Connection;
use super::failure::Failure;
use super::message::Request;
use crate::clock;
use crate::store::{Leader, StoreError};

const OPERATION: &str = "watch the election";

/// Pings in the time that a session is granted: no less than a candidate's margin has room for.
const PINGS: u32 = 12;

/// Watches that were set, and what they wake.
struct Watches {
    connection: Arc<Connection>,
    events: Receiver<u64>,
}

impl Shared {
    pub(super) async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        let watches = self.ensemble.call(OPERATION, |connection| async move { self.set_watches(connection, seen).await }).await?;
        match watches {
            Some(watches) => self.wait(watches).await,
            None => Ok(()),
        }
    }

    /// Sets what watches it takes, unless there is a change already: on the leader, whose end everybody has to hear of,
    /// and on the one before us, which is all that moves us up; on the folder, while there is no leader.
    async fn set_watches(&self, connection: Arc<Connection>, seen: Option<&Leader>) -> Result<Option<Watches>, Failure> {
        let events = connection.events();
        let (line, leader) = self.look(&connection, true).await?;
        if leader.as_ref() != seen {
            return Ok(None);
        }
        let quiet = match line.first() {
            None => self.is_empty(&connection).await?,
            Some(first) => {
                let own = self.candidate_in(connection.session);
                let before = own.and_then(|own| line.before(&own.name).map(str::to_owned));
                match before.filter(|before| before != first) {
                    Some(before) => is_there(&connection, &self.place.path(&before)).await?,
                    None => true,
                }
            }
        };
        Ok(quiet.then_some(Watches { connection, events }))
    }

    /// Whether nobody stands in line, with a watch for whoever comes first.
    async fn is_empty(&self, connection: &Connection) -> Result<bool, Failure> {
        let folder = self.place.folder();
        match connection.send(&Request::children(folder, true)).await?.children() {
            Ok(children) => Ok(super::line::Line::new(children).first().is_none()),
            Err(failure) if failure.is_no_node() => Ok(!is_there(connection, folder).await?),
            Err(failure) => Err(failure),
        }
    }

    async fn wait(&self, Watches { connection, mut events }: Watches) -> Result<(), StoreError> {
        let every = connection.granted / PINGS;
        let silence = every + self.ensemble.patience();
        let ended = |failure: Failure| Err(failure.into_store_error(OPERATION, connection.member.as_str(), self.place.folder()));
        loop {
            match tokio::time::timeout(every, events.changed()).await {
                Ok(_) if connection.is_open() => return Ok(()),
                Ok(_) => return ended(connection.failure()),
                Err(_) => {}
            }
            let (heard, _) = connection.seen();
            if clock::now() - heard > silence {
                self.ensemble.leave(&connection, "the member has fallen silent");
                return ended(connection.failure());
            }
            connection.ping();
        }
    }
}

/// Whether there is such a node, with a watch for when that changes.
async fn is_there(connection: &Connection, path: &str) -> Result<bool, Failure> {
    match connection.send(&Request::exists(path, true)).await?.stat() {
        Ok(_) => Ok(true),
        Err(failure) if failure.is_no_node() => Ok(false),
        Err(failure) => Err(failure),
    }
}
