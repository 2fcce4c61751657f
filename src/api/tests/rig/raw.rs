//! Connections that say and hear exact bytes, and the messages that are on them.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::SOON;

/// A message as it was on the wire, cut into its parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::api) struct Message {
    /// The request line or status line.
    pub(in crate::api) line: String,
    /// Names as they were written.
    pub(in crate::api) fields: Vec<(String, String)>,
    pub(in crate::api) body: Vec<u8>,
}

impl Message {
    fn parse_head(head: &[u8]) -> Self {
        let text = String::from_utf8_lossy(head);
        let mut lines = text.split("\r\n");
        let line = lines.next().unwrap_or_default().to_owned();
        let fields = lines.filter_map(|line| line.split_once(": ")).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Self { line, fields, body: Vec::new() }
    }

    pub(in crate::api) fn status(&self) -> u16 {
        self.line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("no status in {:?}", self.line))
    }

    pub(in crate::api) fn target(&self) -> &str {
        self.line.split(' ').nth(1).unwrap_or_default()
    }

    pub(in crate::api) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    pub(in crate::api) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(in crate::api) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|encoding| encoding.ends_with("chunked"))
    }

    fn length(&self) -> Option<usize> {
        self.field("content-length").map(|length| length.parse().unwrap())
    }
}

/// One end of a connection that says and hears exact bytes.
pub(in crate::api) struct Raw {
    pub(in crate::api) stream: TcpStream,
    pub(in crate::api) heard: Vec<u8>,
}

impl Raw {
    pub(in crate::api) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, heard: Vec::new() }
    }

    pub(in crate::api) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Sends a request without a body, with a Host, and reads its answer.
    pub(in crate::api) async fn get(&mut self, target: &str) -> Message {
        self.say(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        self.answer().await
    }

    pub(in crate::api) async fn post(&mut self, target: &str, body: &[u8]) -> Message {
        self.say(format!("POST {target} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n", body.len())).await;
        self.say(body).await;
        self.answer().await
    }

    /// Closes the sending side.
    pub(in crate::api) async fn finish(&mut self) {
        self.stream.shutdown().await.unwrap();
    }

    /// Reads more; false at the end.
    async fn hear(&mut self) -> bool {
        let mut piece = vec![0; 16 * 1024];
        match timeout(SOON, self.stream.read(&mut piece)).await.expect("something is said in time") {
            Ok(0) | Err(_) => false,
            Ok(read) => {
                self.heard.extend_from_slice(&piece[..read]);
                true
            }
        }
    }

    /// Reads until `wanted` has been heard, and takes everything up to its end.
    pub(in crate::api) async fn through(&mut self, wanted: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.heard.windows(wanted.len()).position(|window| window == wanted) {
                let rest = self.heard.split_off(at + wanted.len());
                return Some(std::mem::replace(&mut self.heard, rest));
            }
            if !self.hear().await {
                return None;
            }
        }
    }

    pub(in crate::api) async fn exactly(&mut self, length: usize) -> Vec<u8> {
        while self.heard.len() < length {
            assert!(self.hear().await, "the end after {} of {length} bytes", self.heard.len());
        }
        let rest = self.heard.split_off(length);
        std::mem::replace(&mut self.heard, rest)
    }

    /// Everything up to the end.
    pub(in crate::api) async fn rest(&mut self) -> Vec<u8> {
        while self.hear().await {}
        std::mem::take(&mut self.heard)
    }

    pub(in crate::api) async fn head(&mut self) -> Option<Message> {
        let head = self.through(b"\r\n\r\n").await?;
        Some(Message::parse_head(&head))
    }

    /// The next request, whole; `None` when the peer has nothing more to say.
    pub(in crate::api) async fn request(&mut self) -> Option<Message> {
        let mut message = self.head().await?;
        if message.is_chunked() {
            message.body = self.chunks().await?;
        } else if let Some(length) = message.length() {
            message.body = self.exactly(length).await;
        }
        Some(message)
    }

    /// The next answer, whole.
    pub(in crate::api) async fn answer(&mut self) -> Message {
        self.answer_to("GET").await
    }

    pub(in crate::api) async fn answer_to(&mut self, method: &str) -> Message {
        let mut message = self.head().await.expect("an answer");
        let bodiless = method == "HEAD" || matches!(message.status(), 204 | 304) || message.status() < 200;
        if bodiless {
        } else if message.is_chunked() {
            message.body = self.chunks().await.expect("a last chunk");
        } else if let Some(length) = message.length() {
            message.body = self.exactly(length).await;
        } else {
            message.body = self.rest().await;
        }
        message
    }

    /// A chunked body, with its trailers dropped.
    async fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.through(b"\r\n").await?;
            let size = std::str::from_utf8(&line).unwrap().trim_end();
            let size = usize::from_str_radix(size, 16).unwrap_or_else(|_| panic!("no chunk size: {size}"));
            if size == 0 {
                while self.through(b"\r\n").await? != b"\r\n" {}
                return Some(body);
            }
            body.extend(self.exactly(size).await);
            assert_eq!(self.exactly(2).await, b"\r\n");
        }
    }

    /// Whether the peer closes its side, or resets it, without saying more.
    pub(in crate::api) async fn is_closed(&mut self) -> bool {
        !self.hear().await
    }
}

/// Sends `bytes` in the background, as far as they are taken, and keeps the sending side open.
pub(in crate::api) fn sending(mut to: OwnedWriteHalf, bytes: Vec<u8>) -> JoinSet<OwnedWriteHalf> {
    let mut sending = JoinSet::new();
    sending.spawn(async move {
        to.write_all(&bytes).await.ok();
        to
    });
    sending
}
