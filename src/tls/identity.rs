//! A node's own certificate with its key, and what must be true of it.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{CertificateError, Error, InconsistentKeys, RootCertStore};

use super::client::explain;
use super::file::{self, Flag, TlsError};
use super::{Terms, provider};

/// A certificate, those between it and its CA, and its key: a pair, and valid when it was read.
pub(super) struct Identity {
    pub(super) key: Arc<CertifiedKey>,
    pub(super) life: Life,
}

/// From when until when a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// The first second of it.
    pub from: u64,
    /// The last.
    pub until: u64,
}

/// How much of its life a certificate has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Age {
    Young,
    /// Less than a tenth of it is left.
    Old,
    Over,
}

impl Identity {
    /// Makes one of two PEM texts and the files that they come from.
    pub(super) fn new((cert_file, cert): (&Path, &[u8]), (key_file, key): (&Path, &[u8])) -> Result<Self, TlsError> {
        let chain = file::certificates(Flag::Cert, cert_file, cert)?;
        let life = Life::of(&chain[0]).map_err(|why| TlsError::new(Flag::Cert, Some(cert_file), why))?;
        let key = file::key(key_file, key)?;
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => TlsError::new(
                Flag::Key,
                Some(key_file),
                format_args!(
                    "does not belong to the certificate in {}: give the two that were made together, and put the node's own certificate first in its file",
                    cert_file.display()
                ),
            ),
            error => TlsError::new(Flag::Key, Some(key_file), format_args!("has a key that cannot be used: {error}")),
        })?;
        let refuse = |why: fmt::Arguments<'_>| Err(TlsError::new(Flag::Cert, Some(cert_file), why));
        let now = UnixTime::now().as_secs();
        if now < life.from {
            return refuse(format_args!("is not valid before {}: is this machine's clock right?", Date(life.from)));
        }
        if now > life.until {
            return refuse(format_args!("ran out on {}: renew it", Date(life.until)));
        }
        Ok(Self { key: Arc::new(key), life })
    }

    /// Refuses what every client would refuse. Who has issued it is for them to judge.
    pub(super) fn suits_clients(&self, terms: &Terms) -> Result<(), TlsError> {
        match purpose(self.certificate(), &RootCertStore::empty(), &[]) {
            Err(Error::InvalidCertificate(wrong @ (CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. }))) => {
                Err(TlsError::new(Flag::Cert, Some(&terms.cert), format_args!("{}: issue it again for servers", explain(&wrong))))
            }
            _ => Ok(()),
        }
    }

    fn certificate(&self) -> &CertificateDer<'static> {
        &self.key.cert[0]
    }

    /// Refuses what the other nodes would refuse, who take this one for `host` and believe `roots`.
    pub(super) fn suits_nodes(&self, terms: &Terms, host: &str, roots: &RootCertStore) -> Result<(), TlsError> {
        let among = &self.key.cert[1..];
        self.is_believed(host, roots, among, terms.verify).map_err(|error| {
            let why = match &error {
                Error::InvalidCertificate(error) => explain(error),
                error => format!("cannot be used: {error}"),
            };
            let believed = match &terms.ca {
                Some(ca) => format!("those in {} are (--tlscacert)", ca.display()),
                None => "as --tlscacert is not given, the system's are".to_owned(),
            };
            let hint = match &error {
                Error::InvalidCertificate(CertificateError::UnknownIssuer) => believed,
                _ if terms.server_name.is_some() => {
                    format!("the other nodes, which want it to be for {host} (--tls-server-name), would refuse it")
                }
                _ => format!("the other nodes, which reach this one at {host}, would refuse it"),
            };
            TlsError::new(Flag::Cert, Some(&terms.cert), format_args!("{why}: {hint}"))
        })
    }

    fn is_believed(&self, host: &str, roots: &RootCertStore, among: &[CertificateDer<'_>], verify: bool) -> Result<(), Error> {
        purpose(self.certificate(), roots, among)?;
        let name = ServerName::try_from(host).map_err(|_| Error::General(format!("{host} is a name that no certificate can have")))?;
        verify_server_name(&ParsedCertificate::try_from(self.certificate())?, &name)?;
        if verify {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots.clone()), provider()).build();
            let verifier = verifier.map_err(|error| Error::General(error.to_string()))?;
            verifier.verify_client_cert(self.certificate(), among, UnixTime::now())?;
        }
        Ok(())
    }
}

/// Whether a certificate that is one of the CA can be a node's: it is for servers too, and names a host. A user's is not.
pub(super) fn is_a_node_s(certificate: &CertificateDer<'_>) -> bool {
    let nobody = ServerName::try_from("nobody.invalid").expect("a name");
    let for_servers =
        matches!(purpose(certificate, &RootCertStore::empty(), &[]), Err(Error::InvalidCertificate(CertificateError::UnknownIssuer)));
    let named = ParsedCertificate::try_from(certificate).is_ok_and(|parsed| match verify_server_name(&parsed, &nobody) {
        Err(Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. })) => {
            presented.iter().any(|name| host(name).is_some())
        }
        _ => false,
    });
    for_servers && named
}

/// Checks that a certificate is for servers, and that `roots` have issued it.
fn purpose(certificate: &CertificateDer<'_>, roots: &RootCertStore, among: &[CertificateDer<'_>]) -> Result<(), Error> {
    let algorithms = provider().signature_verification_algorithms.all;
    verify_server_cert_signed_by_trust_anchor(&ParsedCertificate::try_from(certificate)?, roots, among, UnixTime::now(), algorithms)
}

/// The host that a name of a certificate stands for, as the library shows names.
pub(super) fn host(name: &str) -> Option<&str> {
    let inner = name.strip_prefix("DnsName(").or_else(|| name.strip_prefix("IpAddress("))?;
    Some(inner.strip_suffix(')')?.trim_matches('"'))
}

impl Life {
    /// The library tells both ends only to those who come too early or too late.
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, String> {
        let at = |seconds| {
            let time = UnixTime::since_unix_epoch(Duration::from_secs(seconds));
            let algorithms = provider().signature_verification_algorithms.all;
            let parsed = ParsedCertificate::try_from(certificate)?;
            verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], time, algorithms)
        };
        let unusable = |error: &dyn fmt::Display| format!("has a certificate that cannot be used: {error}");
        let until = match at(u64::from(u32::MAX) * 1_000) {
            Err(Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => not_after.as_secs(),
            Err(error) => return Err(unusable(&error)),
            Ok(()) => return Err(unusable(&"it never ends")),
        };
        let from = match at(0) {
            Err(Error::InvalidCertificate(CertificateError::NotValidYetContext { not_before, .. })) => not_before.as_secs(),
            _ => 0,
        };
        Ok(Self { from, until })
    }

    pub(super) fn age(self) -> Age {
        let left = self.until.saturating_sub(UnixTime::now().as_secs());
        match left {
            0 => Age::Over,
            left if left < (self.until - self.from) / 10 => Age::Old,
            _ => Age::Young,
        }
    }

    /// When it ends, for people.
    pub fn end(self) -> impl fmt::Display {
        Date(self.until)
    }
}

/// Seconds since 1970, as people read them.
pub(super) struct Date(pub(super) u64);

impl fmt::Display for Date {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As long as certificates can live.
        let last = 253_402_300_799;
        humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(self.0.min(last))).fmt(out)
    }
}
