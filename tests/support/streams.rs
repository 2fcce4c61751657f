//! STREAMS: HTTP/2 as a test speaks it itself, on either side of a node: one stream at a time, read and sent as it says.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Method, Request, Response};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::place::Place;
use super::raw::Origin;
use super::{wait_for, within};

/// How long the other side may take for whatever a test awaits of it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A client's connection to a node.
#[derive(Debug)]
pub(crate) struct Streams {
    requests: SendRequest<Bytes>,
    driver: JoinSet<Result<(), h2::Error>>,
}

/// One stream of a client's.
#[derive(Debug)]
pub(crate) struct Stream {
    answer: ResponseFuture,
    /// Where more of the request can be sent, and where it can be taken back.
    pub(crate) sending: SendStream<Bytes>,
}

impl Streams {
    pub(crate) async fn connect(place: &Place) -> Self {
        let socket = within("connecting", PATIENCE, place.for_http2().connect()).await.expect("a connection");
        let (requests, connection) = within("HTTP/2", PATIENCE, h2::client::handshake(socket)).await.expect("HTTP/2");
        Self { requests, driver: [connection].into_iter().collect() }
    }

    /// Waits until the node has said that it takes WebSockets (RFC 8441 §3).
    pub(crate) async fn hears_settings(&self) {
        wait_for(
            "the node's settings",
            PATIENCE,
            async || if self.requests.is_extended_connect_protocol_enabled() { Ok(()) } else { Err(()) },
        )
        .await;
    }

    /// Begins a stream, whose request ends with its head if it `ends`.
    ///
    /// # Errors
    /// When the connection takes no more.
    pub(crate) async fn ask(&mut self, request: Request<()>, ends: bool) -> Result<Stream, h2::Error> {
        let mut requests = within("room for a stream", PATIENCE, self.requests.clone().ready()).await?;
        let (answer, sending) = requests.send_request(request, ends)?;
        self.requests = requests;
        Ok(Stream { answer, sending })
    }

    /// Begins a stream with a GET.
    pub(crate) async fn get(&mut self, target: &str) -> Stream {
        self.ask(request(Method::GET, target), true).await.expect("a stream")
    }

    /// Waits until the connection has ended; `Ok` where nothing was wrong with it.
    pub(crate) async fn ended(&mut self) -> Result<(), h2::Error> {
        let ended = within("the end of the connection", PATIENCE, self.driver.join_next()).await;
        ended.expect("it ends once").expect("it does not panic")
    }
}

impl Stream {
    /// The head of the answer.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) async fn head(&mut self) -> Result<Response<RecvStream>, h2::Error> {
        within("an answer's head", PATIENCE, &mut self.answer).await
    }

    /// The answer's status and body.
    ///
    /// # Errors
    /// When they break off.
    pub(crate) async fn whole(&mut self) -> Result<(u16, String), h2::Error> {
        let (head, mut body) = self.head().await?.into_parts();
        let mut text = Vec::new();
        while let Some(piece) = piece(&mut body).await? {
            text.extend(piece);
        }
        Ok((head.status.as_u16(), String::from_utf8(text).expect("UTF-8")))
    }

    /// Takes the request back.
    pub(crate) fn cancel(mut self) {
        self.sending.send_reset(Reason::CANCEL);
    }
}

/// The next piece of a body that has anything in it; its sender may then send as much again.
pub(crate) async fn piece(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    while let Some(piece) = within("a piece of a body", PATIENCE, body.data()).await.transpose()? {
        body.flow_control().release_capacity(piece.len())?;
        if !piece.is_empty() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// A request without a body.
pub(crate) fn request(method: Method, target: &str) -> Request<()> {
    Request::builder().method(method).uri(format!("http://service{target}")).body(()).expect("a valid request")
}

/// An app that speaks HTTP/2 with prior knowledge, of which a test plays each stream itself.
#[derive(Debug)]
pub(crate) struct Http2Origin {
    address: SocketAddr,
    streams: mpsc::Receiver<Asked>,
    _serving: JoinSet<()>,
}

/// A request to such an app, and where it is answered.
type Asked = (Request<RecvStream>, SendResponse<Bytes>);

impl Http2Origin {
    pub(crate) async fn bind() -> Self {
        let origin = Origin::bind().await;
        let address = origin.address();
        let (hand_over, streams) = mpsc::channel(1);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, hand_over) = (origin.next().await, hand_over.clone());
                connections.spawn(async move {
                    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                    while let Some(Ok(asked)) = connection.accept().await {
                        // Who awaits it may have ended.
                        hand_over.send(asked).await.ok();
                    }
                });
            }
        });
        Self { address, streams, _serving: serving }
    }

    /// By which nodes reach it.
    pub(crate) fn url(&self) -> String {
        format!("h2c://{}", self.address)
    }

    /// The next request.
    pub(crate) async fn accept(&mut self) -> Asked {
        within("a request", PATIENCE, self.streams.recv()).await.expect("it serves for ever")
    }
}
