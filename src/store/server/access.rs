//! How to reach a database, and as whom, from what the user gave.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::store::url::Database;
use crate::store::{OpenError, Secret, SecretError, StoreOptions};

/// Everything that a connection is made of. Its `Debug` and `Display` say where it leads, and show no secret.
#[derive(Clone)]
pub(in crate::store) struct Access {
    pub(in crate::store) host: String,
    pub(in crate::store) port: u16,
    pub(in crate::store) user: String,
    pub(in crate::store) database: String,
    password_file: Option<PathBuf>,
    /// The certificates that the server's own is checked against. Without, TLS is used where the server offers it, and
    /// whose certificate that is remains unchecked.
    pub(in crate::store) cacert: Option<Vec<u8>>,
    pub(in crate::store) identity: Option<Identity>,
}

/// The certificate that we show the server, and its key.
#[derive(Clone)]
pub(in crate::store) struct Identity {
    pub(in crate::store) cert: Vec<u8>,
    pub(in crate::store) key: Vec<u8>,
}

impl Access {
    /// Reads the certificates, and tries whether the password can be read.
    pub(in crate::store) fn new(database: &Database, given: &StoreOptions) -> Result<Self, OpenError> {
        let user = database.user(given).unwrap_or_default().to_owned();
        let identity = match given.identity() {
            Some((cert, key)) => Some(Identity { cert: read_pem(cert, "CERTIFICATE")?, key: read_pem(key, "PRIVATE KEY")? }),
            None => None,
        };
        let access = Self {
            host: database.server.host().to_owned(),
            port: database.server.port(),
            user,
            database: database.name.clone(),
            password_file: given.password_file().map(Path::to_owned),
            cacert: given.cacert().map(|cacert| read_pem(cacert, "CERTIFICATE")).transpose()?,
            identity,
        };
        access.read_password()?;
        Ok(access)
    }

    /// The password as it stands in its file now, so that one that was changed is used by the next connection.
    pub(in crate::store) async fn password(&self) -> Result<Option<Secret>, SecretError> {
        let access = self.clone();
        let read = tokio::task::spawn_blocking(move || access.read_password());
        read.await.expect("reading a file does not panic")
    }

    fn read_password(&self) -> Result<Option<Secret>, SecretError> {
        self.password_file.as_deref().map(Secret::read).transpose()
    }
}

/// Reads a file that must hold at least one block of this kind; what is in it is in no message.
fn read_pem(path: &Path, kind: &str) -> Result<Vec<u8>, OpenError> {
    let text = std::fs::read_to_string(path).map_err(|error| OpenError::Place(format!("cannot read {}: {error}", path.display())))?;
    let marked = text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----")));
    match marked {
        true => Ok(text.into_bytes()),
        false => Err(OpenError::Place(format!("{} has no PEM block of a {}", path.display(), kind.to_lowercase()))),
    }
}

impl fmt::Display for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(out, "database `{}` at {open}{}{close}:{}", self.database, self.host, self.port)
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Access({self} as {})", self.user)
    }
}
