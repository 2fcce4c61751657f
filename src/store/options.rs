//! What `--store-opt` carries: certificates and credentials, always as the names of files, never as the secret itself, and
//! what only one kind of store has a setting for.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

/// One `key=value` of `--store-opt`.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreOption {
    key: OptionKey,
    value: String,
}

/// Which option it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OptionKey {
    CaCert,
    Cert,
    Key,
    Username,
    PasswordFile,
    TokenFile,
    LockDelay,
    Kubeconfig,
}

impl OptionKey {
    const ALL: [Self; 8] =
        [Self::CaCert, Self::Cert, Self::Key, Self::Username, Self::PasswordFile, Self::TokenFile, Self::LockDelay, Self::Kubeconfig];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CaCert => "cacert",
            Self::Cert => "cert",
            Self::Key => "key",
            Self::Username => "username",
            Self::PasswordFile => "password-file",
            Self::TokenFile => "token-file",
            Self::LockDelay => "lock-delay",
            Self::Kubeconfig => "kubeconfig",
        }
    }
}

/// Consul's own limit.
const MOST_LOCK_DELAY: Duration = Duration::from_secs(60);
/// What Consul waits after a session was ended in any other way than by giving its lock back.
const DEFAULT_LOCK_DELAY: Duration = Duration::from_secs(1);

/// Why a `--store-opt` cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// No `=`.
    #[error("store option `{0}` has no value: write it as key=value")]
    Form(String),
    /// Nothing after the `=`.
    #[error("store option `{0}` has an empty value: write it as {0}=value")]
    Empty(&'static str),
    /// A key that no store has.
    #[error("there is no store option `{0}`: there are cacert, cert, key, username, password-file, token-file, lock-delay and kubeconfig")]
    Unknown(String),
    /// The secret itself instead of the file that has it.
    #[error("a secret on the command line can be read by every user of this machine: put it into a file and write --store-opt {0}=FILE")]
    Secret(&'static str),
    /// No time that Consul would take.
    #[error("store option `lock-delay` takes a duration from 0s to 1m, like 1s, not `{0}`")]
    LockDelay(String),
    /// The same key twice.
    #[error("store option `{0}` is given twice: give it once")]
    Twice(&'static str),
}

impl FromStr for StoreOption {
    type Err = OptionError;

    fn from_str(text: &str) -> Result<Self, OptionError> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        match name {
            "password" => return Err(OptionError::Secret("password-file")),
            "token" => return Err(OptionError::Secret("token-file")),
            _ => {}
        }
        let key = OptionKey::ALL.into_iter().find(|key| key.name() == name);
        match (key, value) {
            (None, _) => Err(OptionError::Unknown(name.to_owned())),
            (Some(key), None) => Err(OptionError::Form(key.name().to_owned())),
            (Some(key), Some("")) => Err(OptionError::Empty(key.name())),
            (Some(OptionKey::LockDelay), Some(value)) if lock_delay(value).is_none() => Err(OptionError::LockDelay(value.to_owned())),
            (Some(key), Some(value)) => Ok(Self { key, value: value.to_owned() }),
        }
    }
}

fn lock_delay(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok().filter(|delay| *delay <= MOST_LOCK_DELAY)
}

impl fmt::Debug for StoreOption {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}={}", self.key.name(), self.value)
    }
}

/// All `--store-opt` of a command, each at most once. Which of them a store takes is its own to say.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreOptions {
    given: Vec<StoreOption>,
}

impl StoreOptions {
    /// Collects what was given.
    ///
    /// # Errors
    /// [`OptionError::Twice`] when a key comes twice.
    pub fn new(given: impl IntoIterator<Item = StoreOption>) -> Result<Self, OptionError> {
        let mut options = Self::default();
        for option in given {
            if options.value(option.key).is_some() {
                return Err(OptionError::Twice(option.key.name()));
            }
            options.given.push(option);
        }
        Ok(options)
    }

    /// The user that the store shall know us as.
    pub fn username(&self) -> Option<&str> {
        self.value(OptionKey::Username)
    }

    /// The file with that user's password.
    pub fn password_file(&self) -> Option<&Path> {
        self.value(OptionKey::PasswordFile).map(Path::new)
    }

    /// The certificates that the store's own is checked against.
    pub fn cacert(&self) -> Option<&Path> {
        self.value(OptionKey::CaCert).map(Path::new)
    }

    /// The certificate that we show the store, and its key.
    pub fn identity(&self) -> Option<(&Path, &Path)> {
        self.value(OptionKey::Cert).zip(self.value(OptionKey::Key)).map(|(cert, key)| (Path::new(cert), Path::new(key)))
    }

    /// The file with the token that lets us in.
    pub fn token_file(&self) -> Option<&Path> {
        self.value(OptionKey::TokenFile).map(Path::new)
    }

    /// The file that says where the Kubernetes cluster is and who we are to it.
    pub fn kubeconfig(&self) -> Option<&Path> {
        self.value(OptionKey::Kubeconfig).map(Path::new)
    }

    /// How long Consul shall keep a lock from the others after its session expired or was destroyed. Giving a lock back
    /// has no delay.
    ///
    /// One second where nothing is given: a holder whose session somebody destroys hears of it within a third of that, and
    /// has stopped serving before the next one begins.
    pub fn lock_delay(&self) -> Duration {
        self.value(OptionKey::LockDelay).and_then(lock_delay).unwrap_or(DEFAULT_LOCK_DELAY)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = OptionKey> {
        self.given.iter().map(|option| option.key)
    }

    fn value(&self, key: OptionKey) -> Option<&str> {
        self.given.iter().find(|option| option.key == key).map(|option| option.value.as_str())
    }
}

/// Something that must never be shown; only [`expose`](Self::expose) gives it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// Why a secret's file could not be used; the secret is in no message.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be read.
    #[error("cannot read {}: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The file has nothing in it.
    #[error("{} is empty: put the secret into it", .0.display())]
    Empty(PathBuf),
}

impl Secret {
    /// Reads a file, without the line ends that editors leave at its end.
    ///
    /// # Errors
    /// [`SecretError`] when the file cannot be read as text, or has nothing in it.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let text = std::fs::read_to_string(path).map_err(|cause| SecretError::Read { path: path.to_owned(), cause })?;
        match text.trim_end_matches(['\r', '\n']) {
            "" => Err(SecretError::Empty(path.to_owned())),
            secret => Ok(Self(secret.to_owned())),
        }
    }

    /// The secret itself, to be sent and not to be printed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// For what came by another way than a file of its own.
impl From<String> for Secret {
    fn from(secret: String) -> Self {
        Self(secret)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_wrong_option_says_what_to_write() {
        for (text, words) in [
            ("username", "key=value"),
            ("username=", "empty value"),
            ("user=root", "there are cacert"),
            ("", "there are cacert"),
            ("password=hunter2", "password-file=FILE"),
            ("token=hunter2", "token-file=FILE"),
            ("lock-delay=15", "from 0s to 1m"),
            ("lock-delay=61s", "from 0s to 1m"),
        ] {
            let error = text.parse::<StoreOption>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn an_option_may_have_an_equals_sign_in_its_value_but_comes_only_once() {
        let option = |text: &str| text.parse::<StoreOption>().unwrap();
        let options = StoreOptions::new([option("username=a=b"), option("password-file=/p")]).unwrap();
        assert_eq!((options.username(), options.password_file()), (Some("a=b"), Some(Path::new("/p"))));
        let twice = StoreOptions::new([option("cert=a"), option("cert=b")]).unwrap_err();
        assert_eq!(twice, OptionError::Twice("cert"));
    }

    #[test]
    fn a_lock_delay_may_be_nothing_but_is_a_second_unless_given() {
        let delay = |given: &[&str]| StoreOptions::new(given.iter().map(|text| text.parse().unwrap())).unwrap().lock_delay();
        assert_eq!(delay(&[]), Duration::from_secs(1));
        assert_eq!(delay(&["lock-delay=0s"]), Duration::ZERO);
        assert_eq!(delay(&["lock-delay=1m"]), Duration::from_secs(60));
    }

    #[test]
    fn a_secret_is_read_without_its_line_end_and_never_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, "hunter2\r\n").unwrap();
        let secret = Secret::read(&path).unwrap();
        assert_eq!((secret.expose(), format!("{secret:?}").as_str()), ("hunter2", "Secret(…)"));
        std::fs::write(&path, "\n").unwrap();
        assert!(Secret::read(&path).unwrap_err().to_string().contains("is empty"));
        assert!(Secret::read(&folder.path().join("none")).unwrap_err().to_string().contains("none"));
    }
}
