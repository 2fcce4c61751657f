//! The store argument: one URL that says which store, where it is, and what the election's prefix is.
//!
//! Every scheme of the product is known here, also those whose driver this build has not, so that a wrong URL is told
//! apart from one that this build cannot use. Nothing is opened, resolved or read.

mod parse;
mod scheme;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::election::{Election, NameError};
use super::options::StoreOptions;
use crate::node::{Address, AddressError};

pub(super) use scheme::Scheme;

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
    /// Agents or servers of one Consul datacentre, at least one.
    Consul(Vec<Address>),
    /// The members of an etcd cluster, at least one.
    Etcd(Vec<Address>),
    /// A namespace of the cluster that the credentials lead to.
    Kubernetes(String),
    /// A table of this process, shared by all URLs of the same text.
    Memory,
    /// A database of a MySQL or MariaDB server.
    Mysql(Database),
    /// A database of a PostgreSQL server.
    Postgres(Database),
    /// A database file; the path is absolute.
    Sqlite(PathBuf),
    /// The members of a ZooKeeper ensemble, at least one.
    ZooKeeper(Vec<Address>),
}

/// A database of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Database {
    pub(super) server: Address,
    /// As whom to log in, where the URL says so.
    user: Option<String>,
    pub(super) name: String,
}

impl Database {
    /// As whom to log in: the URL's user or the `username` option, of which just one is there once
    /// [`check_options`](StoreUrl::check_options) has passed.
    pub(super) fn user<'a>(&'a self, options: &'a StoreOptions) -> Option<&'a str> {
        self.user.as_deref().or(options.username())
    }

    /// Whether the URL itself names the user.
    pub(super) fn names_user(&self) -> bool {
        self.user.is_some()
    }
}

/// Why a text is no [`StoreUrl`]. No message shows what stands before an `@`, for that may be a password.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// No scheme at all.
    #[error("`{0}` is no store URL: write it like etcd://HOST:2379/prefix or sqlite:///path/to/file.db")]
    NoScheme(String),
    /// A scheme that is not the product's.
    #[error("there is no store `{0}`: there are consul://, etcd://, kubernetes://, mysql://, postgres://, sqlite://, zk:// and memory:")]
    Unknown(String),
    /// A scheme whose driver was left out when the program was built; and the feature that has it.
    #[error("this bellwether was built without the store `{0}`: build it with --features {1}")]
    NotBuilt(&'static str, &'static str),
    /// A password, seen by everybody who can list processes.
    #[error(
        "the store URL has a password in it, which every user of this machine can read: put it into a file and write --store-opt username=USER --store-opt password-file=FILE"
    )]
    Password,
    /// A user's name where only the URLs of databases have it; and the option to use.
    #[error("the store URL has a user in it: write --store-opt {0} instead")]
    User(&'static str),
    /// A user's name that cannot be told from the rest of the URL.
    #[error("the user in the store URL is empty, or has spaces or one of / ? # % in it: write --store-opt username=USER instead")]
    UserName,
    /// `?` or `#`.
    #[error("the store URL ends with `{0}`: settings go into --store-opt")]
    Settings(String),
    /// No host; and a URL that has one.
    #[error("the store URL names no host: write it like {0}")]
    NoHost(&'static str),
    /// A host that is none.
    #[error("the store's host {0}")]
    Host(#[source] AddressError),
    /// The same host and port twice.
    #[error("the store URL names {0} twice: name each member once")]
    Twice(Address),
    /// A path that cannot be a prefix.
    #[error(transparent)]
    Prefix(#[from] NameError),
    /// No database; and a URL that has one.
    #[error("the store URL names no database: write it like {0}")]
    NoDatabase(&'static str),
    /// A path that is no database's name.
    #[error("`{0}` is no usable name for a database: write one name, without slashes, spaces or %")]
    Database(String),
    /// A namespace that Kubernetes would not take.
    #[error("`{0}` is no namespace: write it like kubernetes://NAMESPACE, with 1 to 63 of the characters a-z 0-9 -")]
    Namespace(String),
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

    /// The least TTL that a store of this kind can keep. A server may have a greater one of its own.
    pub fn least_ttl(&self) -> Duration {
        self.kind().least_ttl()
    }

    /// Whether only this machine can see the store.
    pub fn is_local(&self) -> bool {
        match self.kind() {
            Scheme::Memory | Scheme::Sqlite => true,
            Scheme::Consul | Scheme::Etcd | Scheme::Kubernetes | Scheme::Mysql | Scheme::Postgres | Scheme::ZooKeeper => false,
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
            Place::Consul(_) => Scheme::Consul,
            Place::Etcd(_) => Scheme::Etcd,
            Place::Kubernetes(_) => Scheme::Kubernetes,
            Place::Memory => Scheme::Memory,
            Place::Mysql(_) => Scheme::Mysql,
            Place::Postgres(_) => Scheme::Postgres,
            Place::Sqlite(_) => Scheme::Sqlite,
            Place::ZooKeeper(_) => Scheme::ZooKeeper,
        }
    }
}

impl FromStr for StoreUrl {
    type Err = UrlError;

    fn from_str(text: &str) -> Result<Self, UrlError> {
        let (scheme, rest) = parse::split_scheme(text)?;
        let scheme = Scheme::parse(scheme)?;
        let mut prefix = Election::DEFAULT_PREFIX.to_owned();
        let mut members = |port| {
            let members;
            (members, prefix) = parse::members(scheme, rest, port)?;
            Ok::<_, UrlError>(members)
        };
        let place = match scheme {
            Scheme::Consul => Place::Consul(members(8500)?),
            Scheme::Etcd => Place::Etcd(members(2379)?),
            Scheme::Kubernetes => Place::Kubernetes(parse::namespace(rest)?),
            Scheme::Memory => parse::memory(rest).map(|()| Place::Memory)?,
            Scheme::Mysql => Place::Mysql(parse::database(scheme, rest, 3306)?),
            Scheme::Postgres => Place::Postgres(parse::database(scheme, rest, 5432)?),
            Scheme::Sqlite => Place::Sqlite(parse::path(rest)?),
            Scheme::ZooKeeper => Place::ZooKeeper(members(2181)?),
        };
        Ok(Self { text: text.to_owned(), place, prefix })
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
