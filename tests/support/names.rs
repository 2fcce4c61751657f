//! What names stand for, as one test decides and changes it while nodes run. Needs the Debian package libnss-wrapper.

use std::fs::File;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::daemon::Manage;
use super::port;

/// Where Debian has it, on whichever machine.
const WRAPPER: &str = "/usr/$LIB/libnss_wrapper.so";

/// A file of hosts for nodes that are started with it.
#[derive(Debug)]
pub(crate) struct Names {
    folder: TempDir,
}

impl Names {
    /// One in which `name` stands for `addresses`.
    pub(crate) fn new(name: &str, addresses: &[IpAddr]) -> Self {
        let names = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        names.set(name, addresses);
        names
    }

    /// From now on `name` stands for `addresses`, and no other name for anything.
    pub(crate) fn set(&self, name: &str, addresses: &[IpAddr]) {
        let lines = addresses.iter().map(|address| format!("{address} {name}\n")).collect::<String>();
        let next = self.folder.path().join("next");
        let mut file = File::create(&next).expect("a file in a folder of our own");
        file.write_all(lines.as_bytes()).expect("room on the disk");
        if let Ok(before) = std::fs::metadata(self.file()).and_then(|former| former.modified()) {
            // It is read again when it is of a later second.
            file.set_modified(before + Duration::from_secs(2)).expect("a file of our own");
        }
        std::fs::rename(next, self.file()).expect("a folder of our own");
    }

    /// A node that looks up names there.
    pub(crate) fn known_to(&self, manage: Manage) -> Manage {
        let file = self.file().to_str().expect("a path in UTF-8").to_owned();
        manage.env([("LD_PRELOAD", WRAPPER.to_owned()), ("NSS_WRAPPER_HOSTS", file)])
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("hosts")
    }
}

/// One of the addresses of this machine that nobody else has.
pub(crate) fn local(last: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, last).into()
}

/// A port that is free at all of them, as far as this test has to do with it.
pub(crate) fn port() -> u16 {
    port::free().port()
}

/// An address at which connections are neither accepted nor refused, as at a host that is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    _listener: tokio::net::TcpListener,
    _queue: Vec<TcpStream>,
}

impl Gone {
    pub(crate) async fn at(address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(address).expect("a free address");
        let listener = socket.listen(0).expect("it can be listened at");
        let mut queue = Vec::new();
        // The system answers nobody for whom there is no room.
        while let Ok(connected) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            queue.push(connected.expect("a connection, or no answer"));
        }
        Self { _listener: listener, _queue: queue }
    }
}
