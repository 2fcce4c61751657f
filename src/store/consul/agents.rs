//! The way to Consul: the agents of the URL, one at a time, and the connections to the present one.
//!
//! Any agent reaches the whole cluster, so a request that brought no answer is sent to the next one, once to each.
//! Requests must be harmless to repeat: one that brought no answer may have taken effect.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use super::access::Access;
use super::answer::Answer;
use super::ask::Ask;
use super::failure::Failure;
use super::lock;
use crate::node::Address;
use crate::store::http::Line;
use crate::store::{Cause, Secret};

/// Goes to nobody, for nobody is there.
const UNWANTED: Failure = Failure::Undecided("nobody waits for the answer any more");

/// More than twice what the largest value of Consul (512 KiB) takes in base64, and more than we read of anybody.
const MOST_OF_A_BODY: usize = 1536 * 1024;

/// Calls ask up to three things at once.
const MOST_IDLE: usize = 4;

pub(super) struct Agents {
    way: Arc<Way>,
    /// Requests underway. They end with this value.
    underway: Mutex<JoinSet<()>>,
}

struct Way {
    access: Access,
    agents: Vec<Address>,
    /// How long opening a connection may take, and how long one answer.
    limit: Duration,
    present: Mutex<Present>,
}

#[derive(Default)]
struct Present {
    agent: usize,
    /// Numbers the times that connections were given up, so that late news of an earlier one is known for what it is.
    serial: u64,
    idle: Vec<Line>,
}

/// Whose turn it is, and since when.
#[derive(Clone, Copy)]
struct Turn {
    agent: usize,
    serial: u64,
}

impl Agents {
    /// `call_timeout` is how long the caller lets one call take.
    pub(super) fn new(access: Access, agents: &[Address], call_timeout: Duration) -> Self {
        let way = Way { access, agents: agents.to_owned(), limit: call_timeout, present: Mutex::default() };
        Self { way: Arc::new(way), underway: Mutex::default() }
    }

    /// Asks the present agent and, while no answer comes that decides anything, each of the others once.
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request that was sent by then is seen to its end within the time limit of one answer,
    /// and one that was not is never sent; so that the next call finds a connection that is open, or hears of an agent's
    /// silence without having waited for it.
    pub(super) async fn ask(&self, ask: Ask) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        let way = Arc::clone(&self.way);
        {
            let mut underway = lock(&self.underway);
            while underway.try_join_next().is_some() {}
            underway.spawn(async move {
                let outcome = way.ask(&ask, way.limit, || !reply.is_closed()).await;
                reply.send(outcome).ok();
            });
        }
        answer.await.unwrap_or(Err(Failure::Undecided("the program is ending")))
    }

    /// Asks what is answered only when something has changed, or after `patience`.
    ///
    /// # Cancel safety
    /// May be dropped at any time, and then hangs up.
    pub(super) async fn listen(&self, ask: &Ask, patience: Duration) -> Result<Answer, Failure> {
        self.way.ask(ask, self.way.limit + patience, || true).await
    }
}

impl Way {
    async fn ask(&self, ask: &Ask, limit: Duration, is_wanted: impl Fn() -> bool) -> Result<Answer, Failure> {
        let mut untried = self.agents.len() - 1;
        let mut may_sign_in = true;
        loop {
            if !is_wanted() {
                return Err(UNWANTED);
            }
            let turn = self.turn();
            let agent = &self.agents[turn.agent];
            let token = self.access.token();
            let outcome = self.attempt(turn, ask, token.as_ref(), limit, &is_wanted).await;
            let failure = match outcome.and_then(|answer| answer.judge(&ask.method, agent)) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            match &failure {
                Failure::Unanswered { why, .. } => {
                    self.suspect(turn);
                    if untried == 0 {
                        return Err(failure);
                    }
                    debug!(%agent, %why, "asking the next of Consul's agents");
                    untried -= 1;
                }
                Failure::Refused { .. } if may_sign_in && self.access.has_another_than(token.as_ref()) => may_sign_in = false,
                Failure::Refused { .. } | Failure::Ttl { .. } | Failure::Undecided(_) | Failure::Foreign { .. } => return Err(failure),
            }
        }
    }

    /// One agent's answer, whatever it is, over a connection that was used before or else over a new one.
    async fn attempt(
        &self,
        turn: Turn,
        ask: &Ask,
        token: Option<&Secret>,
        limit: Duration,
        is_wanted: &impl Fn() -> bool,
    ) -> Result<Answer, Failure> {
        let agent = &self.agents[turn.agent];
        let request = || ask.to(agent, token);
        let silent = |_| Failure::unanswered(agent, format!("no answer within {limit:?}"));
        if let Some(mut line) = self.idle(turn) {
            // One that broke may have been closed long before, which says nothing about the agent.
            if let Ok(answer) = timeout(limit, line.ask(request()?, MOST_OF_A_BODY)).await.map_err(silent)? {
                self.keep(turn, line);
                return Ok(Answer::new(answer));
            }
        }
        let opened = timeout(self.limit, self.open(agent)).await;
        let opened = opened.map_err(|_| Failure::unanswered(agent, format!("no connection within {:?}", self.limit)))?;
        let mut line = opened.map_err(|why| Failure::unanswered(agent, why))?;
        if !is_wanted() {
            self.keep(turn, line);
            return Err(UNWANTED);
        }
        let answer = timeout(limit, line.ask(request()?, MOST_OF_A_BODY)).await.map_err(silent)?;
        let answer = answer.map_err(|why| Failure::unanswered(agent, why))?;
        self.keep(turn, line);
        Ok(Answer::new(answer))
    }

    /// Connects to `agent`. Not bounded: the caller is.
    async fn open(&self, agent: &Address) -> Result<Line, Cause> {
        let stream = TcpStream::connect((agent.host(), agent.port())).await?;
        Line::over(stream, self.access.tls.as_ref().map(|tls| (tls, agent.host()))).await
    }

    fn turn(&self) -> Turn {
        let present = lock(&self.present);
        Turn { agent: present.agent, serial: present.serial }
    }

    fn idle(&self, turn: Turn) -> Option<Line> {
        let mut present = lock(&self.present);
        if present.serial == turn.serial { present.idle.pop() } else { None }
    }

    fn keep(&self, turn: Turn, line: Line) {
        let mut present = lock(&self.present);
        if present.serial == turn.serial && present.idle.len() < MOST_IDLE && line.is_open() {
            present.idle.push(line);
        }
    }

    /// Gives up the connections of this turn, and the agent where there is another one.
    fn suspect(&self, turn: Turn) {
        let mut present = lock(&self.present);
        if present.serial == turn.serial {
            *present = Present { agent: (turn.agent + 1) % self.agents.len(), serial: turn.serial + 1, idle: Vec::new() };
        }
    }
}

impl fmt::Debug for Agents {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.way.agents).finish()
    }
}
