//! Waiting for a change in the line.
//!
//! Every wait begins with a read and watches on from the revision of that read, so nothing can be missed between the
//! two, and neither compaction nor an emptied store leaves a watch on a revision that will not come. A watch that goes
//! silent is found by the connection's pings; before that, the caller asks again within a third of the TTL.

use std::time::Duration;

use etcd_client::{WatchOptions, WatchStream};

use super::endpoints::Connection;
use super::failure::{Failure, watch_canceled};
use super::line::Line;
use super::{Shared, lock};
use crate::store::{Leader, StoreError};

const OPERATION: &str = "watch the election";

/// How often the lease of a leader that lost its key is asked after. It is gone within milliseconds if its owner lives.
const LINGER_POLL: Duration = Duration::from_millis(25);

/// One watch on etcd, and the connection that it lives on.
struct Watch {
    stream: WatchStream,
    serial: u64,
    member: usize,
}

impl Shared {
    pub(super) async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        let (line, leader) = self.endpoints.call(OPERATION, |connection| async move { self.look(&connection).await }).await?;
        let own = self.session.lease().map(|granted| granted.lease);
        let first = line.first().is_some_and(|first| Some(first.lease) == own);
        if first && seen.is_none() && self.someone_lingers() {
            return self.until_nobody_lingers().await;
        }
        if leader.as_ref() != seen {
            return Ok(());
        }
        let keys = self.keys_to_watch(&line, own);
        let (keys, from) = (&keys, line.revision + 1);
        let watch = self.endpoints.call(OPERATION, |connection| async move { Watch::open(&connection, keys, from).await }).await?;
        let (serial, member) = (watch.serial, watch.member);
        watch.wait().await.map_err(|failure| {
            self.endpoints.suspect(serial);
            self.endpoints.error(OPERATION, member, failure)
        })
    }

    /// The leader's key, whose end everybody has to hear of; and the key of the one before us, which is all that moves us
    /// up. Everything, while there is no leader.
    fn keys_to_watch(&self, line: &Line, own: Option<i64>) -> Vec<(String, WatchOptions)> {
        let Some(leader) = line.first() else { return vec![(self.place.prefix(), WatchOptions::new().with_prefix())] };
        let mut leases = vec![leader.lease];
        let before = own.filter(|&own| line.has(own)).and_then(|_| line.ahead_of(own).last());
        leases.extend(before.map(|before| before.lease).filter(|&before| before != leader.lease));
        leases.into_iter().map(|lease| (self.place.key_of(lease), WatchOptions::new())).collect()
    }

    async fn until_nobody_lingers(&self) -> Result<(), StoreError> {
        loop {
            let missing = lock(&self.rivals).missing();
            if missing.is_empty() {
                return Ok(());
            }
            tokio::time::sleep(LINGER_POLL).await;
            let leases = &missing;
            self.endpoints.call(OPERATION, |connection| async move { self.judge(&connection, leases).await }).await?;
        }
    }
}

impl Watch {
    async fn open(connection: &Connection, keys: &[(String, WatchOptions)], from: i64) -> Result<Self, Failure> {
        let mut watches = connection.client.watch_client();
        let options = |options: &WatchOptions| Some(options.clone().with_start_revision(from));
        let ((key, first), others) = keys.split_first().ok_or(Failure::Undecided("there is nothing to watch"))?;
        let mut stream = watches.watch(key.as_str(), options(first)).await?;
        for (key, other) in others {
            stream.watch(key.as_str(), options(other)).await?;
        }
        Ok(Self { stream, serial: connection.serial, member: connection.member })
    }

    /// Returns at the first event, or when etcd no longer has the revision to watch from.
    async fn wait(mut self) -> Result<(), Failure> {
        loop {
            let Some(answer) = self.stream.message().await? else {
                return Err(Failure::Store(watch_canceled(OPERATION, "")));
            };
            if answer.canceled() && answer.compact_revision() == 0 {
                return Err(Failure::Store(watch_canceled(OPERATION, answer.cancel_reason())));
            }
            if answer.canceled() || !answer.events().is_empty() {
                return Ok(());
            }
        }
    }
}
