//! The dialling side: whom we believe, what we show, and why a server was not believed.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{CertificateError, ClientConfig, Error, RootCertStore};

use super::file::{self, Flag, TlsError};
use super::identity::{Date, Identity, host};
use super::{OFFERED, SPOKEN, Tls, provider, trust};

/// How servers of one kind are dialled. Cheap to clone.
#[derive(Clone)]
pub struct Client(Source);

/// Where the present configuration is found.
#[derive(Clone)]
enum Source {
    Nodes(Tls),
    App(Tls),
    Fixed(Arc<ClientConfig>),
}

/// Why a server is not believed to be the one that was dialled: one clause.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Untrusted(String);

impl Client {
    pub(super) fn to_nodes(tls: Tls) -> Self {
        Self(Source::Nodes(tls))
    }

    pub(super) fn to_app(tls: Tls) -> Self {
        Self(Source::App(tls))
    }

    /// Believes the CAs in the file `ca`, else the system's, and shows the certificate and the key in the files of `pair`
    /// to servers that ask for one. Reads the files once.
    ///
    /// # Errors
    /// [`TlsError`] about the first file that cannot be used.
    pub fn read(ca: Option<&Path>, pair: Option<(&Path, &Path)>) -> Result<Self, TlsError> {
        let roots = match ca {
            Some(ca) => file::roots(ca, &file::read(Flag::Ca, ca)?)?,
            None => trust::system()?,
        };
        let identity = pair.map(|(cert, key)| {
            let (cert_text, key_text) = (file::read(Flag::Cert, cert)?, file::read(Flag::Key, key)?);
            Identity::new((cert, &cert_text), (key, &key_text))
        });
        Ok(Self(Source::Fixed(config(Arc::new(roots), identity.transpose()?.as_ref()))))
    }

    /// Shakes hands over `stream` with the server that was dialled as `host`, offering it HTTP/1.1 alone. The caller bounds
    /// the time.
    ///
    /// # Errors
    /// With [`Untrusted`] inside when the server is not whom it should be; with other errors when it does not speak TLS,
    /// does not believe us, or leaves. Nothing but the handshake has been sent then.
    pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>> {
        let connector = TlsConnector::from(self.config());
        connector.connect(name(host)?, stream).await.map_err(in_words)
    }

    /// The same, offering it HTTP/2 first. Which of the two it chose is in the stream.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_for_either<S: AsyncRead + AsyncWrite + Unpin>(&self, host: &str, stream: S) -> io::Result<TlsStream<S>> {
        let connector = TlsConnector::from(self.config());
        let offered = OFFERED.iter().map(|protocol| protocol.to_vec()).collect();
        connector.with_alpn(offered).connect(name(host)?, stream).await.map_err(in_words)
    }

    fn config(&self) -> Arc<ClientConfig> {
        match &self.0 {
            Source::Nodes(tls) => tls.node_config(),
            Source::App(tls) => tls.app_config(),
            Source::Fixed(config) => Arc::clone(config),
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self.0 {
            Source::Nodes(_) => "Client(nodes)",
            Source::App(_) => "Client(app)",
            Source::Fixed(_) => "Client(fixed)",
        })
    }
}

fn name(host: &str) -> io::Result<ServerName<'static>> {
    let nobody_s = |_| io::Error::other(Untrusted(format!("no certificate can be for {host}, which is no name")));
    ServerName::try_from(host.to_owned()).map_err(nobody_s)
}

pub(super) fn config(roots: Arc<RootCertStore>, identity: Option<&Identity>) -> Arc<ClientConfig> {
    let config =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("ring speaks TLS 1.2 and 1.3");
    let config = config.with_root_certificates(roots);
    let mut config = match identity {
        None => config.with_no_client_auth(),
        Some(identity) => config.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&identity.key)))),
    };
    config.alpn_protocols = vec![SPOKEN.to_vec()];
    Arc::new(config)
}

/// Says what a failed handshake means for whoever wanted to connect.
fn in_words(error: io::Error) -> io::Error {
    let untrusted = match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(error)) => format!("its certificate {}", explain(error)),
        Some(Error::InvalidMessage(_)) => "it does not speak TLS".to_owned(),
        Some(Error::AlertReceived(alert)) => {
            let refused = format!("it ended the TLS handshake with {alert:?}");
            return io::Error::new(io::ErrorKind::ConnectionRefused, refused);
        }
        _ => return error,
    };
    io::Error::new(io::ErrorKind::InvalidData, Untrusted(untrusted))
}

/// What is wrong with a certificate, as the end of a sentence that begins with it.
pub(super) fn explain(error: &CertificateError) -> String {
    match error {
        CertificateError::UnknownIssuer => "was issued by no CA that is believed here".to_owned(),
        CertificateError::ExpiredContext { not_after, .. } => format!("ran out on {}", Date(not_after.as_secs())),
        CertificateError::NotValidYetContext { not_before, .. } => format!("is not valid before {}", Date(not_before.as_secs())),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let presented = presented.iter().filter_map(|name| host(name)).collect::<Vec<_>>();
            let only = if presented.is_empty() { "names no host".to_owned() } else { format!("is for {}", presented.join(", ")) };
            format!("{only} and not for {}", expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "is not for this purpose: its extendedKeyUsage has not all of serverAuth, and clientAuth under --tlsverify".to_owned()
        }
        CertificateError::Other(error) => format!("cannot be used: {error}"),
        error => format!("cannot be used: {error}"),
    }
}
