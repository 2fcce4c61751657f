//! What went wrong with a request, and what a person can do about it.

use crate::store::contract::{Cause, StoreError};

/// Why a request brought no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// No answer, or one that is no API server's.
    #[error("{server} {why}")]
    Unanswered {
        /// Who was asked.
        server: String,
        /// What came instead of an answer.
        why: String,
    },
    /// The API server says that it cannot serve now.
    #[error("{server} cannot serve: {said}")]
    Busy {
        /// Who was asked.
        server: String,
        /// What it said.
        said: String,
    },
    /// The API server does not know us: 401.
    #[error("{server} does not accept {credential}: {said}")]
    Unknown {
        /// Who was asked.
        server: String,
        /// What we showed.
        credential: String,
        /// What it said.
        said: String,
    },
    /// We may not do it: 403.
    #[error("{said}: {}", grant(said, rights, namespace))]
    Forbidden {
        /// What the server said.
        said: String,
        /// What is to be granted.
        rights: &'static str,
        /// Where the election is.
        namespace: String,
    },
    /// What we asked cannot be done there until a person changes something.
    #[error("{0}")]
    Refused(String),
    /// The record changed each time that we were about to write it.
    #[error("the record was changed by others each time")]
    Contended,
    /// Our credentials cannot be had just now.
    #[error("{0}")]
    Credential(#[source] Cause),
}

impl Failure {
    /// What the candidate is told.
    pub(super) fn into_store_error(self, operation: &'static str) -> StoreError {
        match self {
            Self::Unanswered { .. } | Self::Busy { .. } | Self::Contended => StoreError::unavailable(operation, self),
            Self::Unknown { .. } | Self::Forbidden { .. } | Self::Refused(_) | Self::Credential(_) => StoreError::denied(operation, self),
        }
    }
}

/// What to grant, and to whom, by what the server said: `… User "system:serviceaccount:NAMESPACE:NAME" cannot …`.
fn grant(said: &str, rights: &str, namespace: &str) -> String {
    let user = said.split_once("User \"").and_then(|(_, rest)| rest.split_once('"')).map(|(user, _)| user);
    let whom = match user.map(|user| (user, user.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':')))) {
        Some((_, Some((home, name)))) => format!("the ServiceAccount {name} of namespace {home}"),
        Some((user, None)) => format!("the user {user}"),
        None => "this user".to_owned(),
    };
    format!("let {whom} {rights} `leases` of the API group coordination.k8s.io in namespace {namespace}, with a Role and a RoleBinding")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_to_grant_to_whom_and_where() {
        let forbidden = |user: &str| Failure::Forbidden {
            said: format!("leases.coordination.k8s.io \"n\" is forbidden: User \"{user}\" cannot get resource \"leases\""),
            rights: "get and update",
            namespace: "shop".to_owned(),
        };
        let error = forbidden("system:serviceaccount:shop:web").into_store_error("acquire");
        assert!(matches!(error, StoreError::Denied { .. }));
        let text = error.to_string();
        assert!(text.contains("the ServiceAccount web of namespace shop get and update `leases`"), "{text}");
        assert!(forbidden("alice").to_string().contains("the user alice"));
        let silent = Failure::Forbidden { said: "no".to_owned(), rights: "get", namespace: "shop".to_owned() }.to_string();
        assert!(silent.contains("let this user get") && silent.contains("in namespace shop"), "{silent}");
    }
}
