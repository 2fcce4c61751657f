//! As whom Consul is asked, and whom we take for Consul: the token and the certificates that the user gave.

use std::path::PathBuf;
use std::sync::Mutex;

use tracing::warn;

use super::lock;
use crate::store::tls::Tls;
use crate::store::{OpenError, Secret, StoreOptions, credentials, http};

/// Has no `Debug`: it holds the token.
pub(super) struct Access {
    /// TLS is spoken where `cacert` says whom to trust.
    pub(super) tls: Option<Tls>,
    token: Option<Token>,
}

struct Token {
    file: PathBuf,
    present: Mutex<Secret>,
}

impl Access {
    /// Reads the token and the certificates.
    pub(super) fn new(given: &StoreOptions) -> Result<Self, OpenError> {
        let tls = credentials::tls(given, Some(http::PROTOCOL))?;
        let token =
            given.token_file().map(|file| Ok::<_, OpenError>(Token { file: file.to_owned(), present: Mutex::new(Secret::read(file)?) }));
        Ok(Self { tls, token: token.transpose()? })
    }

    pub(super) fn token(&self) -> Option<Secret> {
        self.token.as_ref().map(|token| lock(&token.present).clone())
    }

    /// Reads the token's file again. True where there is another token than `refused` by now: whoever hands tokens out
    /// replaces the file, and nothing need be restarted for it.
    pub(super) fn has_another_than(&self, refused: Option<&Secret>) -> bool {
        let Some(token) = &self.token else { return false };
        let mut present = lock(&token.present);
        match Secret::read(&token.file) {
            Ok(read) => *present = read,
            Err(error) => warn!(%error, "cannot read Consul's token again"),
        }
        Some(&*present) != refused
    }
}
