//! What `--host` and `--admin` name: a place to listen on.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// A place to listen on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Listen {
    /// `:4000` (every interface), `ip:port`, `[v6]:port`, or the same after `tcp://`. Port 0 lets the system choose.
    Tcp(SocketAddr),
    /// `unix:///path`.
    Unix(PathBuf),
}

/// Why a text is no place to listen on; each message says what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ListenError {
    /// Neither an address nor a scheme that is known.
    #[error("`{0}` should be of the form :port, ip:port, [v6]:port, tcp://ip:port or unix:///path")]
    Form(String),
    /// A name: which of its addresses is meant would be a guess.
    #[error("`{0}` names a host: listen on one of its addresses, like 127.0.0.1:4000, or on every interface, like :4000")]
    Name(String),
    /// An IPv6 address whose port cannot be told from its last group.
    #[error("`{0}` is ambiguous: write an IPv6 address in brackets, like [::1]:4000")]
    Brackets(String),
    /// The port is not a number from 0 to 65535.
    #[error("`{0}` has no usable port: it must be a number from 0 to 65535")]
    Port(String),
    /// A unix socket without an absolute path.
    #[error("`{0}` should name an absolute path, like unix:///run/bellwether.sock")]
    Path(String),
}

impl FromStr for Listen {
    type Err = ListenError;

    fn from_str(text: &str) -> Result<Self, ListenError> {
        match text.split_once("://") {
            Some(("unix", path)) if path.starts_with('/') && path.len() > 1 => Ok(Self::Unix(PathBuf::from(path))),
            Some(("unix", _)) => Err(ListenError::Path(text.to_owned())),
            Some(("tcp", address)) => tcp(text, address).map(Self::Tcp),
            Some(_) => Err(ListenError::Form(text.to_owned())),
            None => tcp(text, text).map(Self::Tcp),
        }
    }
}

fn tcp(text: &str, address: &str) -> Result<SocketAddr, ListenError> {
    let (host, port) = address.rsplit_once(':').ok_or_else(|| ListenError::Form(text.to_owned()))?;
    let ip = if host.is_empty() {
        IpAddr::V6(Ipv6Addr::UNSPECIFIED)
    } else if let Some(inner) = host.strip_prefix('[') {
        let inner = inner.strip_suffix(']').ok_or_else(|| ListenError::Form(text.to_owned()))?;
        IpAddr::V6(inner.parse().map_err(|_| ListenError::Form(text.to_owned()))?)
    } else if host.contains(':') {
        return Err(ListenError::Brackets(text.to_owned()));
    } else {
        IpAddr::V4(host.parse().map_err(|_| ListenError::Name(text.to_owned()))?)
    };
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let port = port.parse().ok().filter(|_| digits).ok_or_else(|| ListenError::Port(text.to_owned()))?;
    Ok(SocketAddr::new(ip, port))
}

impl fmt::Display for Listen {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(out),
            Self::Unix(path) => write!(out, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_to_listen_on_has_six_forms() {
        for (text, shown) in [
            (":4000", "[::]:4000"),
            ("127.0.0.1:0", "127.0.0.1:0"),
            ("[::1]:4000", "[::1]:4000"),
            ("tcp://0.0.0.0:80", "0.0.0.0:80"),
            ("tcp://:80", "[::]:80"),
            ("unix:///run/b.sock", "unix:///run/b.sock"),
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), shown, "{text}");
        }
    }

    #[test]
    fn each_wrong_place_says_what_to_write() {
        // B128: bare, bracketed and bracket-and-port IPv6 forms.
        for (text, words) in [
            ("", ":port, ip:port"),
            ("4000", ":port, ip:port"),
            ("localhost:4000", "one of its addresses"),
            ("::1:4000", "brackets"),
            ("[::1]", ":port, ip:port"),
            ("[fe80::1%lo]:4000", ":port, ip:port"),
            ("127.0.0.1:", "0 to 65535"),
            ("127.0.0.1:+1", "0 to 65535"),
            ("127.0.0.1:65536", "0 to 65535"),
            ("unix://b.sock", "absolute path"),
            ("http://127.0.0.1:1", ":port, ip:port"),
        ] {
            let error = text.parse::<Listen>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
