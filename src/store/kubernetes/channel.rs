//! The way to the API server: connections that are kept, and requests that are seen to their end.
//!
//! Requests must be harmless to repeat: one that brought no answer may have taken effect. A connection on which an answer
//! did not come in time is never used again, and the next request opens another one.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::access::{Access, Shown};
use super::answer::{Answer, Asked, RIGHTS, RIGHTS_TO_ERASE};
use super::failure::Failure;
use super::lines::{self, Lines, MOST_OF_A_BODY};
use crate::store::contract::Cause;
use crate::store::http::Line;

/// A renewal, and a look beside it.
const MOST_IDLE: usize = 3;

/// A request, apart from where it goes and who sends it.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query, made of names that need no escaping.
    pub(super) target: String,
    pub(super) body: Bytes,
}

pub(super) struct Channel {
    ends: Arc<Ends>,
    /// Requests underway. They end with this value.
    underway: Mutex<JoinSet<()>>,
}

struct Ends {
    access: Access,
    namespace: String,
    /// How long opening a connection may take, and how long one answer.
    limit: Duration,
    idle: Mutex<Vec<Line>>,
    /// How often the way led nowhere, so that each of several addresses has its turn.
    failures: AtomicUsize,
}

impl Channel {
    /// `call_timeout` is how long the caller lets one call take.
    pub(super) fn new(access: Access, namespace: &str, call_timeout: Duration) -> Self {
        let (idle, failures) = (Mutex::default(), AtomicUsize::new(0));
        let ends = Ends { access, namespace: namespace.to_owned(), limit: call_timeout, idle, failures };
        Self { ends: Arc::new(ends), underway: Mutex::default() }
    }

    /// Asks the API server. `note` sees the answer, also if nobody waits for it any more.
    ///
    /// # Cancel safety
    /// May be dropped at any time. A request that was sent by then is seen to its end within the time limit of one answer, and
    /// one that was not is never sent; so on a slow way the next call finds a connection that is open.
    pub(super) async fn ask(&self, ask: Ask, note: impl FnOnce(&Answer) + Send + 'static) -> Result<Answer, Failure> {
        let (reply, answer) = oneshot::channel();
        let ends = Arc::clone(&self.ends);
        {
            let mut underway = lock(&self.underway);
            while underway.try_join_next().is_some() {}
            underway.spawn(async move {
                let outcome = ends.ask(&ask, || !reply.is_closed()).await;
                if let Ok(answer) = &outcome {
                    note(answer);
                }
                reply.send(outcome).ok();
            });
        }
        let ended =
            || Failure::Unanswered { server: self.ends.access.server.to_string(), why: "was not asked, the program ends".to_owned() };
        answer.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Asks for an answer that comes in lines, over a connection of its own.
    ///
    /// # Cancel safety
    /// May be dropped at any time, and then hangs up.
    pub(super) async fn listen(&self, ask: &Ask) -> Result<Lines, Failure> {
        self.ends.listen(ask).await
    }

    /// What came as the answer where lines were expected.
    pub(super) fn judge(&self, status: StatusCode, body: &Bytes) -> Result<Answer, Failure> {
        self.ends.judge(&Method::GET, status, body)
    }

    pub(super) fn unanswered(&self, why: impl fmt::Display) -> Failure {
        self.ends.unanswered(why)
    }
}

impl Ends {
    async fn ask(&self, ask: &Ask, is_wanted: impl Fn() -> bool) -> Result<Answer, Failure> {
        let mut may_sign_in = true;
        loop {
            let shown = self.access.show().await?;
            let (head, body) = self.attempt(ask, &shown, &is_wanted).await?.into_parts();
            if head.status == StatusCode::UNAUTHORIZED && may_sign_in && self.access.may_show_another_than(&shown).await {
                may_sign_in = false;
                // They were opened with the certificate that was refused.
                lock(&self.idle).clear();
                continue;
            }
            return self.judge(&ask.method, head.status, &body);
        }
    }

    /// The answer, whatever it is, over a connection that was used before or else over a new one.
    async fn attempt(&self, ask: &Ask, shown: &Shown, is_wanted: &impl Fn() -> bool) -> Result<Response<Bytes>, Failure> {
        let idle = lock(&self.idle).pop();
        if let Some(mut line) = idle {
            // One that broke may have been closed long before, which says nothing about the server.
            if let Ok(answer) = self.in_time(line.ask(self.request(ask, shown)?, MOST_OF_A_BODY)).await? {
                self.keep(line);
                return Ok(answer);
            }
        }
        let mut line = self.open(shown).await?;
        if !is_wanted() {
            self.keep(line);
            return Err(self.unanswered("was not asked, for nobody waits for the answer any more"));
        }
        let answer = self.in_time(line.ask(self.request(ask, shown)?, MOST_OF_A_BODY)).await?;
        let answer = answer.map_err(|error| self.unanswered(format!("broke off: {error}")))?;
        self.keep(line);
        Ok(answer)
    }

    async fn listen(&self, ask: &Ask) -> Result<Lines, Failure> {
        let shown = self.access.show().await?;
        let line = self.open(&shown).await?;
        let lines = self.in_time(Lines::ask(line, self.request(ask, &shown)?)).await?;
        lines.map_err(|error| self.unanswered(format!("broke off: {error}")))
    }

    async fn open(&self, shown: &Shown) -> Result<Line, Failure> {
        let turn = self.failures.load(Ordering::Relaxed);
        let why = match timeout(self.limit, lines::open(&self.access.server, &shown.way, turn, self.limit)).await {
            Ok(Ok(line)) => return Ok(line),
            Ok(Err(error)) => format!("cannot be reached: {error}"),
            Err(_) => format!("took no connection within {:?}", self.limit),
        };
        self.failures.fetch_add(1, Ordering::Relaxed);
        Err(self.unanswered(why))
    }

    async fn in_time<T>(&self, exchange: impl Future<Output = Result<T, Cause>>) -> Result<Result<T, Cause>, Failure> {
        timeout(self.limit, exchange).await.map_err(|_| {
            // The others lead the same way.
            lock(&self.idle).clear();
            self.failures.fetch_add(1, Ordering::Relaxed);
            self.unanswered(format!("did not answer within {:?}", self.limit))
        })
    }

    fn request(&self, ask: &Ask, shown: &Shown) -> Result<Request<Full<Bytes>>, Failure> {
        let server = &self.access.server;
        let mut request = Request::builder()
            .method(ask.method.clone())
            .uri(format!("{}{}", server.base(), ask.target))
            .header(HOST, server.authority())
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, concat!("bellwether/", env!("CARGO_PKG_VERSION")));
        if !ask.body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &shown.token {
            let value = HeaderValue::from_str(&format!("Bearer {}", token.expose()));
            let mut value = value.map_err(|_| Failure::Credential("the token has characters that no header can carry".into()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        Ok(request.body(Full::new(ask.body.clone())).expect("names and numbers make a request"))
    }

    fn judge(&self, method: &Method, status: StatusCode, body: &Bytes) -> Result<Answer, Failure> {
        let (server, credential) = (self.access.server.to_string(), self.access.described());
        let rights = if method == Method::DELETE { RIGHTS_TO_ERASE } else { RIGHTS };
        Answer::judge(status, body, &Asked { server: &server, namespace: &self.namespace, credential: &credential, rights })
    }

    fn keep(&self, line: Line) {
        let mut idle = lock(&self.idle);
        if idle.len() < MOST_IDLE && line.is_open() {
            idle.push(line);
        }
    }

    fn unanswered(&self, why: impl fmt::Display) -> Failure {
        Failure::Unanswered { server: self.access.server.to_string(), why: why.to_string() }
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Channel({})", self.ends.access.server)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
