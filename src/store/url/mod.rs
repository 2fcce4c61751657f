//! The store argument: one URL that says which store, where it is, and what the election's prefix is.
//!
//! Every scheme of the product is known here, also those whose driver this version or this build has not, so that a
//! wrong URL is told apart from one that came too early. Nothing is opened, resolved or read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use super::election::{Election, NameError, check_prefix};
use crate::node::{Address, AddressError};

/// A store argument that is well formed, and whose driver this build has.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    text: String,
    pub(super) place: Place,
    prefix: String,
}

/// Where the store is, in its own terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// The members of an etcd cluster, at least one.
    Etcd(Vec<Address>),
    /// A database file; the path is absolute.
    Sqlite(PathBuf),
    /// A table of this process, shared by all URLs of the same text.
    Memory,
}

/// A kind of store that this version has a driver for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Scheme {
    Etcd,
    Sqlite,
    Memory,
}

/// Why a text is no [`StoreUrl`]. No message shows what stands before an `@`, for that may be a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// No scheme at all.
    #[error("`{0}` is no store URL: write it like etcd://HOST:2379/prefix or sqlite:///path/to/file.db")]
    NoScheme(String),
    /// A scheme that is not the product's.
    #[error("there is no store `{0}`: there are etcd://, sqlite:// and memory:")]
    Unknown(String),
    /// A scheme that comes later.
    #[error("the store `{0}` is not in this version: use etcd://, sqlite:// or memory:")]
    NotYet(&'static str),
    /// A scheme whose driver was left out when the program was built.
    #[error("this bellwether was built without the store `{0}`: build it with --features {0}")]
    NotBuilt(&'static str),
    /// A password, seen by everybody who can list processes.
    #[error(
        "the store URL has a password in it, which every user of this machine can read: put it into a file and write --store-opt username=USER --store-opt password-file=FILE"
    )]
    Password,
    /// A user's name in the place where the URL of a later store has it.
    #[error("the store URL has a user in it: write --store-opt username=USER instead")]
    User,
    /// `?` or `#`.
    #[error("the store URL ends with `{0}`: settings go into --store-opt")]
    Settings(String),
    /// No host.
    #[error("the store URL names no host: write it like etcd://HOST:2379/prefix")]
    NoHost,
    /// A host that is none.
    #[error("the store's host {0}")]
    Host(#[source] AddressError),
    /// The same host and port twice.
    #[error("the store URL names {0} twice: name each member once")]
    Twice(Address),
    /// A path that cannot be a prefix.
    #[error(transparent)]
    Prefix(#[from] NameError),
    /// A file without its full path.
    #[error("`{0}` is no full path: write it with three slashes, like sqlite:///var/lib/bellwether/election.db")]
    Relative(String),
    /// A path that ends like a folder.
    #[error("`{0}` is a folder: name the database file in it")]
    Folder(String),
    /// Something after `memory:` that is no name.
    #[error("`{0}` is no usable name for a store in memory: write memory: or memory:NAME")]
    MemoryName(String),
}

impl StoreUrl {
    /// The election of `service` at this store.
    ///
    /// # Errors
    /// [`NameError`] when `service` is no usable name.
    pub fn election(&self, service: &str) -> Result<Election, NameError> {
        Election::new(&self.prefix, service)
    }

    /// The least TTL that the store can keep.
    pub fn least_ttl(&self) -> Duration {
        match self.place {
            Place::Etcd(_) => Duration::from_secs(1),
            Place::Sqlite(_) | Place::Memory => Duration::from_millis(500),
        }
    }

    /// Whether only this machine can see the store.
    pub fn is_local(&self) -> bool {
        match self.place {
            Place::Etcd(_) => false,
            Place::Sqlite(_) | Place::Memory => true,
        }
    }

    /// The store's name, as the scheme has it.
    pub fn scheme(&self) -> &'static str {
        self.kind().name()
    }

    /// The text as it was given; it holds no secret.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn kind(&self) -> Scheme {
        match self.place {
            Place::Etcd(_) => Scheme::Etcd,
            Place::Sqlite(_) => Scheme::Sqlite,
            Place::Memory => Scheme::Memory,
        }
    }
}

impl Scheme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Sqlite => "sqlite",
            Self::Memory => "memory",
        }
    }

    fn parse(name: &str) -> Result<Self, UrlError> {
        let scheme = match name {
            "etcd" => Self::Etcd,
            "sqlite" => Self::Sqlite,
            "memory" => Self::Memory,
            "consul" => return Err(UrlError::NotYet("consul")),
            "zk" => return Err(UrlError::NotYet("zk")),
            "postgres" => return Err(UrlError::NotYet("postgres")),
            "mysql" => return Err(UrlError::NotYet("mysql")),
            "kubernetes" => return Err(UrlError::NotYet("kubernetes")),
            other => return Err(UrlError::Unknown(other.to_owned())),
        };
        if super::has_driver(scheme) { Ok(scheme) } else { Err(UrlError::NotBuilt(scheme.name())) }
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = split_scheme(text)?;
        let default_prefix = || Election::DEFAULT_PREFIX.to_owned();
        let (place, prefix) = match Scheme::parse(scheme)? {
            Scheme::Etcd => parse_etcd(rest)?,
            Scheme::Sqlite => (Place::Sqlite(parse_path(rest)?), default_prefix()),
            Scheme::Memory => (parse_memory(rest)?, default_prefix()),
        };
        Ok(Self { text: text.to_owned(), place, prefix })
    }
}

/// The scheme, and what follows its colon; a host and port alone is not taken for one.
fn split_scheme(text: &str) -> Result<(&str, &str), UrlError> {
    let no_scheme = || UrlError::NoScheme(without_user(text));
    let (scheme, rest) = text.split_once(':').ok_or_else(no_scheme)?;
    let is_name = !scheme.is_empty() && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+');
    match is_name && (rest.starts_with("//") || scheme == "memory") {
        true => Ok((scheme, rest)),
        false => Err(no_scheme()),
    }
}

fn without_user(text: &str) -> String {
    text.rsplit_once('@').map_or_else(|| text.to_owned(), |(_, rest)| format!("…@{rest}"))
}

/// `//HOST:PORT,HOST:PORT/PREFIX`
fn parse_etcd(rest: &str) -> Result<(Place, String), UrlError> {
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    // The last `@`, wherever it is: a password may itself have slashes and question marks.
    if let Some((user, _)) = rest.rsplit_once('@') {
        return Err(if user.contains(':') { UrlError::Password } else { UrlError::User });
    }
    refuse_settings(rest)?;
    let (hosts, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let prefix = match prefix.strip_suffix('/').unwrap_or(prefix) {
        "" => Election::DEFAULT_PREFIX,
        prefix => prefix,
    };
    check_prefix(prefix)?;
    let mut endpoints = Vec::new();
    for host in hosts.split(',') {
        let endpoint = parse_host(host)?;
        if endpoints.contains(&endpoint) {
            return Err(UrlError::Twice(endpoint));
        }
        endpoints.push(endpoint);
    }
    Ok((Place::Etcd(endpoints), prefix.to_owned()))
}

/// A host with its port, or with etcd's own.
fn parse_host(host: &str) -> Result<Address, UrlError> {
    let has_port = match host.rsplit_once(']') {
        Some((_, after)) => after.contains(':'),
        None => host.contains(':'),
    };
    match host {
        "" => Err(UrlError::NoHost),
        host if has_port => host.parse().map_err(UrlError::Host),
        host => format!("{host}:2379").parse().map_err(UrlError::Host),
    }
}

/// `///ABSOLUTE/PATH`, byte for byte.
fn parse_path(rest: &str) -> Result<PathBuf, UrlError> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    refuse_settings(path)?;
    if !path.starts_with('/') {
        return Err(UrlError::Relative(without_user(path)));
    }
    if path.ends_with('/') || Path::new(path).file_name().is_none() {
        return Err(UrlError::Folder(path.to_owned()));
    }
    Ok(PathBuf::from(path))
}

fn parse_memory(name: &str) -> Result<Place, UrlError> {
    match name.is_empty() || check_prefix(name).is_ok() && !name.contains('/') {
        true => Ok(Place::Memory),
        false => Err(UrlError::MemoryName(without_user(name))),
    }
}

fn refuse_settings(rest: &str) -> Result<(), UrlError> {
    match rest.find(['?', '#']) {
        Some(start) => Err(UrlError::Settings(rest[start..].to_owned())),
        None => Ok(()),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "StoreUrl({})", self.text)
    }
}

#[cfg(test)]
mod tests;
