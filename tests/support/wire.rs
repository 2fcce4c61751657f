//! A wire between a client and a server that can be cut, silenced and slowed while it is in use.
//!
//! It needs no rights: a small TCP forwarder on loopback. What was already swallowed stays lost, as on a real network
//! where one end has given up.

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// What happens to bytes on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    /// They pass.
    Pass,
    /// They are swallowed; new connections are accepted, and never answered.
    Blackhole,
    /// Every connection is cut at once, old and new.
    Reset,
    /// They pass, each this much later.
    Delay(Duration),
    /// They pass, and what the server says is up to this much later, by another time for each piece of it.
    SlowAnswers(Duration),
}

/// A wire to one server. It ends with its value.
#[derive(Debug)]
pub(crate) struct Wire {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    late: Arc<AtomicU64>,
    _forwarding: JoinSet<()>,
}

impl Wire {
    /// A wire to `server` that lets everything pass.
    pub(crate) async fn to(server: SocketAddr) -> Self {
        Self::at((Ipv4Addr::LOCALHOST, 0).into(), server).await
    }

    /// The same with its clients' end at `address`.
    pub(crate) async fn at(address: SocketAddr, server: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.expect("listen on loopback");
        let address = listener.local_addr().expect("the address of a listener");
        let (mode, watched) = watch::channel(Mode::Pass);
        let mut forwarding = JoinSet::new();
        let late = Arc::<AtomicU64>::default();
        forwarding.spawn(accept(listener, Rule { server, mode: watched, late: Arc::clone(&late) }));
        Self { address, mode, late, _forwarding: forwarding }
    }

    /// Where clients connect.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// How much later than it should anything has come out since this was last asked, for this machine had no time for it.
    pub(crate) fn was_late(&self) -> Duration {
        Duration::from_micros(self.late.swap(0, Ordering::Relaxed))
    }

    /// From now on, for every connection.
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

/// What holds for all connections of a wire.
#[derive(Clone)]
struct Rule {
    server: SocketAddr,
    mode: watch::Receiver<Mode>,
    late: Arc<AtomicU64>,
}

async fn accept(listener: TcpListener, rule: Rule) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(forward(client, rule.clone()));
    }
}

/// Forwards one connection both ways until one side, or the wire, ends it.
async fn forward(client: TcpStream, rule: Rule) {
    let mut cut = rule.mode.clone();
    let Ok(server) = TcpStream::connect(rule.server).await else { return };
    for end in [&client, &server] {
        // An end that is dropped then says so with a reset.
        if end.set_nodelay(true).is_err() || end.set_zero_linger().is_err() {
            return;
        }
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = carry(from_client, to_server, Way::There, rule.clone()) => {}
        () = carry(from_server, to_client, Way::Back, rule) => {}
        _ = cut.wait_for(|mode| *mode == Mode::Reset) => {}
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    There,
    Back,
}

/// Reads as fast as bytes come and writes each at its time, so that a delay is one of distance and not of width.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, rule: Rule) {
    let (send, mut underway) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    let mode = rule.mode;
    let read = async move {
        let mut bytes = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            let due = match *mode.borrow() {
                Mode::Pass => Instant::now(),
                Mode::SlowAnswers(most) if way == Way::Back => Instant::now() + most.mul_f64(fastrand::f64()),
                Mode::SlowAnswers(_) => Instant::now(),
                Mode::Blackhole => continue,
                Mode::Reset => return,
                Mode::Delay(time) => Instant::now() + time,
            };
            if send.send((due, bytes[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let mut write = pin!(async {
        while let Some((due, bytes)) = underway.recv().await {
            sleep_until(due).await;
            rule.late.fetch_max(due.elapsed().as_micros().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    tokio::select! {
        // A server may hang up right behind its last word, and a client waits for that; nobody waits for a client that is gone.
        () = read => if way == Way::Back { write.await },
        () = &mut write => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ZooKeeper hangs up in the moment in which it says that a session is over: whoever does not get to hear it comes
    /// back with the same session again and again.
    #[tokio::test]
    async fn the_last_word_of_a_server_arrives() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let wire = Wire::to(listener.local_addr().expect("the address of a listener")).await;
        for _ in 0..20 {
            let mut client = TcpStream::connect(wire.address()).await.expect("connect to the wire");
            let (mut server, _) = listener.accept().await.expect("a connection by the wire");
            server.write_all(b"no").await.expect("an answer that is sent");
            drop(server);
            // One thread runs all of this, so that the wire finds both at once.
            let mut said = String::new();
            client.read_to_string(&mut said).await.expect("an answer, and then the end");
            assert_eq!(said, "no");
        }
    }
}
