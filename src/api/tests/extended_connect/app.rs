//! An app that speaks HTTP/2, of which the test plays every frame.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::{Builder, SendResponse};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::super::rig::*;
use crate::api::Config;
use crate::cluster::Upstream;
use crate::tls::tests::World;
use crate::tls::{self, Terms, Tls};

/// A request for a WebSocket as clients make it in HTTP/1.1, with the key that RFC 6455 has for an example.
pub(super) const ASKS: &str = "GET /chat?room=7 HTTP/1.1\r\nHost: shop.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nOrigin: http://shop.example\r\n\
                    Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n";

/// What an app says of itself.
#[derive(Clone, Copy)]
pub(super) struct Says {
    pub(super) extended_connect: bool,
    pub(super) streams: u32,
}

/// That it takes WebSockets over HTTP/2.
pub(super) const WILLING: Says = Says { extended_connect: true, streams: 100 };
/// That it does not.
pub(super) const UNWILLING: Says = Says { extended_connect: false, streams: 100 };

/// An app that hands its requests to the test.
pub(super) struct App {
    pub(super) upstream: Upstream,
    asked: mpsc::UnboundedReceiver<Asked>,
    /// What it says on connections from now on.
    says: Arc<Mutex<Says>>,
    connections: Arc<AtomicUsize>,
    /// Those that have not ended.
    pub(super) open: Arc<AtomicUsize>,
    world: World,
    _accepting: JoinSet<()>,
}

/// A request at the app, and its answer to come.
pub(super) struct Asked {
    pub(super) head: Request<()>,
    pub(super) body: RecvStream,
    pub(super) answer: SendResponse<Bytes>,
}

/// The app's end of a tunnel.
pub(super) struct End {
    pub(super) from: RecvStream,
    pub(super) to: SendStream<Bytes>,
    pub(super) heard: Vec<u8>,
}

impl App {
    /// One that is spoken to with prior knowledge.
    pub(super) async fn start(says: Says) -> Self {
        Self::speaking(says, false).await
    }

    /// One behind TLS, which chooses HTTP/2 where it is offered, and takes HTTP/1.1 otherwise.
    pub(super) async fn behind_tls(says: Says) -> Self {
        Self::speaking(says, true).await
    }

    async fn speaking(says: Says, secured: bool) -> Self {
        let world = World::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (host, port) = ("127.0.0.1".to_owned(), listener.local_addr().unwrap().port());
        let upstream = if secured { Upstream::Https { host, port } } else { Upstream::H2c { host, port } };
        let (ask, asked) = mpsc::unbounded_channel();
        let says = Arc::new(Mutex::new(says));
        let says_now = Arc::clone(&says);
        let (connections, open) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counted, living) = (Arc::clone(&connections), Arc::clone(&open));
        let tls = secured.then(|| Tls::load(Terms { http2: true, ..world.lone() }).unwrap().0);
        let accepting = async move {
            let mut serving = JoinSet::new();
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                living.fetch_add(1, Ordering::SeqCst);
                let (ask, tls, living) = (ask.clone(), tls.clone(), Arc::clone(&living));
                let says = *says_now.lock().unwrap();
                serving.spawn(async move {
                    match tls {
                        None => speak(socket, says, ask).await,
                        Some(tls) => {
                            let (stream, _) = tls.accept(socket).await.unwrap();
                            if stream.get_ref().1.alpn_protocol() == Some(tls::HTTP2) {
                                speak(stream, says, ask).await;
                            } else {
                                speak_http1(stream).await;
                            }
                        }
                    }
                    living.fetch_sub(1, Ordering::SeqCst);
                });
            }
        };
        Self { upstream, asked, says, connections, open, world, _accepting: [accepting].into_iter().collect() }
    }

    pub(super) fn now_says(&self, says: Says) {
        *self.says.lock().unwrap() = says;
    }

    /// A primary in front of it, and a replica of that.
    pub(super) fn chain(&self) -> [TestNode; 2] {
        self.chain_with(|_| {})
    }

    pub(super) fn chain_with(&self, change: impl FnOnce(&mut Config)) -> [TestNode; 2] {
        let primary = TestNode::member("default", Some(self.upstream.clone()), |config| {
            config.to_app = Some(tls::Client::read(Some(&self.world.authority.file()), None).unwrap());
            change(config);
        });
        primary.lead(1);
        let replica = TestNode::start(None);
        replica.follow(&primary, 1);
        [primary, replica]
    }

    pub(super) async fn asked(&mut self) -> Asked {
        timeout(SOON, self.asked.recv()).await.expect("a request in time").unwrap()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// A tunnel through `node`: the client's end and the app's.
    pub(super) async fn tunnel(&mut self, node: &TestNode) -> (Raw, End) {
        let mut client = node.client().await;
        client.say(ASKS).await;
        let end = self.asked().await.agree();
        assert_eq!(client.head().await.unwrap().status(), 101);
        (client, end)
    }
}

async fn speak(io: impl AsyncRead + AsyncWrite + Unpin, says: Says, ask: mpsc::UnboundedSender<Asked>) {
    let mut builder = Builder::new();
    builder.max_concurrent_streams(says.streams);
    if says.extended_connect {
        builder.enable_connect_protocol();
    }
    // That a node cuts its connections is part of most tests.
    let Ok(mut connection) = builder.handshake(io).await else { return };
    while let Some(Ok((request, answer))) = connection.accept().await {
        let (head, body) = request.into_parts();
        ask.send(Asked { head: Request::from_parts(head, ()), body, answer }).ok();
    }
}

/// Agrees to an upgrade, and gives back what it is told.
async fn speak_http1(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(io.read_u8().await.unwrap());
    }
    io.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await.unwrap();
    let (mut from, mut to) = tokio::io::split(io);
    tokio::io::copy(&mut from, &mut to).await.ok();
}

impl Asked {
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.head.headers().get(name).map(|value| value.to_str().unwrap())
    }

    pub(super) fn protocol(&self) -> Option<&str> {
        self.head.extensions().get::<h2::ext::Protocol>().map(h2::ext::Protocol::as_str)
    }

    pub(super) fn agree(self) -> End {
        self.agree_with(HeaderMap::new())
    }

    pub(super) fn agree_with(mut self, headers: HeaderMap) -> End {
        let mut answer = Response::new(());
        *answer.headers_mut() = headers;
        End { from: self.body, to: self.answer.send_response(answer, false).unwrap(), heard: Vec::new() }
    }

    pub(super) fn answer(mut self, status: u16, body: &'static str) {
        let answer = Response::builder().status(status).header("x-why", "because").body(()).unwrap();
        self.answer.send_response(answer, false).unwrap().send_data(Bytes::from_static(body.as_bytes()), true).unwrap();
    }
}

impl End {
    pub(super) fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.to.send_data(Bytes::copy_from_slice(bytes.as_ref()), false).unwrap();
    }

    pub(super) fn finish(&mut self) {
        self.to.send_data(Bytes::new(), true).unwrap();
    }

    /// The next piece; `None` at the end, or when the stream or its connection was cut off.
    pub(super) async fn piece(&mut self) -> Option<Bytes> {
        let piece = timeout(SOON, self.from.data()).await.expect("something in time")?.ok()?;
        self.from.flow_control().release_capacity(piece.len()).unwrap();
        Some(piece)
    }

    pub(super) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.heard.len() < length {
            let piece = self.piece().await.expect("more before the end");
            self.heard.extend_from_slice(&piece);
        }
        let rest = self.heard.split_off(length);
        std::mem::replace(&mut self.heard, rest)
    }

    /// Whether the other side ends without saying more.
    pub(super) async fn is_over(&mut self) -> bool {
        loop {
            match self.piece().await {
                None => return self.heard.is_empty(),
                Some(piece) => self.heard.extend_from_slice(&piece),
            }
        }
    }

    /// Hears a short frame of a client: its opcode and its payload.
    pub(super) async fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.exactly(6).await;
        let payload = self.exactly(usize::from(head[1] & 0x7f)).await;
        (head[0] & 0x0f, payload.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
    }
}
