//! How tunnels end with their tenure: a WebSocket is told, whatever else is given its time.

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use super::http2::{Http2Client, get, websocket};
use super::rig::*;
use crate::api::ahead::Ahead;
use crate::tls::tests::World;
use crate::tls::{Client, Tls};

/// A Close frame with the code for a restart, as a server sends it.
const RESTART: &[u8] = b"\x88\x0f\x03\xf4connect again";
/// More than there is room for on the way to an app that does not read.
const BUSY: usize = 32 * 1024 * 1024;

/// An app of which the test plays every byte, and two nodes: one in front of it, and one that passes on to that.
struct Stage {
    app: TcpListener,
    primary: TestNode,
    replica: TestNode,
}

impl Stage {
    async fn set() -> Self {
        let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = format!("http://{}", app.local_addr().unwrap()).parse().unwrap();
        let primary = TestNode::member("default", Some(upstream), |_| {});
        let replica = TestNode::start(None);
        primary.lead(1);
        replica.follow(&primary, 1);
        Self { app, primary, replica }
    }

    fn nodes(&self) -> [&TestNode; 2] {
        [&self.primary, &self.replica]
    }

    /// A tunnel: the client's end and the app's.
    async fn tunnel(&self, through: &TestNode, protocol: &str) -> (Raw, Raw) {
        let mut client = through.client().await;
        client.say(format!("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")).await;
        let app = self.agree(protocol).await;
        assert_eq!(client.head().await.unwrap().status(), 101);
        (client, app)
    }

    /// The app's end of the next tunnel.
    async fn agree(&self, protocol: &str) -> Raw {
        let mut app = Raw { stream: self.app.accept().await.unwrap().0, heard: Vec::new() };
        app.request().await.unwrap();
        app.say(format!("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")).await;
        app
    }
}

/// A frame as a client sends it.
fn masked(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [7, 77, 177, 217];
    let masked = payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [0x80 | opcode, 0x80 | payload.len() as u8].into_iter().chain(mask).chain(masked).collect()
}

/// Hears a short frame of a client: its opcode and its payload.
async fn frame(app: &mut Raw) -> (u8, Vec<u8>) {
    let head = app.exactly(6).await;
    assert_eq!(head[1] & 0x80, 0x80, "a client masks what it says");
    let payload = app.exactly(usize::from(head[1] & 0x7f)).await;
    (head[0] & 0x0f, payload.iter().zip(head[2..].iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
}

#[tokio::test]
async fn both_ends_of_a_websocket_are_told_when_its_primary_steps_down() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "WebSocket").await;
        client.say(masked(1, b"hello")).await;
        assert_eq!(frame(&mut app).await, (1, b"hello".to_vec()));
        app.say(b"\x81\x03hey").await;
        assert_eq!(client.exactly(5).await, b"\x81\x03hey");

        stage.primary.step_down(1);
        assert_eq!(client.exactly(RESTART.len()).await, RESTART);
        assert_eq!(frame(&mut app).await, (8, RESTART[2..].to_vec()));
        app.say(b"\x81\x04lost\x88\x02\x03\xf4").await;
        stage.primary.until("the drain waits for no client", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
        client.say(masked(8, &RESTART[2..4])).await;
        assert!(client.rest().await.is_empty(), "nothing follows a Close frame but the end");
        drop(client);
        assert!(app.is_closed().await);
        stage.replica.until("the replica has nothing left", |totals| totals.running == 0 && totals.connections == 0).await;
    }
}

#[tokio::test]
async fn a_websocket_over_a_stream_is_told_too() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let mut client = Http2Client::connect(stage.nodes()[through]).await;
        client.send(get("/_ping")).await.expect("the server has said that it takes such requests");
        let (answer, mut app) = tokio::join!(client.send(websocket()), stage.agree("websocket"));
        let answer = answer.unwrap();
        let mut tunnel = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());

        stage.primary.step_down(1);
        let mut heard = [0; RESTART.len()];
        tunnel.read_exact(&mut heard).await.unwrap();
        assert_eq!(heard, RESTART);
        assert_eq!(frame(&mut app).await, (8, RESTART[2..].to_vec()));
        app.say(b"\x88\x02\x03\xf4").await;
        tunnel.write_all(&masked(8, &RESTART[2..4])).await.unwrap();
        assert_eq!(tunnel.read(&mut heard).await.unwrap(), 0, "the stream ends as it should");
        stage.primary.until("it is counted", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_frame_is_brought_to_its_end_before_its_receiver_is_told() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        app.say(b"\x82\x04ab").await;
        assert_eq!(client.exactly(4).await, b"\x82\x04ab");
        stage.primary.step_down(1);
        assert_eq!(frame(&mut app).await.0, 8, "the other way, no frame is half through");
        app.say(b"cd\x81\x01x").await;
        assert_eq!(client.exactly(2 + RESTART.len()).await, [b"cd", RESTART].concat(), "and what came behind it is not passed on");
    }
}

#[tokio::test]
async fn a_frame_that_stays_half_through_is_cut() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        app.say(b"\x82\x04ab").await;
        assert_eq!(client.exactly(4).await, b"\x82\x04ab");
        stage.primary.step_down(1);
        assert_eq!(frame(&mut app).await.0, 8);
        assert!(client.is_closed().await, "nothing is put into the middle of a frame");
        assert!(app.is_closed().await);
        stage.primary.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn who_loses_the_lock_tells_the_client_and_says_nothing_more_to_the_app() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        stage.primary.elect();
        assert_eq!(client.exactly(RESTART.len()).await, RESTART);
        assert!(app.is_closed().await, "the app is cut off");
        client.say(masked(8, &RESTART[2..4])).await;
        assert!(client.is_closed().await);
        stage.primary.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_replica_tells_the_client_when_the_leader_vanishes() {
    for in_a_frame in [false, true] {
        // A leader that is played, so that it can break off.
        let leader = TestApp::scripted(move |mut raw, _| async move {
            while let Some(request) = raw.request().await {
                if request.target() == "/_bellwether/leader" {
                    raw.say(ok(r#"{"service":"default","id":"00000000000000000000000000000001","role":"primary","epoch":1}"#)).await;
                } else if request.target() == "/chat" {
                    raw.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
                    raw.say(if in_a_frame { &b"\x82\x04ab"[..] } else { b"\x82\x02ab" }).await;
                    raw.exactly(1).await;
                    return;
                }
            }
        })
        .await;
        let replica = TestNode::start(None);
        replica.follow_address(&leader.address.to_string(), 1);
        let mut client = replica.client().await;
        client.say("GET /chat HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 101);
        assert_eq!(client.exactly(4).await[2..], *b"ab");
        client.say(masked(1, b"go")).await;
        if in_a_frame {
            assert!(client.is_closed().await);
        } else {
            assert_eq!(client.exactly(RESTART.len()).await, RESTART);
            client.say(masked(8, &RESTART[2..4])).await;
            assert!(client.is_closed().await);
        }
        replica.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn ends_that_part_by_themselves_are_left_to_it() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        app.say(b"\x88\x02\x03\xe8").await;
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        stage.primary.step_down(1);
        client.say(masked(8, b"\x03\xe8")).await;
        assert_eq!(frame(&mut app).await, (8, b"\x03\xe8".to_vec()));
        drop(app);
        assert!(client.is_closed().await);
        drop(client);
        stage.primary.until("it is counted", |totals| outcome(totals, "failed_cut") == 0 && totals.running == 0).await;
    }
}

/// Nothing is left to be said, and a client need not wait for the end.
#[tokio::test]
async fn ends_that_have_parted_may_go_as_they_like() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        client.say(masked(8, b"\x03\xe8")).await;
        assert_eq!(frame(&mut app).await, (8, b"\x03\xe8".to_vec()));
        app.say(b"\x88\x02\x03\xe8").await;
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        client.stream.set_zero_linger().unwrap();
        drop(client);
        for node in &stage.nodes()[..=through] {
            node.until("it ended well", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
        }
    }
}

/// A client waits for the server's end (RFC 6455 §7.1.1), which not all bring about.
#[tokio::test]
async fn an_app_that_has_parted_need_not_end_its_connection() {
    for through in 0..2 {
        for app_begins in [true, false] {
            let stage = Stage::set().await;
            let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
            if app_begins {
                app.say(b"\x88\x02\x03\xe8").await;
                assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
            }
            client.say(masked(8, b"\x03\xe8")).await;
            assert_eq!(frame(&mut app).await, (8, b"\x03\xe8".to_vec()));
            if !app_begins {
                app.say(b"\x88\x02\x03\xe8").await;
                assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
            }
            let end = timeout(SOON, client.stream.read(&mut [0])).await.expect("it is not kept waiting");
            assert_eq!(end.expect("an end and no reset"), 0);
            for node in &stage.nodes()[..=through] {
                node.until("it ended well", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_without_a_word_is_no_failure() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        client.finish().await;
        assert!(app.is_closed().await);
        drop(app);
        assert!(client.rest().await.is_empty(), "nobody is told who has left");
        for node in stage.nodes() {
            node.until("it is counted", |totals| outcome(totals, "failed_cut") == 0 && totals.running == 0).await;
        }
    }
}

#[tokio::test]
async fn any_other_tunnel_runs_on_until_the_tenure_is_over() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "tcp").await;
        stage.primary.step_down(1);
        client.say("still").await;
        assert_eq!(app.exactly(5).await, b"still");
        app.say("here").await;
        assert_eq!(client.exactly(4).await, b"here");
        stage.primary.elect();
        assert!(client.is_closed().await && app.is_closed().await);
        stage.primary.until("it is counted", |totals| outcome(totals, "failed_cut") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_node_that_closes_tells_its_websockets() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let node = stage.nodes()[through];
        let (mut client, mut app) = stage.tunnel(node, "websocket").await;
        node.plane.closing();
        assert_eq!(client.exactly(RESTART.len()).await, RESTART);
        assert_eq!(frame(&mut app).await, (8, RESTART[2..].to_vec()));
        app.say(b"\x88\x02\x03\xf4").await;
        client.say(masked(8, &RESTART[2..4])).await;
        assert!(client.is_closed().await);
        node.until("it is counted", |totals| outcome(totals, "answered") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn whoever_cannot_be_told_sees_a_reset_and_no_end() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "tcp").await;
        app.say("half of ").await;
        assert_eq!(client.exactly(8).await, b"half of ");
        stage.primary.elect();
        let end = timeout(SOON, client.stream.read(&mut [0])).await.expect("it is cut");
        assert_eq!(end.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
        assert!(app.is_closed().await);

        stage.primary.lead(2);
        stage.replica.follow(&stage.primary, 2);
        let (client, mut app) = stage.tunnel(stage.nodes()[through], "tcp").await;
        let (mut hearing, mut saying) = client.stream.into_split();
        let (mut heard, busy) = ([0], vec![b'x'; BUSY]);
        let ends = async { tokio::join!(hearing.read(&mut heard), saying.write_all(&busy)) };
        let cut = async {
            app.exactly(1).await;
            stage.primary.elect();
        };
        let ((hears, says), ()) = timeout(SOON, async { tokio::join!(ends, cut) }).await.expect("it is cut");
        // Whichever comes upon it first takes it from the other.
        let kinds = [hears.err(), says.err()].map(|error| error.map(|error| error.kind()));
        assert!(kinds.contains(&Some(std::io::ErrorKind::ConnectionReset)), "{kinds:?}");

        stage.primary.lead(3);
        stage.replica.follow(&stage.primary, 3);
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "tcp").await;
        app.say("all of it").await;
        assert_eq!(client.exactly(9).await, b"all of it");
        let (mut hearing, saying) = client.stream.into_split();
        let _busy = sending(saying, vec![b'x'; BUSY]);
        assert_eq!(app.exactly(1).await, b"x");
        // What it leaves unread resets its connection, but behind its end.
        app.finish().await;
        drop(app);
        let end = timeout(SOON, hearing.read(&mut [0])).await.expect("it has ended");
        assert_eq!(end.expect("an end and no reset"), 0);
    }
}

#[tokio::test]
async fn an_app_that_leaves_input_unread_is_heard_to_its_end() {
    for through in 0..2 {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("app.sock");
        let apps = tokio::net::UnixListener::bind(&socket).unwrap();
        let primary = TestNode::member("default", Some(format!("unix://{}", socket.display()).parse().unwrap()), |_| {});
        let replica = TestNode::start(None);
        primary.lead(1);
        replica.follow(&primary, 1);
        let mut client = [&primary, &replica][through].client().await;
        client.say("GET /exec HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await;
        let (mut app, _) = apps.accept().await.unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(app.read_u8().await.unwrap());
        }
        app.write_all(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n").await.unwrap();
        assert_eq!(client.head().await.unwrap().status(), 101);

        assert!(client.heard.is_empty());
        let (mut hearing, saying) = client.stream.into_split();
        let _busy = sending(saying, vec![b'x'; 2 * 1024 * 1024]);
        app.read_u8().await.unwrap();
        // As much as there is room for on the way to a client that does not read yet.
        let (piece, mut said) = (vec![b'y'; 16 * 1024], 0);
        while let Ok(written) = timeout(std::time::Duration::from_millis(200), app.write(&piece)).await {
            said += written.unwrap();
        }
        drop(app);
        let mut heard = Vec::new();
        let end = timeout(SOON, hearing.read_to_end(&mut heard)).await.expect("it ends");
        end.expect("an end and no reset");
        assert_eq!(heard.len(), said);
    }
}

#[tokio::test]
async fn under_tls_a_tunnel_ends_with_a_goodbye_though_its_app_leaves_input_unread() {
    let world = World::new();
    let app = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let upstream = format!("http://{}", app.local_addr().unwrap()).parse().unwrap();
    let tls = Tls::load(world.lone()).unwrap().0;
    let primary = TestNode::member("default", Some(upstream), |config| config.tls = Some(tls));
    primary.lead(1);
    let connects = Client::read(Some(&world.authority.file()), None).unwrap();
    let stream = tokio::net::TcpStream::connect(primary.address).await.unwrap();
    let mut client = connects.connect("127.0.0.1", Ahead::new(stream)).await.unwrap();
    client.write_all(b"GET /exec HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nunread").await.unwrap();
    client.flush().await.unwrap();
    let mut app = Raw { stream: app.accept().await.unwrap().0, heard: Vec::new() };
    app.request().await.unwrap();
    app.say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\nall of it").await;
    let mut heard = Vec::new();
    while !heard.ends_with(b"all of it") {
        heard.push(client.read_u8().await.unwrap());
    }
    client.write_all(b"unread").await.unwrap();
    client.flush().await.unwrap();
    app.stream.readable().await.unwrap();
    app.finish().await;
    drop(app);
    let end = timeout(SOON, client.read(&mut [0])).await.expect("it has ended");
    assert_eq!(end.expect("nothing is missing"), 0);
}

#[tokio::test]
async fn whoever_was_told_by_the_app_is_not_reset_when_its_time_is_over() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        app.say(b"\x88\x02\x03\xe8").await;
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        stage.primary.step_down(1);
        let end = timeout(SOON, client.stream.read(&mut [0])).await.expect("its time is over");
        assert_eq!(end.expect("an end and no reset"), 0);
        assert!(app.is_closed().await);
    }
}

#[tokio::test]
async fn nobody_waits_for_long_for_whoever_does_not_answer_a_close_frame() {
    for through in 0..2 {
        let stage = Stage::set().await;
        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        app.say(b"\x88\x02\x03\xe8").await;
        drop(app);
        assert_eq!(client.exactly(4).await, b"\x88\x02\x03\xe8");
        for node in stage.nodes() {
            node.until("nothing is left of it", |totals| totals.running == 0 && totals.connections == 0).await;
            assert_eq!(outcome(&node.totals(), "failed_cut"), 0);
        }
        drop(client);

        let (mut client, mut app) = stage.tunnel(stage.nodes()[through], "websocket").await;
        client.say(masked(8, b"\x03\xe8")).await;
        client.finish().await;
        assert_eq!(frame(&mut app).await, (8, b"\x03\xe8".to_vec()));
        for node in stage.nodes() {
            node.until("nothing is left of it", |totals| totals.running == 0 && totals.connections == 0).await;
        }
        assert!(app.is_closed().await);
    }
}
