//! The stores that can keep the election's lock: single, bounded round trips; no policy and no loop.
//!
//! A [`StoreUrl`] says which store and where; [`StoreUrl::open`] makes a [`Lock`] of it for one node. Which drivers a
//! build has is decided here and nowhere else.

#[cfg(feature = "consul")]
mod consul;
mod contract;
#[cfg(any(feature = "consul", feature = "zookeeper"))]
mod credentials;
mod election;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "consul", feature = "kubernetes"))]
mod http;
#[cfg(feature = "kubernetes")]
mod kubernetes;
mod limits;
mod memory;
#[cfg(feature = "mysql")]
mod mysql;
mod options;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(any(feature = "mysql", feature = "postgres"))]
mod server;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sql;
#[cfg(feature = "sqlite")]
mod sqlite;
mod takeover;
#[cfg(any(feature = "consul", feature = "kubernetes", feature = "zookeeper"))]
mod tls;
mod url;
#[cfg(feature = "zookeeper")]
mod zookeeper;

use std::sync::Arc;
use std::time::Duration;

use crate::node::Node;

pub use contract::{Attempt, Cause, Epoch, Leader, Lease, Lock, Renewal, StoreError};
pub use election::{Election, NameError};
pub use limits::{OptionMismatch, TtlMismatch};
pub use memory::{Faults, Holder, Memory};
pub use options::{OptionError, Secret, SecretError, StoreOption, StoreOptions};
pub use takeover::{Takeover, Usual};
pub use url::{StoreUrl, UrlError};

use url::{Place, Scheme};

/// All that a driver needs to know of the election to make one lock.
#[derive(Clone, Debug)]
pub struct LockConfig {
    /// Which election.
    pub election: Election,
    /// Who campaigns.
    pub node: Node,
    /// How long the lock shall outlive a silent holder.
    pub ttl: Duration,
    /// How long the caller will wait for one call; a driver's own time limits lie below it.
    pub call_timeout: Duration,
}

/// Why a store cannot be opened; a person must change something before the program can start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An option that the store does not take, or one of a pair.
    #[error(transparent)]
    Option(#[from] OptionMismatch),
    /// A TTL that the store cannot keep.
    #[error(transparent)]
    Ttl(#[from] TtlMismatch),
    /// A password or token that cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Anything that only the driver knows of; the sentence says what to do.
    #[error("{0}")]
    Place(String),
}

/// A driver's lock: the driver's feature, and what to call. In a build without the driver this is never reached, for then
/// no URL leads here.
macro_rules! driver {
    ($feature:literal, $driver:ident::open($($argument:expr),+)) => {{
        #[cfg(feature = $feature)]
        let opened = $driver::open($($argument),+);
        #[cfg(not(feature = $feature))]
        let opened = {
            let _ = ($($argument),+);
            Err(OpenError::Place(UrlError::NotBuilt($feature, $feature).to_string()))
        };
        opened
    }};
}

impl StoreUrl {
    /// Makes the lock of one node. Nothing is sent: a store that is down is no error here.
    ///
    /// # Errors
    /// [`OpenError`] when the store could never work as it is asked to.
    pub fn open(&self, options: &StoreOptions, config: LockConfig) -> Result<Arc<dyn Lock>, OpenError> {
        self.check_options(options)?;
        self.check_ttl(config.ttl)?;
        match &self.place {
            Place::Consul(agents) => driver!("consul", consul::open(agents, options, config)),
            Place::Etcd(endpoints) => driver!("etcd", etcd::open(endpoints, options, config)),
            Place::Kubernetes(namespace) => driver!("kubernetes", kubernetes::open(namespace, options, config)),
            Place::Memory => Ok(Memory::shared(self.as_str(), &config.election).lock(&config.node, config.ttl)),
            Place::Mysql(database) => driver!("mysql", mysql::open(database, options, &config)),
            Place::Postgres(database) => driver!("postgres", postgres::open(database, options, &config)),
            Place::Sqlite(path) => driver!("sqlite", sqlite::open(path, &config)),
            Place::ZooKeeper(members) => driver!("zookeeper", zookeeper::open(members, options, config)),
        }
    }
}

/// Whether this build has a store's driver.
fn has_driver(scheme: Scheme) -> bool {
    match scheme {
        Scheme::Consul => cfg!(feature = "consul"),
        Scheme::Etcd => cfg!(feature = "etcd"),
        Scheme::Kubernetes => cfg!(feature = "kubernetes"),
        Scheme::Memory => true,
        Scheme::Mysql => cfg!(feature = "mysql"),
        Scheme::Postgres => cfg!(feature = "postgres"),
        Scheme::Sqlite => cfg!(feature = "sqlite"),
        Scheme::ZooKeeper => cfg!(feature = "zookeeper"),
    }
}
