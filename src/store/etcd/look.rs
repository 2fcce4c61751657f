//! Reading the line: who leads it, what lies in its place, and who has left it without having ended.

use etcd_client::{GetOptions, GetResponse, KeyValue, Txn, TxnOpResponse};
use tracing::warn;

use super::endpoints::Connection;
use super::failure::Failure;
use super::line::Line;
use super::session::granted_time;
use super::{Shared, epoch, lock};
use crate::clock;
use crate::node::Address;
use crate::store::{Leader, StoreError};

impl Shared {
    /// Reads the line and who leads it.
    pub(super) async fn look(&self, connection: &Connection) -> Result<(Line, Option<Leader>), Failure> {
        let own = self.session.lease().map(|granted| granted.lease);
        let (_, line) = self.read_line(connection, own, Txn::new().and_then(Line::reads(&self.place))).await?;
        let leader = self.leader_of(connection, &line).await?;
        Ok((line, leader))
    }

    /// Carries out a transaction that ends with [`Line::reads`]; returns the line and the answers to its earlier reads.
    pub(super) async fn read_line(
        &self,
        connection: &Connection,
        own: Option<i64>,
        transaction: Txn,
    ) -> Result<(Vec<GetResponse>, Line), Failure> {
        let missing = lock(&self.rivals).missing();
        let mut records = connection.client.kv_client();
        let (answer, judged) = tokio::join!(records.txn(transaction), self.judge(connection, &missing));
        let (answer, ()) = (answer?, judged?);
        let reads = answer.op_responses().into_iter().filter_map(|operation| match operation {
            TxnOpResponse::Get(read) => Some(read),
            TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
        });
        let mut reads = reads.collect::<Vec<_>>();
        let (Some(oldest), Some(all), Some(header)) = (reads.pop(), reads.pop(), answer.header()) else {
            return Err(Failure::Undecided("the transaction's answer has not all that was asked for"));
        };
        let line = Line::read(&self.place, header, all.kvs(), oldest.kvs());
        self.warn_of_strangers(&line);
        let mut news = {
            let mut rivals = lock(&self.rivals);
            rivals.see(&line, own);
            rivals.missing()
        };
        news.retain(|lease| !missing.contains(lease));
        self.judge(connection, &news).await?;
        Ok((reads, line))
    }

    /// The first in the line, with its address as it was at that moment.
    pub(super) async fn leader_of(&self, connection: &Connection, line: &Line) -> Result<Option<Leader>, Failure> {
        let Some(first) = line.first() else { return Ok(None) };
        let key = self.place.key_of(first.lease);
        let address = match line.oldest.as_ref().filter(|oldest| oldest.key() == key.as_bytes()) {
            Some(record) => address(&key, record)?,
            // Junk is older.
            None => {
                let at = GetOptions::new().with_revision(line.revision);
                let answer = connection.client.kv_client().get(key.as_str(), Some(at)).await?;
                let record = answer.kvs().first().ok_or(Failure::Undecided("the leader's key was gone from a revision that had it"))?;
                address(&key, record)?
            }
        };
        Ok(Some(Leader { address, epoch: epoch(first.created) }))
    }

    /// Asks which `leases` of those that lost their keys have ended.
    pub(super) async fn judge(&self, connection: &Connection, leases: &[i64]) -> Result<(), Failure> {
        for &lease in leases {
            let answer = connection.client.lease_client().time_to_live(lease, None).await?;
            lock(&self.rivals).judge(lease, granted_time(answer.granted_ttl()), clock::now());
        }
        Ok(())
    }

    /// Whether a node whose key is gone may still think that it leads.
    pub(super) fn someone_lingers(&self) -> bool {
        !lock(&self.rivals).missing().is_empty()
    }

    fn warn_of_strangers(&self, line: &Line) {
        let mut known = lock(&self.strangers);
        for key in line.strangers.iter().filter(|key| !known.contains(*key)) {
            warn!(key, "ignoring a key in the election's place that is no candidate's");
        }
        *known = line.strangers.iter().cloned().collect();
    }
}

fn address(key: &str, record: &KeyValue) -> Result<Address, Failure> {
    let address = std::str::from_utf8(record.value()).ok().and_then(|text| text.parse().ok());
    address.ok_or_else(|| Failure::Store(StoreError::foreign(key, record.value())))
}
