//! The two ends of a chain: an app that answers at once, and clients that ask again as soon as they are answered.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// What each request is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    SmallGet,
    Get64KiB,
    Post16KiB,
}

const SMALL: usize = 32;
const LARGE: usize = 64 * 1024;
const POSTED: usize = 16 * 1024;

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::SmallGet, Self::Get64KiB, Self::Post16KiB];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SmallGet => "GET small",
            Self::Get64KiB => "GET 64 KiB",
            Self::Post16KiB => "POST 16 KiB",
        }
    }

    fn request(self) -> Vec<u8> {
        match self {
            Self::SmallGet => b"GET /small HTTP/1.1\r\nHost: bench\r\n\r\n".to_vec(),
            Self::Get64KiB => b"GET /large HTTP/1.1\r\nHost: bench\r\n\r\n".to_vec(),
            Self::Post16KiB => {
                let mut request = format!("POST /small HTTP/1.1\r\nHost: bench\r\nContent-Length: {POSTED}\r\n\r\n").into_bytes();
                request.resize(request.len() + POSTED, b'x');
                request
            }
        }
    }

    fn answer_length(self) -> usize {
        match self {
            Self::SmallGet | Self::Post16KiB => SMALL,
            Self::Get64KiB => LARGE,
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Starts the app on a thread of its own, for as long as the process lives.
pub(crate) fn start_app() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a listener");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        runtime().block_on(async move {
            let listener = TcpListener::from_std(listener).expect("a listener");
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).ok();
                connections.spawn(serve(stream));
                while connections.try_join_next().is_some() {}
            }
        });
    });
    address
}

/// Answers requests on one connection; ends with it.
async fn serve(mut stream: TcpStream) -> Option<()> {
    let answer = |length: usize| {
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
        answer.resize(answer.len() + length, b'a');
        answer
    };
    let (small, large) = (answer(SMALL), answer(LARGE));
    let mut bytes = Vec::with_capacity(32 * 1024);
    loop {
        let (head, body) = read_message(&mut stream, &mut bytes).await?;
        let wanted = if bytes.starts_with(b"GET /large") { &large } else { &small };
        stream.write_all(wanted).await.ok()?;
        bytes.drain(..head + body);
    }
}

/// Reads until `bytes` begins with a whole message; the lengths of its head and its body.
async fn read_message(stream: &mut TcpStream, bytes: &mut Vec<u8>) -> Option<(usize, usize)> {
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")).map_or(Some(0), |text| text.trim().parse().ok())?;
            while bytes.len() < end + 4 + length {
                (stream.read_buf(bytes).await.ok()? > 0).then_some(())?;
            }
            return Some((end + 4, length));
        }
        (stream.read_buf(bytes).await.ok()? > 0).then_some(())?;
    }
}

/// Asks `entry` with this many clients for this long; how many whole and right answers came.
///
/// # Panics
/// When a connection breaks or an answer is not what the app sends: such a run measures nothing.
pub(crate) fn run(entry: SocketAddr, kind: Kind, clients: usize, span: Duration) -> u64 {
    runtime().block_on(async move {
        let end = Instant::now() + span;
        let mut tasks = JoinSet::new();
        for _ in 0..clients {
            tasks.spawn(client(entry, kind, end));
        }
        tasks.join_all().await.into_iter().sum()
    })
}

async fn client(entry: SocketAddr, kind: Kind, end: Instant) -> u64 {
    let mut stream = TcpStream::connect(entry).await.expect("connect to the first hop");
    stream.set_nodelay(true).ok();
    let (request, mut bytes, mut count) = (kind.request(), Vec::with_capacity(LARGE * 2), 0);
    while Instant::now() < end {
        stream.write_all(&request).await.expect("send a request");
        let (head, body) = read_message(&mut stream, &mut bytes).await.expect("a whole answer");
        assert!(bytes.starts_with(b"HTTP/1.1 200") && body == kind.answer_length(), "{}", String::from_utf8_lossy(&bytes[..head]));
        bytes.drain(..head + body);
        count += 1;
    }
    count
}
