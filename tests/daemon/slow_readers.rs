//! B98: whoever does not read holds back who writes, whatever carries the bytes: tunnels, WebSockets over HTTP/2, and uploads, in
//! either direction and at each of the three places. What the nodes keep meanwhile is little.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::poll_fn;
use h2::{RecvStream, SendStream};
use http::{Method, Request};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

use crate::support::daemon::Daemon;
use crate::support::place::{Duplex, Place};
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw};
use crate::support::streams::{Streams, piece, request};
use crate::support::wait_for;

const LIMIT: Duration = Duration::from_secs(60);
/// How much is written at a time: one message of a WebSocket.
const PIECE: usize = 64 * 1024;
/// How much the systems on the way may take in, in bytes: six sockets, whose buffers grow to some mebibytes each.
const ON_THE_WAY: u64 = 64 * 1024 * 1024;
/// How much a node may keep of each stream, in KiB.
const KEPT: u64 = 512;
/// How much is read in the end, of what has waited for so long.
const READ: usize = 1024 * 1024;

/// How much one writer has got rid of.
type Written = Arc<AtomicU64>;

/// An app that writes, or does not read, for as long as anybody likes. `/floods` switches protocols and writes; `/deaf` switches too
/// and reads nothing, and neither does any other path of its body.
struct Extreme {
    origin: Origin,
    written: Written,
    running: JoinSet<()>,
}

impl Extreme {
    /// Plays its part of one request.
    async fn serve(&mut self) {
        let mut client = self.origin.accept().await;
        let head = client.head().await;
        let token = if head.contains("websocket") { "websocket" } else { "tcp" };
        if head.contains("floods") || head.contains("deaf") {
            client.send(format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {token}\r\n\r\n")).await;
        }
        let (mut stream, written) = (client.into_stream(), Arc::clone(&self.written));
        let floods = head.contains("floods");
        self.running.spawn(async move {
            if floods {
                flood(&mut stream, &written, &message(false)).await;
            }
            std::future::pending::<()>().await;
        });
    }
}

/// A message of a WebSocket, whose length takes eight bytes.
fn message(masked: bool) -> Vec<u8> {
    let (mask, key) = if masked { (0x80, &[0; 4][..]) } else { (0, &[][..]) };
    let head = [&[0x82, mask | 0x7f][..], &(PIECE as u64).to_be_bytes(), key].concat();
    [head, vec![b'x'; PIECE]].concat()
}

async fn flood(stream: &mut Box<dyn Duplex>, written: &Written, piece: &[u8]) {
    while stream.write_all(piece).await.is_ok() && stream.flush().await.is_ok() {
        written.fetch_add(piece.len() as u64, Ordering::Relaxed);
    }
}

/// The same on a stream of HTTP/2, whose reader gives leave to send.
async fn flood_stream(mut stream: SendStream<Bytes>, written: Written, piece: Bytes) {
    let mut rest = Bytes::new();
    loop {
        if rest.is_empty() {
            rest = piece.clone();
        }
        stream.reserve_capacity(rest.len());
        let Some(Ok(room)) = poll_fn(|context| stream.poll_capacity(context)).await else { return };
        let part = rest.split_to(room.min(rest.len()));
        let length = part.len() as u64;
        if stream.send_data(part, false).is_err() {
            return;
        }
        written.fetch_add(length, Ordering::Relaxed);
    }
}

/// All that can be clogged at one place.
#[derive(Default)]
struct Clogged {
    /// What the app writes to and nobody reads,
    sockets: Vec<Raw>,
    /// each of these with its connection.
    streams: Vec<(RecvStream, Streams)>,
    /// Clients that write.
    writing: JoinSet<()>,
    written: Vec<Written>,
}

impl Clogged {
    async fn at(place: &Place, app: &mut Extreme) -> Self {
        let mut clogged = Self::default();
        for protocol in ["tcp", "websocket"] {
            for path in ["/floods", "/deaf"] {
                app.written = clogged.counted();
                let mut client = Raw::connect(place).await;
                client.send(format!("GET {path} HTTP/1.1\r\nHost: service\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")).await;
                app.serve().await;
                client.head().await;
                match path {
                    "/deaf" => clogged.writes(client, message(true)),
                    _ => clogged.sockets.push(client),
                }
            }
        }
        for path in ["/floods", "/deaf"] {
            app.written = clogged.counted();
            let mut streams = Streams::connect(place).await;
            streams.hears_settings().await;
            let mut stream = streams.ask(websocket(path), false).await.expect("a stream");
            app.serve().await;
            let body = stream.head().await.expect("an agreement").into_body();
            if path == "/deaf" {
                let written = Arc::clone(&app.written);
                clogged.writing.spawn(async move {
                    flood_stream(stream.sending, written, message(true).into()).await;
                    drop((body, streams));
                });
            } else {
                clogged.streams.push((body, streams));
            }
        }
        app.written = clogged.counted();
        let mut client = Raw::connect(place).await;
        client.send("PUT /upload HTTP/1.1\r\nHost: service\r\nContent-Length: 5000000000\r\n\r\n").await;
        app.serve().await;
        clogged.writes(client, message(false));
        clogged
    }

    /// What the next writer gets rid of.
    fn counted(&mut self) -> Written {
        let written = Written::default();
        self.written.push(Arc::clone(&written));
        written
    }

    /// Has a client write.
    fn writes(&mut self, client: Raw, piece: Vec<u8>) {
        let (mut stream, written) = (client.into_stream(), Arc::clone(self.written.last().expect("it is counted")));
        self.writing.spawn(async move { flood(&mut stream, &written, &piece).await });
    }

    /// Waits until nobody can write any more: for as long as two hundred looks.
    async fn stands_still(&self) -> Vec<u64> {
        let (mut seen, mut looks) = (Vec::new(), 0);
        wait_for("all writers to be held back", LIMIT, async || {
            let written = self.written.iter().map(|written| written.load(Ordering::Relaxed)).collect::<Vec<_>>();
            looks = if written == seen && !written.contains(&0) { looks + 1 } else { 0 };
            seen = written;
            if looks >= 200 { Ok(seen.clone()) } else { Err(seen.clone()) }
        })
        .await
    }
}

#[tokio::test]
async fn readers_that_take_nothing_hold_back_whoever_writes() {
    let mut app = Extreme { origin: Origin::bind().await, written: Written::default(), running: JoinSet::new() };
    let places = Places::of(app.origin.address()).await;
    let pairs = [&places.clear, &places.mutual].map(|pair| [&pair.primary, &pair.replica]);
    let before = pairs.map(resident);
    let mut all = Vec::new();
    for place in places.each() {
        all.push(Clogged::at(&place, &mut app).await);
    }
    let mut streams = 0;
    for clogged in &all {
        let written = clogged.stands_still().await;
        assert!(written.iter().all(|written| *written < ON_THE_WAY), "{written:?} bytes went out to nobody");
        streams += written.len() as u64;
    }
    for (pair, before) in pairs.into_iter().zip(before) {
        let grown = resident(pair).saturating_sub(before);
        assert!(grown < streams * 2 * KEPT, "{grown} KiB are kept for {streams} streams that nobody reads, at {}", pair[1].place());
    }
    // What waited is still there, and flows as soon as somebody reads.
    for clogged in &mut all {
        for socket in &mut clogged.sockets {
            socket.take(READ).await;
        }
        for (body, _) in &mut clogged.streams {
            let mut read = 0;
            while read < READ {
                read += piece(body).await.expect("it goes on").expect("it has no end").len();
            }
        }
    }
}

fn resident(nodes: [&Daemon; 2]) -> u64 {
    nodes.map(Daemon::resident).iter().sum()
}

/// What asks for a WebSocket (RFC 8441 §5).
fn websocket(path: &str) -> Request<()> {
    let mut asked = request(Method::CONNECT, path);
    asked.headers_mut().insert("sec-websocket-version", http::HeaderValue::from_static("13"));
    asked.extensions_mut().insert(h2::ext::Protocol::from_static("websocket"));
    asked
}
