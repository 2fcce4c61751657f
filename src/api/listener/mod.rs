//! Where a node listens: binding every socket before anything is served.
//!
//! Each worker gets a TCP socket of its own on the same address (`SO_REUSEPORT`), so that the kernel spreads new
//! connections and no two workers wake for one. A port that somebody else listens on is refused all the same: the first
//! socket is bound without that option, which the kernel then allows to be set before anybody listens.

mod admin;
mod listen;
mod unix;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::api::ledger::Ledger;
use crate::api::plane::Plane;
use crate::api::{Config, Shared};

pub use admin::{AdminSocket, bind_admin};
pub use listen::{Listen, ListenError};
pub(super) use unix::SocketFile;
use unix::bind_unix;

/// How many connections may wait for a worker to accept them.
const BACKLOG: i32 = 4096;

/// How long a client may be silent before the system asks its host whether it is still there,
const SILENCE: Duration = Duration::from_secs(60);
/// how long from one such question to the next,
const ASK_EVERY: Duration = Duration::from_secs(10);
/// and how many are asked before a host that answers none is taken for lost, and its connection with it.
const QUESTIONS: u32 = 6;

/// A place that could not be listened on.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process, or another `--host`, has it.
    #[error("{0} is in use: stop what listens there or choose another address")]
    InUse(Listen),
    /// No interface of this machine has the address.
    #[error("{0} is no address of this machine: listen on one that is, or on every interface with :PORT")]
    NotHere(Listen),
    /// A port below 1024, or a folder that this user may not write to.
    #[error("{0} is not allowed to this user: choose a port above 1023 or a folder of your own")]
    Denied(Listen),
    /// Something that is no socket lies at the path.
    #[error("{0} exists and is no socket: remove it or choose another path")]
    NotASocket(Listen),
    /// Anything else the system says.
    #[error("cannot listen on {listen}")]
    Other {
        /// Where.
        listen: Listen,
        /// What the system said.
        source: io::Error,
    },
}

impl BindError {
    fn new(listen: &Listen, source: io::Error) -> Self {
        let listen = listen.clone();
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse(listen),
            io::ErrorKind::AddrNotAvailable => Self::NotHere(listen),
            io::ErrorKind::PermissionDenied => Self::Denied(listen),
            _ => Self::Other { listen, source },
        }
    }
}

/// Every socket of the data plane, bound and listening, and nothing answered yet.
#[derive(Debug)]
pub struct Bound {
    config: Arc<Config>,
    addresses: Vec<Listen>,
    /// One set for each worker.
    pub(super) sockets: Vec<Vec<Listener>>,
    files: Vec<SocketFile>,
    ledger: Arc<Ledger>,
}

/// One worker's share of one address.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    /// All workers share the socket.
    Unix(UnixListener),
}

/// Binds every address of `config`, for every worker.
///
/// # Errors
/// [`BindError`], which names the first address that could not be had; nothing stays bound.
pub fn bind(config: &Config) -> Result<Bound, BindError> {
    let workers = config.workers.get();
    let mut sockets: Vec<Vec<Listener>> = (0..workers).map(|_| Vec::with_capacity(config.listen.len())).collect();
    let (mut addresses, mut files) = (Vec::with_capacity(config.listen.len()), Vec::new());
    for listen in &config.listen {
        let (bound, listeners) = match listen {
            Listen::Tcp(address) => bind_tcp(*address, workers).map_err(|error| BindError::new(listen, error))?,
            Listen::Unix(path) => {
                let (listeners, file) = bind_unix(listen, path, workers)?;
                files.push(file);
                (listen.clone(), listeners)
            }
        };
        addresses.push(bound);
        sockets.iter_mut().zip(listeners).for_each(|(set, listener)| set.push(listener));
    }
    Ok(Bound { config: Arc::new(config.clone()), addresses, sockets, files, ledger: Arc::new(Ledger::new(workers)) })
}

impl Bound {
    /// Where clients can connect, with the ports that the system chose.
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The counters that the plane will keep.
    pub fn ledger(&self) -> Arc<Ledger> {
        Arc::clone(&self.ledger)
    }

    /// Starts the workers, each on a thread of its own.
    ///
    /// # Errors
    /// When the system gives no thread, no runtime, or no more file descriptors.
    pub fn serve(self, shared: Shared) -> io::Result<Plane> {
        Plane::start(&self.config, self.sockets, self.files, self.ledger, &Arc::new(shared))
    }
}

fn bind_tcp(address: SocketAddr, workers: usize) -> io::Result<(Listen, Vec<Listener>)> {
    let first = match tcp_socket(address, false) {
        // `:4000` on a machine without IPv6.
        Err(error) if is_every_v6(address) && error.kind() != io::ErrorKind::AddrInUse => {
            tcp_socket(SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())), false)?
        }
        bound => bound?,
    };
    first.set_reuse_port(true)?;
    let address = first.local_addr()?.as_socket().expect("a TCP socket has a socket address");
    let mut sockets = vec![first];
    for _ in 1..workers {
        sockets.push(tcp_socket(address, true)?);
    }
    for socket in &sockets {
        socket.listen(BACKLOG)?;
    }
    Ok((Listen::Tcp(address), sockets.into_iter().map(|socket| Listener::Tcp(socket.into())).collect()))
}

fn is_every_v6(address: SocketAddr) -> bool {
    address.ip() == IpAddr::V6(Ipv6Addr::UNSPECIFIED)
}

fn tcp_socket(address: SocketAddr, reuse_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(!is_every_v6(address))?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(reuse_port)?;
    socket.set_nonblocking(true)?;
    // Accepted sockets inherit both, which spares two system calls for each of them.
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(SILENCE).with_interval(ASK_EVERY).with_retries(QUESTIONS))?;
    socket.bind(&address.into())?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_worker_listens_on_the_port_that_the_system_chose() {
        let (Listen::Tcp(address), listeners) = bind_tcp("127.0.0.1:0".parse().unwrap(), 3).unwrap() else { panic!("a TCP address") };
        assert_ne!(address.port(), 0);
        for listener in listeners {
            let Listener::Tcp(listener) = listener else { panic!("a TCP listener") };
            assert_eq!(listener.local_addr().unwrap(), address);
        }
    }

    /// Nobody else finds out about a host that has vanished, where a connection may be silent for as long as it likes.
    #[test]
    fn a_client_s_host_is_asked_whether_it_is_still_there() {
        let (Listen::Tcp(address), mut listeners) = bind_tcp("127.0.0.1:0".parse().unwrap(), 1).unwrap() else { panic!("a TCP address") };
        let Some(Listener::Tcp(listener)) = listeners.pop() else { panic!("a TCP listener") };
        let _client = std::net::TcpStream::connect(address).unwrap();
        listener.set_nonblocking(false).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let accepted = socket2::SockRef::from(&accepted);
        assert!(accepted.keepalive().unwrap() && accepted.tcp_nodelay().unwrap());
        let asked = (accepted.tcp_keepalive_time(), accepted.tcp_keepalive_interval(), accepted.tcp_keepalive_retries());
        assert_eq!((asked.0.unwrap(), asked.1.unwrap(), asked.2.unwrap()), (SILENCE, ASK_EVERY, QUESTIONS));
    }

    #[test]
    fn a_busy_port_is_refused_though_it_could_be_shared() {
        let (Listen::Tcp(address), _listeners) = bind_tcp("127.0.0.1:0".parse().unwrap(), 2).unwrap() else { panic!("a TCP address") };
        let error = BindError::new(&Listen::Tcp(address), bind_tcp(address, 2).unwrap_err());
        assert!(matches!(error, BindError::InUse(_)), "{error}");
        assert!(error.to_string().contains(&address.to_string()), "{error}");
    }
}
