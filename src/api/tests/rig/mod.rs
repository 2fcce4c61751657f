//! What the tests of the data plane are made of: nodes whose role the test decides, apps that are scripted byte by byte,
//! and clients that say exactly what they are told to.

mod app;
mod node;
mod raw;

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::time::timeout;

pub(in crate::api) use app::{Go, Seen, TestApp, ok, slow_app};
pub(in crate::api) use node::{TestNode, chain, outcome};
pub(in crate::api) use raw::{Message, Raw, sending};

/// Longer than anything in these tests takes on a slow and busy machine, shorter than anybody's patience.
pub(in crate::api) const SOON: Duration = Duration::from_secs(20);
/// Longer than [`SOON`]: where a test does not say otherwise, no request is given up while the test still waits for it.
pub(in crate::api) const HOLD: Duration = Duration::from_secs(60);

/// Waits for a state, with a reason.
pub(in crate::api) async fn until(reason: &str, mut reached: impl FnMut() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not in time: {reason}"));
}

/// An address at which nobody listens, and that nobody else is given meanwhile.
pub(in crate::api) struct Vacant(TcpSocket);

impl Vacant {
    pub(in crate::api) fn take() -> Self {
        Self::at("127.0.0.1:0".parse().unwrap())
    }

    pub(in crate::api) fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        // Whoever sets this too may bind the address as well; those who let the system choose are never led to it.
        socket.set_reuseaddr(true).unwrap();
        socket.bind(address).unwrap();
        Self(socket)
    }

    pub(in crate::api) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap()
    }

    /// Listens there after all.
    pub(in crate::api) fn listen(self) -> TcpListener {
        self.0.listen(1024).unwrap()
    }
}
