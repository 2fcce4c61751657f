//! One connection of a client: how HTTP/1.1 is spoken on it, and how it ends.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use crate::api::io::Socket;
use crate::api::listener::{AdminSocket, Listener};
use crate::api::{LocalApi, Right};

/// How long the admin listener rests when the system gives it no connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

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
        async move { Ok::<_, Infallible>(answer_admin(&*local, request, right).await) }
    });
    let mut builder = http1::Builder::new();
    let connection = builder.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), service);
    let mut connection = std::pin::pin!(connection);
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

async fn answer_admin(local: &dyn LocalApi, request: Request<Incoming>, right: Right) -> Response<Full<bytes::Bytes>> {
    let (head, _body) = request.into_parts();
    if local.claims(&head.method, head.uri.path()) {
        return local.answer(&head, right).await.map(Full::new);
    }
    let mut response = Response::new(Full::new(bytes::Bytes::from_static(b"only a node's own routes are answered here\n")));
    *response.status_mut() = StatusCode::NOT_FOUND;
    if head.method == Method::HEAD {
        *response.body_mut() = Full::default();
    }
    response
}
