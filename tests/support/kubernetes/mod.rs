//! A Kubernetes API server in this process, for leases: no real one can be had from the registries.
//!
//! It behaves as real ones were seen to (1.20.2) and as their source says of the rest: conflicts, `resourceVersion` and `uid`, a
//! PUT that creates, MicroTime, 401, 403, 404, 409, 422 as `Status`, watches in JSON lines with 410 inside. It speaks HTTPS and
//! HTTP/1.1 on a thread of its own, so that a busy test does not slow it down.

pub(crate) mod api;
pub(crate) mod certificates;
pub(crate) mod objects;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};
use tokio_util::sync::CancellationToken;

use self::api::State;
use self::certificates::{Certificates, USER};
use super::port;

/// Where its elections are.
pub(crate) const NAMESPACE: &str = "shop";
/// Whom the token of [`Kubernetes::token_file`] names.
pub(crate) const ACCOUNT: &str = "system:serviceaccount:shop:web";

/// A running server. It ends with its value.
#[derive(Debug)]
pub(crate) struct Kubernetes {
    address: SocketAddr,
    pub(crate) state: Arc<State>,
    pub(crate) folder: TempDir,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Kubernetes {
    /// Starts a server that knows one token, and lets its user do everything.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut server = Self { address: port::free(), state: Arc::new(State::new(NAMESPACE)), folder, running: None };
        let certificates = Certificates::get();
        for (name, text) in [
            ("ca.pem", &certificates.authority),
            ("user.pem", &certificates.user.0),
            ("user.key", &certificates.user.1),
            ("token", &"valid-token".to_owned()),
        ] {
            std::fs::write(server.folder.path().join(name), text).expect("write a file");
        }
        server.accept_token("valid-token");
        server.restart().await;
        server
    }

    pub(crate) fn url(&self) -> String {
        format!("kubernetes://{NAMESPACE}")
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A kubeconfig that leads to `server`, which may be a wire to this one, and shows the token.
    pub(crate) fn kubeconfig_to(&self, server: SocketAddr) -> String {
        self.kubeconfig_with(&format!("https://{server}"), &json!({"tokenFile": "token"}))
    }

    /// A kubeconfig for a user of this kind.
    pub(crate) fn kubeconfig_with(&self, server: &str, user: &Value) -> String {
        // JSON is YAML, but people write YAML.
        let mut text = String::from("apiVersion: v1\nkind: Config\ncurrent-context: tests\n");
        let parts = [
            ("contexts", "context", json!({"cluster": "here", "user": "us", "namespace": NAMESPACE}), "tests"),
            ("clusters", "cluster", json!({"server": server, "certificate-authority": "ca.pem"}), "here"),
            ("users", "user", user.clone(), "us"),
        ];
        for (list, kind, value, name) in parts {
            writeln!(text, "{list}:\n- name: {name}\n  {kind}: {value}").expect("write to a text");
        }
        let number = fastrand::u64(..);
        let file = self.folder.path().join(format!("config-{number:x}"));
        std::fs::write(&file, text).expect("write a kubeconfig");
        file.display().to_string()
    }

    /// Ends the server as a crash does.
    pub(crate) fn stop(&mut self) {
        self.freeze(false);
        if let Some((stop, thread)) = self.running.take() {
            stop.cancel();
            thread.join().expect("the server's thread");
        }
    }

    /// Starts the server again with all that it knew.
    pub(crate) async fn restart(&mut self) {
        self.stop();
        let listener = TcpListener::bind(self.address).await.expect("listen on loopback").into_std().expect("a listener");
        let (stop, state) = (CancellationToken::new(), Arc::clone(&self.state));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                tokio::select! {
                    () = stopped.cancelled() => {}
                    () = serve(listener, state) => {}
                }
            });
        });
        self.running = Some((stop, thread));
    }

    /// Starts the server again without its data.
    pub(crate) async fn restart_empty(&mut self) {
        self.stop();
        self.state.objects(objects::Objects::clear);
        self.restart().await;
    }

    /// Answers nothing from now on, and keeps all connections; or goes on.
    pub(crate) fn freeze(&self, frozen: bool) {
        *self.state.frozen.0.lock().expect("no panic under this lock") = frozen;
        self.state.frozen.1.notify_all();
    }

    /// Lets this token's bearer in.
    pub(crate) fn accept_token(&self, token: &str) {
        self.state.rules().tokens.insert(token.to_owned(), ACCOUNT.to_owned());
    }

    /// Lets nobody in with this token any more.
    pub(crate) fn expire_token(&self, token: &str) {
        self.state.rules().tokens.remove(token);
    }

    /// Lets the token's user do nothing but this.
    pub(crate) fn allow_only(&self, verbs: &[&str]) {
        let verbs = verbs.iter().map(|verb| (*verb).to_owned()).collect();
        self.state.rules().verbs.insert(ACCOUNT.to_owned(), verbs);
    }

    /// Does something with the objects behind the API's back.
    pub(crate) fn objects<R>(&self, act: impl FnOnce(&mut objects::Objects) -> R) -> R {
        self.state.objects(act)
    }

    /// Deletes the lease of a service, as an operator may.
    pub(crate) fn delete(&self, service: &str) {
        let (code, answer) = self.objects(|objects| objects.delete(NAMESPACE, &lease_name(service), &Value::Null));
        assert_eq!(code, 200, "there was a lease to delete: {answer}");
    }

    /// Changes the lease of a service, as `kubectl edit` does.
    pub(crate) fn edit(&self, service: &str, patch: &Value) {
        let (code, answer) = self.objects(|objects| objects.patch(NAMESPACE, &lease_name(service), patch));
        assert_eq!(code, 200, "{answer}");
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.freeze(false);
        if let Some((stop, thread)) = self.running.take() {
            stop.cancel();
            thread.join().ok();
        }
    }
}

pub(crate) fn lease_name(service: &str) -> String {
    format!("bellwether-{service}")
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let tls = TlsAcceptor::from(Arc::new(tls()));
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        connections.spawn(async move {
            stream.set_nodelay(true).ok();
            state.stand_still();
            let Ok(stream) = tls.accept(stream).await else { return };
            // Certificates of this authority name one user only.
            let certified = stream.get_ref().1.peer_certificates().map(|_| USER.to_owned());
            let service = service_fn(move |request| {
                let (state, certified) = (Arc::clone(&state), certified.clone());
                async move { Ok::<_, std::convert::Infallible>(state.answer(request, certified).await) }
            });
            http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
        });
    }
}

fn tls() -> ServerConfig {
    let certificates = Certificates::get();
    let provider = Arc::new(ring::default_provider());
    let read = |text: &str| CertificateDer::pem_slice_iter(text.as_bytes()).collect::<Result<Vec<_>, _>>().expect("certificates");
    let mut roots = RootCertStore::empty();
    roots.add(read(&certificates.authority).remove(0)).expect("an authority");
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let clients = clients.allow_unauthenticated().build().expect("a verifier");
    let key = PrivateKeyDer::from_pem_slice(certificates.server.1.as_bytes()).expect("a key");
    ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_client_cert_verifier(clients)
        .with_single_cert(read(&certificates.server.0), key)
        .expect("a certificate and its key")
}
