//! The TLS that the options `cacert`, `cert` and `key` ask for.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsConnector;

use super::tls::{self, Identity};
use super::{OpenError, StoreOptions};

/// TLS, with `protocol` offered by ALPN; nothing where no `cacert` says whom to trust.
///
/// # Errors
/// [`OpenError::Place`] names the file that cannot be used, and nothing that is in it.
pub(super) fn connector(options: &StoreOptions, protocol: Option<&[u8]>) -> Result<Option<TlsConnector>, OpenError> {
    let connector = |cacert: &Path| {
        let roots = tls::read(cacert, |text| tls::roots(tls::certificates(text)?))?;
        let identity = options.identity().map(|(cert, key)| identity(cert, key)).transpose()?;
        tls::connector(&Arc::new(roots), identity.as_ref(), protocol)
    };
    options.cacert().map(connector).transpose().map_err(OpenError::Place)
}

fn identity(cert: &Path, key: &Path) -> Result<Identity, String> {
    Ok(Identity { certificates: tls::read(cert, tls::certificates)?, key: tls::read(key, tls::private_key)? })
}
