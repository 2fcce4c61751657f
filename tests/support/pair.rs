//! A primary in front of a given app and a replica in front of none, for tests of what happens to a request.

use std::net::SocketAddr;
use std::time::Duration;

use tempfile::TempDir;

use super::daemon::{Daemon, Manage};
use super::place::Place;

/// Nobody changes its role in a test of this kind.
const TTL: Duration = Duration::from_secs(30);
const LIMIT: Duration = Duration::from_secs(20);

/// Two nodes over one SQLite file.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) primary: Daemon,
    pub(crate) replica: Daemon,
    _folder: TempDir,
}

impl Pair {
    /// Starts both, the primary in front of `app`.
    pub(crate) async fn start(app: SocketAddr) -> Self {
        Self::start_as(app, |address| address.to_string()).await
    }

    /// The same, with nodes that advertise what `advertise` makes of their address.
    pub(crate) async fn start_as(app: SocketAddr, advertise: impl Fn(SocketAddr) -> String) -> Self {
        Self::launch(&format!("http://{app}"), advertise, |manage| manage).await
    }

    /// Starts both, the primary in front of the app at the URL `app`, each in a way of its own.
    pub(crate) async fn start_with(app: &str, own: impl Fn(Manage) -> Manage) -> Self {
        Self::launch(app, |address| address.to_string(), own).await
    }

    async fn launch(app: &str, advertise: impl Fn(SocketAddr) -> String, own: impl Fn(Manage) -> Manage) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = format!("sqlite://{}", folder.path().join("election.db").display());
        let manage = |name: &str| {
            let manage = Manage::new(name, folder.path());
            let advertised = advertise(manage.address);
            own(manage.replicated_as(&advertised, &store, TTL))
        };
        let primary = manage("primary").with(["--upstream", app]).start().await;
        primary.becomes("primary", LIMIT).await;
        let replica = manage("replica").start().await;
        replica.becomes("replica", LIMIT).await;
        Self { primary, replica, _folder: folder }
    }

    /// The same, and how it speaks to them.
    pub(crate) fn places(&self) -> [Place; 2] {
        [self.primary.place(), self.replica.place()]
    }

    /// Where a client can send a request: to the node in front of the app, and to the one that passes it on.
    pub(crate) fn ways(&self) -> [SocketAddr; 2] {
        [self.primary.address(), self.replica.address()]
    }
}
