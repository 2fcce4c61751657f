//! One client of the store: its lock, and its lease.

use std::fmt;
use std::future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::time::{self, Instant};

use super::faults::Reach;
use super::table::Table;
use super::{Request, Server};
use crate::node::Node;
use crate::store::contract::{Attempt, Epoch, Leader, Lease, Lock, Renewal, StoreError};

pub(super) struct MemoryLock {
    server: Arc<Server>,
    node: Node,
    ttl: Duration,
}

impl MemoryLock {
    pub(super) fn new(server: Arc<Server>, node: Node, ttl: Duration) -> Self {
        Self { server, node, ttl }
    }
}

/// A request on its way.
struct Sent<T> {
    due: Instant,
    answer: oneshot::Receiver<T>,
    /// How long the reply takes; never, if it will be lost.
    reply_after: Option<Duration>,
}

/// One round trip: sends `effect`, and returns what it returned once the reply is here.
///
/// # Cancel safety
/// Once sent, `effect` takes place whether or not anybody waits for the reply.
async fn call<T: Send + 'static>(
    server: &Server,
    node: &Node,
    operation: &'static str,
    effect: impl FnOnce(&mut Table, Instant) -> T + Send + 'static,
) -> Result<T, StoreError> {
    let Some(sent) = send(server, node, operation, effect)? else { return future::pending().await };
    if sent.due > Instant::now() {
        time::sleep_until(sent.due).await;
    }
    drop(server.state());
    let answer = sent.answer.await.map_err(|_| StoreError::unavailable(operation, "connection reset"))?;
    let Some(reply_after) = sent.reply_after else { return future::pending().await };
    // At least one point at which the caller may go away between the effect and the reply.
    tokio::task::yield_now().await;
    if !reply_after.is_zero() {
        time::sleep(reply_after).await;
    }
    let reach = server.state().link(node.boot).reach;
    match reach {
        Reach::Open => Ok(answer),
        Reach::Cut => future::pending().await,
        Reach::Refused => Err(StoreError::unavailable(operation, "connection reset")),
    }
}

/// Puts a request on the wire; `None` if it vanishes there.
fn send<T: Send + 'static>(
    server: &Server,
    node: &Node,
    operation: &'static str,
    effect: impl FnOnce(&mut Table, Instant) -> T + Send + 'static,
) -> Result<Option<Sent<T>>, StoreError> {
    let mut state = server.state();
    let link = state.link(node.boot);
    match link.reach {
        Reach::Cut => return Ok(None),
        Reach::Open if state.running => {}
        Reach::Open | Reach::Refused => return Err(StoreError::unavailable(operation, "connection refused")),
    }
    let due = Instant::now() + draw(&mut state.rng, &link.delay);
    let lost = state.rng.f64() < link.lost_replies;
    let reply_after = (!lost).then(|| draw(&mut state.rng, &link.reply_delay));
    let (reply, answer) = oneshot::channel();
    let arrive = Box::new(move |table: &mut Table, at| drop(reply.send(effect(table, at))));
    state.requests.push(Request { due, arrive });
    drop(state);
    // Whoever waits for a change must learn when the request will arrive.
    server.touched.notify_waiters();
    Ok(Some(Sent { due, answer, reply_after }))
}

fn draw(rng: &mut fastrand::Rng, range: &Range<Duration>) -> Duration {
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("a delay is shorter than centuries");
    let span = nanos(range.end.saturating_sub(range.start));
    range.start + Duration::from_nanos(if span == 0 { 0 } else { rng.u64(..span) })
}

#[async_trait]
impl Lock for MemoryLock {
    async fn acquire(&self) -> Result<Attempt, StoreError> {
        let (node, ttl) = (self.node.clone(), self.ttl);
        let decision = call(&self.server, &self.node, "acquire", move |table, at| table.acquire(&node, ttl, at)).await??;
        Ok(decision.attempt(|epoch| {
            let (server, node) = (Arc::clone(&self.server), self.node.clone());
            Box::new(MemoryLease { server, node, ttl: self.ttl, epoch })
        }))
    }

    async fn withdraw(&self) -> Result<(), StoreError> {
        let boot = self.node.boot;
        call(&self.server, &self.node, "withdraw", move |table, at| table.withdraw(boot, at)).await
    }

    async fn leader(&self) -> Result<Option<Leader>, StoreError> {
        call(&self.server, &self.node, "leader", |table, at| table.leader(at)).await?
    }

    async fn changed(&self, seen: Option<&Leader>) -> Result<(), StoreError> {
        let early = {
            let mut state = self.server.state();
            let probability = state.link(self.node.boot).spurious;
            (state.rng.f64() < probability).then(|| Instant::now() + draw(&mut state.rng, &(Duration::ZERO..self.ttl / 2)))
        };
        loop {
            let mut touched = std::pin::pin!(self.server.touched.notified());
            touched.as_mut().enable();
            let next = {
                let state = self.server.state();
                let reach = state.link(self.node.boot).reach;
                if !state.running || reach == Reach::Refused {
                    return Err(StoreError::unavailable("watch", "connection refused"));
                }
                let now = Instant::now();
                if reach == Reach::Open && (state.table.leader(now)?.as_ref() != seen || early.is_some_and(|early| early <= now)) {
                    return Ok(());
                }
                state.next_event().into_iter().chain(early).filter(|event| *event > now).min()
            };
            match next {
                Some(next) => drop(time::timeout_at(next, touched).await),
                None => touched.await,
            }
        }
    }
}

impl fmt::Debug for MemoryLock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemoryLock({})", self.node.address)
    }
}

struct MemoryLease {
    server: Arc<Server>,
    node: Node,
    ttl: Duration,
    epoch: Epoch,
}

#[async_trait]
impl Lease for MemoryLease {
    fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn ttl(&self) -> Duration {
        self.ttl
    }

    async fn renew(&mut self) -> Result<Renewal, StoreError> {
        let (boot, epoch, ttl) = (self.node.boot, self.epoch, self.ttl);
        call(&self.server, &self.node, "renew", move |table, at| table.renew(boot, epoch, ttl, at)).await
    }

    async fn release(&mut self) -> Result<(), StoreError> {
        let (boot, epoch) = (self.node.boot, self.epoch);
        call(&self.server, &self.node, "release", move |table, _| table.release(boot, epoch)).await
    }
}

impl fmt::Debug for MemoryLease {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "MemoryLease({}, epoch {})", self.node.address, self.epoch)
    }
}
