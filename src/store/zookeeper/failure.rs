//! What went wrong during a call, and whose fault it is: the way to the server, the server, or what lies in the store.

use super::jute::Garbled;
use super::message::Code;
use crate::store::StoreError;

/// Why a call brought no decision.
#[derive(Debug)]
pub(super) enum Failure {
    /// The member was not reached, fell silent, or hung up.
    Way(String),
    /// The server's own word.
    Refused(Code),
    /// The server answered, but the answer decides nothing.
    Undecided(&'static str),
    /// Already what the caller shall see.
    Store(StoreError),
}

impl Failure {
    pub(super) fn way(why: String) -> Self {
        Self::Way(why)
    }

    /// Whether another member, or the same one over a new connection, may do better. A session that is over is found to
    /// be so there.
    pub(super) fn is_of_the_way(&self) -> bool {
        match self {
            Self::Way(_) | Self::Refused(Code::SESSION_EXPIRED | Code::SESSION_MOVED) => true,
            Self::Refused(_) | Self::Undecided(_) | Self::Store(_) => false,
        }
    }

    /// Whether the node that was named is not there.
    pub(super) fn is_no_node(&self) -> bool {
        matches!(self, Self::Refused(Code::NO_NODE))
    }

    /// What the candidate is told, with the server and the call named. `place` is where the election lies.
    pub(super) fn into_store_error(self, operation: &'static str, member: &str, place: &str) -> StoreError {
        match self {
            Self::Store(error) => error,
            Self::Undecided(why) => StoreError::unavailable(operation, why),
            Self::Way(why) => StoreError::unavailable(operation, format!("{member}: {why}")),
            Self::Refused(code) => match advice(code, place) {
                Some(advice) => StoreError::denied(operation, format!("{member}: {} ({advice})", sentence(code))),
                None => StoreError::unavailable(operation, format!("{member}: {}", sentence(code))),
            },
        }
    }
}

impl From<Garbled> for Failure {
    fn from(garbled: Garbled) -> Self {
        Self::Way(garbled.to_string())
    }
}

fn sentence(code: Code) -> String {
    match code {
        Code::NO_NODE => "no such node".to_owned(),
        Code::NO_AUTH => "not authorized".to_owned(),
        Code::NO_CHILDREN_FOR_EPHEMERALS => "an ephemeral node lies where a folder should be".to_owned(),
        Code::SESSION_EXPIRED => "the session has expired".to_owned(),
        Code::INVALID_ACL => "the rights of a new node are not valid".to_owned(),
        Code::AUTH_FAILED => "the log-in was refused".to_owned(),
        Code::SESSION_MOVED => "the session has moved to another server".to_owned(),
        Code::QUOTA_EXCEEDED => "a quota is used up".to_owned(),
        Code(number) => format!("ZooKeeper's error {number}"),
    }
}

/// What a person can do about a refusal; nothing for any other failure.
fn advice(code: Code, place: &str) -> Option<String> {
    match code {
        Code::NO_AUTH => Some(format!(
            "check --store-opt username=USER and password-file=FILE, or grant that user cdrw on {place}, like `setAcl -R` with \
             `auth:USER:cdrwa`"
        )),
        Code::INVALID_ACL | Code::AUTH_FAILED => Some("check --store-opt username=USER and password-file=FILE".to_owned()),
        Code::NO_CHILDREN_FOR_EPHEMERALS => Some(format!("remove it, or use another prefix than that of {place}")),
        Code::QUOTA_EXCEEDED => Some(format!("raise the quota above {place}, or use another prefix")),
        _ => None,
    }
}
