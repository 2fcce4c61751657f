//! What each store takes and can keep: its options and its TTLs.

use std::time::Duration;

use super::options::{OptionKey, StoreOptions};
use super::url::{Scheme, StoreUrl};
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
    #[error("etcd keeps whole seconds, not a TTL of {}: use {}", words(*ttl), words(*next))]
    Fraction {
        /// What was asked.
        ttl: Duration,
        /// The next that etcd can keep.
        next: Duration,
    },
}

impl StoreUrl {
    /// Checks that the store takes every option given, and has all that belong together.
    pub(super) fn check_options(&self, options: &StoreOptions) -> Result<(), OptionMismatch> {
        let store = self.scheme();
        for key in options.keys() {
            match (self.kind(), key) {
                (Scheme::Etcd, OptionKey::Username | OptionKey::PasswordFile | OptionKey::CaCert | OptionKey::Cert | OptionKey::Key) => {}
                (Scheme::Etcd, OptionKey::TokenFile) | (Scheme::Sqlite | Scheme::Memory, _) => {
                    return Err(OptionMismatch::NotTaken { store, option: key.name() });
                }
            }
        }
        let given = |key: OptionKey| options.keys().any(|other| other == key);
        for (key, needed) in Self::BELONG_TOGETHER {
            if given(key) && !given(needed) {
                return Err(OptionMismatch::Alone { given: key.name(), missing: needed.name() });
            }
        }
        Ok(())
    }

    /// The second of each pair must be there when the first is.
    const BELONG_TOGETHER: [(OptionKey, OptionKey); 5] = [
        (OptionKey::Username, OptionKey::PasswordFile),
        (OptionKey::PasswordFile, OptionKey::Username),
        (OptionKey::Cert, OptionKey::Key),
        (OptionKey::Key, OptionKey::Cert),
        (OptionKey::Cert, OptionKey::CaCert),
    ];

    /// Checks that the store can keep `ttl` as it is, without rounding it in silence.
    pub(super) fn check_ttl(&self, ttl: Duration) -> Result<(), TtlMismatch> {
        let (store, least) = (self.scheme(), self.least_ttl());
        if ttl < least {
            return Err(TtlMismatch::TooShort { store, ttl, least });
        }
        match self.kind() {
            Scheme::Etcd if ttl.subsec_nanos() != 0 => Err(TtlMismatch::Fraction { ttl, next: Duration::from_secs(ttl.as_secs() + 1) }),
            Scheme::Etcd | Scheme::Sqlite | Scheme::Memory => Ok(()),
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
            ("sqlite:///x.db", &["username=u"], "takes no option `username`"),
            ("memory:", &["cacert=/c"], "takes no option `cacert`"),
        ] {
            let options = StoreOptions::new(given.iter().map(|text| text.parse::<StoreOption>().unwrap())).unwrap();
            let error = parse(url).check_options(&options).unwrap_err().to_string();
            assert!(error.contains(words), "{url} {given:?}: {error}");
        }
        let all = ["username=u", "password-file=/p", "cacert=/a", "cert=/c", "key=/k"].map(|text| text.parse::<StoreOption>().unwrap());
        parse("etcd://h").check_options(&StoreOptions::new(all).unwrap()).unwrap();
    }

    #[test]
    fn a_ttl_that_the_store_cannot_keep_is_refused_with_one_that_it_can() {
        let refuse = |url: &str, millis: u64| parse(url).check_ttl(Duration::from_millis(millis)).unwrap_err().to_string();
        assert!(refuse("etcd://h", 999).contains("the least is 1s"));
        assert!(refuse("etcd://h", 1_500).contains("use 2s"));
        assert!(refuse("sqlite:///x.db", 499).contains("the least is 500ms"));
        parse("etcd://h").check_ttl(Duration::from_secs(3)).unwrap();
        parse("sqlite:///x.db").check_ttl(Duration::from_millis(1_500)).unwrap();
    }
}
