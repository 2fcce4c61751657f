//! CROWD: many clients at once that do not go on, and eyes on what they cost a node and everybody else.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use super::daemon::Daemon;
use super::http::{Client, Method, request};
use super::metrics::Metrics;
use super::place::{Duplex, Place};
use super::{quickest, wait_for, within};

/// How long anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
/// What somebody else is answered in who waits for none of the crowd, at the best of five times. Crowds stay for longer.
const PROMPT: Duration = Duration::from_secs(2);
/// How much a node may keep of a crowd, in KiB: what the allocator has not given back yet.
const ROOM: u64 = 48 * 1024;
/// Connections that come and go: of those who ask, and of workers to the leader and to the app.
const SOME: usize = 16;

/// What a node was like before there was a crowd.
#[derive(Debug)]
pub(crate) struct Before {
    files: usize,
    resident: u64,
}

impl Before {
    /// Once the node has served somebody, so that it has whatever it needs for that.
    pub(crate) async fn of(node: &Daemon) -> Self {
        serves_others(node).await;
        Self { files: node.open_files(), resident: node.resident() }
    }

    /// The same of several nodes.
    pub(crate) async fn of_each(nodes: &[&Daemon]) -> Vec<Self> {
        let mut all = Vec::new();
        for node in nodes {
            all.push(Self::of(node).await);
        }
        all
    }

    /// Waits until nothing of the crowd is left at the node, and gives what the node has counted.
    pub(crate) async fn is_back(&self, node: &Daemon) -> Metrics {
        let most = self.files + SOME;
        let metrics = wait_for(&format!("{} to let go of the crowd", node.name()), LIMIT, async || {
            let (metrics, files) = (node.metrics_aside().await, node.open_files());
            let (open, running) = (metrics.value("connections"), metrics.value("running_requests"));
            let rests = open <= SOME as f64 && running == 0.0 && files <= most && metrics.unaccounted() == 0.0;
            if rests { Ok(metrics) } else { Err((open, running, files, most)) }
        })
        .await;
        let grown = node.resident().saturating_sub(self.resident);
        assert!(grown < ROOM, "{} kept {grown} KiB", node.name());
        metrics
    }
}

/// Somebody else is answered as if there were no crowd, on connections of their own and on one that they keep.
pub(crate) async fn serves_others(node: &Daemon) {
    let kept = Client::new(node.place());
    for fresh in [true, false] {
        let took = quickest(async || {
            let own = Client::new(node.place());
            let client = if fresh { &own } else { &kept };
            let answer = client.send_within(LIMIT, request(Method::GET, "/who", "")).await.expect("an answer");
            assert_eq!(answer.text(), "a");
        });
        let took = took.await;
        assert!(took < PROMPT, "{} took {took:?} for somebody else", node.name());
    }
}

/// Waits until so many connections are open at the node.
pub(crate) async fn has_come(node: &Daemon, count: usize) {
    wait_for("the crowd to be there", LIMIT, async || match node.metrics_aside().await.value("connections") {
        open if open >= count as f64 => Ok(()),
        open => Err(open),
    })
    .await;
}

/// What each of a crowd was told until its end, which all of them have come to.
pub(crate) async fn said_to(crowd: JoinSet<String>) -> Vec<String> {
    within("the end of the crowd", LIMIT * 2, crowd.join_all()).await
}

/// Says `begin`, and then `piece` twice a second, until the node ends the connection. Gives what the node said: nothing where it
/// does not even shake hands.
pub(crate) async fn drip(place: Place, begin: impl AsRef<[u8]>, piece: &'static str) -> String {
    let Ok(stream) = within("connecting", LIMIT, place.connect()).await else { return String::new() };
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut said = Vec::new();
    let dripping = async {
        writer.write_all(begin.as_ref()).await.ok();
        writer.flush().await.ok();
        let mut beat = interval(Duration::from_millis(500));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            // A node that has ended the connection does not read this.
            writer.write_all(piece.as_bytes()).await.ok();
            writer.flush().await.ok();
        }
    };
    tokio::select! {
        _ = reader.read_to_end(&mut said) => {}
        () = dripping => {}
    }
    String::from_utf8_lossy(&said).into_owned()
}

/// A connection.
pub(crate) async fn connect(place: &Place) -> Box<dyn Duplex> {
    within("connecting", LIMIT, place.connect()).await.expect("connect")
}

/// A connection with hardly any room for what comes.
pub(crate) async fn connect_narrow(place: &Place) -> Box<dyn Duplex> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 * 1024).expect("a small buffer");
    let connecting = async { place.over(socket.connect(place.address).await?).await };
    within("connecting", LIMIT, connecting).await.expect("connect")
}
