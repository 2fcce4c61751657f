//! The kinds of store, and what their URLs have in common.

use super::UrlError;

/// A kind of store of the product.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Scheme {
    Consul,
    Etcd,
    Kubernetes,
    Memory,
    Mysql,
    Postgres,
    Sqlite,
    ZooKeeper,
}

impl Scheme {
    pub(in crate::store) const ALL: [Self; 8] =
        [Self::Consul, Self::Etcd, Self::Kubernetes, Self::Memory, Self::Mysql, Self::Postgres, Self::Sqlite, Self::ZooKeeper];

    /// As it stands before the colon.
    pub(in crate::store) fn name(self) -> &'static str {
        match self {
            Self::Consul => "consul",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
            Self::Memory => "memory",
            Self::Mysql => "mysql",
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
            Self::ZooKeeper => "zk",
        }
    }

    /// What to give to `--features` for its driver.
    pub(in crate::store) fn feature(self) -> &'static str {
        match self {
            Self::ZooKeeper => "zookeeper",
            other => other.name(),
        }
    }

    /// A URL of this kind, for people to follow.
    pub(super) fn example(self) -> &'static str {
        match self {
            Self::Consul => "consul://HOST:8500/prefix",
            Self::Etcd => "etcd://HOST:2379/prefix",
            Self::Kubernetes => "kubernetes://NAMESPACE",
            Self::Memory => "memory:",
            Self::Mysql => "mysql://USER@HOST:3306/DATABASE",
            Self::Postgres => "postgres://USER@HOST:5432/DATABASE",
            Self::Sqlite => "sqlite:///path/to/file.db",
            Self::ZooKeeper => "zk://HOST:2181/prefix",
        }
    }

    /// Where a user's name goes, when not into the URL.
    pub(super) fn credentials(self) -> &'static str {
        match self {
            Self::Consul | Self::Kubernetes => "token-file=FILE",
            Self::Etcd | Self::Memory | Self::Mysql | Self::Postgres | Self::Sqlite | Self::ZooKeeper => "username=USER",
        }
    }

    pub(super) fn parse(name: &str) -> Result<Self, UrlError> {
        let scheme = Self::ALL.into_iter().find(|scheme| scheme.name() == name).ok_or_else(|| UrlError::Unknown(name.to_owned()))?;
        if crate::store::has_driver(scheme) { Ok(scheme) } else { Err(UrlError::NotBuilt(scheme.name(), scheme.feature())) }
    }
}
