//! The lock in etcd v3, kept as etcd's own election recipe does.
//!
//! Every candidate has one key, `PREFIX/SERVICE/leader/LEASE` (in hex), which lives under that lease and holds its
//! address and nothing else. The oldest key leads, and the revision that created it is the epoch. So `etcdctl elect` and
//! any client of the recipe can follow the election or take part in it.
//!
//! A key goes with its lease, which etcd's own clock ends. What etcd does not promise is handled here: a key may be
//! deleted while its owner lives ([`rivals`]), a member may be silent ([`endpoints`]), and a heartbeat may be confirmed
//! by a leader that etcd has already replaced ([`Queue::agree`]).

mod access;
mod endpoints;
mod failure;
mod line;
mod rivals;
mod session;
mod tenure;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, KeyValue, PutOptions, Txn, TxnOp, TxnOpResponse};
use tracing::warn;

use self::access::Access;
use self::endpoints::{Connection, Endpoints};
use self::failure::Failure;
use self::line::{Candidate, Line, Place};
use self::rivals::Rivals;
use self::session::{Beat, Granted, Session};
use self::tenure::Tenure;
use super::{Attempt, Epoch, Leader, Lock, LockConfig, OpenError, StoreError, StoreOptions};
use crate::clock;
use crate::node::Address;

/// The lock of one node at the cluster of these `endpoints`. Nothing is sent before its first call.
///
/// # Errors
/// [`OpenError`] when a password or certificate cannot be read.
pub(super) fn open(endpoints: &[Address], options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
    let access = Access::new(endpoints, options)?;
    Ok(Arc::new(Queue::new(access, config)))
}

/// One node's view of the line of candidates, and its own place in it.
#[derive(Clone)]
struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    place: Place,
    address: Address,
    ttl: Duration,
    endpoints: Endpoints,
    session: Session,
    rivals: Mutex<Rivals>,
    /// The leader as last read: its value need not be asked for again before its key is written again.
    leader: Mutex<Option<(Candidate, Address)>>,
    /// Keys that were warned of, while they are there.
    strangers: Mutex<HashSet<String>>,
}

impl Queue {
    fn new(access: Access, config: LockConfig) -> Self {
        let place = Place::new(config.election.key());
        let shared = Shared {
            endpoints: Endpoints::new(access, place.clone(), config.call_timeout),
            place,
            address: config.node.address,
            ttl: config.ttl,
            session: Session::default(),
            rivals: Mutex::default(),
            leader: Mutex::default(),
            strangers: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}

#[async_trait]
impl Lock for Queue {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let shared = &*self.shared;
        let outcome = shared.endpoints.call("acquire", |connection| async move { shared.join(&connection).await }).await?;
        Ok(match outcome {
            Outcome::First { granted, created } => Attempt::Held(Box::new(Tenure::new(self.clone(), granted, created))),
            Outcome::Behind(leader) => Attempt::Taken(leader),
        })
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        let shared = &*self.shared;
        shared.session.spend(None);
        shared.endpoints.call("withdraw", |connection| async move { shared.session.settle(&connection).await }).await
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        let shared = &*self.shared;
        let (_, leader) = shared.endpoints.call("read the leader", |connection| async move { shared.look(&connection).await }).await?;
        Ok(leader)
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        self.shared.changed(seen).await
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = &*self.shared;
        out.debug_struct("Queue").field("place", &shared.place.as_str()).field("endpoints", &shared.endpoints).finish_non_exhaustive()
    }
}

/// Where joining the line has put us.
enum Outcome {
    First { granted: Granted, created: i64 },
    Behind(Option<Leader>),
}

impl Shared {
    /// Takes or keeps our place in the line. We lead only after having read our own key, under our own live lease, as the
    /// first, with nobody left who may still think that it leads.
    async fn join(&self, connection: &Connection) -> Result<Outcome, Failure> {
        self.session.settle(connection).await?;
        let (granted, beat) = self.live_lease(connection).await?;
        let (own, line) = self.enqueue(connection, granted.lease).await?;
        self.heed(connection, &line, Some(granted.lease)).await?;
        if let Some(beat) = beat {
            Self::agree(beat, line.term)?;
        }
        let own = own.filter(|own| self.is_ours(own, granted.lease));
        let first = line.first().is_some_and(|first| first.lease == granted.lease);
        match own {
            None => {
                warn!(key = self.place.key_of(granted.lease), "somebody changed this candidate's key: joining the line anew");
                self.session.spend(Some(granted.lease));
                Ok(Outcome::Behind(None))
            }
            Some(_) if first && self.someone_lingers() => Ok(Outcome::Behind(None)),
            Some(own) if first => Ok(Outcome::First { granted, created: own.create_revision() }),
            Some(_) => Ok(Outcome::Behind(self.leader_of(connection, &line).await?)),
        }
    }

    /// Our lease, just confirmed or just granted; with the beat that confirmed it.
    async fn live_lease(&self, connection: &Connection) -> Result<(Granted, Option<Beat>), Failure> {
        if let Some(granted) = self.session.lease() {
            match self.session.beat(connection, granted.lease).await? {
                beat @ Beat::Alive { .. } => return Ok((granted, Some(beat))),
                Beat::Gone => self.session.forget(granted.lease),
            }
        }
        Ok((self.session.grant(connection, self.ttl).await?, None))
    }

    /// Creates our key if it is absent, and reads it and the line, in one transaction. Our key is never written but under
    /// its lease, and never rewritten.
    async fn enqueue(&self, connection: &Connection, lease: i64) -> Result<(Option<KeyValue>, Line), Failure> {
        let key = self.place.key_of(lease);
        let read = [TxnOp::get(key.as_str(), None), TxnOp::get(self.place.prefix(), Some(Line::request()))];
        let put = TxnOp::put(key.as_str(), self.address.as_str(), Some(PutOptions::new().with_lease(lease)));
        let create = [&[put], read.as_slice()].concat();
        let absent = Compare::create_revision(key.as_str(), CompareOp::Equal, 0);
        let answer = connection.client.kv_client().txn(Txn::new().when([absent]).and_then(create).or_else(read)).await?;
        let reads = answer.op_responses().into_iter().filter_map(|operation| match operation {
            TxnOpResponse::Get(read) => Some(read),
            TxnOpResponse::Put(_) | TxnOpResponse::Delete(_) | TxnOpResponse::Txn(_) => None,
        });
        let [mut own, line] = <[GetResponse; 2]>::try_from(reads.collect::<Vec<_>>())
            .map_err(|_| Failure::Undecided("the transaction's answer has not the two reads that were asked for"))?;
        let header = answer.header().ok_or(Failure::Undecided("the answer has no revision"))?;
        Ok((own.take_kvs().pop(), Line::read(&self.place, header, line.kvs())))
    }

    /// Reads the line and who leads it.
    async fn look(&self, connection: &Connection) -> Result<(Line, Option<Leader>), Failure> {
        let answer = connection.client.kv_client().get(self.place.prefix(), Some(Line::request())).await?;
        let header = answer.header().ok_or(Failure::Undecided("the answer has no revision"))?;
        let line = Line::read(&self.place, header, answer.kvs());
        self.heed(connection, &line, self.session.lease().map(|granted| granted.lease)).await?;
        let leader = self.leader_of(connection, &line).await?;
        Ok((line, leader))
    }

    /// The first in the line, with its address as it was at that moment.
    async fn leader_of(&self, connection: &Connection, line: &Line) -> Result<Option<Leader>, Failure> {
        let Some(first) = line.first() else { return Ok(None) };
        let epoch = Epoch(u64::try_from(first.created).unwrap_or(0));
        let known = lock(&self.leader).clone().filter(|(candidate, _)| *candidate == first);
        if let Some((_, address)) = known {
            return Ok(Some(Leader { address, epoch }));
        }
        let key = self.place.key_of(first.lease);
        let at = GetOptions::new().with_revision(line.revision);
        let answer = connection.client.kv_client().get(key.as_str(), Some(at)).await?;
        let record = answer.kvs().first().ok_or(Failure::Undecided("the leader's key was gone from a revision that had it"))?;
        let address = std::str::from_utf8(record.value()).ok().and_then(|text| text.parse::<Address>().ok());
        let address = address.ok_or_else(|| Failure::Store(StoreError::foreign(key, record.value())))?;
        *lock(&self.leader) = Some((first, address.clone()));
        Ok(Some(Leader { address, epoch }))
    }

    /// Takes note of what else a line shows: junk, and who has left it without having ended.
    async fn heed(&self, connection: &Connection, line: &Line, own: Option<i64>) -> Result<(), Failure> {
        self.warn_of_strangers(line);
        let missing = {
            let mut rivals = lock(&self.rivals);
            rivals.see(line, own);
            rivals.missing_from(line)
        };
        self.judge(connection, &missing).await
    }

    /// Asks which `leases` of those that lost their keys have ended.
    async fn judge(&self, connection: &Connection, leases: &[i64]) -> Result<(), Failure> {
        for &lease in leases {
            let answer = connection.client.lease_client().time_to_live(lease, None).await?;
            // Of a lease that etcd does not know it says that it was granted no time.
            let granted = u64::try_from(answer.granted_ttl()).ok().filter(|&seconds| seconds > 0).map(Duration::from_secs);
            lock(&self.rivals).judge(lease, granted, clock::now());
        }
        Ok(())
    }

    fn someone_lingers(&self) -> bool {
        !lock(&self.rivals).lingering().is_empty()
    }

    fn warn_of_strangers(&self, line: &Line) {
        let mut known = lock(&self.strangers);
        for key in line.strangers.iter().filter(|key| !known.contains(*key)) {
            warn!(key, "ignoring a key in the election's place that is no candidate's");
        }
        *known = line.strangers.iter().cloned().collect();
    }

    fn is_ours(&self, record: &KeyValue, lease: i64) -> bool {
        record.lease() == lease && record.value() == self.address.as_str().as_bytes()
    }

    /// Heartbeats do not go through etcd's log: a leader that etcd has replaced without its knowledge confirms one just
    /// the same. A read in the same call does, and shows by the term whether that had happened.
    fn agree(beat: Beat, term: u64) -> Result<(), Failure> {
        match beat {
            Beat::Alive { term: then } if then != term => Err(Failure::Undecided("etcd changed its own leader during the call")),
            Beat::Alive { .. } | Beat::Gone => Ok(()),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().expect("no holder of this lock can panic")
}
