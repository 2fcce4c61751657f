//! Certificates and keys as a kubeconfig gives them: in a file, or in the text itself.

use std::path::PathBuf;

use crate::store::tls::{self, Identity, Roots};

/// A PEM text, or the file that has it. What is in it is in no message.
#[derive(Clone)]
pub(super) enum Pem {
    File(PathBuf),
    /// And where it was found, for people.
    Text(Vec<u8>, String),
}

impl Pem {
    /// What `parse` makes of it.
    fn read<T>(&self, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
        match self {
            Self::File(file) => tls::read(file, parse),
            Self::Text(text, place) => parse(text).map_err(|why| format!("cannot use {place}: {why}")),
        }
    }
}

/// A certificate of ours and its key.
pub(super) fn identity(certificate: &Pem, key: &Pem) -> Result<Identity, String> {
    Ok(Identity { certificates: certificate.read(tls::certificates)?, key: key.read(tls::private_key)? })
}

/// Whom to trust.
pub(super) fn roots(pem: &Pem) -> Result<Roots, String> {
    pem.read(|text| Roots::new(tls::certificates(text)?))
}
