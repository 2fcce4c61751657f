//! Loopback addresses for servers that must know theirs before they start.

use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A free loopback address that no other test of this process has been given.
///
/// It lies below the ports that the system gives to outgoing connections, so that nobody who dials a dead server can be
/// given the very port it dials and be connected to itself.
pub(crate) fn free() -> SocketAddr {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = fastrand::u16(10_000..32_000);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() && given.insert(port) {
            return address;
        }
    }
}
