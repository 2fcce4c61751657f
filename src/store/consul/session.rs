//! Our own session at Consul: made, kept alive, and given back.
//!
//! One session carries one candidacy. Whatever ends the candidacy ends the session, so that those who saw it hold the key
//! can see that it is over; a session that Consul no longer knows is never asked for again. It has no checks: whether
//! this node lives is told by its renewals alone, and not by the agent that it happens to ask.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::agents::Agents;
use super::ask::Ask;
use super::failure::Failure;
use super::lock;

/// A session's name as Consul gave it: a UUID. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct SessionId(Arc<str>);

impl SessionId {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for SessionId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_uuid = text.len() == 36 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if is_uuid { Ok(Self(text.into())) } else { Err("no UUID") }
    }
}

#[derive(Debug)]
pub(super) struct Session {
    /// What a new one is asked for with.
    wanted: Value,
    state: Mutex<State>,
}

#[derive(Default, Debug)]
struct State {
    present: Option<Present>,
    /// Sessions that carried an earlier candidacy, until Consul has confirmed their end.
    spent: Vec<Present>,
}

/// A session, and the index at which it was last seen to have taken the key.
#[derive(Clone, Debug)]
pub(super) struct Present {
    pub(super) id: SessionId,
    pub(super) holds_since: Option<u64>,
}

/// What Consul tells of any session.
#[derive(Deserialize, Debug)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Info {
    #[serde(rename = "ID")]
    id: SessionId,
    #[serde(default)]
    pub(super) name: String,
    #[serde(default, rename = "TTL")]
    ttl: String,
}

impl Info {
    /// How long it outlives a silent owner at least; sessions of another make may have no such limit.
    pub(super) fn ttl(&self) -> Option<Duration> {
        humantime::parse_duration(&self.ttl).ok().filter(|ttl| !ttl.is_zero())
    }
}

impl Session {
    pub(super) fn new(name: &str, ttl: Duration, lock_delay: Duration) -> Self {
        let wanted = json!({
            "Name": name,
            "TTL": written(ttl),
            "LockDelay": written(lock_delay),
            "Behavior": "release",
            // The same twice, for old and new versions: an empty list, or Consul adds its check of the agent's node.
            "Checks": [],
            "NodeChecks": [],
        });
        Self { wanted, state: Mutex::default() }
    }

    pub(super) fn id(&self) -> Option<SessionId> {
        lock(&self.state).present.as_ref().map(|present| present.id.clone())
    }

    /// Renews our session, or asks for one where there is none or none any more.
    pub(super) async fn keep(&self, agents: &Agents) -> Result<SessionId, Failure> {
        if let Some(id) = self.id() {
            if self.renew(agents, &id).await? {
                return Ok(id);
            }
            self.forget(&id);
        }
        let answer = agents.ask(Ask::put("/v1/session/create".to_owned(), &self.wanted)).await?;
        let Created { id } = answer.json()?;
        lock(&self.state).present = Some(Present { id: id.clone(), holds_since: None });
        Ok(id)
    }

    /// Renews `id`. False when Consul knows no such session.
    pub(super) async fn renew(&self, agents: &Agents, id: &SessionId) -> Result<bool, Failure> {
        let answer = agents.ask(Ask::put(format!("/v1/session/renew/{}", id.as_str()), &Value::Null)).await?;
        if answer.status == StatusCode::NOT_FOUND {
            return Ok(false);
        }
        let renewed = answer.json::<Vec<Info>>()?;
        let is_it = renewed.iter().any(|renewed| renewed.id == *id);
        if is_it { Ok(true) } else { Err(Failure::Undecided("the agent renewed another session")) }
    }

    /// What Consul knows of a session; nothing, once it has ended.
    pub(super) async fn info(agents: &Agents, id: &SessionId) -> Result<Option<Info>, Failure> {
        let answer = agents.ask(Ask::get(format!("/v1/session/info/{}", id.as_str()))).await?;
        let found = answer.json::<Option<Vec<Info>>>()?.unwrap_or_default();
        Ok(found.into_iter().find(|found| found.id == *id))
    }

    pub(super) async fn destroy(agents: &Agents, id: &SessionId) -> Result<(), Failure> {
        let answer = agents.ask(Ask::put(format!("/v1/session/destroy/{}", id.as_str()), &Value::Null)).await?;
        match answer.status {
            StatusCode::OK if answer.json()? => Ok(()),
            _ => Err(Failure::Undecided("the agent ended no session")),
        }
    }

    /// `id` holds the key since this index.
    pub(super) fn holds(&self, id: &SessionId, index: u64) {
        let mut state = lock(&self.state);
        if let Some(present) = state.present.as_mut().filter(|present| present.id == *id) {
            present.holds_since = Some(index);
        }
    }

    /// `id` is known to have ended by itself.
    fn forget(&self, id: &SessionId) {
        let mut state = lock(&self.state);
        state.present = state.present.take().filter(|present| present.id != *id);
    }

    /// The candidacy under `id`, or under the present session, is over: it is to be given back.
    pub(super) fn spend(&self, id: Option<&SessionId>) {
        let mut state = lock(&self.state);
        let spent = state.present.take_if(|present| id.is_none_or(|id| present.id == *id));
        state.spent.extend(spent);
    }

    pub(super) fn spent(&self) -> Vec<Present> {
        lock(&self.state).spent.clone()
    }

    /// Consul has confirmed the end of `id`.
    pub(super) fn settled(&self, id: &SessionId) {
        lock(&self.state).spent.retain(|spent| spent.id != *id);
    }
}

/// A duration as Consul reads it and shows it to people, rounded up.
fn written(duration: Duration) -> String {
    match duration.as_nanos().div_ceil(1_000_000) {
        millis if millis.is_multiple_of(1_000) => format!("{}s", millis / 1_000),
        millis => format!("{millis}ms"),
    }
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "ID")]
    id: SessionId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_told_by_its_name_and_nothing_else_is_one() {
        let id = |text: &str| SessionId::try_from(text.to_owned());
        assert_eq!(id("2cde4474-6b40-0f12-dcfb-ead823984448").unwrap().as_str(), "2cde4474-6b40-0f12-dcfb-ead823984448");
        for text in ["", "x", "2cde4474-6b40-0f12-dcfb-ead82398444/", "../../../../../../../../../../../../"] {
            id(text).unwrap_err();
        }
    }

    #[test]
    fn a_ttl_is_written_and_read_as_consul_does() {
        assert_eq!([0, 10_000, 1_500].map(|millis| written(Duration::from_millis(millis))), ["0s", "10s", "1500ms"]);
        assert_eq!(written(Duration::from_micros(1_500_001)), "1501ms", "no less than was asked");
        let info = |ttl: &str| Info { id: SessionId(Arc::from("x")), name: String::new(), ttl: ttl.to_owned() };
        assert_eq!(info("1500ms").ttl(), Some(Duration::from_millis(1_500)));
        assert_eq!(info("10s").ttl(), Some(Duration::from_secs(10)));
        assert_eq!(info("").ttl(), None);
    }
}
