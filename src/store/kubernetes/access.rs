//! Where the API server is, and who we are to it: found as Kubernetes' own clients find it.
//!
//! In this order: the kubeconfig of `--store-opt`, the one that `KUBECONFIG` names, the Pod's ServiceAccount, and
//! `~/.kube/config`. `cacert` and `token-file` replace what was found.

use std::fmt;
use std::path::{Path, PathBuf};

use http::Uri;
use tokio::sync::Mutex;

use super::exec::Exec;
use super::failure::Failure;
use super::kubeconfig;
use super::pem::{self, Pem};
use crate::store::tls::{self, Identity, Roots, Tls};
use crate::store::{OpenError, Secret, StoreOptions, http as wire};

/// Where a Pod finds its token and the cluster's certificates.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Has no `Debug`: it holds the token.
pub(super) struct Access {
    pub(super) server: Server,
    /// Nothing where TLS is not spoken.
    trust: Option<Trust>,
    /// How a connection begins, unless a command gives us another certificate.
    way: Way,
    shows_certificate: bool,
    credential: Credential,
}

struct Trust {
    roots: Roots,
    /// The host that the server must prove to be.
    name: String,
}

/// The API server's URL.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Server {
    is_tls: bool,
    host: String,
    port: u16,
    /// What stands before each path, where the API server is one of several behind a gateway.
    base: String,
}

/// How a connection begins.
#[derive(Clone)]
pub(super) enum Way {
    Plain,
    Tls(Tls, String),
}

pub(super) enum Credential {
    Nothing,
    Token(Secret),
    /// Read again for each request: whoever issues tokens replaces the file before the old one expires.
    TokenFile(PathBuf),
    /// What a command gave last, until the server refuses it.
    Exec(Exec, Mutex<Option<Shown>>),
}

/// What one request shows of us.
#[derive(Clone)]
pub(super) struct Shown {
    pub(super) token: Option<Secret>,
    pub(super) way: Way,
}

/// What a kubeconfig or a Pod says, before the files are read.
pub(super) struct Found {
    pub(super) server: String,
    pub(super) cacert: Option<Pem>,
    pub(super) server_name: Option<String>,
    pub(super) identity: Option<(Pem, Pem)>,
    pub(super) credential: Credential,
}

impl Access {
    /// Finds the cluster, and reads its certificates. `variable` is the environment.
    pub(super) fn find(given: &StoreOptions, variable: impl Fn(&str) -> Option<String>) -> Result<Self, OpenError> {
        let mut found = Self::found(given, variable).map_err(OpenError::Place)?;
        if let Some(cacert) = given.cacert() {
            found.cacert = Some(Pem::File(cacert.to_owned()));
        }
        if let Some(file) = given.token_file() {
            Secret::read(file)?;
            (found.credential, found.identity) = (Credential::TokenFile(file.to_owned()), None);
        }
        Self::of(found).map_err(OpenError::Place)
    }

    fn found(given: &StoreOptions, variable: impl Fn(&str) -> Option<String>) -> Result<Found, String> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(file) = given.kubeconfig() {
            return kubeconfig::read(&[file.to_owned()]);
        }
        if let Some(list) = set("KUBECONFIG") {
            return kubeconfig::read(&std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect::<Vec<_>>());
        }
        if let Some(host) = set("KUBERNETES_SERVICE_HOST") {
            return Ok(in_cluster(&host, set("KUBERNETES_SERVICE_PORT").as_deref(), Path::new(SERVICE_ACCOUNT)));
        }
        match set("HOME").map(|home| Path::new(&home).join(".kube/config")).filter(|file| file.exists()) {
            Some(file) => kubeconfig::read(&[file]),
            None => Err("no Kubernetes cluster is known here: run in a Pod, or write --store-opt kubeconfig=FILE".to_owned()),
        }
    }

    fn of(found: Found) -> Result<Self, String> {
        let server = Server::parse(&found.server)?;
        if !server.is_tls {
            let may = matches!(found.credential, Credential::Nothing) && found.identity.is_none() || server.is_loopback();
            return match may {
                true => Ok(Self { server, trust: None, way: Way::Plain, shows_certificate: false, credential: found.credential }),
                false => Err(format!("{server} is reached without TLS, and no token is sent that way: use https://")),
            };
        }
        let cacert = found.cacert.ok_or("nothing says whom to trust for the API server: write --store-opt cacert=FILE")?;
        let name = found.server_name.unwrap_or_else(|| server.host.clone());
        tls::name(&name)?;
        let trust = Trust { roots: pem::roots(&cacert)?, name };
        let identity = found.identity.map(|(cert, key)| pem::identity(&cert, &key)).transpose()?;
        let way = trust.way(identity.as_ref())?;
        Ok(Self { server, trust: Some(trust), way, shows_certificate: identity.is_some(), credential: found.credential })
    }

    /// What to show now. May run a command for as long as [`Exec`] lets it.
    ///
    /// # Errors
    /// [`Failure::Credential`] when there is nothing to show.
    pub(super) async fn show(&self) -> Result<Shown, Failure> {
        match &self.credential {
            Credential::Nothing => Ok(self.shown(None)),
            Credential::Token(token) => Ok(self.shown(Some(token.clone()))),
            Credential::TokenFile(file) => {
                let file = file.clone();
                let read = tokio::task::spawn_blocking(move || Secret::read(&file)).await;
                let token = read.map_err(|error| Failure::Credential(error.into()))?;
                Ok(self.shown(Some(token.map_err(|error| Failure::Credential(error.into()))?)))
            }
            Credential::Exec(exec, last) => {
                // Nobody else holds it for longer than a moment, unless the command runs.
                let Ok(mut last) = last.try_lock() else {
                    let (server, why) = (format!("`{}`", exec.command()), "has not given its credentials yet".to_owned());
                    return Err(Failure::Unanswered { server, why });
                };
                if let Some(shown) = &*last {
                    return Ok(shown.clone());
                }
                let (token, identity) = exec.run().await.map_err(|why| Failure::Credential(why.into()))?;
                let mut shown = self.shown(token);
                if let (Some(identity), Some(trust)) = (&identity, &self.trust) {
                    shown.way = trust.way(Some(identity)).map_err(|why| Failure::Credential(why.into()))?;
                }
                *last = Some(shown.clone());
                Ok(shown)
            }
        }
    }

    /// Gives up what the server refused. True if there may be something else to show.
    pub(super) async fn may_show_another_than(&self, refused: &Shown) -> bool {
        match &self.credential {
            Credential::Nothing | Credential::Token(_) => false,
            Credential::TokenFile(_) => matches!(self.show().await, Ok(shown) if shown.token != refused.token),
            Credential::Exec(_, last) => {
                let Ok(mut last) = last.try_lock() else { return false };
                if last.as_ref().is_some_and(|shown| shown.token == refused.token) {
                    *last = None;
                }
                true
            }
        }
    }

    /// What is shown, for people.
    pub(super) fn described(&self) -> String {
        match &self.credential {
            Credential::TokenFile(file) => format!("the token in {}", file.display()),
            Credential::Token(_) => "the token of the kubeconfig".to_owned(),
            Credential::Exec(exec, _) => format!("what `{}` gave", exec.command()),
            Credential::Nothing if self.shows_certificate => "the certificate of the kubeconfig".to_owned(),
            Credential::Nothing => "requests without credentials (write --store-opt token-file=FILE)".to_owned(),
        }
    }

    fn shown(&self, token: Option<Secret>) -> Shown {
        Shown { token, way: self.way.clone() }
    }
}

impl Trust {
    fn way(&self, identity: Option<&Identity>) -> Result<Way, String> {
        Ok(Way::Tls(Tls::new(&self.roots, identity, Some(wire::PROTOCOL))?, self.name.clone()))
    }
}

/// The API server as a Pod is told of it.
fn in_cluster(host: &str, port: Option<&str>, account: &Path) -> Found {
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Found {
        server: format!("https://{host}:{}", port.unwrap_or("443")),
        cacert: Some(Pem::File(account.join("ca.crt"))),
        server_name: None,
        identity: None,
        credential: Credential::TokenFile(account.join("token")),
    }
}

impl Server {
    fn parse(url: &str) -> Result<Self, String> {
        let wrong = || format!("the API server `{url}` should be a URL like https://HOST:6443");
        let uri = url.parse::<Uri>().map_err(|_| wrong())?;
        let is_tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) || uri.query().is_some() {
            return Err("the API server's URL has a user or a query in it: leave them out".to_owned());
        }
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { is_tls, host, port, base: uri.path().trim_end_matches('/').to_owned() })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Host and port, as the `Host` header has them.
    pub(super) fn authority(&self) -> String {
        if self.host.contains(':') { format!("[{}]:{}", self.host, self.port) } else { format!("{}:{}", self.host, self.port) }
    }

    fn is_loopback(&self) -> bool {
        self.host == "localhost" || self.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}{}", if self.is_tls { "https" } else { "http" }, self.authority(), self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_a_url_with_a_port_and_maybe_a_path() {
        for (url, shown) in [
            ("https://10.0.0.1", "https://10.0.0.1:443"),
            ("https://k8s.local:6443/", "https://k8s.local:6443"),
            ("https://[fe80::1]:6443/clusters/c-1/", "https://[fe80::1]:6443/clusters/c-1"),
            ("http://127.0.0.1:8001", "http://127.0.0.1:8001"),
        ] {
            assert_eq!(Server::parse(url).map(|server| server.to_string()), Ok(shown.to_owned()));
        }
        for url in ["10.0.0.1:6443", "ftp://h", "https://", "", "https://u:hunter2@h", "https://h/?x=y"] {
            let error = Server::parse(url).map(|server| server.to_string()).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_pod_is_told_where_its_cluster_is() {
        let folder = tempfile::tempdir().unwrap();
        let found = in_cluster("fd00::1", Some("6443"), folder.path());
        assert_eq!(found.server, "https://[fd00::1]:6443");
        assert!(matches!(&found.credential, Credential::TokenFile(file) if *file == folder.path().join("token")));
        let error = Access::of(found).map(drop).unwrap_err();
        assert!(error.contains("ca.crt"), "{error}");
    }

    #[test]
    fn a_token_never_travels_in_the_clear() {
        let found = |server: &str| Found {
            server: server.to_owned(),
            cacert: None,
            server_name: None,
            identity: None,
            credential: Credential::TokenFile("/t".into()),
        };
        assert!(Access::of(found("http://10.0.0.1:8001")).map(drop).unwrap_err().contains("without TLS"));
        assert!(Access::of(found("https://10.0.0.1")).map(drop).unwrap_err().contains("cacert=FILE"));
        Access::of(found("http://127.0.0.1:8001")).map(drop).unwrap();
    }

    #[test]
    fn where_nothing_leads_to_a_cluster_the_sentence_says_what_to_do() {
        let nothing = Access::find(&StoreOptions::default(), |_| None).map(drop).unwrap_err().to_string();
        assert!(nothing.contains("kubeconfig=FILE"), "{nothing}");
        let named = |name: &str| (name == "KUBECONFIG").then(|| "/none/at/all".to_owned());
        let missing = Access::find(&StoreOptions::default(), named).map(drop).unwrap_err().to_string();
        assert!(missing.contains("/none/at/all"), "{missing}");
    }
}
