//! The TLS that the options `cacert`, `cert` and `key` ask for.

use std::path::Path;

use super::tls::{self, Identity, Roots, Tls};
use super::{OpenError, StoreOptions};

/// TLS, with `protocol` offered by ALPN; nothing where no `cacert` says whom to trust.
///
/// # Errors
/// [`OpenError::Place`] names the file that cannot be used, and nothing that is in it.
pub(super) fn tls(options: &StoreOptions, protocol: Option<&[u8]>) -> Result<Option<Tls>, OpenError> {
    let tls = |cacert: &Path| {
        let roots = tls::read(cacert, |text| Roots::new(tls::certificates(text)?))?;
        let identity = options.identity().map(|(cert, key)| identity(cert, key)).transpose()?;
        let named = |why| match options.identity() {
            Some((cert, _)) => format!("cannot use {}: {why}", cert.display()),
            None => why,
        };
        Tls::new(&roots, identity.as_ref(), protocol).map_err(named)
    };
    options.cacert().map(tls).transpose().map_err(OpenError::Place)
}

fn identity(cert: &Path, key: &Path) -> Result<Identity, String> {
    Ok(Identity { certificates: tls::read(cert, tls::certificates)?, key: tls::read(key, tls::private_key)? })
}
