//! The TLS flags of a node and of the commands that ask one: which of them go together.

use std::path::{Path, PathBuf};

use super::ConfigError;
use crate::api::Listen;
use crate::cli::Settings;
use crate::cluster::Upstream;
use crate::tls::{self, Terms, Tls};

/// Docker's five flags and one more, as far as they were given.
#[derive(Clone, Default, Debug)]
pub struct TlsFlags {
    /// `--tls`.
    pub tls: Option<bool>,
    /// `--tlsverify`, which implies it.
    pub tlsverify: Option<bool>,
    /// `--tlscacert`.
    pub tlscacert: Option<PathBuf>,
    /// `--tlscert`.
    pub tlscert: Option<PathBuf>,
    /// `--tlskey`.
    pub tlskey: Option<PathBuf>,
    /// `--tls-server-name`.
    pub tls_server_name: Option<String>,
}

impl TlsFlags {
    /// Whether TLS is spoken at all.
    fn are_on(&self) -> Result<bool, ConfigError> {
        let name = self.tls_server_name.as_deref();
        if let Some(name) = name.filter(|name| !tls::is_name(name)) {
            return Err(ConfigError::about(
                SERVER_NAME,
                format_args!("`{name}` is no name that a certificate can be for: give a DNS name or an IP address"),
            ));
        }
        if self.tls == Some(true) || self.tlsverify == Some(true) {
            return Ok(true);
        }
        let given = [
            ("--tlscacert", self.tlscacert.is_some()),
            ("--tlscert", self.tlscert.is_some()),
            ("--tlskey", self.tlskey.is_some()),
            (SERVER_NAME, name.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            None => Ok(false),
            Some((flag, _)) => Err(ConfigError::about(
                flag,
                "is given without --tls or --tlsverify, so that nothing would use it; add one of them, or leave it out",
            )),
        }
    }

    /// How a command dials nodes; `None` for plain HTTP. As everywhere, and other than in Docker's client, `--tls` alone
    /// believes nobody whom it cannot check.
    ///
    /// # Errors
    /// [`ConfigError`] about the first flag or file that cannot be used.
    pub fn client(&self) -> Result<Option<tls::Client>, ConfigError> {
        if !self.are_on()? {
            return Ok(None);
        }
        let pair = match (&self.tlscert, &self.tlskey) {
            (Some(cert), Some(key)) => Some((cert.as_path(), key.as_path())),
            (None, None) => None,
            (Some(_), None) => return Err(alone("--tlscert", "--tlskey")),
            (None, Some(_)) => return Err(alone("--tlskey", "--tlscert")),
        };
        let client = tls::Client::read(self.tlscacert.as_deref(), pair);
        let client = client.map_err(|error| ConfigError::new(error.to_string()))?;
        Ok(Some(client.expecting(self.tls_server_name.clone())))
    }
}

const SERVER_NAME: &str = "--tls-server-name";

fn alone(flag: &str, other: &str) -> ConfigError {
    ConfigError::about(flag, format_args!("is given without {other}; a certificate and its key go together"))
}

/// What a node speaks: to clients and other nodes, and to its app.
pub(super) struct Spoken {
    pub(super) tls: Option<Tls>,
    pub(super) to_app: Option<tls::Client>,
}

impl Spoken {
    /// Reads the files. `dialled_at` is the host at which other nodes reach this one.
    pub(super) fn resolve(
        settings: &Settings,
        upstream: &[Upstream],
        listen: &[Listen],
        dialled_at: Option<&str>,
        warnings: &mut Vec<String>,
    ) -> Result<Self, ConfigError> {
        let flags = settings.tls_flags();
        let with_app = upstream.iter().any(|app| matches!(app, Upstream::Https { .. }));
        let in_words = |error: tls::TlsError| ConfigError::new(error.to_string());
        if !flags.are_on()? {
            let to_app = with_app.then(|| tls::Client::read(None, None)).transpose().map_err(in_words)?;
            return Ok(Self { tls: None, to_app });
        }
        let verify = flags.tlsverify == Some(true);
        let with = if verify { "--tlsverify" } else { "--tls" };
        let required = |flag, file: &Option<PathBuf>, what| {
            let missing = || ConfigError::about(flag, format_args!("is required with {with}: {what}"));
            file.as_deref().map(Path::to_owned).ok_or_else(missing)
        };
        let cert = required("--tlscert", &flags.tlscert, "give the PEM file of the certificate that this node shows")?;
        let key = required("--tlskey", &flags.tlskey, "give the PEM file of the key that goes with --tlscert")?;
        if verify {
            required("--tlscacert", &flags.tlscacert, "give the PEM file of the CA that issues certificates of nodes and clients")?;
        }
        if !listen.iter().any(|place| matches!(place, Listen::Tcp(_))) {
            warnings.push(format!("{with}: no --host is a TCP address, and unix sockets speak no TLS"));
        }
        let (dialled_at, http2) = (dialled_at.map(str::to_owned), settings.http2.unwrap_or(true));
        let terms = Terms { ca: flags.tlscacert, cert, key, verify, dialled_at, server_name: flags.tls_server_name, http2, with_app };
        let (tls, odd) = Tls::load(terms).map_err(in_words)?;
        warnings.extend(odd);
        let to_app = with_app.then(|| tls.to_app());
        Ok(Self { tls: Some(tls), to_app })
    }
}
