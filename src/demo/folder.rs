//! The demo's temporary folder, and loopback ports that nobody else uses.

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A folder of our own, removed with everything in it when it is dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes a folder that only this user may enter.
    pub(super) fn create() -> io::Result<Self> {
        let path = std::env::temp_dir().join(format!("bellwether-demo-{:08x}", fastrand::u32(..)));
        DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, folder = %self.path.display(), "temporary folder not removed");
        }
    }
}

/// A loopback address that is free now and stays so: it lies below the ports that the system gives to outgoing
/// connections. From those, a client that dials a dead node could be given the very port it dials, and talk to itself.
pub(super) fn free_address() -> io::Result<SocketAddr> {
    let mut last = io::ErrorKind::AddrInUse.into();
    for _ in 0..100 {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, fastrand::u16(10_000..32_000)));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_goes_with_what_is_in_it() {
        let folder = Folder::create().unwrap();
        let path = folder.path().to_owned();
        std::fs::write(path.join("election.db"), "x").unwrap();
        drop(folder);
        assert!(!path.exists());
    }
}
