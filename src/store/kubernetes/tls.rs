//! Whom we trust, and the certificate that we show.

use std::path::PathBuf;
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A PEM text, or the file that has it. What is in it is in no message.
#[derive(Clone)]
pub(super) enum Pem {
    File(PathBuf),
    /// And where it was found, for people.
    Text(Vec<u8>, String),
}

impl Pem {
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let text = self.read()?;
        let read = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        match read.map_err(|error| self.unusable(error))? {
            none if none.is_empty() => Err(self.unusable("it has no PEM block of a certificate")),
            certificates => Ok(certificates),
        }
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, String> {
        PrivateKeyDer::from_pem_slice(&self.read()?).map_err(|_| self.unusable("it has no PEM block of a private key"))
    }

    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Self::File(file) => std::fs::read(file).map_err(|error| self.unusable(error)),
            Self::Text(text, _) => Ok(text.clone()),
        }
    }

    fn unusable(&self, why: impl std::fmt::Display) -> String {
        match self {
            Self::File(file) => format!("cannot use {}: {why}", file.display()),
            Self::Text(_, place) => format!("cannot use {place}: {why}"),
        }
    }
}

/// A certificate of ours and its key.
pub(super) struct Identity {
    certificates: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    pub(super) fn read(certificate: &Pem, key: &Pem) -> Result<Self, String> {
        Ok(Self { certificates: certificate.certificates()?, key: key.key()? })
    }
}

pub(super) fn roots(pem: &Pem) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in pem.certificates()? {
        roots.add(certificate).map_err(|error| pem.unusable(error))?;
    }
    Ok(roots)
}

pub(super) fn connector(roots: &Arc<RootCertStore>, identity: Option<&Identity>) -> Result<TlsConnector, String> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(Arc::clone(roots));
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(Identity { certificates, key }) => config
            .with_client_auth_cert(certificates.clone(), key.clone_key())
            .map_err(|error| format!("the client certificate does not go with its key: {error}"))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
