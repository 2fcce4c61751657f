//! TLS: the certificate that a node shows, and those that it believes.
//!
//! Everything is read from the PEM files that the flags name, and checked before it is used: at the start, and again
//! whenever a file changes. What the other nodes would refuse is refused here first, with a sentence that names the file.
//! All that is in use is one value behind one pointer: a handshake takes it whole, so that no connection sees half of a
//! change, and connections that are open keep what they began with.
//!
//! The library is rustls with ring: TLS 1.2 and 1.3, and neither renegotiation nor early data. This room opens no
//! sockets, and knows of HTTP only the names of its versions.

mod client;
mod file;
mod identity;
mod reload;
mod trust;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::sign::SingleCertAndKey;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::server::TlsStream;

use file::{Contents, Flag};
use identity::Identity;

pub use client::{Client, Untrusted, is_name};
pub use file::TlsError;
pub use identity::Life;

/// The application protocols that clients and apps are offered, the preferred one first (RFC 7301).
const OFFERED: [&[u8]; 2] = [HTTP2, SPOKEN];
/// HTTP/2, as a handshake names it (RFC 9113 §3.2).
pub const HTTP2: &[u8] = b"h2";
/// What is spoken with other nodes, and with everybody where HTTP/2 is off.
const SPOKEN: &[u8] = b"http/1.1";

/// What a node is told about TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The file of the CAs that issue certificates of nodes and clients; without one nodes check each other against the
    /// system's.
    pub ca: Option<PathBuf>,
    /// The file of this node's certificate, and of those between it and its CA.
    pub cert: PathBuf,
    /// The file of its private key.
    pub key: PathBuf,
    /// Whether clients and nodes must show a certificate of the CA. Takes `ca`.
    pub verify: bool,
    /// The host at which other nodes dial this one, where there are others.
    pub dialled_at: Option<String>,
    /// What the certificate of every node is for, where that is not the host at which it is dialled.
    pub server_name: Option<String>,
    /// Whether clients may choose HTTP/2.
    pub http2: bool,
    /// Whether the app speaks TLS, too.
    pub with_app: bool,
}

/// A node's TLS. Cheap to clone; all clones see the same files.
#[derive(Clone)]
pub struct Tls(Arc<Shared>);

struct Shared {
    terms: Terms,
    present: ArcSwap<Present>,
    /// Somebody wants the files read again now.
    asked: Notify,
}

/// All that is in use at one time.
struct Present {
    contents: Contents,
    server: Arc<ServerConfig>,
    to_nodes: Option<Arc<ClientConfig>>,
    to_app: Option<Arc<ClientConfig>>,
    life: Life,
}

/// What the other end of a connection has shown, and was found to be of the CA.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Nothing, as nobody asked for it.
    Nothing,
    /// A client's certificate.
    Client,
    /// A certificate that a node can have: it is for servers too, and names a host.
    Node,
}

impl Tls {
    /// Reads and checks the files, and says what is odd about them and yet allowed.
    ///
    /// # Errors
    /// [`TlsError`] about the first file that cannot be used.
    pub fn load(terms: Terms) -> Result<(Self, Vec<String>), TlsError> {
        let contents = Contents::read(&terms)?;
        let warnings = contents.oddities(&terms);
        let present = ArcSwap::from_pointee(Present::new(&terms, contents)?);
        Ok((Self(Arc::new(Shared { terms, present, asked: Notify::new() })), warnings))
    }

    /// Shakes hands with whoever has connected. The caller bounds the time.
    ///
    /// # Errors
    /// When the other end does not speak TLS as we do, shows no certificate that is asked for, or leaves. With the stream, on which
    /// it has been told why: a socket that is dropped while something unread is in it may take that back.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Result<(TlsStream<S>, Shown), (io::Error, S)> {
        let server = Arc::clone(&self.0.present.load().server);
        let stream = TlsAcceptor::from(server).accept(stream).into_fallible().await?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let shown = match shown {
            None => Shown::Nothing,
            Some(certificate) if identity::is_a_node_s(certificate) => Shown::Node,
            Some(_) => Shown::Client,
        };
        Ok((stream, shown))
    }

    /// How this node dials the others.
    pub fn to_nodes(&self) -> Client {
        Client::to_nodes(self.clone())
    }

    /// How it dials its app.
    pub fn to_app(&self) -> Client {
        Client::to_app(self.clone())
    }

    /// Whether clients and nodes must show a certificate.
    pub fn verifies(&self) -> bool {
        self.0.terms.verify
    }

    /// From when until when the certificate in use is valid.
    pub fn life(&self) -> Life {
        self.0.present.load().life
    }

    fn server_name(&self) -> Option<&str> {
        self.0.terms.server_name.as_deref()
    }

    fn node_config(&self) -> Arc<ClientConfig> {
        let present = self.0.present.load();
        Arc::clone(present.to_nodes.as_ref().expect("only a node that knows others dials them"))
    }

    fn app_config(&self) -> Arc<ClientConfig> {
        let present = self.0.present.load();
        Arc::clone(present.to_app.as_ref().expect("only an app that speaks TLS is dialled with it"))
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Tls").field("terms", &self.0.terms).finish_non_exhaustive()
    }
}

impl Present {
    fn new(terms: &Terms, contents: Contents) -> Result<Self, TlsError> {
        let identity = contents.identity(terms)?;
        identity.suits_clients(terms)?;
        let given = contents.roots(terms)?.map(Arc::new);
        let system = match (terms.with_app, &given, &terms.dialled_at) {
            (true, _, _) | (false, None, Some(_)) => trust::system()?,
            (false, _, _) => RootCertStore::empty(),
        };
        let for_nodes = given.clone().unwrap_or_else(|| Arc::new(system.clone()));
        let to_nodes = match &terms.dialled_at {
            None => None,
            Some(host) => {
                identity.suits_nodes(terms, terms.server_name.as_ref().unwrap_or(host), &for_nodes)?;
                Some(client::config(Arc::clone(&for_nodes), Some(&identity)))
            }
        };
        let to_app = terms.with_app.then(|| client::config(Arc::new(trust::both(system, given.as_deref())), Some(&identity)));
        let server = server_config(&identity, given.filter(|_| terms.verify), terms.http2)?;
        Ok(Self { contents, server: Arc::new(server), to_nodes, to_app, life: identity.life })
    }
}

/// How clients are answered; `asked_for` are the CAs of which one must have issued what they show.
fn server_config(identity: &Identity, asked_for: Option<Arc<RootCertStore>>, http2: bool) -> Result<ServerConfig, TlsError> {
    let config =
        ServerConfig::builder_with_provider(provider()).with_safe_default_protocol_versions().expect("ring speaks TLS 1.2 and 1.3");
    let config = match asked_for {
        None => config.with_no_client_auth(),
        Some(roots) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            config.with_client_cert_verifier(verifier.map_err(|error| TlsError::new(Flag::Ca, None, error))?)
        }
    };
    let mut config = config.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(&identity.key))));
    let offered = if http2 { &OFFERED[..] } else { &[SPOKEN] };
    config.alpn_protocols = offered.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(config)
}

/// Named wherever it is used: a second one in the tree would make the library's choice ambiguous.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
pub(crate) mod tests;
