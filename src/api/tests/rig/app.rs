//! Apps that are scripted byte by byte, and what they have seen.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Message, Raw, SOON};
use crate::cluster::Upstream;

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
    pub(in crate::api) connections: AtomicUsize,
    /// Connections that ended, seen from the app.
    pub(in crate::api) ended: AtomicUsize,
}

impl Seen {
    pub(in crate::api) fn requests(&self) -> Vec<Message> {
        self.requests.lock().unwrap().clone()
    }

    pub(in crate::api) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(in crate::api) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
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
                seen_there.connections.fetch_add(1, Ordering::SeqCst);
                let (talk, seen) = (script(Raw { stream, heard: Vec::new() }, Arc::clone(&seen_there)), Arc::clone(&seen_there));
                connections.spawn(async move {
                    talk.await;
                    seen.ended.fetch_add(1, Ordering::SeqCst);
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

/// Lets a scripted app go on when the test says so.
#[derive(Clone)]
pub(in crate::api) struct Go(Arc<Semaphore>);

impl Go {
    pub(in crate::api) fn new() -> Self {
        Self(Arc::new(Semaphore::new(0)))
    }

    pub(in crate::api) fn on(&self) {
        self.0.add_permits(1);
    }

    pub(in crate::api) async fn wait(&self) {
        timeout(SOON, self.0.acquire()).await.expect("told to go on in time").unwrap().forget();
    }
}
