//! What a store's server and its clients show each other.

use std::path::PathBuf;

use tempfile::TempDir;

use crate::certificates::{Authority, LONG, Wanted};

/// An authority of a test's own, a certificate for its server, and one for the client `veiled`.
pub(crate) struct Papers {
    pub(crate) folder: TempDir,
}

impl Papers {
    /// `hosts` is where the server is, as in `IP:127.0.0.1`.
    pub(crate) fn for_a_server_at(hosts: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new(folder.path(), "papers");
        for name in ["server", "veiled"] {
            authority.issue(Wanted { name, hosts, usage: "", life: LONG });
        }
        Self { folder }
    }

    /// A file: `ca`, `server` or `veiled`, and then `.pem` for a certificate, `.key` for its key.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("papers").join(name)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    /// An option of a store that names a file.
    pub(crate) fn option(&self, key: &str, name: &str) -> String {
        format!("{key}={}", self.path(name))
    }

    /// Trusts the authority.
    pub(crate) fn cacert(&self) -> String {
        self.option("cacert", "ca.pem")
    }

    /// Trusts the authority, and shows the client's certificate.
    pub(crate) fn shown(&self) -> [String; 3] {
        [self.cacert(), self.option("cert", "veiled.pem"), self.option("key", "veiled.key")]
    }
}
