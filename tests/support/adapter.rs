//! TLS for tools that have none, or no certificate to show: they speak in the clear to it, and it as a user does to a node.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::place::Place;

/// A way to one place, until it is dropped.
#[derive(Debug)]
pub(crate) struct Adapter {
    /// Where tools connect.
    pub(crate) address: SocketAddr,
    _running: JoinSet<()>,
}

impl Adapter {
    pub(crate) async fn to(place: Place) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("listen on loopback");
        let address = listener.local_addr().expect("an address");
        let mut running = JoinSet::new();
        running.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((tool, _)) = listener.accept().await {
                connections.spawn(carry(tool, place.clone()));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { address, _running: running }
    }
}

/// Both ends see an end where the other has broken off.
async fn carry(mut tool: TcpStream, place: Place) {
    if tool.set_nodelay(true).is_ok()
        && let Ok(mut node) = place.connect().await
    {
        tokio::io::copy_bidirectional(&mut tool, &mut node).await.ok();
    }
}
