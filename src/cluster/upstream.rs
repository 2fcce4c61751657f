//! The address of an app, as `--upstream` takes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an app is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Upstream {
    /// `http://host[:port]`: the host is a name or an address and is resolved at each dial.
    Http {
        /// A name, an IPv4 or an IPv6 address, without brackets.
        host: String,
        /// The port, 80 unless given.
        port: u16,
    },
    /// `h2c://host[:port]`: the same, in HTTP/2 with prior knowledge.
    H2c {
        /// A name, an IPv4 or an IPv6 address, without brackets.
        host: String,
        /// The port, 80 unless given.
        port: u16,
    },
    /// `https://host[:port]`: the same over TLS, where the host must be one that the app's certificate names.
    Https {
        /// A name, an IPv4 or an IPv6 address, without brackets.
        host: String,
        /// The port, 443 unless given.
        port: u16,
    },
    /// `unix:///path`.
    Unix(PathBuf),
}

/// Why a text is no [`Upstream`]; each message says what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UpstreamError {
    /// No scheme, or one that means nothing here.
    #[error("`{0}` should start with http://, h2c://, https:// or unix://")]
    Scheme(String),
    /// No host, or a port that is none.
    #[error("`{0}` should be of the form http://host:port")]
    Form(String),
    /// More than an address.
    #[error("`{0}` should end after the port: a path, query or user cannot be given")]
    Excess(String),
    /// A unix socket without an absolute path.
    #[error("`{0}` should name an absolute path, like unix:///run/app.sock")]
    Path(String),
}

impl FromStr for Upstream {
    type Err = UpstreamError;

    fn from_str(text: &str) -> Result<Self, UpstreamError> {
        let owned = || without_user(text);
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UpstreamError::Scheme(owned()))?;
        match scheme.to_ascii_lowercase().as_str() {
            "http" => authority(text, rest, 80).map(|(host, port)| Self::Http { host, port }),
            "https" => authority(text, rest, 443).map(|(host, port)| Self::Https { host, port }),
            "unix" if rest.starts_with('/') && rest.len() > 1 => Ok(Self::Unix(PathBuf::from(rest))),
            "unix" => Err(UpstreamError::Path(owned())),
            "h2c" => authority(text, rest, 80).map(|(host, port)| Self::H2c { host, port }),
            _ => Err(UpstreamError::Scheme(owned())),
        }
    }
}

/// A URL as it may be shown: who its user is, and with which password, is nobody's business.
fn without_user(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    match text.rfind('@') {
        Some(at) if at >= start => format!("{}…{}", &text[..start], &text[at..]),
        _ => text.to_owned(),
    }
}

/// Host and port of a URL whose scheme has been taken off.
fn authority(text: &str, rest: &str, default_port: u16) -> Result<(String, u16), UpstreamError> {
    let authority = rest.strip_suffix('/').unwrap_or(rest);
    if authority.contains(['/', '?', '#', '@']) {
        return Err(UpstreamError::Excess(without_user(text)));
    }
    let form = || UpstreamError::Form(without_user(text));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let host = match host.strip_prefix('[') {
        Some(inner) => {
            let inner = inner.strip_suffix(']').ok_or_else(form)?;
            inner.parse::<std::net::Ipv6Addr>().map_err(|_| form())?;
            inner
        }
        None if host.contains([':', '[', ']']) => return Err(form()),
        None => host,
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if host.is_empty() || !host.bytes().all(allowed) {
        return Err(form());
    }
    let port = match port {
        None => default_port,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().ok().filter(|port| *port > 0).ok_or_else(form)?
        }
        Some(_) => return Err(form()),
    };
    Ok((host.to_owned(), port))
}

impl fmt::Display for Upstream {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self {
            Self::Http { .. } => "http",
            Self::H2c { .. } => "h2c",
            Self::Https { .. } => "https",
            Self::Unix(path) => return write!(out, "unix://{}", path.display()),
        };
        write!(out, "{scheme}://{}", self.authority())
    }
}

impl Upstream {
    /// What stands for it in `Host`.
    pub fn authority(&self) -> String {
        match self {
            Self::Http { host, port } | Self::H2c { host, port } | Self::Https { host, port } if host.contains(':') => {
                format!("[{host}]:{port}")
            }
            Self::Http { host, port } | Self::H2c { host, port } | Self::Https { host, port } => format!("{host}:{port}"),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_an_address_and_nothing_more() {
        for (text, shown) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("http://app", "http://app:80"),
            ("HTTP://app/", "http://app:80"),
            ("http://[::1]:81/", "http://[::1]:81"),
            ("http://[::1]", "http://[::1]:80"),
            ("h2c://app", "h2c://app:80"),
            ("https://app", "https://app:443"),
            ("https://[::1]:8443/", "https://[::1]:8443"),
            ("unix:///run/app.sock", "unix:///run/app.sock"),
        ] {
            assert_eq!(text.parse::<Upstream>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn each_wrong_app_says_what_to_write() {
        for (text, words) in [
            ("127.0.0.1:8080", "http://, h2c://, https:// or unix://"),
            ("ftp://app", "http://, h2c://, https:// or unix://"),
            ("http://", "http://host:port"),
            ("http://:80", "http://host:port"),
            ("http://app:0", "http://host:port"),
            ("http://app:99999", "http://host:port"),
            ("http://app:+80", "http://host:port"),
            ("http://app:", "http://host:port"),
            ("http://::1:80", "http://host:port"),
            ("http://[::1", "http://host:port"),
            ("http://a b", "http://host:port"),
            ("http://app/path", "end after the port"),
            ("http://user@app", "end after the port"),
            ("unix://relative", "absolute path"),
            ("unix:///", "absolute path"),
        ] {
            let error = text.parse::<Upstream>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        for text in ["http://user:hunter2@app", "https://user:hunter2@app", "user:hunter2@app", "http://user:hunter2@app/p@th"] {
            let error = text.parse::<Upstream>().unwrap_err().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
