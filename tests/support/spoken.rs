//! The two versions of HTTP, as clients and apps speak them.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, Uri, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::server;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::http::{Answer, Body, PATIENCE};
use super::place::Place;
use super::within;

/// What is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spoken {
    Http1,
    Http2,
}

impl Spoken {
    pub(crate) const BOTH: [Self; 2] = [Self::Http1, Self::Http2];
}

/// A client's connection, until it is dropped: then it breaks off.
#[derive(Debug)]
pub(crate) struct Connection {
    place: Place,
    sender: Sender,
    _running: JoinSet<()>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Connection {
    pub(crate) async fn open(place: &Place, spoken: Spoken) -> Self {
        let mut running = JoinSet::new();
        let sender = match spoken {
            Spoken::Http1 => {
                let socket = TokioIo::new(place.connect().await.expect("connect"));
                let (sender, connection) = http1::handshake(socket).await.expect("a handshake");
                running.spawn(async move { drop(connection.await) });
                Sender::Http1(sender)
            }
            Spoken::Http2 => {
                let socket = TokioIo::new(place.for_http2().connect().await.expect("connect"));
                let (sender, connection) = http2::handshake(TokioExecutor::new(), socket).await.expect("a handshake");
                running.spawn(async move { drop(connection.await) });
                Sender::Http2(sender)
            }
        };
        Self { place: place.clone(), sender, _running: running }
    }

    /// Sends a request with an origin-form target, and returns when the head of its answer is there.
    pub(crate) async fn start(&mut self, mut request: Request<Body>) -> hyper::Result<Response<Incoming>> {
        let answer = async {
            match &mut self.sender {
                Sender::Http1(sender) => {
                    let host = HeaderValue::try_from(self.place.address.to_string()).expect("an address is a header value");
                    request.headers_mut().entry(header::HOST).or_insert(host);
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Sender::Http2(sender) => {
                    *request.uri_mut() = format!("{}{}", self.place, request.uri()).parse::<Uri>().expect("a URL");
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        within("the head of an answer", PATIENCE, answer).await
    }

    /// The same, and reads all of the answer.
    ///
    /// # Panics
    /// When there is none, or it breaks off.
    pub(crate) async fn send(&mut self, request: Request<Body>) -> Answer {
        let answer = self.start(request).await.unwrap_or_else(|error| panic!("no answer at {}: {error:?}", self.place));
        let (head, body) = answer.into_parts();
        let body = within("the answer", PATIENCE, body.collect()).await;
        let body = body.unwrap_or_else(|error| panic!("half an answer at {}: {error:?}", self.place));
        let trailers = body.trailers().cloned();
        Answer { status: head.status, headers: head.headers, body: body.to_bytes(), trailers }
    }
}

/// An app that answers as a function has it, in one version of HTTP, until it is dropped.
#[derive(Debug)]
pub(crate) struct Speaker {
    /// What to give a node as its upstream.
    pub(crate) url: String,
    _serving: JoinSet<()>,
}

impl Speaker {
    pub(crate) async fn start<F>(spoken: Spoken, answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = Response<Body>> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bind an app");
        let scheme = if spoken == Spoken::Http1 { "http" } else { "h2c" };
        let url = format!("{scheme}://{}", listener.local_addr().expect("an address"));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                stream.set_nodelay(true).expect("no delay");
                let (stream, answer) = (TokioIo::new(stream), answer.clone());
                let service = service_fn(move |request| {
                    let answer = answer(request);
                    async move { Ok::<_, Infallible>(answer.await) }
                });
                connections.spawn(async move {
                    // A node that goes away in the middle is part of most tests.
                    match spoken {
                        Spoken::Http1 => drop(server::conn::http1::Builder::new().serve_connection(stream, service).await),
                        Spoken::Http2 => {
                            drop(server::conn::http2::Builder::new(TokioExecutor::new()).serve_connection(stream, service).await);
                        }
                    }
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Self { url, _serving: serving }
    }
}

/// A body that is there.
pub(crate) fn whole(body: impl Into<Bytes>) -> Body {
    Full::new(body.into()).map_err(|never| match never {}).boxed()
}

/// All values of a field, in order.
pub(crate) fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes).collect()
}
