//! The three places at which everything has to work: the node in front of the app, a replica, and a replica that speaks mutual
//! TLS both with its clients and with its primary.

use std::net::SocketAddr;

use super::daemon::{Daemon, Manage};
use super::pair::Pair;
use super::place::Place;
use super::secure::World;

/// Two pairs of nodes, in the clear and under mutual TLS. The second pair's tenure is the later one: one app that fences by the
/// epoch serves the places only one after the other.
#[derive(Debug)]
pub(crate) struct Places {
    pub(crate) clear: Pair,
    pub(crate) mutual: Pair,
    /// Whom those under TLS believe.
    pub(crate) world: World,
}

impl Places {
    /// Starts all of them in front of `app`.
    pub(crate) async fn of(app: SocketAddr) -> Self {
        Self::with(&format!("http://{app}"), |manage| manage).await
    }

    /// Starts all of them in front of the app at the URL `app`, each in a way of its own.
    pub(crate) async fn with(app: &str, own: impl Fn(Manage) -> Manage) -> Self {
        Self::apart([app; 2], own).await
    }

    /// The same with an app for either pair, so that all can be used at once.
    pub(crate) async fn apart(apps: [&str; 2], own: impl Fn(Manage) -> Manage) -> Self {
        let world = World::new();
        let clear = Pair::start_with(apps[0], &own).await;
        let mutual = Pair::start_with(apps[1], |manage| own(manage).mutual(&world)).await;
        Self { clear, mutual, world }
    }

    /// The nodes at which clients come in.
    pub(crate) fn nodes(&self) -> [&Daemon; 3] {
        [&self.clear.primary, &self.clear.replica, &self.mutual.replica]
    }

    /// Where those are, and how a client speaks to them.
    pub(crate) fn each(&self) -> [Place; 3] {
        self.nodes().map(Daemon::place)
    }
}
