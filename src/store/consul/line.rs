//! One HTTP/1.1 connection to one agent, for one request at a time.

use std::pin::{Pin, pin};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::ServerName;

use super::access::Access;
use super::answer::Answer;
use crate::node::Address;
use crate::store::Cause;

/// More than twice what the largest value of Consul (512 KiB) takes in base64, and more than we read of anybody.
const MOST_OF_A_BODY: usize = 1536 * 1024;
/// A head is a few lines.
const MOST_OF_A_HEAD: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Driver = Pin<Box<Connection<TokioIo<Box<dyn Stream>>, Full<Bytes>>>>;

/// A connection that is driven only while it is asked something: nothing of it runs when nobody waits.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// None once the connection has ended.
    driver: Option<Driver>,
}

impl Line {
    /// Connects to `agent`. Not bounded: the caller is.
    pub(super) async fn open(access: &Access, agent: &Address) -> Result<Self, Cause> {
        let stream = TcpStream::connect((agent.host(), agent.port())).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &access.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(agent.host().to_owned())?;
                Box::new(Box::pin(tls.connect(name, stream)).await?)
            }
        };
        let (sender, driver) = Builder::new().max_buf_size(MOST_OF_A_HEAD).handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, driver: Some(Box::pin(driver)) })
    }

    /// Whether it can be asked again.
    pub(super) fn is_open(&self) -> bool {
        self.driver.is_some() && !self.sender.is_closed()
    }

    /// Sends a request and reads the whole answer. Dropped in between, the connection is of no more use.
    pub(super) async fn ask(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Cause> {
        let Self { sender, driver } = self;
        let exchange = async {
            sender.ready().await?;
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, MOST_OF_A_BODY).collect().await?.to_bytes();
            Ok(Answer::new(&head, body))
        };
        let mut exchange = pin!(exchange);
        if let Some(running) = driver {
            tokio::select! {
                biased;
                answer = &mut exchange => return answer,
                // What went wrong with it, the exchange hears as well.
                _ = running => *driver = None,
            }
        }
        exchange.await
    }
}
