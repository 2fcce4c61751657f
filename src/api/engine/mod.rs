//! What a node says about the engine that is served, though it answers `/_ping` itself.
//!
//! The Docker client begins every command with a ping, and takes from the fields of the answer which API it may speak and
//! what else the engine can do. So the primary asks its app, and a replica its leader, in the way the client does: by
//! `HEAD /_ping`. Nobody is asked unless a node is pinged; what was heard is good for a while; and a ping never fails,
//! nor waits for longer than [`LONGEST_WAIT`].

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::client::{Answer, ClientError, Target, With};
use super::headers::EPOCH;
use super::io::Fence;
use crate::cluster::Upstream;
use crate::node::Address;
use crate::replication::{Role, RoleWatch};
use crate::store::Epoch;
use crate::tls;

/// Where an engine is asked, and a node.
const PATH: &str = "/_ping";
/// Which API an engine speaks: what makes it one.
const API_VERSION: HeaderName = HeaderName::from_static("api-version");
/// On which system it runs containers.
const OS_TYPE: HeaderName = HeaderName::from_static("ostype");
/// What clients act upon.
const FIELDS: [HeaderName; 7] = [
    API_VERSION,
    OS_TYPE,
    HeaderName::from_static("docker-experimental"),
    HeaderName::from_static("builder-version"),
    HeaderName::from_static("swarm"),
    HeaderName::from_static("libpod-api-version"),
    http::header::SERVER,
];
/// More than a field of these is long.
const LONGEST_FIELD: usize = 256;

/// The API that is named while no engine has named its own: those from 20.10 to 28 take it.
const USUAL_API: &str = "1.41";

/// How long an app may take to answer.
const APP_LIMIT: Duration = Duration::from_millis(300);
/// How long a leader may take, which asks its app meanwhile; and so how long a ping may wait.
const LONGEST_WAIT: Duration = Duration::from_millis(600);

/// How long an engine's answer is good: it may be replaced by another version at any time.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long an app that is no engine is left in peace.
const PEACE: Duration = Duration::from_secs(600);
/// How soon somebody is asked again who was not there: this costs nobody anything
const NOT_THERE: Duration = Duration::from_secs(1);
/// and who was there, and gave no answer, or none that tells.
const NO_ANSWER: Duration = Duration::from_secs(10);

/// What is known of the engine. Read by pings, on any thread; learned by [`keep_up`](Self::keep_up), on one.
#[derive(Debug)]
pub struct Engine {
    roles: RoleWatch,
    own: Option<Address>,
    app: Option<App>,
    to_nodes: Option<tls::Client>,
    app_limit: Duration,
    longest_wait: Duration,
    heard: watch::Sender<Heard>,
    wanted: Notify,
}

/// Where the app is asked.
#[derive(Debug)]
struct App {
    target: Target,
    tls: Option<tls::Client>,
}

/// Who knows.
enum Source<'a> {
    App(&'a App),
    Leader(Address),
}

/// What was heard last.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    fields: Arc<[(HeaderName, HeaderValue)]>,
    /// Under which tenure; none where it is only assumed.
    epoch: Option<Epoch>,
    /// Under which tenure somebody was asked last, whatever came of it, and until when that is enough.
    asked: Option<(Epoch, Instant)>,
}

/// What came of asking.
enum Word {
    /// An engine's fields, or what a leader says in place of them.
    Fields(Arc<[(HeaderName, HeaderValue)]>),
    /// The app is something else.
    NoEngine,
    /// Nobody can tell yet.
    None { again_in: Duration },
}

impl Engine {
    /// What the node at `own` knows that serves `app`, spoken to by `to_app` where that is TLS, and that speaks to other nodes
    /// by `to_nodes`. An app that speaks nothing but HTTP/2 is not asked: engines are spoken to in HTTP/1.1.
    pub fn new(
        roles: RoleWatch,
        own: Option<Address>,
        app: Option<&Upstream>,
        to_app: Option<tls::Client>,
        to_nodes: Option<tls::Client>,
    ) -> Self {
        let app = app.and_then(|upstream| match upstream {
            Upstream::Unix(path) => Some(App { target: Target::Unix(path.clone()), tls: None }),
            Upstream::Http { .. } => Some(App { target: Target::Tcp(upstream.authority().parse().ok()?), tls: None }),
            Upstream::Https { .. } => Some(App { target: Target::Tcp(upstream.authority().parse().ok()?), tls: to_app }),
            Upstream::H2c { .. } => None,
        });
        Self {
            roles,
            own,
            app,
            to_nodes,
            app_limit: APP_LIMIT,
            longest_wait: LONGEST_WAIT,
            heard: watch::Sender::new(Heard::nothing()),
            wanted: Notify::new(),
        }
    }

    /// What a ping is to say: what was heard lately in the present tenure, or else what is heard in a moment, or else what
    /// was heard last.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub(super) async fn describe(&self) -> Heard {
        let mut heard = self.heard.subscribe();
        if self.due(&heard.borrow()).is_some() {
            self.wanted.notify_one();
            timeout(self.longest_wait, heard.wait_for(|heard| self.due(heard).is_none())).await.ok();
        }
        heard.borrow().clone()
    }

    /// Asks whenever a ping wants to know, and never returns.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn keep_up(&self) {
        loop {
            self.wanted.notified().await;
            loop {
                let due = self.due(&self.heard.borrow());
                let Some((epoch, source)) = due else { break };
                let word = self.ask(&source, epoch).await;
                self.heard.send_modify(|heard| heard.take(word, epoch));
            }
        }
    }

    /// Whom to ask, and under which tenure, unless what was heard is still good.
    fn due(&self, heard: &Heard) -> Option<(Epoch, Source<'_>)> {
        let (epoch, source) = match self.roles.current() {
            Role::Primary { epoch, .. } => (epoch, Source::App(self.app.as_ref()?)),
            // A record that points here is no reason to ask oneself.
            Role::Replica(leader) if self.own.as_ref() == Some(&leader.address) => return None,
            Role::Replica(leader) => (leader.epoch, Source::Leader(leader.address)),
            Role::Electing | Role::SteppingDown { .. } => return None,
        };
        let is_good = heard.asked.is_some_and(|(asked, until)| asked == epoch && Instant::now() < until);
        (!is_good).then_some((epoch, source))
    }

    async fn ask(&self, source: &Source<'_>, epoch: Epoch) -> Word {
        let over = |tls| With { tls, ..With::default() };
        let answer = match source {
            Source::App(App { target, tls }) => {
                let fence = Fence { roles: self.roles.clone(), epoch };
                target.ask_under(fence, Method::HEAD, PATH, over(tls.as_ref()), self.app_limit).await
            }
            Source::Leader(address) => {
                Target::Tcp(address.clone()).ask(Method::HEAD, PATH, over(self.to_nodes.as_ref()), self.longest_wait).await
            }
        };
        match (answer, source) {
            (Ok(answer), Source::App(_)) => word_of_app(&answer),
            (Ok(answer), Source::Leader(_)) => word_of_leader(&answer, epoch),
            (Err(error), _) => {
                debug!(%error, "nobody says which engine this is");
                let was_there = !matches!(error, ClientError::Connect { .. });
                Word::None { again_in: if was_there { NO_ANSWER } else { NOT_THERE } }
            }
        }
    }
}

impl Heard {
    fn nothing() -> Self {
        Self { fields: usual(), epoch: None, asked: None }
    }

    /// Without a word, what was heard before is the best there is.
    fn take(&mut self, word: Word, epoch: Epoch) {
        let good_for = match word {
            Word::Fields(fields) => {
                (self.fields, self.epoch) = (fields, Some(epoch));
                GOOD_FOR
            }
            Word::NoEngine => {
                (self.fields, self.epoch) = (usual(), Some(epoch));
                PEACE
            }
            Word::None { again_in } => again_in,
        };
        self.asked = Some((epoch, Instant::now() + good_for));
    }

    /// Adds what is known to the answer to a ping, and under which tenure it was heard.
    pub(super) fn write(&self, headers: &mut HeaderMap) {
        headers.extend(self.fields.iter().cloned());
        headers.extend(self.epoch.map(|epoch| (EPOCH, HeaderValue::from(epoch.0))));
    }
}

/// What is said in place of an engine.
fn usual() -> Arc<[(HeaderName, HeaderValue)]> {
    [(API_VERSION, HeaderValue::from_static(USUAL_API)), (OS_TYPE, HeaderValue::from_static(std::env::consts::OS))].into()
}

fn word_of_app(answer: &Answer) -> Word {
    match fields(answer) {
        Some(fields) => Word::Fields(fields),
        None if knows_no_ping(answer.status) => Word::NoEngine,
        // As a proxy in front of an engine answers that is starting, or wants to know who asks.
        None => Word::None { again_in: NO_ANSWER },
    }
}

/// Whether an app that answers so has nothing to say at `/_ping`, or something else than an engine says.
fn knows_no_ping(status: StatusCode) -> bool {
    let unknown = [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED, StatusCode::GONE, StatusCode::NOT_IMPLEMENTED];
    status.is_success() || status.is_redirection() || unknown.contains(&status)
}

/// A leader signs what it heard in its tenure, and nothing else.
fn word_of_leader(answer: &Answer, epoch: Epoch) -> Word {
    let heard = answer.headers.get(EPOCH).and_then(|value| value.to_str().ok()?.parse().ok()).map(Epoch);
    match fields(answer).filter(|_| heard.is_some_and(|heard| heard >= epoch)) {
        Some(fields) => Word::Fields(fields),
        None => Word::None { again_in: NOT_THERE },
    }
}

/// The fields of an engine's answer. What is long or strange in them is left out: the client puts some into its paths.
fn fields(answer: &Answer) -> Option<Arc<[(HeaderName, HeaderValue)]>> {
    let is_engine = answer.status == StatusCode::OK && answer.headers.get(&API_VERSION).is_some_and(is_version);
    let plain = |name| answer.headers.get(&name).filter(|value| is_plain(value)).map(|value| (name, value.clone()));
    is_engine.then(|| FIELDS.into_iter().filter_map(plain).collect())
}

/// Two numbers with a dot between them.
fn is_version(value: &HeaderValue) -> bool {
    let number = |text: &str| (1..=4).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    value.to_str().is_ok_and(|text| text.split_once('.').is_some_and(|(major, minor)| number(major) && number(minor)))
}

fn is_plain(value: &HeaderValue) -> bool {
    value.len() <= LONGEST_FIELD && value.as_bytes().iter().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests;
