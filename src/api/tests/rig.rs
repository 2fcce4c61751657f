//! What the tests of the data plane are made of: nodes whose role the test decides, apps that are scripted byte by byte,
//! and clients that say exactly what they are told to.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::request::Parts;
use http::{Method, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::api::{Config, Ledger, Limits, Listen, LocalApi, Plane, Right, Shared, Totals, bind};
use crate::clock;
use crate::cluster::Upstream;
use crate::node::{BootId, Node};
use crate::replication::{Role, RolePublisher, RoleWatch};
use crate::store::{Epoch, Leader};

/// Longer than anything in these tests takes on a slow and busy machine, shorter than anybody's patience.
pub(in crate::api) const SOON: Duration = Duration::from_secs(20);
/// Longer than [`SOON`]: where a test does not say otherwise, no request is given up while the test still waits for it.
pub(in crate::api) const HOLD: Duration = Duration::from_secs(60);

/// A node on loopback.
pub(in crate::api) struct TestNode {
    pub(in crate::api) plane: Plane,
    pub(in crate::api) address: SocketAddr,
    pub(in crate::api) node: Node,
    roles: RolePublisher,
}

impl TestNode {
    /// A node that is electing, in front of `app`.
    pub(in crate::api) fn start(app: Option<&TestApp>) -> Self {
        Self::with(app, |_| {})
    }

    pub(in crate::api) fn with(app: Option<&TestApp>, change: impl FnOnce(&mut Config)) -> Self {
        Self::member("default", app.map(|app| app.upstream()), change)
    }

    pub(in crate::api) fn member(service: &str, upstream: Option<Upstream>, change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config {
            listen: vec![Listen::Tcp("127.0.0.1:0".parse().unwrap())],
            upstream: upstream.into_iter().collect(),
            hold_timeout: HOLD,
            hold_requests: 100,
            hold_bytes: 1024 * 1024,
            ttl: Duration::from_secs(2),
            workers: NonZeroUsize::MIN,
            trusted_proxies: Vec::new(),
            tls: None,
            to_app: None,
            // Reaching a node of the same test may take as long as the machine likes.
            limits: Limits { connect_timeout: SOON, ..Limits::default() },
        };
        change(&mut config);
        let bound = bind(&config).unwrap();
        let address = bound.addresses().iter().find_map(|listen| match listen {
            Listen::Tcp(address) => Some(*address),
            Listen::Unix(_) => None,
        });
        let address = address.unwrap();
        let node = Node::new(address.to_string().parse().unwrap());
        let (roles, watch) = RolePublisher::new();
        let local = Arc::new(Introduction { service: service.to_owned(), id: node.boot, roles: watch.clone() });
        let shared = Shared { node: Some(node.clone()), service: service.to_owned(), roles: watch, local };
        let plane = bound.serve(shared).unwrap();
        Self { plane, address, node, roles }
    }

    pub(in crate::api) fn lead(&self, epoch: u64) {
        self.lead_for(epoch, Duration::from_secs(3_600));
    }

    pub(in crate::api) fn lead_for(&self, epoch: u64, time: Duration) {
        self.roles.publish(Role::Primary { epoch: Epoch(epoch), deadline: clock::now() + time });
    }

    pub(in crate::api) fn step_down(&self, epoch: u64) {
        self.roles.publish(Role::SteppingDown { epoch: Epoch(epoch), deadline: clock::now() + Duration::from_secs(3_600) });
    }

    pub(in crate::api) fn elect(&self) {
        self.roles.publish(Role::Electing);
    }

    pub(in crate::api) fn follow(&self, leader: &Self, epoch: u64) {
        self.follow_address(&leader.node.address.to_string(), epoch);
    }

    pub(in crate::api) fn follow_address(&self, address: &str, epoch: u64) {
        self.roles.publish(Role::Replica(Leader { address: address.parse().unwrap(), epoch: Epoch(epoch) }));
    }

    pub(in crate::api) async fn client(&self) -> Raw {
        Raw::connect(self.address).await
    }

    pub(in crate::api) fn totals(&self) -> Totals {
        balanced(&self.plane.ledger())
    }

    /// Waits until the counters say what is expected of them.
    pub(in crate::api) async fn until(&self, reason: &str, wanted: impl Fn(&Totals) -> bool) {
        until(reason, || wanted(&self.totals())).await;
    }
}

/// Totals, whose sum is checked at every look.
fn balanced(ledger: &Ledger) -> Totals {
    let totals = ledger.totals();
    let ended: u64 = totals.outcomes.iter().map(|(_, count)| count).sum();
    assert_eq!(totals.accepted, ended + totals.held + totals.running, "{totals:?}");
    totals
}

pub(in crate::api) fn outcome(totals: &Totals, name: &str) -> u64 {
    totals.outcomes.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no outcome {name}")).1
}

/// Waits for a state, with a reason.
pub(in crate::api) async fn until(reason: &str, mut reached: impl FnMut() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("not in time: {reason}"));
}

/// Two nodes, the second forwarding to the first.
pub(in crate::api) fn chain(app: &TestApp) -> (TestNode, TestNode) {
    let primary = TestNode::start(Some(app));
    let replica = TestNode::start(None);
    primary.lead(1);
    replica.follow(&primary, 1);
    (primary, replica)
}

/// The local routes that the plane itself relies on.
struct Introduction {
    service: String,
    id: BootId,
    roles: RoleWatch,
}

#[async_trait]
impl LocalApi for Introduction {
    fn claims(&self, _method: &Method, path: &str) -> bool {
        path == "/_ping" || path.starts_with("/_bellwether/")
    }

    async fn answer(&self, request: &Parts, _right: Right) -> Response<Bytes> {
        match request.uri.path() {
            "/_ping" => Response::new(Bytes::from_static(b"OK")),
            _ => {
                let role = self.roles.current();
                let (name, epoch) = (role.name(), role.tenure().map_or(0, |epoch| epoch.0));
                let json = serde_json::json!({ "service": self.service, "id": self.id.to_string(), "role": name, "epoch": epoch });
                Response::new(json.to_string().into())
            }
        }
    }
}

/// A message as it was on the wire, cut into its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::api) struct Message {
    /// The request line or status line.
    pub(in crate::api) line: String,
    /// Names as they were written.
    pub(in crate::api) fields: Vec<(String, String)>,
    pub(in crate::api) body: Vec<u8>,
}

impl Message {
    fn parse_head(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let fields = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { line, fields, body: Vec::new() }
    }

    pub(in crate::api) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status in {:?}", self.line))
    }

    pub(in crate::api) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(in crate::api) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(in crate::api) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(in crate::api) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|encoding| encoding.ends_with("chunked"))
    }

    fn length(&self) -> Option<usize> {
        self.field("content-length").map(|length| length.parse().unwrap())
    }
}

/// One end of a connection that says and hears exact bytes.
pub(in crate::api) struct Raw {
    pub(in crate::api) stream: TcpStream,
    pub(in crate::api) heard: Vec<u8>,
}

impl Raw {
    pub(in crate::api) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, heard: Vec::new() }
    }

    pub(in crate::api) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request without a body, with a Host, and reads its answer.
    pub(in crate::api) async fn get(&mut self, target: &str) -> Message {
        self.say(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        self.answer().await
    }

    pub(in crate::api) async fn post(&mut self, target: &str, body: &[u8]) -> Message {
        self.say(format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len())).await;
        self.say(body).await;
        self.answer().await
    }

    /// Closes the sending side.
    pub(in crate::api) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Reads more; false at the end.
    async fn hear(&mut self) -> bool {
        let mut piece = vec![0; 16 * 1024];
        match timeout(SOON, self.stream.read(&mut piece)).await.expect("something is said in time") {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.heard.extend_from_slice(&piece[..read]);
                true
            }
        }
    }

    /// Reads until `wanted` has been heard, and takes everything up to its end.
    pub(in crate::api) async fn through(&mut self, wanted: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.heard.windows(wanted.len()).position(|window| window == wanted) {
                let rest = self.heard.split_off(at + wanted.len());
                return Some(std::mem::replace(&mut self.heard, rest));
            }
            if !self.hear().await {
                return None;
            }
        }
    }

    pub(in crate::api) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.heard.len() < length {
            assert!(self.hear().await, "the end after {} of {length} bytes", self.heard.len());
        }
        let rest = self.heard.split_off(length);
        std::mem::replace(&mut self.heard, rest)
    }

    /// Everything up to the end.
    pub(in crate::api) async fn rest(&mut self) -> Vec<u8> {
        while self.hear().await {}
        std::mem::take(&mut self.heard)
    }

    pub(in crate::api) async fn head(&mut self) -> Option<Message> {
        let head = self.through(b"\r\n\r\n").await?;
        Some(Message::parse_head(&head))
    }

    /// The next request, whole; `None` when the peer has nothing more to say.
    pub(in crate::api) async fn request(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        if message.is_chunked() {
            message.body = self.chunks().await?;
        } else if let Some(length) = message.length() {
            message.body = self.exactly(length).await;
        }
        Some(message)
    }

    /// The next answer, whole.
    pub(in crate::api) async fn answer(&mut self) -> Message {
        self.answer_to("GET").await
    }

    pub(in crate::api) async fn answer_to(&mut self, method: &str) -> Message {
        let mut message = self.head().await.expect("an answer");
        let bodiless = method == "HEAD" || matches!(message.status(), 204 | 304) || message.status() < 200;
        if bodiless {
        } else if message.is_chunked() {
            message.body = self.chunks().await.expect("a last chunk");
        } else if let Some(length) = message.length() {
            message.body = self.exactly(length).await;
        } else {
            message.body = self.rest().await;
        }
        message
    }

    /// A chunked body, with its trailers dropped.
    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.through(b"\r\n").await?;
            let size = std::str::from_utf8(&line).unwrap().trim_end();
            let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk size: {size}"));
            if size == 0 {
                while self.through(b"\r\n").await? != b"\r\n" {}
                return Some(body);
            }
            body.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n");
        }
    }

    /// Whether the peer closes its side, or resets it, without saying more.
    pub(in crate::api) async fn is_closed(&mut self) -> bool {
        !self.hear().await
    }
}

/// An app that is scripted: each connection is handed to the script.
pub(in crate::api) struct TestApp {
    pub(in crate::api) address: SocketAddr,
    pub(in crate::api) seen: Arc<Seen>,
    _accepting: JoinSet<()>,
}

/// What an app has seen.
#[derive(Default)]
pub(in crate::api) struct Seen {
    pub(in crate::api) requests: Mutex<Vec<Message>>,
    pub(in crate::api) connections: std::sync::atomic::AtomicUsize,
    /// Connections that ended, seen from the app.
    pub(in crate::api) ended: std::sync::atomic::AtomicUsize,
}

impl Seen {
    pub(in crate::api) fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap().clone()
    }

    pub(in crate::api) fn connections(&self) -> usize {
        self.connections.load(std::sync::atomic::Ordering::SeqCst)
    }

    pub(in crate::api) fn ended(&self) -> usize {
        self.ended.load(std::sync::atomic::Ordering::SeqCst)
    }
}

impl TestApp {
    /// An app that speaks for itself on every connection. `Raw::request` on it does not record: use [`Seen`] or answers.
    pub(in crate::api) async fn scripted<F: Future<Output = ()> + Send + 'static>(
        script: impl Fn(Raw, Arc<Seen>) -> F + Send + 'static,
    ) -> Self {
        Self::at("127.0.0.1:0", script).await
    }

    pub(in crate::api) async fn at<F: Future<Output = ()> + Send + 'static>(
        place: &str,
        script: impl Fn(Raw, Arc<Seen>) -> F + Send + 'static,
    ) -> Self {
        Self::on(TcpListener::bind(place).await.unwrap(), script)
    }

    /// The same, behind a listener that the test has made.
    pub(in crate::api) fn on<F: Future<Output = ()> + Send + 'static>(
        listener: TcpListener,
        script: impl Fn(Raw, Arc<Seen>) -> F + Send + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Seen::default());
        let seen_there = Arc::clone(&seen);
        let mut accepting = JoinSet::new();
        accepting.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                seen_there.connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let (talk, seen) = (script(Raw { stream, heard: Vec::new() }, Arc::clone(&seen_there)), Arc::clone(&seen_there));
                connections.spawn(async move {
                    talk.await;
                    seen.ended.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                });
            }
        });
        Self { address, seen, _accepting: accepting }
    }

    /// An app that records each request and answers it with the bytes that `respond` gives.
    pub(in crate::api) async fn answering(respond: impl Fn(&Message) -> Vec<u8> + Clone + Send + Sync + 'static) -> Self {
        Self::scripted(move |mut raw, seen| {
            let respond = respond.clone();
            async move {
                while let Some(request) = raw.request().await {
                    let answer = respond(&request);
                    seen.requests.lock().unwrap().push(request);
                    if raw.stream.write_all(&answer).await.is_err() {
                        return;
                    }
                }
            }
        })
        .await
    }

    /// An app that answers everything with `hello`.
    pub(in crate::api) async fn hello() -> Self {
        Self::answering(|_| ok("hello")).await
    }

    pub(in crate::api) fn upstream(&self) -> Upstream {
        format!("http://{}", self.address).parse().unwrap()
    }

    /// The latest request.
    pub(in crate::api) fn last(&self) -> Message {
        self.seen.requests().last().expect("a request was seen").clone()
    }
}

pub(in crate::api) fn ok(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
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

/// Sends `bytes` in the background, as far as they are taken, and keeps the sending side open.
pub(in crate::api) fn sending(mut to: OwnedWriteHalf, bytes: Vec<u8>) -> JoinSet<OwnedWriteHalf> {
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        to.write_all(&bytes).await.ok();
        to
    });
    sending
}

/// Lets a scripted app go on when the test says so.
#[derive(Clone)]
pub(in crate::api) struct Go(Arc<tokio::sync::Semaphore>);

impl Go {
    pub(in crate::api) fn new() -> Self {
        Self(Arc::new(tokio::sync::Semaphore::new(0)))
    }

    pub(in crate::api) fn on(&self) {
        self.0.add_permits(1);
    }

    pub(in crate::api) async fn wait(&self) {
        timeout(SOON, self.0.acquire()).await.expect("told to go on in time").unwrap().forget();
    }
}

/// An app that answers `/slow` half, and the other half when told to; everything else at once.
pub(in crate::api) async fn slow_app(go: &Go) -> TestApp {
    let go = go.clone();
    TestApp::scripted(move |mut raw, seen| {
        let go = go.clone();
        async move {
            while let Some(request) = raw.request().await {
                let slow = request.target() == "/slow";
                seen.requests.lock().unwrap().push(request);
                if !slow {
                    raw.say(ok("quick")).await;
                    continue;
                }
                raw.say("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nsl").await;
                tokio::select! {
                    () = go.wait() => raw.say("ow").await,
                    _ = raw.is_closed() => return,
                }
            }
        }
    })
    .await
}
