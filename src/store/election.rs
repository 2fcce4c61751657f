//! The name of an election, and where its record lies in any store.

use std::fmt;

/// One election: a prefix shared by a team's elections, and the service that is elected for.
///
/// ```
/// use bellwether::store::Election;
///
/// let election = Election::new("team/prod", "billing")?;
/// assert_eq!(election.key(), "team/prod/billing/leader");
/// assert_eq!(election.component(), "team/prod/billing");
/// # Ok::<(), bellwether::store::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Election {
    prefix: String,
    service: String,
}

/// Why a prefix or service cannot name an election.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// The service's name is empty, too long, or has other characters.
    #[error("service `{0}` is no usable name: write 1 to 63 of the characters A-Z a-z 0-9 . _ -")]
    Service(String),
    /// A segment of the prefix is empty, too long, or has other characters.
    #[error("prefix `{0}` is not usable: write segments of 1 to 63 of the characters A-Z a-z 0-9 . _ - with single slashes between")]
    Prefix(String),
}

impl Election {
    /// The prefix where none is given.
    pub const DEFAULT_PREFIX: &'static str = "bellwether";

    /// The election of `service` under `prefix`, which may have several segments.
    ///
    /// # Errors
    /// [`NameError`] when a name has characters that not every store and tool could carry.
    pub fn new(prefix: &str, service: &str) -> Result<Self, NameError> {
        check_prefix(prefix)?;
        if !is_segment(service) {
            return Err(NameError::Service(service.to_owned()));
        }
        Ok(Self { prefix: prefix.to_owned(), service: service.to_owned() })
    }

    /// What it is elected for.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// What its records lie under.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The place of the leader's record in stores that have keys: `PREFIX/SERVICE/leader`.
    pub fn key(&self) -> String {
        format!("{}/{}/leader", self.prefix, self.service)
    }

    /// The name of the leader's row in stores that have tables: `PREFIX/SERVICE`, or `SERVICE` alone at the default prefix.
    pub fn component(&self) -> String {
        if self.prefix == Self::DEFAULT_PREFIX { self.service.clone() } else { format!("{}/{}", self.prefix, self.service) }
    }
}

/// Checks a prefix apart from any service.
pub(super) fn check_prefix(prefix: &str) -> Result<(), NameError> {
    if prefix.split('/').all(is_segment) { Ok(()) } else { Err(NameError::Prefix(prefix.to_owned())) }
}

/// What etcd, Consul, ZooKeeper, SQL tools and shells all take without quoting; `.` and `..` are no names to ZooKeeper.
fn is_segment(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=63).contains(&name.len()) && name.bytes().all(allowed) && name != "." && name != ".."
}

impl fmt::Display for Election {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.prefix, self.service)
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Election({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_prefix_is_left_out_of_a_row_and_kept_in_a_key() {
        let election = Election::new(Election::DEFAULT_PREFIX, "default").unwrap();
        assert_eq!((election.key().as_str(), election.component().as_str()), ("bellwether/default/leader", "default"));
    }

    #[test]
    fn names_that_some_store_could_not_carry_are_refused() {
        for service in ["", "a/b", "a b", "ü", "..", ".", &"x".repeat(64), "a\0", "a\n"] {
            let error = Election::new("p", service).unwrap_err();
            assert_eq!(error, NameError::Service(service.to_owned()));
        }
        for prefix in ["", "/a", "a/", "a//b", "a/../b", "a b"] {
            let error = Election::new(prefix, "s").unwrap_err();
            assert_eq!(error, NameError::Prefix(prefix.to_owned()));
        }
        Election::new("a/b.c/d_e-f", &"x".repeat(63)).unwrap();
    }
}
