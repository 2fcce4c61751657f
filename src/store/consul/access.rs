//! As whom Consul is asked, and whom we take for Consul: the token and the certificates that the user gave.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tracing::warn;

use super::lock;
use crate::store::{OpenError, Secret, StoreOptions};

/// Has no `Debug`: it holds the token.
pub(super) struct Access {
    /// TLS is spoken where `cacert` says whom to trust.
    pub(super) tls: Option<TlsConnector>,
    token: Option<Token>,
}

struct Token {
    file: PathBuf,
    present: Mutex<Secret>,
}

impl Access {
    /// Reads the token and the certificates.
    pub(super) fn new(given: &StoreOptions) -> Result<Self, OpenError> {
        let tls = given.cacert().map(|cacert| tls(cacert, given.identity())).transpose()?;
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

fn tls(cacert: &Path, identity: Option<(&Path, &Path)>) -> Result<TlsConnector, OpenError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(cacert)? {
        roots.add(certificate).map_err(|error| unusable(cacert, error))?;
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(cacert, error))?
        .with_root_certificates(roots);
    let config = match identity {
        None => config.with_no_client_auth(),
        Some((cert, key)) => {
            let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unusable(key, error))?;
            config.with_client_auth_cert(certificates(cert)?, secret).map_err(|error| unusable(cert, error))?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

/// The certificates of a file, at least one.
fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(|error| unusable(file, error))? {
        none if none.is_empty() => Err(unusable(file, "it has no PEM block of a certificate")),
        certificates => Ok(certificates),
    }
}

/// What is in the file is in no message.
fn unusable(file: &Path, why: impl std::fmt::Display) -> OpenError {
    OpenError::Place(format!("cannot use {}: {why}", file.display()))
}
