//! Opening a connection to an upstream.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpStream, UnixStream, lookup_host};
use tokio::time::{Instant, timeout_at};

use crate::api::io::Socket;
use crate::cluster::Upstream;

/// How long an upstream may be silent before its machine is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(10);

/// Connects to the first address that answers. Each address gets its share of the time, so that a dead first one does
/// not use it up.
pub(super) async fn dial(upstream: &Upstream, deadline: Instant) -> io::Result<Socket> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it did not answer in time");
    let (host, port) = match upstream {
        Upstream::Unix(path) => return timeout_at(deadline, UnixStream::connect(path)).await.map_err(late)?.map(Socket::Unix),
        Upstream::Http { host, port } => (host.as_str(), *port),
    };
    let addresses: Vec<_> = timeout_at(deadline, lookup_host((host, port))).await.map_err(late)??.collect();
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "its name has no address");
    for (tried, address) in addresses.iter().enumerate() {
        let left = deadline.saturating_duration_since(Instant::now());
        let share = left / u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
        match timeout_at(Instant::now() + share, TcpStream::connect(address)).await.map_err(late) {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                let probes = TcpKeepalive::new().with_time(SILENCE).with_interval(Duration::from_secs(2)).with_retries(3);
                SockRef::from(&stream).set_tcp_keepalive(&probes)?;
                return Ok(Socket::Tcp(stream));
            }
            Ok(Err(error)) | Err(error) => failure = error,
        }
    }
    Err(failure)
}
