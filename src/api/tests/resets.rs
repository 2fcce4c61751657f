//! A side of a tunnel that is reset, and not ended, is so at the other side, too: whoever is there would take what it has for
//! all of it.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use h2::ext::Protocol;
use h2::{Reason, RecvStream, SendStream};
use http::{Request, StatusCode};
use socket2::SockRef;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::rig::*;

/// An app of which the test plays every byte, and two nodes: one in front of it, and one that passes on to that.
struct Stage {
    app: TcpListener,
    nodes: [TestNode; 2],
}

impl Stage {
    async fn set() -> Self {
        let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let primary = TestNode::member("default", Some(format!("http://{}", app.local_addr().unwrap()).parse().unwrap()), |_| {});
        let replica = TestNode::start(None);
        primary.lead(1);
        replica.follow(&primary, 1);
        Self { app, nodes: [primary, replica] }
    }

    /// The app's end of the next tunnel.
    async fn agree(&self) -> Raw {
        let mut app = Raw { stream: self.app.accept().await.unwrap().0, heard: Vec::new() };
        let request = app.request().await.unwrap();
        let protocol = request.field("upgrade").unwrap();
        app.say(format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")).await;
        app
    }

    /// A tunnel through the node with that number: the client's end and the app's.
    async fn tunnel(&self, through: usize) -> (Raw, Raw) {
        let mut client = self.nodes[through].client().await;
        client.say("GET /exec HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await;
        let app = self.agree().await;
        assert_eq!(client.head().await.unwrap().status(), 101);
        (client, app)
    }

    /// The same over a stream, where the tunnel is a WebSocket's.
    async fn stream(&self, through: usize) -> (Streamed, Raw) {
        let socket = TcpStream::connect(self.nodes[through].address).await.unwrap();
        let (mut sender, connection) = h2::client::handshake(socket).await.unwrap();
        let mut running: JoinSet<()> = JoinSet::new();
        running.spawn(async move { drop(connection.await) });
        until("the server says that it takes such requests", || sender.is_extended_connect_protocol_enabled()).await;
        sender = sender.ready().await.unwrap();
        let request = Request::connect("http://test/chat").extension(Protocol::from_static("websocket")).body(()).unwrap();
        let (answer, says) = sender.send_request(request, false).unwrap();
        let app = self.agree().await;
        let answer = timeout(SOON, answer).await.unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        (Streamed { says, hears: answer.into_body(), _running: running }, app)
    }

    async fn is_over(&self) {
        for node in &self.nodes {
            node.until("nothing is left of it", |totals| totals.running == 0).await;
        }
    }
}

/// A stream that has become a tunnel, at its client.
struct Streamed {
    says: SendStream<Bytes>,
    hears: RecvStream,
    _running: JoinSet<()>,
}

impl Streamed {
    /// The next piece that is one, the end, or why it was reset.
    async fn hears(&mut self) -> Option<Result<Bytes, Option<Reason>>> {
        loop {
            let heard = timeout(SOON, self.hears.data()).await.expect("something is heard");
            let heard = heard.map(|piece| piece.map_err(|error| error.reason()));
            if heard != Some(Ok(Bytes::new())) {
                return heard;
            }
        }
    }
}

/// Resets a connection.
fn reset(raw: Raw) {
    SockRef::from(&raw.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(raw);
}

/// How a connection ends of which all was heard.
async fn end(raw: &mut Raw) -> Result<usize, ErrorKind> {
    timeout(SOON, raw.stream.read(&mut [0])).await.expect("an end").map_err(|error| error.kind())
}

#[tokio::test]
async fn an_app_that_resets_a_tunnel_resets_its_client() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(through).await;
        app.say("half of").await;
        assert_eq!(client.exactly(7).await, b"half of");
        reset(app);
        assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));

        let (mut client, mut app) = stage.stream(through).await;
        app.say("\u{1}half of").await;
        assert_eq!(client.hears().await, Some(Ok("\u{1}half of".into())));
        reset(app);
        assert_eq!(client.hears().await, Some(Err(Some(Reason::CANCEL))));
        stage.is_over().await;
    }
}

#[tokio::test]
async fn a_client_that_resets_a_tunnel_resets_the_app() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(through).await;
        client.say("half of").await;
        assert_eq!(app.exactly(7).await, b"half of");
        reset(client);
        assert_eq!(end(&mut app).await, Err(ErrorKind::ConnectionReset));

        let (mut client, mut app) = stage.stream(through).await;
        client.says.send_data("half of".into(), false).unwrap();
        assert_eq!(app.exactly(7).await, b"half of");
        client.says.send_reset(Reason::CANCEL);
        assert_eq!(end(&mut app).await, Err(ErrorKind::ConnectionReset));
        stage.is_over().await;
    }
}

#[tokio::test]
async fn an_end_stays_one() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(through).await;
        client.finish().await;
        assert_eq!(end(&mut app).await, Ok(0));
        drop(app);
        assert_eq!(end(&mut client).await, Ok(0));

        let (mut client, mut app) = stage.stream(through).await;
        client.says.send_data(Bytes::new(), true).unwrap();
        assert_eq!(end(&mut app).await, Ok(0));
        drop(app);
        assert_eq!(client.hears().await, None);

        let (mut client, mut app) = stage.stream(through).await;
        app.finish().await;
        // WebSocket frames end it: without one, a replica cannot tell an app that has ended from a leader that has vanished.
        if through == 0 {
            assert_eq!(client.hears().await, None);
        }
        drop((client, app));
        stage.is_over().await;
    }
}

/// In the middle of a frame, where nothing can be said.
#[tokio::test]
async fn a_stream_that_is_cut_does_not_look_like_one_that_has_ended() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.stream(through).await;
        app.say(b"\x82\x04ab").await;
        assert_eq!(client.hears().await, Some(Ok(Bytes::from_static(b"\x82\x04ab"))));
        stage.nodes[0].elect();
        assert_eq!(client.hears().await, Some(Err(Some(Reason::CANCEL))));
        assert_eq!(end(&mut app).await, Err(ErrorKind::ConnectionReset), "its input is not complete either");
        stage.is_over().await;
    }
}
