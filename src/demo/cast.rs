//! What the nodes say of themselves: `/info` of each, asked often enough that no change of role is missed for long.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::client::Client;

/// From one look at a node to the next.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long a node may take to say what it is.
const PATIENCE: Duration = Duration::from_millis(500);

/// One node's state as last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum State {
    /// It does not answer.
    Down,
    /// What it says of itself.
    Up {
        /// Its role, in the contract's words.
        role: String,
        /// The epoch that it serves or follows; 0 while it knows of none.
        epoch: u64,
    },
}

impl State {
    /// The state in one word.
    pub(super) fn word(&self) -> &str {
        match self {
            Self::Down => "down",
            Self::Up { role, .. } => role,
        }
    }

    /// The epoch that a primary serves.
    pub(super) fn serves(&self) -> Option<u64> {
        match self {
            Self::Up { role, epoch } if role == "primary" => Some(*epoch),
            Self::Up { .. } | Self::Down => None,
        }
    }
}

/// All nodes' states, in the order of the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cast(pub(super) Vec<State>);

impl Cast {
    /// Which node is primary and under which epoch, where exactly one is.
    pub(super) fn primary(&self) -> Option<(usize, u64)> {
        let mut primaries = self.0.iter().enumerate().filter_map(|(index, state)| Some((index, state.serves()?)));
        let first = primaries.next();
        first.filter(|_| primaries.next().is_none())
    }

    /// Whether one node is primary and all the other nodes follow it, except those that are down.
    pub(super) fn is_settled(&self, nodes_up: usize) -> bool {
        let Some((_, served)) = self.primary() else { return false };
        let following = |state: &&State| matches!(state, State::Up { role, epoch } if role == "replica" && *epoch == served);
        self.0.iter().filter(following).count() + 1 == nodes_up
    }
}

/// Looks at all nodes, and keeps the newest [`Cast`], until it is dropped.
pub(super) struct Watch {
    /// The newest states.
    pub(super) seen: watch::Receiver<Cast>,
    _looking: JoinSet<()>,
}

impl Watch {
    pub(super) fn start(addresses: &[SocketAddr]) -> Self {
        let (sender, seen) = watch::channel(Cast(vec![State::Down; addresses.len()]));
        let mut looking = JoinSet::new();
        for (index, address) in addresses.iter().enumerate() {
            looking.spawn(look(index, Client::new(*address), sender.clone()));
        }
        Self { seen, _looking: looking }
    }
}

async fn look(index: usize, client: Client, newest: watch::Sender<Cast>) {
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let state = ask(&client).await;
        newest.send_if_modified(|cast| std::mem::replace(&mut cast.0[index], state.clone()) != state);
    }
}

async fn ask(client: &Client) -> State {
    let request = Request::get("/info").body(Full::default()).expect("a valid request");
    match client.exchange(request, PATIENCE).await {
        Ok(response) if response.status() == StatusCode::OK => parse(response.body()),
        Ok(_) | Err(_) => State::Down,
    }
}

fn parse(body: &Bytes) -> State {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase")]
    struct Info {
        role: String,
        epoch: u64,
    }
    match serde_json::from_slice(body) {
        Ok(Info { role, epoch }) => State::Up { role, epoch },
        Err(_) => State::Down,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(role: &str, epoch: u64) -> State {
        State::Up { role: role.to_owned(), epoch }
    }

    #[test]
    fn only_one_primary_counts_as_the_primary() {
        assert_eq!(Cast(vec![up("replica", 3), up("primary", 3), State::Down]).primary(), Some((1, 3)));
        assert_eq!(Cast(vec![up("primary", 2), up("primary", 3)]).primary(), None);
        assert_eq!(Cast(vec![up("electing", 0), State::Down]).primary(), None);
    }

    #[test]
    fn a_cast_is_settled_when_everybody_up_follows_the_same_primary() {
        let cast = Cast(vec![State::Down, up("primary", 3), up("replica", 3)]);
        assert!(cast.is_settled(2) && !cast.is_settled(3));
        assert!(!Cast(vec![up("replica", 2), up("primary", 3), up("replica", 3)]).is_settled(3));
    }
}
