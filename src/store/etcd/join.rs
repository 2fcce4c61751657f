//! Joining the line, keeping our place in it, and finding ourselves at its head.

use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use tracing::warn;

use super::Shared;
use super::endpoints::Connection;
use super::failure::Failure;
use super::line::Line;
use super::session::{Beat, Granted};
use crate::store::Leader;

/// Where joining the line has put us.
pub(super) enum Outcome {
    /// At its head, since the revision that created our key.
    First { granted: Granted, created: i64 },
    /// Behind somebody, of whom the store may not say who it is.
    Behind(Option<Leader>),
}

impl Shared {
    /// Takes or keeps our place in the line. We lead only after having read our own key, under our own live lease, as the
    /// first, with nobody left who may still think that it leads.
    pub(super) async fn join(&self, connection: &Connection) -> Result<Outcome, Failure> {
        self.session.settle(connection).await?;
        if let Some(granted) = self.session.lease() {
            let (beat, seen) = tokio::join!(self.session.beat(connection, granted.lease), self.take_place(connection, granted.lease));
            match beat? {
                Beat::Gone => self.session.forget(granted.lease),
                beat @ Beat::Alive { .. } => {
                    let (own, line) = seen?;
                    self.session.agree(beat, line.term)?;
                    return self.place(connection, granted, own.as_ref(), &line).await;
                }
            }
        }
        let granted = self.session.grant(connection, self.ttl).await?;
        let (own, line) = self.take_place(connection, granted.lease).await?;
        self.place(connection, granted, own.as_ref(), &line).await
    }

    /// Reads our key and the line. Until it was seen there once, our key is created where it is absent: always under its
    /// lease, and never again. That is the only thing that a candidate ever writes.
    async fn take_place(&self, connection: &Connection, lease: i64) -> Result<(Option<KeyValue>, Line), Failure> {
        let key = self.place.key_of(lease);
        let read = [[TxnOp::get(key.as_str(), None)].as_slice(), &Line::reads(&self.place)].concat();
        let transaction = if self.session.has_place() {
            Txn::new().and_then(read)
        } else {
            let put = TxnOp::put(key.as_str(), self.address.as_str(), Some(PutOptions::new().with_lease(lease)));
            let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
            Txn::new().when([absent]).and_then([&[put], read.as_slice()].concat()).or_else(read)
        };
        let (mut others, line) = self.read_line(connection, Some(lease), transaction).await?;
        let own = others.pop().and_then(|mut own| own.take_kvs().pop());
        let own = own.filter(|own| self.is_ours(own, lease));
        if own.is_some() {
            self.session.found_place(lease);
        }
        Ok((own, line))
    }

    async fn place(&self, connection: &Connection, granted: Granted, own: Option<&KeyValue>, line: &Line) -> Result<Outcome, Failure> {
        let Some(own) = own else {
            warn!(key = self.place.key_of(granted.lease), "somebody deleted or changed this candidate's key, joining the line anew");
            self.session.spend(Some(granted.lease));
            return Ok(Outcome::Behind(None));
        };
        if line.first().is_none_or(|first| first.lease != granted.lease) {
            return Ok(Outcome::Behind(self.leader_of(connection, line).await?));
        }
        if self.someone_lingers() {
            return Ok(Outcome::Behind(None));
        }
        Ok(Outcome::First { granted, created: own.create_revision() })
    }
}
