use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{advance, pause, resume};

use super::*;
use crate::api::tests::rig::{Message, Raw, SOON, TestApp, Vacant, until};
use crate::clock;
use crate::replication::RolePublisher;
use crate::store::Leader;
use crate::tls::Tls;
use crate::tls::tests::World;

/// More than these tests take.
const MINUTE: Duration = Duration::from_secs(60);

/// A node that knows, and whose role the test decides.
struct Rig {
    engine: Arc<Engine>,
    roles: RolePublisher,
    _asking: JoinSet<()>,
}

impl Rig {
    fn start(app: Option<&TestApp>) -> Self {
        Self::with(app.map(TestApp::upstream).as_ref())
    }

    fn with(app: Option<&Upstream>) -> Self {
        // Asking may take as long as the machine likes.
        Self::patient(app.map(|app| (app, None)), SOON)
    }

    fn patient(app: Option<(&Upstream, Option<tls::Client>)>, limit: Duration) -> Self {
        let (roles, watch) = RolePublisher::new();
        let own = "127.0.0.1:1".parse().unwrap();
        let (app, to_app) = app.map_or((None, None), |(app, tls)| (Some(app), tls));
        let engine = Engine::new(watch, Some(own), app, to_app, None);
        let engine = Arc::new(Engine { app_limit: limit, longest_wait: limit, ..engine });
        let asking = Arc::clone(&engine);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { asking.keep_up().await });
        Self { engine, roles, _asking: tasks }
    }

    fn lead(&self, epoch: u64) {
        self.roles.publish(Role::Primary { epoch: Epoch(epoch), deadline: clock::now() + Duration::from_secs(36_000) });
    }

    fn follow(&self, leader: &str, epoch: u64) {
        self.roles.publish(Role::Replica(Leader { address: leader.parse().unwrap(), epoch: Epoch(epoch) }));
    }

    async fn says(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        timeout(SOON * 2, self.engine.describe()).await.expect("a ping is answered").write(&mut headers);
        headers
    }

    /// The version, and the tenure.
    async fn version(&self) -> (String, Option<String>) {
        let headers = self.says().await;
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        (text(&API_VERSION).unwrap(), text(&EPOCH))
    }

    async fn assert_says(&self, version: &str, epoch: Option<&str>) {
        assert_eq!(self.version().await, (version.to_owned(), epoch.map(str::to_owned)));
    }
}

/// Lets that much time pass for what was heard, and none for sockets.
async fn later(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

fn pong(status: &str, fields: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{fields}Content-Length: 0\r\n\r\n").into_bytes()
}

/// An engine that speaks `1.40`, and a later version with each ping.
async fn engine() -> TestApp {
    let asked = Arc::new(std::sync::atomic::AtomicUsize::new(40));
    TestApp::answering(move |_| {
        let minor = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        pong("200 OK", &format!("Api-Version: 1.{minor}\r\nOstype: beos\r\nServer: Docker/1 (beos)\r\nX-Secret: no\r\n"))
    })
    .await
}

fn asked(app: &TestApp) -> Vec<String> {
    app.seen.requests().iter().map(|request: &Message| request.line.clone()).collect()
}

#[tokio::test]
async fn a_primary_says_what_its_engine_says_and_asks_again_after_a_while() {
    let app = engine().await;
    let rig = Rig::start(Some(&app));
    rig.assert_says(USUAL_API, None).await;
    assert_eq!(app.seen.connections(), 0, "without a tenure nobody is asked");
    rig.lead(7);
    let headers = rig.says().await;
    let expected = [("api-version", "1.40"), ("ostype", "beos"), ("server", "Docker/1 (beos)"), ("bellwether-epoch", "7")];
    assert_eq!(headers.len(), expected.len(), "{headers:?}");
    for (name, value) in expected {
        assert_eq!(headers[name], value);
    }
    rig.assert_says("1.40", Some("7")).await;
    assert_eq!(asked(&app), ["HEAD /_ping HTTP/1.1"]);
    assert_eq!(app.last().field("bellwether-epoch"), Some("7"));
    later(GOOD_FOR).await;
    rig.assert_says("1.41", Some("7")).await;
    rig.lead(8);
    rig.assert_says("1.42", Some("8")).await;
}

#[tokio::test]
async fn pings_that_come_together_ask_once() {
    let app = engine().await;
    let rig = Rig::start(Some(&app));
    rig.lead(1);
    futures_util::future::join_all((0..50).map(|_| rig.assert_says("1.40", Some("1")))).await;
    assert_eq!(app.seen.connections(), 1);
}

#[tokio::test]
async fn an_app_that_is_no_engine_is_left_in_peace() {
    for answer in ["404 Not Found", "501 Not Implemented", "204 No Content"] {
        let app = TestApp::answering(move |_| pong(answer, "Api-Version: 1.47\r\n")).await;
        let rig = Rig::start(Some(&app));
        rig.lead(1);
        rig.assert_says(USUAL_API, Some("1")).await;
        later(PEACE - MINUTE).await;
        rig.assert_says(USUAL_API, Some("1")).await;
        assert_eq!(app.seen.connections(), 1);
        later(MINUTE).await;
        rig.assert_says(USUAL_API, Some("1")).await;
        assert_eq!(app.seen.connections(), 2, "it may have become one");
    }
}

#[tokio::test]
async fn an_engine_that_is_starting_or_gone_is_asked_again_soon_and_its_last_word_stays() {
    let place = Vacant::take();
    let rig = Rig::with(Some(&format!("http://{}", place.address()).parse().unwrap()));
    rig.lead(1);
    rig.assert_says(USUAL_API, None).await;
    let fails = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let failing = Arc::clone(&fails);
    let app = TestApp::on(place.listen(), move |mut raw: Raw, _seen| {
        let fails = failing.load(std::sync::atomic::Ordering::SeqCst);
        async move {
            raw.request().await.expect("a question");
            raw.say(pong(if fails { "503 Service Unavailable" } else { "200 OK" }, "Api-Version: 1.47\r\n")).await;
        }
    });
    later(NOT_THERE).await;
    rig.assert_says(USUAL_API, None).await;
    assert_eq!(app.seen.connections(), 1);
    fails.store(false, std::sync::atomic::Ordering::SeqCst);
    later(NO_ANSWER).await;
    rig.assert_says("1.47", Some("1")).await;
    drop(app);
    later(GOOD_FOR).await;
    rig.assert_says("1.47", Some("1")).await;
    rig.roles.publish(Role::Electing);
    rig.assert_says("1.47", Some("1")).await;
}

/// The handshake takes until then: nothing is asked after it, and not even the handshake ends.
#[tokio::test]
async fn an_engine_is_asked_nothing_once_the_tenure_is_over() {
    let world = World::new();
    let (tls, _) = Tls::load(world.lone()).unwrap();
    let to_app = tls::Client::read(Some(&world.authority.file()), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app = Upstream::Https { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
    let rig = Rig::patient(Some((&app, Some(to_app))), SOON);
    for is_over in [false, true] {
        rig.lead(if is_over { 2 } else { 1 });
        let answer = async {
            let (stream, _) = listener.accept().await.unwrap();
            stream.peek(&mut [0]).await.unwrap();
            if is_over {
                rig.roles.publish(Role::Electing);
            }
            let Ok((mut stream, _)) = tls.accept(stream).await else { return false };
            let mut asked = [0; 14];
            stream.read_exact(&mut asked).await.unwrap();
            assert_eq!(&asked, b"HEAD /_ping HT");
            stream.write_all(&pong("200 OK", "Api-Version: 1.47\r\n")).await.unwrap();
            true
        };
        let (answered, _) = timeout(SOON, async { tokio::join!(answer, rig.says()) }).await.unwrap();
        assert_eq!(answered, !is_over);
    }
}

#[tokio::test]
async fn a_silent_app_keeps_no_ping_waiting_for_long() {
    let app = TestApp::scripted(|mut raw, _seen| async move {
        raw.request().await.expect("a question");
        raw.is_closed().await;
    })
    .await;
    let rig = Rig::patient(Some((&app.upstream(), None)), APP_LIMIT);
    rig.lead(1);
    rig.assert_says(USUAL_API, None).await;
    until("the question is given up", || app.seen.ended() == 1).await;
    // Nobody waits for it a second time.
    until("its end is known", || rig.engine.due(&rig.engine.heard.borrow()).is_none()).await;
    rig.assert_says(USUAL_API, None).await;
    assert_eq!(app.seen.connections(), 1);
    later(NO_ANSWER).await;
    rig.assert_says(USUAL_API, None).await;
    assert_eq!(app.seen.connections(), 2);
}

#[tokio::test]
async fn a_replica_believes_what_its_leader_heard_in_its_tenure() {
    for (signature, version, epoch) in [
        ("Bellwether-Epoch: 7\r\n", "1.47", Some("7")),
        ("Bellwether-Epoch: 8\r\n", "1.47", Some("7")),
        ("Bellwether-Epoch: 6\r\n", USUAL_API, None),
        ("Bellwether-Epoch: x\r\n", USUAL_API, None),
        ("", USUAL_API, None),
    ] {
        let leader = TestApp::answering(move |_| pong("200 OK", &format!("Api-Version: 1.47\r\n{signature}"))).await;
        let rig = Rig::start(None);
        rig.follow(&leader.address.to_string(), 7);
        rig.assert_says(version, epoch).await;
        assert_eq!(asked(&leader), ["HEAD /_ping HTTP/1.1"]);
    }
}

#[tokio::test]
async fn nobody_asks_himself_nor_what_he_has_not() {
    let rig = Rig::start(None);
    rig.lead(1);
    rig.assert_says(USUAL_API, None).await;
    rig.follow("127.0.0.1:1", 1);
    rig.assert_says(USUAL_API, None).await;
    let h2c = Rig::with(Some(&"h2c://127.0.0.1:1".parse().unwrap()));
    h2c.lead(1);
    h2c.assert_says(USUAL_API, None).await;
    for rig in [rig, h2c] {
        assert_eq!(rig.engine.heard.borrow().asked, None);
    }
}

#[test]
fn only_an_engine_is_believed_and_only_what_is_plain() {
    let answer = |status: u16, pairs: &[(&'static str, &str)]| {
        let pairs = pairs.iter().map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap()));
        Answer { status: StatusCode::from_u16(status).unwrap(), headers: pairs.collect(), body: bytes::Bytes::new() }
    };
    for version in ["", "1", "1.", ".41", "1.x", "1.41/../..", "1.41 ", "+1.41", "1.4.1", "12345.1", "1.12345", "\u{661}.\u{664}"] {
        assert!(fields(&answer(200, &[("api-version", version)])).is_none(), "{version:?}");
    }
    assert!(fields(&answer(200, &[("server", "Docker")])).is_none());
    assert!(fields(&answer(204, &[("api-version", "1.41")])).is_none());
    let long = "x".repeat(LONGEST_FIELD + 1);
    let known =
        fields(&answer(200, &[("api-version", "1.41"), ("swarm", &long), ("builder-version", "\u{e9}"), ("server", "a b"), ("x", "y")]));
    let known = known.unwrap();
    assert_eq!(
        known.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect::<Vec<_>>(),
        [("api-version", "1.41"), ("server", "a b")]
    );
}
