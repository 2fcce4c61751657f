//! TLS to a store's server, for the drivers whose protocol is our own: whom we trust, and the certificate that we show.

use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::contract::Cause;

/// A connection, with TLS or without.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Goes on over `stream`, inside TLS where it is given with the host that the server must prove to be. Not bounded: the
/// caller is.
pub(super) async fn over(stream: TcpStream, tls: Option<(&Tls, &str)>) -> Result<Box<dyn Stream>, Cause> {
    stream.set_nodelay(true)?;
    let Some((Tls(connector), host)) = tls else { return Ok(Box::new(stream)) };
    let connected = Box::pin(connector.connect(name(host)?, stream)).await;
    Ok(Box::new(connected.map_err(|error| format!("the TLS handshake failed: {error}"))?))
}

/// The name that a certificate must be for.
///
/// # Errors
/// No certificate can be for such a host.
pub(super) fn name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|error| format!("no certificate can be for the host `{host}`: {error}"))
}

/// How to speak TLS: whom to trust, what to show, what to offer.
#[derive(Clone)]
pub(super) struct Tls(TlsConnector);

/// Who may vouch for a server.
#[derive(Clone)]
pub(super) struct Roots(Arc<RootCertStore>);

/// Our certificate, with those that vouch for it, and its key.
pub(super) struct Identity {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) key: PrivateKeyDer<'static>,
}

/// The certificates of a PEM text, at least one.
pub(super) fn certificates(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let read = CertificateDer::pem_slice_iter(text).collect::<Result<Vec<_>, _>>();
    match read.map_err(|error| error.to_string())? {
        none if none.is_empty() => Err("it has no PEM block of a certificate".to_owned()),
        certificates => Ok(certificates),
    }
}

/// The private key of a PEM text.
pub(super) fn private_key(text: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    PrivateKeyDer::from_pem_slice(text).map_err(|_| "it has no PEM block of a private key".to_owned())
}

impl Roots {
    /// Trusts whoever these have signed.
    pub(super) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        Ok(Self(Arc::new(roots)))
    }
}

impl Tls {
    /// `protocol` is what is offered by ALPN, if anything is.
    pub(super) fn new(Roots(roots): &Roots, identity: Option<&Identity>, protocol: Option<&[u8]>) -> Result<Self, String> {
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
        config.alpn_protocols = protocol.map(<[u8]>::to_vec).into_iter().collect();
        Ok(Self(TlsConnector::from(Arc::new(config))))
    }
}

/// What `parse` makes of a file. What is in it is in no message.
pub(super) fn read<T>(file: &Path, parse: impl FnOnce(&[u8]) -> Result<T, String>) -> Result<T, String> {
    let parsed = std::fs::read(file).map_err(|error| error.to_string()).and_then(|text| parse(&text));
    parsed.map_err(|why| format!("cannot use {}: {why}", file.display()))
}
