//! The files that the flags name, and the sentences about what is wrong with them. What is in a file is in no message.

use std::fmt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::Terms;
use super::identity::{Age, Identity, Life};

/// No chain, key or list of CAs is longer; whatever is, is no such file.
const LONGEST: u64 = 4 << 20;

/// Which flag names a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flag {
    Ca,
    Cert,
    Key,
}

impl fmt::Display for Flag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ca => "--tlscacert (BELLWETHER_TLSCACERT)",
            Self::Cert => "--tlscert (BELLWETHER_TLSCERT)",
            Self::Key => "--tlskey (BELLWETHER_TLSKEY)",
        })
    }
}

/// Why a file cannot be used: one sentence, which names it and says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct TlsError(String);

impl TlsError {
    pub(super) fn new(flag: Flag, file: Option<&Path>, why: impl fmt::Display) -> Self {
        Self(match file {
            Some(file) => format!("{flag}: {}: {why}", file.display()),
            None => format!("{flag}: {why}"),
        })
    }
}

/// What is in the files. Has no `Debug`, as the key is in it.
#[derive(PartialEq, Eq)]
pub(super) struct Contents {
    ca: Option<Vec<u8>>,
    cert: Vec<u8>,
    key: Vec<u8>,
}

impl Contents {
    /// Reads all of them.
    pub(super) fn read(terms: &Terms) -> Result<Self, TlsError> {
        let ca = terms.ca.as_deref().map(|file| read(Flag::Ca, file)).transpose()?;
        Ok(Self { ca, cert: read(Flag::Cert, &terms.cert)?, key: read(Flag::Key, &terms.key)? })
    }

    pub(super) fn identity(&self, terms: &Terms) -> Result<Identity, TlsError> {
        Identity::new((&terms.cert, &self.cert), (&terms.key, &self.key))
    }

    pub(super) fn roots(&self, terms: &Terms) -> Result<Option<RootCertStore>, TlsError> {
        terms.ca.as_deref().zip(self.ca.as_deref()).map(|(file, text)| roots(file, text)).transpose()
    }

    /// What is odd and yet allowed, a sentence each.
    pub(super) fn oddities(&self, terms: &Terms) -> Vec<String> {
        let mut odd = Vec::from_iter(exposed(Flag::Key, &terms.key));
        if let Some((file, text)) = terms.ca.as_deref().zip(self.ca.as_deref()) {
            let authorities = certificates(Flag::Ca, file, text).unwrap_or_default();
            let ended = authorities.iter().filter_map(|ca| Life::of(ca).ok()).filter(|life| life.age() == Age::Over);
            odd.extend(ended.map(|life| {
                let why = format_args!("has a CA that ran out on {}: some clients will refuse what it has issued", life.end());
                TlsError::new(Flag::Ca, Some(file), why).to_string()
            }));
        }
        odd
    }
}

pub(super) fn read(flag: Flag, file: &Path) -> Result<Vec<u8>, TlsError> {
    let unreadable = |why: &dyn fmt::Display| TlsError::new(flag, Some(file), format_args!("cannot be read: {why}"));
    let found = std::fs::metadata(file).map_err(|error| unreadable(&error))?;
    if !found.is_file() || found.len() > LONGEST {
        return Err(unreadable(&"it is no file of certificates or keys"));
    }
    std::fs::read(file).map_err(|error| unreadable(&error))
}

/// The certificates in a PEM text, at least one.
pub(super) fn certificates(flag: Flag, file: &Path, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    match CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>() {
        Ok(none) if none.is_empty() => {
            Err(TlsError::new(flag, Some(file), "has no certificate in it: give a PEM file with BEGIN CERTIFICATE"))
        }
        Ok(certificates) => Ok(certificates),
        Err(error) => Err(TlsError::new(flag, Some(file), format_args!("is no good PEM file: {error}"))),
    }
}

/// The CAs in a PEM text, at least one.
pub(super) fn roots(file: &Path, text: &[u8]) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(Flag::Ca, file, text)? {
        let added = roots.add(certificate);
        added.map_err(|error| TlsError::new(Flag::Ca, Some(file), format_args!("has a certificate that cannot be read: {error}")))?;
    }
    Ok(roots)
}

/// The private key in a PEM text.
pub(super) fn key(file: &Path, text: &[u8]) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(text).map_err(|_| {
        let encrypted = text.windows(ENCRYPTED.len()).any(|window| window == ENCRYPTED);
        TlsError::new(
            Flag::Key,
            Some(file),
            if encrypted {
                "is encrypted, and nobody is there to be asked for the passphrase: decrypt it (openssl pkey) and chmod it to 600"
            } else {
                "has no private key in it: give a PEM file with BEGIN PRIVATE KEY"
            },
        )
    })
}

const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A warning where everybody on this machine can read a file that is secret.
fn exposed(flag: Flag, file: &Path) -> Option<String> {
    let mode = std::fs::metadata(file).ok()?.permissions().mode();
    (mode & 0o004 != 0).then(|| format!("{flag}: {}: every user of this machine can read it, chmod it to 600", file.display()))
}
