//! TLS as the tests speak it themselves, and a small world of certificates for nodes and those who use them.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

use super::certificates::{Authority, Credentials, LONG, Wanted};

/// What a node's certificate is for.
pub(crate) const NODE: &str = "serverAuth,clientAuth";
/// Where nodes of tests are reached.
pub(crate) const HERE: &str = "IP:127.0.0.1,DNS:localhost";

/// An authority with certificates for nodes, and one for a user.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) authority: Authority,
    pub(crate) user: Credentials,
}

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let authority = Authority::new(folder.path(), "ca");
        let user = authority.issue(Wanted { name: "user", hosts: "", usage: "clientAuth", life: LONG });
        Self { folder, authority, user }
    }

    /// A certificate for the node `name`.
    pub(crate) fn node(&self, name: &str) -> Credentials {
        self.authority.issue(Wanted { name, hosts: HERE, usage: NODE, life: LONG })
    }

    /// TLS as the user speaks it.
    pub(crate) fn secure(&self) -> Secure {
        Secure::of(&self.user)
    }
}

/// How a client speaks TLS. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Secure(Arc<ClientConfig>);

impl fmt::Debug for Secure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secure")
    }
}

impl Secure {
    /// Believes the CA, and shows the certificate.
    pub(crate) fn of(files: &Credentials) -> Self {
        Self::new(&files.ca, Some((&files.cert, &files.key)))
    }

    /// Believes the CA, and shows nothing unless there is a pair.
    pub(crate) fn new(ca: &Path, pair: Option<(&Path, &Path)>) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca) {
            roots.add(certificate).expect("a CA");
        }
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
        let config = config.with_root_certificates(roots);
        Self(Arc::new(match pair {
            None => config.with_no_client_auth(),
            Some((cert, key)) => config.with_client_auth_cert(certificates(cert), secret(key)).expect("a pair"),
        }))
    }

    /// Connects to `address` and shakes hands.
    pub(crate) async fn connect(&self, address: SocketAddr) -> io::Result<client::TlsStream<TcpStream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        self.over(stream).await
    }

    /// Shakes hands with whoever is at the other end.
    pub(crate) async fn over(&self, stream: TcpStream) -> io::Result<client::TlsStream<TcpStream>> {
        let host = stream.peer_addr()?.ip();
        TlsConnector::from(Arc::clone(&self.0)).connect(ServerName::IpAddress(host.into()), stream).await
    }

    /// The same with HTTP/2 as all there is to choose.
    pub(crate) fn for_http2(&self) -> Self {
        let mut config = (*self.0).clone();
        config.alpn_protocols = vec![b"h2".to_vec()];
        Self(Arc::new(config))
    }

    /// The certificate that is shown at `address` to whoever connects now, with no session to resume.
    pub(crate) async fn shown_at(&self, address: SocketAddr) -> Vec<u8> {
        let mut config = (*self.0).clone();
        config.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        let stream = Self(Arc::new(config)).connect(address).await.expect("a handshake");
        stream.get_ref().1.peer_certificates().expect("a certificate")[0].to_vec()
    }
}

/// The first certificate of a file, as it goes over the wire.
pub(crate) fn first(file: &Path) -> Vec<u8> {
    certificates(file)[0].to_vec()
}

/// TLS on a connection that was accepted, by a server with these files that asks nobody for a certificate.
pub(crate) async fn accept(files: &Credentials, stream: TcpStream) -> io::Result<server::TlsStream<TcpStream>> {
    let config = ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(certificates(&files.cert), secret(&files.key)).expect("a pair");
    TlsAcceptor::from(Arc::new(config)).accept(stream).await
}

fn certificates(file: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(file).expect("a PEM file").collect::<Result<_, _>>().expect("certificates")
}

fn secret(file: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(file).expect("a private key")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}
