//! What went wrong during a call, and what the candidate is told of it.

use std::time::Duration;

use crate::node::Address;
use crate::store::{Cause, StoreError};

/// Why a call brought no decision.
#[derive(Debug)]
pub(super) enum Failure {
    /// The agent was not reached, has no cluster behind it, or is none: another one may do.
    Unanswered { agent: Address, why: Cause },
    /// Consul refused us, and might not with another token.
    Refused { agent: Address, said: String },
    /// Consul keeps no session of our TTL.
    Ttl { agent: Address, said: String },
    /// Consul answered, but the answer decides nothing.
    Undecided(&'static str),
    /// Something else lies in the election's place.
    Foreign { found: Vec<u8> },
}

/// What Consul says where an answer of 409 is a refusal of us and not of what we asked.
const REFUSALS: [&str; 2] = ["Permission denied", "ACL not found"];

impl Failure {
    pub(super) fn unanswered(agent: &Address, why: impl Into<Cause>) -> Self {
        Self::Unanswered { agent: agent.clone(), why: why.into() }
    }

    pub(super) fn refused(agent: &Address, said: &str) -> Self {
        Self::Refused { agent: agent.clone(), said: said.to_owned() }
    }

    pub(super) fn ttl(agent: &Address, said: &str) -> Self {
        Self::Ttl { agent: agent.clone(), said: said.to_owned() }
    }

    /// Whether these words of Consul's refuse us.
    pub(super) fn is_refusal(said: &str) -> bool {
        REFUSALS.iter().any(|refusal| said.contains(refusal))
    }

    /// What the candidate is told. `place` is the election's key.
    pub(super) fn into_store_error(self, operation: &'static str, place: &str, ttl: Duration) -> StoreError {
        match self {
            Self::Unanswered { agent, why } => StoreError::unavailable(operation, At { agent, why }),
            Self::Undecided(why) => StoreError::unavailable(operation, why),
            Self::Refused { agent, said } => StoreError::denied(operation, format!("{agent}: {said} ({})", advice(&said, place))),
            Self::Ttl { agent, said } => StoreError::denied(operation, format!("{agent}: {}", ttl_advice(&said, ttl))),
            Self::Foreign { found } => StoreError::foreign(place, &found),
        }
    }
}

/// What a person can do about a refusal.
fn advice(said: &str, place: &str) -> String {
    if said.contains("ACL not found") {
        return "the token is unknown to Consul or has run out: put a valid one into the file of --store-opt token-file".to_owned();
    }
    format!(
        "give --store-opt token-file=FILE a token with the rules key \"{place}\" {{ policy = \"write\" }} \
         session_prefix \"\" {{ policy = \"write\" }}"
    )
}

/// Consul says `must be between [10s=24h0m0s]`.
fn ttl_advice(said: &str, ttl: Duration) -> String {
    let ttl = humantime::format_duration(ttl);
    match said.split_once('[').and_then(|(_, limits)| limits.split_once('=')) {
        Some((least, _)) => {
            format!(
                "these servers keep no TTL of {ttl}, the least is {least}: use --replication-ttl {least}, or lower session_ttl_min in the servers' configuration"
            )
        }
        None => format!("these servers keep no TTL of {ttl}: {said}"),
    }
}

/// An error of the way to an agent, with the agent named.
#[derive(Debug, thiserror::Error)]
#[error("{agent}: {why}")]
struct At {
    agent: Address,
    #[source]
    why: Cause,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_that_the_servers_do_not_keep_is_told_with_the_one_to_use() {
        let said = "Invalid Session TTL '5000000000', must be between [10s=24h0m0s]";
        let failure = Failure::ttl(&"h:8500".parse().unwrap(), said);
        let error = failure.into_store_error("acquire", "p/s/leader", Duration::from_secs(5)).to_string();
        for words in ["h:8500", "no TTL of 5s", "the least is 10s", "--replication-ttl 10s", "session_ttl_min"] {
            assert!(error.contains(words), "{error}");
        }
        assert!(!error.contains('\n') && !error.ends_with('.'), "{error}");
    }

    #[test]
    fn a_refusal_says_which_rules_are_needed_or_that_the_token_is_none() {
        let told = |said: &str| Failure::refused(&"h:8500".parse().unwrap(), said).into_store_error("renew", "p/s/leader", Duration::ZERO);
        let denied = told("Permission denied").to_string();
        assert!(denied.contains("key \"p/s/leader\" { policy = \"write\" } session_prefix \"\""), "{denied}");
        let expired = told("ACL not found");
        assert!(matches!(expired, StoreError::Denied { .. }) && expired.to_string().contains("has run out"), "{expired}");
    }
}
