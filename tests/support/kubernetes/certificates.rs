//! A certificate authority for one run of the tests, with a certificate for the server and one for a user.

use std::path::Path;
use std::sync::OnceLock;

use super::super::certificates::{Authority, Credentials, LONG, Wanted};

/// PEM texts.
#[derive(Debug)]
pub(crate) struct Certificates {
    pub(crate) authority: String,
    pub(crate) server: (String, String),
    pub(crate) user: (String, String),
}

/// Whom the user's certificate names.
pub(crate) const USER: &str = "alice";

impl Certificates {
    /// Made once for all servers of this process.
    pub(crate) fn get() -> &'static Self {
        static MADE: OnceLock<Certificates> = OnceLock::new();
        MADE.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let authority = Authority::new(folder.path(), "tests");
            let issue = |name, hosts, usage| {
                let Credentials { cert, key, .. } = authority.issue(Wanted { name, hosts, usage, life: LONG });
                (text(&cert), text(&key))
            };
            let server = issue("server", "IP:127.0.0.1,DNS:localhost,DNS:kubernetes.default", "");
            Self { authority: text(&authority.file()), server, user: issue(USER, "", "clientAuth") }
        })
    }
}

fn text(file: &Path) -> String {
    std::fs::read_to_string(file).expect("what openssl wrote")
}
