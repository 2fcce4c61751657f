//! One connection to one member, and the session that it carries: requests go out in the order of the calls, each answer
//! finds its caller, and events wake whoever waits.
//!
//! A request that was sent stays sent, also when nobody waits for its answer any more. A connection never comes back:
//! once it is closed, every call on it fails, and says why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::failure::Failure;
use super::message::{Reply, Request, Welcome, hello, xid};
use crate::clock;
use crate::node::Address;
use crate::store::tls::Stream;

/// The way to a member, with TLS or without.
pub(super) type Wire = Box<dyn Stream>;

/// More than a server sends by itself (`jute.maxbuffer`, 1 MiB), and than anybody means.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// What the servers know a session by.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) id: i64,
    pub(super) password: Vec<u8>,
    /// After which silence the servers end it: what they granted, not what was asked.
    pub(super) granted: Duration,
    /// When a server last said something in it.
    pub(super) heard: Instant,
    /// The last transaction that it has seen.
    pub(super) zxid: i64,
}

/// A live session on an open connection.
pub(super) struct Connection {
    pub(super) member: Address,
    /// The session's number.
    pub(super) session: i64,
    /// The session's time limit.
    pub(super) granted: Duration,
    exchange: Arc<Exchange>,
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    _task: JoinSet<()>,
}

/// What the calls and the connection's task have in common.
struct Exchange {
    state: Mutex<State>,
    /// Counts what waits may have to know: events of watches, and the end.
    events: watch::Sender<u64>,
}

struct State {
    next: i32,
    waiting: HashMap<i32, oneshot::Sender<Reply>>,
    heard: Instant,
    zxid: i64,
    /// Why nothing more can be said.
    closed: Option<Arc<str>>,
}

/// Opens the connection: says which session we had, or asks for one of `ttl`. Returns none where that session is over.
///
/// # Cancel safety
/// A session that was granted and not heard of runs out at the servers; nothing lies in it.
pub(super) async fn open(stream: &mut Wire, session: Option<&Session>, ttl: Duration) -> Result<Option<Session>, Failure> {
    let greeting = match session {
        Some(session) => {
            // A member that knows less than we do has to turn us away. One that lost its data would do so for ever: once
            // the session must be over, what it has seen no longer counts.
            let zxid = if clock::now() - session.heard < session.granted { session.zxid } else { 0 };
            hello(zxid, millis(session.granted), session.id, &session.password)
        }
        None => hello(0, millis(ttl), 0, &[0; 16]),
    };
    stream.write_all(&greeting).await.map_err(|error| Failure::way(error.to_string()))?;
    stream.flush().await.map_err(|error| Failure::way(error.to_string()))?;
    let welcome = read_frame(stream).await.map_err(Failure::way)?;
    let welcome = Welcome::read(&welcome)?;
    if welcome.session == 0 {
        return Ok(None);
    }
    let granted = u64::try_from(welcome.timeout).ok().filter(|&millis| millis > 0).map(Duration::from_millis);
    let granted = granted.ok_or(Failure::Undecided("ZooKeeper granted a session of no time"))?;
    let zxid = session.filter(|session| session.id == welcome.session).map_or(0, |session| session.zxid);
    Ok(Some(Session { id: welcome.session, password: welcome.password, granted, heard: clock::now(), zxid }))
}

fn millis(time: Duration) -> i32 {
    i32::try_from(time.as_millis()).unwrap_or(i32::MAX)
}

impl Connection {
    /// Takes over a stream on which `session` was opened.
    pub(super) fn start(stream: Wire, member: Address, session: &Session) -> Self {
        let state = State { next: 1, waiting: HashMap::new(), heard: session.heard, zxid: session.zxid, closed: None };
        let exchange = Arc::new(Exchange { state: Mutex::new(state), events: watch::Sender::new(0) });
        let (outbox, letters) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(serve(stream, letters, Arc::clone(&exchange)));
        Self { member, session: session.id, granted: session.granted, exchange, outbox, _task: task }
    }

    /// Sends a request now; the future only waits for its answer.
    pub(super) fn send(&self, request: &Request) -> impl Future<Output = Result<Reply, Failure>> + Send + use<> {
        let exchange = Arc::clone(&self.exchange);
        let numbered = exchange.state().number();
        let answer = numbered.map(|(xid, answer)| {
            self.queue(request.frame(xid));
            answer
        });
        async move {
            match answer {
                Some(answer) => answer.await.map_err(|_| exchange.failure()),
                None => Err(exchange.failure()),
            }
        }
    }

    /// Says who we are; a server that does not believe it closes the connection.
    pub(super) fn log_in(&self, login: &str) {
        self.queue(Request::login(login).frame(xid::LOGIN));
    }

    /// Shows the servers that the session lives, and finds out whether they do.
    pub(super) fn ping(&self) {
        self.queue(Request::ping().frame(xid::PING));
    }

    /// Changes with each event of a watch, and when the connection is closed.
    pub(super) fn events(&self) -> watch::Receiver<u64> {
        self.exchange.events.subscribe()
    }

    /// When the member last said something, and the last transaction that it has shown us.
    pub(super) fn seen(&self) -> (Instant, i64) {
        let state = self.exchange.state();
        (state.heard, state.zxid)
    }

    pub(super) fn is_open(&self) -> bool {
        self.exchange.state().closed.is_none()
    }

    /// Lets nothing more be said, for this reason.
    pub(super) fn close(&self, why: &str) {
        self.exchange.close(why);
    }

    /// Why it was closed.
    pub(super) fn failure(&self) -> Failure {
        self.exchange.failure()
    }

    fn queue(&self, frame: Vec<u8>) {
        if self.outbox.send(frame).is_err() {
            self.exchange.close("the connection has ended");
        }
    }
}

impl Exchange {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock can panic")
    }

    fn close(&self, why: &str) {
        let mut state = self.state();
        state.closed.get_or_insert_with(|| why.into());
        state.waiting.clear();
        self.events.send_modify(|count| *count += 1);
    }

    fn failure(&self) -> Failure {
        Failure::way(self.state().closed.as_deref().unwrap_or("the connection has ended").to_owned())
    }
}

impl State {
    /// The number of a new request, and where its answer will arrive.
    fn number(&mut self) -> Option<(i32, oneshot::Receiver<Reply>)> {
        if self.closed.is_some() {
            return None;
        }
        let xid = self.next;
        self.next = xid.checked_add(1).unwrap_or(1);
        let (sender, answer) = oneshot::channel();
        self.waiting.insert(xid, sender);
        Some((xid, answer))
    }
}

/// Carries requests and answers until one side has ended.
async fn serve(stream: Wire, letters: mpsc::UnboundedReceiver<Vec<u8>>, exchange: Arc<Exchange>) {
    let (from, to) = tokio::io::split(stream);
    let why = tokio::select! {
        why = listen(from, &exchange) => why,
        why = speak(to, letters) => why,
    };
    exchange.close(&why);
}

async fn speak(mut to: WriteHalf<Wire>, mut letters: mpsc::UnboundedReceiver<Vec<u8>>) -> String {
    while let Some(frame) = letters.recv().await {
        let written = async {
            to.write_all(&frame).await?;
            to.flush().await
        };
        if let Err(error) = written.await {
            return error.to_string();
        }
    }
    "the connection was given up".to_owned()
}

async fn listen(mut from: ReadHalf<Wire>, exchange: &Exchange) -> String {
    loop {
        let reply = match read_frame(&mut from).await.map(|frame| Reply::read(&frame)) {
            Ok(Ok(reply)) => reply,
            Ok(Err(garbled)) => return garbled.to_string(),
            Err(why) => return why,
        };
        let mut state = exchange.state();
        state.heard = clock::now();
        match reply.xid {
            xid::EVENT => exchange.events.send_modify(|count| *count += 1),
            xid::PING => {}
            xid::LOGIN if reply.is_refusal() => return "ZooKeeper does not take this way to log in".to_owned(),
            xid::LOGIN => {}
            number => {
                state.zxid = state.zxid.max(reply.zxid);
                // The caller may have left.
                state.waiting.remove(&number).map(|caller| caller.send(reply));
            }
        }
    }
}

async fn read_frame(from: &mut (impl AsyncReadExt + Unpin)) -> Result<Vec<u8>, String> {
    let closed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => "the server closed the connection".to_owned(),
        _ => error.to_string(),
    };
    let length = from.read_i32().await.map_err(closed)?;
    let length = usize::try_from(length).ok().filter(|&length| length <= MOST_BYTES);
    let length = length.ok_or("what answers is no ZooKeeper server")?;
    let mut frame = vec![0; length];
    from.read_exact(&mut frame).await.map_err(closed)?;
    Ok(frame)
}
