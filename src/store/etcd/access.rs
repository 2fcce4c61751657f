//! How to reach etcd, and as whom: the members' URLs and the client's options, from what the user gave.

use std::path::Path;

use etcd_client::{Certificate, ConnectOptions, Identity, TlsOptions};

use crate::node::Address;
use crate::store::{OpenError, Secret, StoreOptions};

/// The members to ask, and what to show them. Has no `Debug`: the options hold a password.
pub(super) struct Access {
    pub(super) members: Vec<String>,
    pub(super) options: ConnectOptions,
}

impl Access {
    /// Reads the password and the certificates.
    pub(super) fn new(endpoints: &[Address], given: &StoreOptions) -> Result<Self, OpenError> {
        let mut options = ConnectOptions::new();
        if let (Some(user), Some(file)) = (given.username(), given.password_file()) {
            options = options.with_user(user, Secret::read(file)?.expose());
        }
        let mut scheme = "http";
        if let Some(tls) = tls(given)? {
            options = options.with_tls(tls);
            scheme = "https";
        }
        let members = endpoints.iter().map(|endpoint| format!("{scheme}://{endpoint}")).collect();
        Ok(Self { members, options })
    }
}

/// TLS is used where `cacert` says whom to trust; `cert` and `key` then say who we are.
fn tls(given: &StoreOptions) -> Result<Option<TlsOptions>, OpenError> {
    let Some(cacert) = given.cacert() else { return Ok(None) };
    let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(read_pem(cacert, "CERTIFICATE")?));
    if let Some((cert, key)) = given.identity() {
        tls = tls.identity(Identity::from_pem(read_pem(cert, "CERTIFICATE")?, read_pem(key, "PRIVATE KEY")?));
    }
    Ok(Some(tls))
}

/// Reads a file that must hold at least one block of this kind; what is in it is in no message.
fn read_pem(path: &Path, kind: &str) -> Result<String, OpenError> {
    let text = std::fs::read_to_string(path).map_err(|error| OpenError::Place(format!("cannot read {}: {error}", path.display())))?;
    let marked = text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&format!("{kind}-----")));
    match marked {
        true => Ok(text),
        false => Err(OpenError::Place(format!("{} has no PEM block of a {}", path.display(), kind.to_lowercase()))),
    }
}
