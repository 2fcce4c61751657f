//! Clients of a cluster: a steady mix of GET and POST through every node, and what became of each request.
//!
//! A client here belongs to one node and never moves on, and sends nothing twice: what it sees is what that node did.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::http::{Broken, Client, Method, PATIENCE, request, with};
use super::ledger::{Ledger, REQUEST_ID};
use super::place::Place;
use super::wait_for;

/// From one request through a node to the next one through it.
const SEND_EVERY: Duration = Duration::from_millis(20);

/// How many requests through one node may be under way: a machine that is slower than the load is not buried under it.
const MOST_RUNNING: usize = 32;

/// What became of one request.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) id: String,
    pub(crate) method: Method,
    pub(crate) through: SocketAddr,
    pub(crate) end: End,
}

/// How a request ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    /// The app answered.
    Answered { epoch: u64, held: bool },
    /// A node answered with an error of its own, or the app with one of its.
    Failed { status: StatusCode, reason: String, verdict: String, message: String },
    /// There was no answer.
    Broken(Broken),
}

impl Outcome {
    pub(crate) fn is_answered(&self) -> bool {
        matches!(self.end, End::Answered { .. })
    }

    /// # Panics
    /// When it is no answer of the app.
    pub(crate) fn assert_answered(&self) {
        assert!(self.is_answered(), "failed: {self:?}");
    }

    /// # Panics
    /// When it is neither an answer of the app nor a POST whose client was told that it cannot know.
    pub(crate) fn assert_survived(&self) {
        let unclear = self.method == Method::POST && self.is_maybe_executed();
        assert!(self.is_answered() || unclear, "failed: {self:?}");
    }

    pub(crate) fn is_refused(&self) -> bool {
        self.end == End::Broken(Broken::Refused)
    }

    /// Whether the client was told that it cannot know.
    pub(crate) fn is_maybe_executed(&self) -> bool {
        matches!(&self.end, End::Failed { verdict, .. } if verdict == "maybe-executed")
    }
}

/// A load that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct Load {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    stop: CancellationToken,
    sending: JoinSet<()>,
}

impl Load {
    /// Sends through all `nodes`, starting now. Each request takes the app `work` milliseconds.
    pub(crate) fn start(nodes: impl IntoIterator<Item: Into<Place>>, work: u64) -> Self {
        Self::start_every(SEND_EVERY, nodes, work)
    }

    /// The same at a slower pace, where all that is sent will wait for long and then be let go at once.
    pub(crate) fn gentle(nodes: impl IntoIterator<Item: Into<Place>>, work: u64) -> Self {
        Self::start_every(SEND_EVERY * 3, nodes, work)
    }

    fn start_every(every: Duration, nodes: impl IntoIterator<Item: Into<Place>>, work: u64) -> Self {
        let (outcomes, stop) = (Arc::<Mutex<Vec<Outcome>>>::default(), CancellationToken::new());
        let mut sending = JoinSet::new();
        for (number, node) in nodes.into_iter().enumerate() {
            sending.spawn(send(number, node.into(), every, work, Arc::clone(&outcomes), stop.clone()));
        }
        Self { outcomes, stop, sending }
    }

    /// How many requests have been answered so far.
    pub(crate) fn answered(&self) -> usize {
        self.outcomes.lock().expect("no panic under this lock").iter().filter(|outcome| outcome.is_answered()).count()
    }

    /// Waits until `more` more requests have been answered.
    pub(crate) async fn answers(&self, more: usize) {
        let goal = self.answered() + more;
        wait_for(&format!("{more} more answers"), PATIENCE, async || match self.answered() {
            answered if answered >= goal => Ok(()),
            answered => Err(answered),
        })
        .await;
    }

    /// Stops sending, waits for what is on its way, and returns all outcomes.
    pub(crate) async fn stop(mut self) -> Vec<Outcome> {
        self.stop.cancel();
        while let Some(ended) = self.sending.join_next().await {
            ended.expect("the load ran to its end");
        }
        std::mem::take(&mut self.outcomes.lock().expect("no panic under this lock"))
    }
}

/// Requests that run at the app when something happens to a node: GETs and POSTs through every node, one as many as the
/// other.
#[derive(Debug)]
pub(crate) struct Running(JoinSet<Outcome>);

impl Running {
    /// Sends them, and returns once all of them have reached the app, which takes `work` milliseconds for each.
    pub(crate) async fn start(nodes: impl IntoIterator<Item: Into<Place>>, work: u64, ledger: &Ledger) -> Self {
        const EACH: usize = 6;
        let mut sending = JoinSet::new();
        let mut ids = Vec::new();
        for place in nodes {
            let place: Place = place.into();
            let node = place.address;
            for number in 0..EACH {
                for method in [Method::GET, Method::POST] {
                    let id = format!("running-{node}-{method}-{number}");
                    ids.push(id.clone());
                    let client = Client::new(place.clone());
                    sending.spawn(async move { one(&client, node, method, id, work).await });
                }
            }
        }
        wait_for("all requests to run", PATIENCE, async || match ids.iter().filter(|id| ledger.count(id) == 0).count() {
            0 => Ok(()),
            missing => Err(missing),
        })
        .await;
        Self(sending)
    }

    /// What became of them.
    pub(crate) async fn outcomes(self) -> Vec<Outcome> {
        self.0.join_all().await
    }
}

async fn send(number: usize, place: Place, every: Duration, work: u64, outcomes: Arc<Mutex<Vec<Outcome>>>, stop: CancellationToken) {
    let node = place.address;
    let client = Arc::new(Client::new(place));
    let mut running = JoinSet::new();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut count = 0_u64;
    loop {
        tokio::select! {
            _ = ticks.tick(), if running.len() < MOST_RUNNING => count += 1,
            Some(_) = running.join_next() => continue,
            () = stop.cancelled() => break,
        }
        let method = if count.is_multiple_of(2) { Method::GET } else { Method::POST };
        let (client, outcomes) = (Arc::clone(&client), Arc::clone(&outcomes));
        running.spawn(async move {
            let outcome = one(&client, node, method, format!("{number}-{count}"), work).await;
            outcomes.lock().expect("no panic under this lock").push(outcome);
        });
    }
    while running.join_next().await.is_some() {}
}

async fn one(client: &Client, through: SocketAddr, method: Method, id: String, work: u64) -> Outcome {
    let target = format!("/slow?ms={work}");
    let body = if method == Method::POST { "an order" } else { "" };
    let answer = client.send(with(request(method.clone(), &target, body), REQUEST_ID, &id)).await;
    let end = match answer {
        Ok(answer) if answer.status == StatusCode::OK => {
            End::Answered { epoch: answer.epoch().unwrap_or(0), held: answer.held().is_some() }
        }
        Ok(answer) => {
            let said = serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap_or_default();
            let text = |key: &str| said[key].as_str().unwrap_or_default().to_owned();
            End::Failed { status: answer.status, reason: text("reason"), verdict: text("verdict"), message: text("message") }
        }
        Err(broken) => End::Broken(broken),
    };
    Outcome { id, method, through, end }
}
