//! The demo's clients: a steady stream of GET and POST requests to every node, whatever becomes of the earlier ones.
//!
//! They behave as clients with the addresses of all nodes do. Where a node refuses the connection, nothing was sent, so
//! they *move on* to the next node. Where the connection is cut under a running request, they move on with a GET; a POST
//! may have been executed, so it is not sent again but counted as failed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde::Deserialize;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::app::REQUEST_ID;
use super::client::{Broken, Client};

/// From one request to a node to the next one to it.
const SEND_EVERY: Duration = Duration::from_millis(20);
/// Longer than a node holds a request, so that its own answer comes first.
const PATIENCE: Duration = Duration::from_secs(12);

/// How many requests a second that makes for `nodes` nodes.
pub(super) fn per_second(nodes: usize) -> u128 {
    1_000 / SEND_EVERY.as_millis() * nodes as u128
}

/// What became of the requests so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    pub(super) answered: u64,
    /// Those of the answered that waited for a primary.
    pub(super) held: u64,
    pub(super) moved_on: u64,
    /// How many failed, by cause.
    pub(super) failed: BTreeMap<String, u64>,
    pub(super) failed_gets: u64,
    /// POSTs that failed without having been executed for sure, or not executed for sure.
    pub(super) maybe_executed: Vec<String>,
    last_answer: Option<Instant>,
    longest_silence: Duration,
}

impl Tally {
    /// How many are on their way or waiting.
    pub(super) fn in_flight(&self) -> u64 {
        self.sent - self.answered - self.failures()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failed.values().sum()
    }

    fn answer(&mut self, held: bool) {
        let now = Instant::now();
        let silence = now - self.last_answer.replace(now).unwrap_or(now);
        self.longest_silence = self.longest_silence.max(silence);
        self.answered += 1;
        self.held += u64::from(held);
    }

    fn fail(&mut self, order: &Order, failure: Failure) {
        *self.failed.entry(failure.cause).or_default() += 1;
        self.failed_gets += u64::from(order.method == Method::GET);
        if failure.maybe_executed && order.method == Method::POST {
            self.maybe_executed.push(order.id.clone());
        }
    }
}

/// Counts that the clients write and the story reads.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(Arc<Mutex<Tally>>);

impl Counts {
    pub(super) fn now(&self) -> Tally {
        self.lock().clone()
    }

    /// Forgets the longest silence, so that the next one can be told from it.
    pub(super) fn measure_silence(&self) {
        self.lock().longest_silence = Duration::ZERO;
    }

    /// The longest time without any answer since [`measure_silence`](Self::measure_silence), up to the newest answer.
    pub(super) fn longest_silence(&self) -> Duration {
        self.lock().longest_silence
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Tally> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request, whichever nodes it is tried at.
struct Order {
    method: Method,
    id: String,
}

impl Order {
    fn request(&self) -> Request<Full<Bytes>> {
        let body = if self.method == Method::POST { Bytes::from_static(b"one of those, please") } else { Bytes::new() };
        Request::builder()
            .method(&self.method)
            .uri(if self.method == Method::POST { "/orders" } else { "/" })
            .header(REQUEST_ID, &self.id)
            .body(Full::new(body))
            .expect("a valid request")
    }
}

/// Why a client has no answer of the app.
struct Failure {
    cause: String,
    maybe_executed: bool,
}

/// Sends to all `nodes` until `stop`, then waits for what is still on its way.
pub(super) async fn send(nodes: Vec<SocketAddr>, counts: Counts, stop: CancellationToken) {
    let clients = nodes.into_iter().map(Client::new).collect::<Vec<_>>();
    let clients = Arc::<[Client]>::from(clients);
    let mut running = JoinSet::new();
    let mut ticks = interval(SEND_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for number in 0_u64.. {
        tokio::select! {
            _ = ticks.tick() => {}
            () = stop.cancelled() => break,
        }
        for first in 0..clients.len() {
            let method = if (number + first as u64).is_multiple_of(2) { Method::GET } else { Method::POST };
            let order = Order { method, id: format!("{number}-{first}") };
            counts.lock().sent += 1;
            running.spawn(one(Arc::clone(&clients), first, order, counts.clone()));
        }
        while running.try_join_next().is_some() {}
    }
    while running.join_next().await.is_some() {}
}

async fn one(clients: Arc<[Client]>, first: usize, order: Order, counts: Counts) {
    let mut tried = 0;
    let failure = loop {
        match clients[(first + tried) % clients.len()].exchange(order.request(), PATIENCE).await {
            Ok(response) if response.status() == StatusCode::OK => {
                return counts.lock().answer(response.headers().contains_key("server-timing"));
            }
            Ok(response) => break refusal(&response),
            Err(Broken::Cut) if order.method == Method::POST => {
                break Failure { cause: "cut with its node (maybe-executed)".to_owned(), maybe_executed: true };
            }
            Err(Broken::Cut | Broken::Refused) => {}
        }
        tried += 1;
        if tried == clients.len() {
            break Failure { cause: "no node accepts connections".to_owned(), maybe_executed: false };
        }
        counts.lock().moved_on += 1;
    };
    counts.lock().fail(&order, failure);
}

/// What a node's own error says of the request.
fn refusal(response: &Response<Bytes>) -> Failure {
    #[derive(Deserialize)]
    struct Said {
        reason: String,
        verdict: String,
    }
    match serde_json::from_slice::<Said>(response.body()) {
        Ok(Said { reason, verdict }) => Failure { cause: format!("{reason} ({verdict})"), maybe_executed: verdict == "maybe-executed" },
        Err(_) => Failure { cause: format!("status {}", response.status().as_u16()), maybe_executed: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_s_error_is_a_failure_by_reason_and_verdict() {
        let response = |body: &'static str| Response::builder().status(502).body(Bytes::from(body)).unwrap();
        let said = refusal(&response(r#"{"message":"m","reason":"upstream-failed","verdict":"maybe-executed","epoch":3}"#));
        assert_eq!((said.cause.as_str(), said.maybe_executed), ("upstream-failed (maybe-executed)", true));
        assert_eq!(refusal(&response("oops")).cause, "status 502");
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_silence_is_that_between_two_answers() {
        let counts = Counts::default();
        for pause in [10, 700, 20] {
            tokio::time::advance(Duration::from_millis(pause)).await;
            counts.lock().answer(false);
        }
        assert_eq!(counts.longest_silence(), Duration::from_millis(700));
        counts.measure_silence();
        tokio::time::advance(Duration::from_millis(30)).await;
        counts.lock().answer(true);
        assert_eq!((counts.longest_silence(), counts.now().held), (Duration::from_millis(30), 1));
    }
}
