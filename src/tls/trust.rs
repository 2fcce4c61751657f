//! Which CAs are believed where no file says so: the system's, as `SSL_CERT_FILE` and `SSL_CERT_DIR` may name them.

use tokio_rustls::rustls::RootCertStore;

use super::file::{Flag, TlsError};

/// The system's CAs, at least one.
pub(super) fn system() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // A system has odd ones that nobody misses.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = "is not given, and this system has no CA certificates: install them (Debian: ca-certificates), or name a file";
        return Err(TlsError::new(Flag::Ca, None, why));
    }
    Ok(roots)
}

/// The system's CAs and those that were given.
pub(super) fn both(mut system: RootCertStore, given: Option<&RootCertStore>) -> RootCertStore {
    system.extend(given.iter().flat_map(|given| given.roots.iter().cloned()));
    system
}
