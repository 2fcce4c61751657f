//! Whatever a client sends: what reaches the app is exactly one request for each that the client has sent, in its framing and
//! its names beyond doubt, whoever reads it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::reference::{Read, read, read_all};
use super::{Case, Fuzz};
use crate::api::tests::rig::{Raw, SOON, TestApp, TestNode, until};

/// How many clients are at it at once, each with a node and an app of its own.
const LANES: usize = 24;
/// How long a node waits for more than it got, and until it sees that it does.
const REST: Duration = Duration::from_millis(40);
/// What most inputs end with, so that nobody has to wait for what does not come.
const LAST: &[u8] = b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

pub(super) const WORDS: &[&[u8]] = &[
    b"\r\n",
    b"\r\n\r\n",
    b"\n\n",
    b"\r\n ",
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"Content-Length: 5\r\n",
    b"Content-Length: +5\r\n",
    b"Content-Length: 5, 5\r\n",
    b"Content-Length : 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: identity\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"0\r\n\r\n",
    b"5\r\nhello\r\n0\r\n\r\n",
    b"5;a=\"b\"\r\nhello\r\n",
    b"fffffffffffffffff\r\n",
    b"Host: b\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive, x-secret, x-forwarded-for\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n",
    b"Proxy-Connection: keep-alive\r\n",
    b"Keep-Alive: timeout=5\r\n",
    b"TE: trailers\r\n",
    b"Trailer: x-secret\r\n",
    b"X-Secret: 1\r\n",
    b"X-Forwarded-For: 6.6.6.6\r\n",
    b"X-Forwarded-Proto: https\r\n",
    b"X-Forwarded-Port: 443\r\n",
    b"Bellwether-Hop: 00000000000000000000000000000001;epoch=1\r\n",
    b"Bellwether-Epoch: 99\r\n",
    b"Bellwether-Primary: evil:1\r\n",
    b"bellwether-anything: x\r\n",
    b"http://evil.example/",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"CONNECT ",
    b"OPTIONS * HTTP/1.1\r\n",
    b"/%2e%2e/%00?a=/../b&c=%",
    b"//evil.example",
    b"/_ping",
];

/// What an app has read of its connections, and all that it could not read.
#[derive(Default)]
struct Heard {
    requests: Mutex<Vec<Read>>,
    strange: Mutex<Vec<Vec<u8>>>,
}

/// An app that answers whatever it can read, and takes down the rest.
async fn listening_app(heard: &Arc<Heard>) -> TestApp {
    let heard = Arc::clone(heard);
    TestApp::scripted(move |raw, _| listen(raw, Arc::clone(&heard))).await
}

async fn listen(mut raw: Raw, heard: Arc<Heard>) {
    loop {
        while let Some(request) = read(&raw.heard).filter(|request| request.whole) {
            let head = request.method == "HEAD";
            let rest = raw.heard.split_off(request.length);
            raw.heard = rest;
            heard.requests.lock().unwrap().push(request);
            let answer = if head { "" } else { "hi" };
            if raw.stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{answer}").as_bytes()).await.is_err() {
                return;
            }
        }
        let unreadable = read(&raw.heard).is_none() && raw.heard.windows(4).any(|window| window == b"\r\n\r\n");
        if unreadable || raw.stream.read_buf(&mut raw.heard).await.unwrap_or(0) == 0 {
            break;
        }
    }
    if !raw.heard.is_empty() {
        match read(&raw.heard) {
            Some(broken_off) => heard.requests.lock().unwrap().push(broken_off),
            None => heard.strange.lock().unwrap().push(raw.heard),
        }
    }
}

/// Sends an input and waits until the node is done with it.
async fn send(address: SocketAddr, input: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // A node may hang up before it has read all of it.
    stream.write_all(input).await.ok();
    let mut answers = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answers)).await.expect("the node ends the connection").ok();
}

/// Where a request goes, by the target that its client has sent.
fn origin_form(target: &str) -> String {
    let target = target.split('#').next().unwrap_or_default();
    let Some((_, rest)) = target.split_once("://").filter(|_| !target.starts_with('/')) else { return target.to_owned() };
    let path = &rest[rest.find(['/', '?']).unwrap_or(rest.len())..];
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

/// Whether an app may hear `heard` when a client says `said`.
fn is_same(said: &Read, heard: &Read) -> bool {
    let same_body = if heard.whole { said.whole && said.body == heard.body } else { said.body.starts_with(&heard.body) };
    said.method == heard.method && origin_form(&said.target) == heard.target && same_body
}

/// What is wrong with a request that an app hears when a client says `said`.
fn fault(heard: &Read, said: &Read) -> Option<String> {
    if !is_same(said, heard) {
        return Some("nobody has sent it".to_owned());
    }
    let is = |name: &str, value: &[u8]| heard.values(name) == [value];
    let host = heard.values("host");
    let [host] = host[..] else { return Some("not one Host".to_owned()) };
    let lengths = heard.values("content-length");
    if lengths.len() + heard.values("transfer-encoding").len() > 1 || !lengths.iter().all(|length| length.iter().all(u8::is_ascii_digit)) {
        return Some("its framing can be read in two ways".to_owned());
    }
    // HTTP/1.0 needs no Host; then it is of our making.
    let has_named = !said.values("host").is_empty() || !(said.target == "*" || said.target.starts_with('/'));
    let host_is_told = if has_named { is("x-forwarded-host", host) } else { heard.values("x-forwarded-host").is_empty() };
    if !(is("bellwether-epoch", b"1") && is("x-forwarded-for", b"127.0.0.1") && is("x-forwarded-proto", b"http") && host_is_told) {
        return Some("we do not say who asks, and under which epoch".to_owned());
    }
    let (nominated, connection) = (said.elements("connection"), heard.elements("connection"));
    for (name, value) in &heard.fields {
        let ours = ["x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "bellwether-epoch", "via"].contains(&name.as_str());
        let essential = ["host", "content-length", "transfer-encoding", "trailer", "connection", "te", "upgrade"].contains(&name.as_str());
        let spoofed = !ours && (name.starts_with("x-forwarded-") || name.starts_with("bellwether-"));
        let of_the_hop = ["keep-alive", "proxy-connection"].contains(&name.as_str()) || !ours && !essential && nominated.contains(name);
        if spoofed || of_the_hop || value.iter().any(|byte| b"\r\n\0".contains(byte)) {
            return Some(format!("{name} came through"));
        }
    }
    let upgrades = connection == ["upgrade"];
    let asks_for_trailers = connection == ["te"] && heard.elements("te") == ["trailers"];
    let plain = connection.is_empty() && heard.values("te").is_empty();
    if !(upgrades || asks_for_trailers || plain) || heard.values("upgrade").is_empty() == upgrades {
        return Some("what is between client and node came through".to_owned());
    }
    None
}

/// One client, one node, one app.
struct Lane {
    node: TestNode,
    app: TestApp,
    heard: Arc<Heard>,
    /// What may still be on its way to the app.
    before: Vec<Read>,
}

impl Lane {
    async fn new() -> Self {
        let heard = Arc::<Heard>::default();
        let app = listening_app(&heard).await;
        let node = TestNode::with(Some(&app), |config| {
            config.limits.head_timeout = REST;
            config.limits.body_idle_timeout = Some(REST);
        });
        node.lead(1);
        Self { node, app, heard, before: Vec::new() }
    }

    async fn run(&mut self, case: &Case) {
        let last = if case.number.is_multiple_of(32) { &[] } else { LAST };
        let input = [&case.input, last].concat();
        send(self.node.address, &input).await;
        until("the node is done with it", || self.node.totals().running == 0).await;
        let said = read_all(&input);
        let heard = std::mem::take(&mut *self.heard.requests.lock().unwrap());
        let strange = std::mem::take(&mut *self.heard.strange.lock().unwrap());
        for bytes in &strange {
            // A head that was broken off by a cut connection is at least the beginning of one.
            assert!(!bytes.windows(4).any(|window| window == b"\r\n\r\n"), "the app cannot read {:?}", String::from_utf8_lossy(bytes));
        }
        let mut open: Vec<&Read> = self.before.iter().chain(&said).collect();
        for request in &heard {
            let faults: Vec<Option<String>> = open.iter().map(|said| fault(request, said)).collect();
            match faults.iter().position(Option::is_none) {
                Some(at) => drop(open.remove(at)),
                None => panic!("{request:?}: {faults:?} of {open:?}"),
            }
        }
        self.before = said.into_iter().filter(|said| !said.whole || !said.body.is_empty()).collect();
    }
}

#[tokio::test]
async fn whatever_a_client_sends_the_app_hears_requests_that_were_sent_and_no_others() {
    let fuzz = Arc::new(Mutex::new(Fuzz::of("heads", WORDS, 1_500)));
    let mut lanes: JoinSet<usize> = JoinSet::new();
    for _ in 0..LANES {
        let fuzz = Arc::clone(&fuzz);
        lanes.spawn(async move {
            let mut lane = Lane::new().await;
            loop {
                let next = fuzz.lock().unwrap().next_case();
                let Some(case) = next else { return lane.app.seen.connections() };
                lane.run(&case).await;
            }
        });
    }
    let mut reached = 0;
    while let Some(ended) = lanes.join_next().await {
        match ended {
            Ok(connections) => reached += connections,
            Err(error) => {
                // The others have not failed.
                lanes.shutdown().await;
                std::panic::resume_unwind(error.into_panic());
            }
        }
    }
    assert!(reached > 0, "some inputs reach the app");
}
