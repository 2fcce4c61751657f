//! What went wrong during a call, and whose fault it is: the way to the server, the server, or what lies in the store.

use std::fmt;

use etcd_client::Error;

use crate::store::{Cause, StoreError};

/// Why a call brought no decision.
#[derive(Debug)]
pub(super) enum Failure {
    /// etcd's client reports it.
    Client(Error),
    /// The server answered, but the answer decides nothing.
    Undecided(&'static str),
    /// Already what the caller shall see.
    Store(StoreError),
}

/// What a failure says about the member that was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Blame {
    /// It was not reached, or cannot serve: another one may.
    Way,
    /// It refused us, and might not if we signed in again.
    Credentials,
    /// It did its part: any other would answer the same.
    Nobody,
}

/// gRPC's status codes that etcd answers with when it understood the request, by number: the client's crate hands its
/// transport's type out but does not name it.
mod code {
    pub(super) const INVALID_ARGUMENT: i32 = 3;
    pub(super) const NOT_FOUND: i32 = 5;
    pub(super) const PERMISSION_DENIED: i32 = 7;
    pub(super) const FAILED_PRECONDITION: i32 = 9;
    pub(super) const OUT_OF_RANGE: i32 = 11;
    pub(super) const UNAUTHENTICATED: i32 = 16;
}

impl Failure {
    pub(super) fn blame(&self) -> Blame {
        match (self, self.code()) {
            (Self::Undecided(_) | Self::Store(_), _) => Blame::Nobody,
            (Self::Client(_), Some(code::NOT_FOUND | code::OUT_OF_RANGE)) => Blame::Nobody,
            (Self::Client(_), _) if self.advice("").is_some() => Blame::Credentials,
            (Self::Client(_), _) => Blame::Way,
        }
    }

    /// Whether the lease that the request named is none, or no longer one.
    pub(super) fn is_not_found(&self) -> bool {
        self.code() == Some(code::NOT_FOUND)
    }

    /// What the candidate is told, with the server and the call named. `place` is where the election lies.
    pub(super) fn into_store_error(self, operation: &'static str, endpoint: &str, place: &str) -> StoreError {
        let advice = self.advice(place);
        match (self, advice) {
            (Self::Store(error), _) => error,
            (Self::Undecided(why), _) => StoreError::unavailable(operation, why),
            (Self::Client(error), None) => StoreError::unavailable(operation, At { endpoint: endpoint.to_owned(), error }),
            (Self::Client(error), Some(advice)) => {
                let at = At { endpoint: endpoint.to_owned(), error };
                StoreError::denied(operation, Refused { at, advice })
            }
        }
    }

    fn code(&self) -> Option<i32> {
        match self {
            Self::Client(Error::GRpcStatus(status)) => Some(status.code().into()),
            Self::Client(_) | Self::Undecided(_) | Self::Store(_) => None,
        }
    }

    /// What a person can do about a refusal; nothing for any other failure. The requests themselves are well formed, so
    /// an invalid argument is a missing or a wrong user.
    fn advice(&self, place: &str) -> Option<String> {
        match self.code()? {
            code::PERMISSION_DENIED => Some(format!(
                "grant the user read and write on {place}/, like `etcdctl role grant-permission ROLE readwrite --prefix=true {place}/`"
            )),
            code::INVALID_ARGUMENT | code::UNAUTHENTICATED => {
                Some("etcd wants a user: check --store-opt username=NAME and password-file=FILE".to_owned())
            }
            code::FAILED_PRECONDITION => {
                Some("check --store-opt username: etcd has no such user, or no authentication switched on".to_owned())
            }
            _ => None,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(error)
    }
}

/// A client's error, with the member that it comes from and without the client's decorations.
#[derive(Debug)]
struct At {
    endpoint: String,
    error: Error,
}

impl fmt::Display for At {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error {
            Error::GRpcStatus(status) if !status.message().is_empty() => write!(out, "{}: {}", self.endpoint, status.message()),
            error => write!(out, "{}: {error}", self.endpoint),
        }
    }
}

impl std::error::Error for At {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A refusal that a person must see to.
#[derive(Debug, thiserror::Error)]
#[error("{at} ({advice})")]
struct Refused {
    #[source]
    at: At,
    advice: String,
}

/// A watch that the server ended, in its own words.
pub(super) fn watch_canceled(operation: &'static str, reason: &str) -> StoreError {
    let cause: Cause =
        if reason.is_empty() { "the server ended the watch".into() } else { format!("the server ended the watch: {reason}").into() };
    StoreError::unavailable(operation, cause)
}
