//! What each store takes and can keep: its options and its TTLs.

use std::time::Duration;

use super::options::{OptionKey, StoreOptions};
use super::url::{Database, Place, Scheme, StoreUrl};
use crate::duration::words;

/// Why a store cannot be opened with the options given.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionMismatch {
    /// The option is some other store's.
    #[error("the store {store} takes no option `{option}`: leave it out")]
    NotTaken {
        /// Which store.
        store: &'static str,
        /// Which option.
        option: &'static str,
    },
    /// A database without a user.
    #[error("the store {store} needs a user: write {store}://USER@HOST/DATABASE, or add --store-opt username=USER")]
    NoUser {
        /// Which store.
        store: &'static str,
    },
    /// A user in the URL and one more.
    #[error("the store URL has a user in it, and so has --store-opt username: leave one of them out")]
    UserTwice,
    /// One of a pair.
    #[error("store option `{given}` needs `{missing}` beside it: add --store-opt {missing}=…")]
    Alone {
        /// The one that is there.
        given: &'static str,
        /// The one that is not.
        missing: &'static str,
    },
}

/// Why a store cannot keep a TTL.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TtlMismatch {
    /// Below what the store can keep.
    #[error("a TTL of {} is too short for {store}: the least is {}", words(*ttl), words(*least))]
    TooShort {
        /// Which store.
        store: &'static str,
        /// What was asked.
        ttl: Duration,
        /// What to use at least.
        least: Duration,
    },
    /// Not in whole seconds.
    #[error("{store} keeps whole seconds, not a TTL of {}: use {}", words(*ttl), words(*next))]
    Fraction {
        /// Which store.
        store: &'static str,
        /// What was asked.
        ttl: Duration,
        /// The next that it can keep.
        next: Duration,
    },
}

impl Scheme {
    /// The least TTL that a store of this kind can keep, however its server is set.
    pub(super) fn least_ttl(self) -> Duration {
        match self {
            // Consul's own default is 10 s (`session_ttl_min`), ZooKeeper's 4 s (two ticks): only the server knows.
            Self::Consul | Self::Etcd | Self::Kubernetes | Self::ZooKeeper => Duration::from_secs(1),
            Self::Memory | Self::Mysql | Self::Postgres | Self::Sqlite => Duration::from_millis(500),
        }
    }

    /// The options that it takes.
    fn options(self) -> &'static [OptionKey] {
        use OptionKey::{CaCert, Cert, Key, Kubeconfig, LockDelay, PasswordFile, TokenFile, Username};
        match self {
            Self::Consul => &[CaCert, Cert, Key, TokenFile, LockDelay],
            Self::Etcd | Self::Mysql | Self::Postgres | Self::ZooKeeper => &[CaCert, Cert, Key, Username, PasswordFile],
            Self::Kubernetes => &[CaCert, TokenFile, Kubeconfig],
            Self::Memory | Self::Sqlite => &[],
        }
    }
}

impl StoreUrl {
    /// Checks that the store takes every option given, and has all that belong together.
    ///
    /// # Errors
    /// [`OptionMismatch`] about the first that does not fit.
    pub fn check_options(&self, options: &StoreOptions) -> Result<(), OptionMismatch> {
        let (store, taken) = (self.scheme(), self.kind().options());
        if let Some(key) = options.keys().find(|key| !taken.contains(key)) {
            return Err(OptionMismatch::NotTaken { store, option: key.name() });
        }
        let given = |key: OptionKey| options.keys().any(|other| other == key);
        let pairs = Self::BELONG_TOGETHER.iter().chain(match &self.place {
            Place::Mysql(database) | Place::Postgres(database) => {
                Self::check_user(store, database, options)?;
                &[]
            }
            _ => Self::USER_AND_PASSWORD,
        });
        match pairs.into_iter().find(|(key, needed)| given(*key) && !given(*needed)) {
            Some((given, missing)) => Err(OptionMismatch::Alone { given: given.name(), missing: missing.name() }),
            None => Ok(()),
        }
    }

    /// The second of each pair must be there when the first is.
    const BELONG_TOGETHER: &[(OptionKey, OptionKey)] =
        &[(OptionKey::Cert, OptionKey::Key), (OptionKey::Key, OptionKey::Cert), (OptionKey::Cert, OptionKey::CaCert)];

    /// Likewise, but for databases: they have the user in the URL, and may let one in without a password.
    const USER_AND_PASSWORD: &[(OptionKey, OptionKey)] =
        &[(OptionKey::Username, OptionKey::PasswordFile), (OptionKey::PasswordFile, OptionKey::Username)];

    /// A database's user is named once.
    fn check_user(store: &'static str, database: &Database, options: &StoreOptions) -> Result<(), OptionMismatch> {
        if database.names_user() && options.username().is_some() {
            return Err(OptionMismatch::UserTwice);
        }
        match database.user(options) {
            Some(_) => Ok(()),
            None => Err(OptionMismatch::NoUser { store }),
        }
    }

    /// Checks that the store can keep `ttl` as it is, without rounding it in silence.
    ///
    /// # Errors
    /// [`TtlMismatch`] with the TTL to use.
    pub fn check_ttl(&self, ttl: Duration) -> Result<(), TtlMismatch> {
        let (store, least) = (self.scheme(), self.least_ttl());
        if ttl < least {
            return Err(TtlMismatch::TooShort { store, ttl, least });
        }
        match self.kind() {
            Scheme::Etcd | Scheme::Kubernetes if ttl.subsec_nanos() != 0 => {
                Err(TtlMismatch::Fraction { store, ttl, next: Duration::from_secs(ttl.as_secs() + 1) })
            }
            Scheme::Consul
            | Scheme::Etcd
            | Scheme::Kubernetes
            | Scheme::Memory
            | Scheme::Mysql
            | Scheme::Postgres
            | Scheme::Sqlite
            | Scheme::ZooKeeper => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::StoreOption;

    fn parse(url: &str) -> StoreUrl {
        url.parse().unwrap()
    }

    #[test]
    fn a_store_takes_its_own_options_only() {
        for (url, given, words) in [
            ("etcd://h", &["username=u"][..], "needs `password-file`"),
            ("etcd://h", &["password-file=/p"], "needs `username`"),
            ("etcd://h", &["cert=/c"], "needs `key`"),
            ("etcd://h", &["key=/k"], "needs `cert`"),
            ("etcd://h", &["cert=/c", "key=/k"], "needs `cacert`"),
            ("etcd://h", &["token-file=/t"], "takes no option `token-file`"),
            ("consul://h", &["username=u"], "takes no option `username`"),
            ("consul://h", &["cert=/c", "key=/k"], "needs `cacert`"),
            ("etcd://h", &["lock-delay=1s"], "takes no option `lock-delay`"),
            ("kubernetes://n", &["cert=/c"], "takes no option `cert`"),
            ("mysql://h/d", &[], "mysql://USER@HOST/DATABASE"),
            ("postgres://h/d", &["password-file=/p"], "username=USER"),
            ("postgres://u@h/d", &["username=u"], "leave one of them out"),
            ("postgres://u@h/d", &["key=/k"], "needs `cert`"),
            ("postgres://u@h/d", &["token-file=/t"], "takes no option `token-file`"),
            ("sqlite:///x.db", &["username=u"], "takes no option `username`"),
            ("zk://h", &["username=u"], "needs `password-file`"),
            ("zk://h", &["cert=/c", "key=/k"], "needs `cacert`"),
            ("memory:", &["cacert=/c"], "takes no option `cacert`"),
        ] {
            let options = StoreOptions::new(given.iter().map(|text| text.parse::<StoreOption>().unwrap())).unwrap();
            let error = parse(url).check_options(&options).unwrap_err().to_string();
            assert!(error.contains(words), "{url} {given:?}: {error}");
        }
        for (url, given) in [
            ("consul://h", &["token-file=/t", "cacert=/a", "cert=/c", "key=/k", "lock-delay=0s"][..]),
            ("etcd://h", &["username=u", "password-file=/p", "cacert=/a", "cert=/c", "key=/k"]),
            ("kubernetes://n", &["token-file=/t", "cacert=/a", "kubeconfig=/k"]),
            ("mysql://h/d", &["username=u", "password-file=/p", "cacert=/a", "cert=/c", "key=/k"]),
            ("postgres://u@h/d", &["password-file=/p", "cacert=/a"]),
            ("postgres://u@h/d", &[]),
            ("zk://h", &["username=u", "password-file=/p", "cacert=/a", "cert=/c", "key=/k"]),
        ] {
            let options = StoreOptions::new(given.iter().map(|text| text.parse::<StoreOption>().unwrap())).unwrap();
            parse(url).check_options(&options).unwrap_or_else(|error| panic!("{url} {given:?}: {error}"));
        }
    }

    #[test]
    fn a_ttl_that_the_store_cannot_keep_is_refused_with_one_that_it_can() {
        let refuse = |url: &str, millis: u64| parse(url).check_ttl(Duration::from_millis(millis)).unwrap_err().to_string();
        assert!(refuse("etcd://h", 999).contains("the least is 1s"));
        assert!(refuse("etcd://h", 1_500).contains("use 2s"));
        assert!(refuse("kubernetes://n", 1_500).contains("kubernetes keeps whole seconds"));
        for url in ["consul://h", "kubernetes://n", "zk://h"] {
            assert!(refuse(url, 999).contains("the least is 1s"), "{url}");
        }
        for url in ["mysql://u@h/d", "postgres://u@h/d"] {
            assert!(refuse(url, 499).contains("the least is 500ms"), "{url}");
        }
        assert!(refuse("sqlite:///x.db", 499).contains("the least is 500ms"));
        parse("etcd://h").check_ttl(Duration::from_secs(3)).unwrap();
        for url in ["consul://h", "zk://h", "postgres://u@h/d", "sqlite:///x.db"] {
            parse(url).check_ttl(Duration::from_millis(1_500)).unwrap();
        }
    }
}
