//! The admin listener: bound with the others, and served apart from them.

use std::convert::Infallible;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::unix::{SocketFile, bind_unix};
use super::{BindError, Listen, Listener, bind_tcp};
use crate::api::io::Socket;
use crate::api::{LocalApi, Right};

/// How long the admin listener rests when the system gives it no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The admin listener, bound: it answers local routes only.
#[derive(Debug)]
pub struct AdminSocket {
    address: Listen,
    listener: Listener,
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

impl AdminSocket {
    /// Answers local routes until `stop`, each request with `right`; a request in progress is finished.
    ///
    /// # Errors
    /// When the runtime cannot take the socket.
    pub async fn serve(self, local: Arc<dyn LocalApi>, right: Right, stop: CancellationToken) -> io::Result<()> {
        let mut connections = JoinSet::new();
        let listener = match self.listener {
            Listener::Tcp(listener) => Admin::Tcp(tokio::net::TcpListener::from_std(listener)?),
            Listener::Unix(listener) => Admin::Unix(tokio::net::UnixListener::from_std(listener)?),
        };
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                Some(_ended) = connections.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok(socket) => drop(connections.spawn(serve_admin(socket, Arc::clone(&local), right, stop.clone()))),
                    Err(error) => {
                        debug!(%error, "no admin connection accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
            }
        }
        while connections.join_next().await.is_some() {}
        Ok(())
    }
}

enum Admin {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Admin {
    async fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(listener) => Socket::Tcp(listener.accept().await?.0),
            Self::Unix(listener) => Socket::Unix(listener.accept().await?.0),
        })
    }
}

async fn serve_admin(socket: Socket, local: Arc<dyn LocalApi>, right: Right, stop: CancellationToken) {
    let service = service_fn(|request: Request<Incoming>| {
        let local = Arc::clone(&local);
        // There is no app behind this listener: what is no route of the node, it says so itself.
        async move { Ok::<_, Infallible>(local.answer(&request.into_parts().0, right).await.map(Full::new)) }
    });
    let mut builder = http1::Builder::new();
    let connection = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), service);
    let mut connection = pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        debug!(%error, "admin connection broke");
    }
}
