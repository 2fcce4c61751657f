//! Where a node listens: parsing, and binding every socket before anything is served.
//!
//! Each worker gets a TCP socket of its own on the same address (`SO_REUSEPORT`), so that the kernel spreads new
//! connections and no two workers wake for one. A port that somebody else listens on is refused all the same: the first
//! socket is bound without that option, which the kernel then allows to be set before anybody listens.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};

use crate::api::ledger::Ledger;
use crate::api::plane::Plane;
use crate::api::{Config, Shared};

/// How many connections may wait for a worker to accept them.
const BACKLOG: i32 = 4096;

/// How long a client may be silent before the system asks its host whether it is still there,
const SILENCE: Duration = Duration::from_secs(60);
/// how long from one such question to the next,
const ASK_EVERY: Duration = Duration::from_secs(10);
/// and how many are asked before a host that answers none is taken for lost, and its connection with it.
const QUESTIONS: u32 = 6;

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

/// The file of a unix socket. Dropped, it is removed, unless another process has put its own there meanwhile.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    made: Made,
}

/// Which file it is, and when it was made: the number alone is soon given to another one.
type Made = (u64, u64, i64, i64);

impl SocketFile {
    fn new(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), made: Self::made(path)? })
    }

    fn made(path: &Path) -> io::Result<Made> {
        let found = std::fs::symlink_metadata(path)?;
        Ok((found.dev(), found.ino(), found.mtime(), found.mtime_nsec()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Self::made(&self.path).is_ok_and(|made| made == self.made) {
            // One that stays is replaced by whoever listens there next.
            std::fs::remove_file(&self.path).ok();
        }
    }
}

/// Binds a unix socket; what a process that is gone left behind is removed, what a living one listens on is not.
fn bind_unix(listen: &Listen, path: &Path, workers: usize) -> Result<(Vec<Listener>, SocketFile), BindError> {
    let other = |error| BindError::new(listen, error);
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(listen.clone())),
        Ok(_) if UnixStream::connect(path).is_ok() => return Err(BindError::InUse(listen.clone())),
        Ok(_) => std::fs::remove_file(path).map_err(other)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(other(error)),
    }
    let first = UnixListener::bind(path).map_err(other)?;
    let file = SocketFile::new(path).map_err(other)?;
    first.set_nonblocking(true).map_err(other)?;
    let mut listeners = Vec::with_capacity(workers);
    for _ in 1..workers {
        listeners.push(Listener::Unix(first.try_clone().map_err(other)?));
    }
    listeners.push(Listener::Unix(first));
    Ok((listeners, file))
}

/// The admin listener, bound: it answers local routes only.
#[derive(Debug)]
pub struct AdminSocket {
    address: Listen,
    pub(super) listener: Listener,
    /// Goes when the listener has ended.
    _file: Option<SocketFile>,
}

impl AdminSocket {
    /// Where it listens, with the port that the system chose.
    pub fn address(&self) -> &Listen {
        &self.address
    }
}

/// Binds the admin listener. A unix socket is for this user alone.
///
/// # Errors
/// [`BindError`], which names the address.
pub fn bind_admin(listen: &Listen) -> Result<AdminSocket, BindError> {
    let (address, mut listeners, file) = match listen {
        Listen::Tcp(address) => {
            let (address, listeners) = bind_tcp(*address, 1).map_err(|error| BindError::new(listen, error))?;
            (address, listeners, None)
        }
        Listen::Unix(path) => {
            let (listeners, file) = bind_unix(listen, path, 1)?;
            let for_this_user = std::fs::Permissions::from_mode(0o600);
            std::fs::set_permissions(path, for_this_user).map_err(|error| BindError::new(listen, error))?;
            (listen.clone(), listeners, Some(file))
        }
    };
    let listener = listeners.pop().expect("one worker has one socket");
    Ok(AdminSocket { address, listener, _file: file })
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

    #[test]
    fn a_socket_left_behind_is_replaced_and_a_living_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.sock");
        let listen = Listen::Unix(path.clone());
        drop(UnixListener::bind(&path).unwrap());
        let living = bind_admin(&listen).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(matches!(bind_admin(&listen), Err(BindError::InUse(_))));
        drop(living);
        std::fs::write(folder.path().join("file"), "").unwrap();
        let file = Listen::Unix(folder.path().join("file"));
        assert!(matches!(bind_admin(&file), Err(BindError::NotASocket(_))));
    }

    #[test]
    fn a_socket_s_file_goes_with_it_unless_it_is_somebody_else_s() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.sock");
        let listen = Listen::Unix(path.clone());
        drop(bind_admin(&listen).unwrap());
        assert!(!path.exists());
        let old = bind_admin(&listen).unwrap();
        // As when the next run of the node begins before this one has ended.
        std::fs::remove_file(&path).unwrap();
        let next = bind_admin(&listen).unwrap();
        drop(old);
        assert!(UnixStream::connect(&path).is_ok());
        drop(next);
        assert!(!path.exists());
    }
}
