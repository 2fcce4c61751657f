//! Who a node is: the address that other nodes reach it at, and the identity of one process.
//!
//! Nothing here touches the network; an [`Address`] is only known to be well formed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// `HOST:PORT` or `[v6]:PORT`, as `--advertise` takes it and as the election's record shows it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    text: Arc<str>,
    port: u16,
}

/// Why a text is no [`Address`]; each message ends with what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// No colon, no port, or nothing before the colon.
    #[error("`{0}` should be of the form ip:port or hostname:port")]
    Form(String),
    /// An IPv6 address whose port cannot be told from its last group.
    #[error("`{0}` is ambiguous: write an IPv6 address in brackets, like [::1]:4000")]
    Brackets(String),
    /// The port is not a number from 1 to 65535.
    #[error("`{0}` has no usable port: it must be a number from 1 to 65535")]
    Port(String),
}

impl Address {
    /// The host without brackets: a name, an IPv4 or an IPv6 address.
    pub fn host(&self) -> &str {
        let (host, _) = self.text.rsplit_once(':').expect("an address has a port");
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// The port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the host is an address that means "every interface" and so can be dialled by nobody.
    pub fn is_unspecified(&self) -> bool {
        self.host().parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
    }

    /// Whether only this machine can reach the address.
    pub fn is_loopback(&self) -> bool {
        self.host() == "localhost" || self.host().parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(form)?;
        if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(form)?;
            inner.parse::<std::net::Ipv6Addr>().map_err(|_| form())?;
        } else if host.contains(':') {
            return Err(AddressError::Brackets(text.to_owned()));
        } else if !is_host_name(host) {
            return Err(form());
        }
        let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
        match port.parse::<u16>() {
            Ok(port) if digits && port > 0 => Ok(Self { text: text.into(), port }),
            _ if port.is_empty() => Err(form()),
            _ => Err(AddressError::Port(text.to_owned())),
        }
    }
}

/// RFC 1123 names and IPv4 addresses, with the underscore that container networks use.
fn is_host_name(host: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    !host.is_empty() && host.len() <= 253 && host.bytes().all(allowed)
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Address({})", self.text)
    }
}

/// Tells one run of the process from every other, also from one at the same address. 64 random bits, in hex.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BootId(u64);

impl BootId {
    /// Draws a fresh identity.
    pub fn random() -> Self {
        Self(fastrand::u64(..))
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:016x}", self.0)
    }
}

impl FromStr for BootId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// This process: where it is reached, and which run it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// What the other nodes dial.
    pub address: Address,
    /// Which run of the process this is.
    pub boot: BootId,
}

impl Node {
    /// This process at `address`, with a fresh [`BootId`].
    pub fn new(address: Address) -> Self {
        Self { address, boot: BootId::random() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_host_and_a_port() {
        for (text, host, port) in
            [("10.0.0.1:4000", "10.0.0.1", 4000), ("[::1]:1", "::1", 1), ("a-b.example_x:65535", "a-b.example_x", 65535)]
        {
            let address: Address = text.parse().unwrap();
            assert_eq!((address.host(), address.port(), address.as_str()), (host, port, text));
        }
    }

    #[test]
    fn each_wrong_address_says_what_to_write() {
        // B128: bare, bracketed and bracket-and-port IPv6 forms.
        for (text, words) in [
            ("", "ip:port"),
            ("host", "ip:port"),
            (":4000", "ip:port"),
            ("host:", "ip:port"),
            ("::1", "brackets"),
            ("::1:4101", "brackets"),
            ("[::1]", "ip:port"),
            ("[fe80::1%lo]:4101", "ip:port"),
            ("host:0", "1 to 65535"),
            ("host:65536", "1 to 65535"),
            ("host:+80", "1 to 65535"),
            ("ho st:80", "ip:port"),
        ] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
