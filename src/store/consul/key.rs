//! The election's key: what lies in it, and the transactions that change it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::Deserialize;
use serde_json::json;

use super::answer::Answer;
use super::ask::Ask;
use super::epoch;
use super::failure::Failure;
use super::session::SessionId;
use crate::node::Address;
use crate::store::Leader;

/// What Consul's own client library marks the keys of its locks with, so that it takes ours for what they are.
const LOCK_FLAG: u64 = 0x2ddc_cbc0_58a5_0c18;

/// Where an election lies: `PREFIX/SERVICE/leader`.
#[derive(Clone, Debug)]
pub(super) struct Place {
    key: String,
}

/// How a key is read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Reading {
    /// From Consul's leader, after it has made sure that it still is: what a tenure rests on.
    Sure,
    /// From Consul's leader: what may be a moment old.
    Plain,
}

/// The key as Consul shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct View {
    pub(super) state: State,
    /// What to wait past to hear of the next change.
    pub(super) index: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Nobody holds it.
    Free {
        /// The index of its last change; `None` where there is no such key.
        index: Option<u64>,
        /// Whether its last holder gave it back, and so has certainly ended.
        is_given_back: bool,
    },
    /// This session holds it.
    Held {
        /// Whose.
        session: SessionId,
        /// Who that is, and since when.
        leader: Leader,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    key: String,
    value: Option<String>,
    #[serde(default)]
    flags: u64,
    session: Option<SessionId>,
    modify_index: u64,
}

/// What a transaction came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    /// Done, at this index.
    Done(u64),
    /// Not done: Consul holds the key back since its last holder's session ended.
    Delayed,
    /// Not done: the key or the session is not what it was.
    Refused,
}

impl Place {
    pub(super) fn new(key: String) -> Self {
        Self { key }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.key
    }

    pub(super) fn read(&self, reading: Reading) -> Ask {
        let how = match reading {
            Reading::Sure => "?consistent",
            Reading::Plain => "",
        };
        Ask::get(format!("/v1/kv/{}{how}", self.key))
    }

    /// Reads the key once it has changed past `index`, or after about `wait`.
    pub(super) fn read_past(&self, index: u64, wait: std::time::Duration) -> Ask {
        Ask::get(format!("/v1/kv/{}?index={index}&wait={}ms", self.key, wait.as_millis()))
    }

    /// Takes the key for `session` if it is as it was at `index`: whatever somebody wrote into it since is left alone.
    pub(super) fn take(&self, index: Option<u64>, session: &SessionId, address: &Address) -> Ask {
        let unchanged = match index {
            Some(index) => json!({"KV": {"Verb": "check-index", "Key": self.key, "Index": index}}),
            None => json!({"KV": {"Verb": "check-not-exists", "Key": self.key}}),
        };
        self.transaction(&unchanged, "lock", address.as_str(), session)
    }

    /// Frees the key and empties it, if it is as `session` took it at `index`.
    pub(super) fn give_back(&self, index: u64, session: &SessionId) -> Ask {
        let unchanged = json!({"KV": {"Verb": "check-index", "Key": self.key, "Index": index}});
        self.transaction(&unchanged, "unlock", "", session)
    }

    /// Deletes the key, if it is as it was at `index`.
    pub(super) fn delete(&self, index: u64) -> Ask {
        let unchanged = json!({"KV": {"Verb": "check-index", "Key": self.key, "Index": index}});
        let delete = json!({"KV": {"Verb": "delete", "Key": self.key}});
        Ask::put("/v1/txn".to_owned(), &json!([unchanged, delete]))
    }

    fn transaction(&self, check: &serde_json::Value, verb: &str, value: &str, session: &SessionId) -> Ask {
        let change = json!({"KV": {
            "Verb": verb, "Key": self.key, "Value": BASE64.encode(value), "Flags": LOCK_FLAG, "Session": session.as_str(),
        }});
        Ask::put("/v1/txn".to_owned(), &json!([check, change]))
    }

    /// What an answer to one of the reads shows.
    ///
    /// # Errors
    /// [`Failure::Foreign`] when it is no election's key.
    pub(super) fn view(&self, answer: &Answer) -> Result<View, Failure> {
        let index = answer.index.ok_or(Failure::Undecided("the answer has no index"))?;
        if answer.status == http::StatusCode::NOT_FOUND {
            return Ok(View { state: State::Free { index: None, is_given_back: false }, index });
        }
        let entry = answer.json::<Vec<Entry>>()?.pop().filter(|entry| entry.key == self.key);
        let entry = entry.ok_or(Failure::Undecided("the answer is about another key"))?;
        Ok(View { state: entry.state()?, index })
    }
}

impl Entry {
    fn state(self) -> Result<State, Failure> {
        let value = BASE64.decode(self.value.unwrap_or_default()).map_err(|_| Failure::Undecided("the key's value is no base64"))?;
        let address = std::str::from_utf8(&value).ok().and_then(|text| text.parse::<Address>().ok());
        match (self.session, address) {
            (Some(session), Some(address)) => Ok(State::Held { session, leader: Leader { address, epoch: epoch(self.modify_index) } }),
            (None, Some(_)) => Ok(State::Free { index: Some(self.modify_index), is_given_back: false }),
            (None, None) if value.is_empty() && self.flags == LOCK_FLAG => {
                Ok(State::Free { index: Some(self.modify_index), is_given_back: true })
            }
            (Some(_) | None, None) => Err(Failure::Foreign { found: value }),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Transaction {
    #[serde(default)]
    results: Option<Vec<TransactionResult>>,
    #[serde(default)]
    errors: Option<Vec<TransactionError>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
struct TransactionResult {
    kv: Changed,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Changed {
    modify_index: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TransactionError {
    what: String,
}

impl Outcome {
    /// What an answer to a transaction of ours says.
    pub(super) fn of(answer: &Answer) -> Result<Self, Failure> {
        let Transaction { results, errors } = answer.json()?;
        let errors = errors.unwrap_or_default();
        match (answer.status, results.unwrap_or_default().last()) {
            (http::StatusCode::OK, Some(change)) => Ok(Self::Done(change.kv.modify_index)),
            (http::StatusCode::CONFLICT, _) if !errors.is_empty() => Ok(match errors {
                said if said.iter().any(|error| error.what.contains("lock delay")) => Self::Delayed,
                _ => Self::Refused,
            }),
            _ => Err(Failure::Undecided("the agent's answer to a transaction says neither that it was done nor that it was not")),
        }
    }
}
