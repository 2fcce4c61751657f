//! Unix sockets, and the files that they have for addresses.

use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use super::{BindError, Listen, Listener};

/// The file of a unix socket. Dropped, it is removed, unless another process has put its own there meanwhile.
#[derive(Debug)]
pub(in crate::api) struct SocketFile {
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
pub(super) fn bind_unix(listen: &Listen, path: &Path, workers: usize) -> Result<(Vec<Listener>, SocketFile), BindError> {
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::api::listener::bind_admin;

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
