//! What a connection knows about itself under TLS, where what comes in need not be for its reader.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::server::TlsStream;

use crate::api::ahead::Ahead;
use crate::api::io::{Fence, Socket, Wire, WireIo};
use crate::clock;
use crate::replication::{Role, RolePublisher};
use crate::store::Epoch;
use crate::tls::tests::World;
use crate::tls::{Client, Tls};

const LIMIT: Duration = Duration::from_secs(20);

/// A node's connection to an upstream, on which nothing has been read since the handshake, and the upstream's side of it.
async fn connected() -> (Rc<Wire>, TlsStream<TcpStream>) {
    connected_behind(None).await
}

/// The same, behind a fence.
async fn connected_behind(fence: Option<Fence>) -> (Rc<Wire>, TlsStream<TcpStream>) {
    let world = World::new();
    let (server, _) = Tls::load(world.lone()).unwrap();
    let client = Client::read(Some(&world.authority.file()), None).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();
    let (served, connected) = tokio::join!(server.accept(accepted), client.connect("127.0.0.1", Ahead::new(stream)));
    let stream = connected.unwrap();
    // The tickets.
    comes(&stream.get_ref().0.tcp).await;
    (Wire::to_upstream(Socket::Tls(Box::new(stream.into())), fence), served.unwrap().0)
}

/// Writes until the system takes no more, and TLS keeps the rest. Tells how much was taken.
async fn stuff(io: &mut WireIo) -> usize {
    let mut written = 0;
    let stuck = poll_fn(|cx| {
        loop {
            match Pin::new(&mut *io).poll_write(cx, &[7; 64 * 1024]) {
                std::task::Poll::Ready(length) => written += length.unwrap(),
                std::task::Poll::Pending => return std::task::Poll::Ready(()),
            }
        }
    });
    timeout(LIMIT, stuck).await.unwrap();
    written
}

/// Waits until the system has something to read.
async fn comes(stream: &TcpStream) {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    let come = async {
        while SockRef::from(stream).peek(&mut byte).is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, come).await.expect("something to read");
}

async fn becomes_stale(wire: &Wire) {
    let stale = async {
        while !wire.is_stale() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(LIMIT, stale).await.expect("a stale connection");
}

#[tokio::test]
async fn tickets_make_no_connection_stale() {
    let (wire, mut upstream) = connected().await;
    assert!(!wire.is_stale());
    assert!(!wire.has_input(), "they were taken in");
    upstream.write_all(b"unasked").await.unwrap();
    becomes_stale(&wire).await;
    assert!(wire.has_input());
    let mut read = [0; 7];
    timeout(LIMIT, WireIo(wire).read_exact(&mut read)).await.unwrap().unwrap();
    assert_eq!(&read, b"unasked", "what was taken in is still there for the reader");
}

#[tokio::test]
async fn every_end_makes_a_connection_stale() {
    for polite in [true, false] {
        let (wire, mut upstream) = connected().await;
        assert!(!wire.is_stale());
        if polite {
            upstream.shutdown().await.unwrap();
        } else {
            SockRef::from(upstream.get_ref().0).shutdown(std::net::Shutdown::Write).unwrap();
        }
        becomes_stale(&wire).await;
        let read = timeout(LIMIT, WireIo(wire).read(&mut [0; 1])).await.unwrap();
        assert_eq!(read.map_err(|error| error.kind()), if polite { Ok(0) } else { Err(ErrorKind::UnexpectedEof) });
    }
}

#[tokio::test]
async fn what_tls_keeps_counts_as_unsent_until_it_has_left() {
    let (wire, mut upstream) = connected().await;
    let mut io = WireIo(Rc::clone(&wire));
    let written = stuff(&mut io).await;
    assert!(wire.has_unsent());
    assert!(poll_fn(|cx| std::task::Poll::Ready(Pin::new(&mut io).poll_flush(cx).is_pending())).await);
    let mut read = vec![0; written];
    let (flushed, taken) = tokio::join!(timeout(LIMIT, io.flush()), timeout(LIMIT, upstream.read_exact(&mut read)));
    flushed.unwrap().unwrap();
    taken.unwrap().unwrap();
    assert!(!wire.has_unsent());
}

#[tokio::test]
async fn nothing_that_tls_keeps_leaves_after_the_tenure_not_even_with_a_goodbye() {
    let (publisher, roles) = RolePublisher::new();
    publisher.publish(Role::Primary { epoch: Epoch(1), deadline: clock::now() + LIMIT * 10 });
    let (wire, mut upstream) = connected_behind(Some(Fence { roles, epoch: Epoch(1) })).await;
    let mut io = WireIo(Rc::clone(&wire));
    let written = stuff(&mut io).await;
    publisher.publish(Role::Electing);
    let mut read = Vec::new();
    let ends = async {
        let ended = io.shutdown().await;
        drop((io, wire));
        ended
    };
    let (ended, reading) = timeout(LIMIT, async { tokio::join!(ends, upstream.read_to_end(&mut read)) }).await.unwrap();
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert!(reading.is_err() && read.len() < written, "{} of {written}, {reading:?}", read.len());
}

#[tokio::test]
async fn only_what_is_whole_ends_with_a_goodbye() {
    for tunnel in [false, true] {
        let (wire, mut upstream) = connected().await;
        let mut io = WireIo(Rc::clone(&wire));
        io.write_all(b"GET").await.unwrap();
        if tunnel {
            wire.lay_bare();
        }
        drop((io, wire));
        let mut read = Vec::new();
        let ended = timeout(LIMIT, upstream.read_to_end(&mut read)).await.unwrap();
        assert_eq!((read.as_slice(), ended.is_ok()), (&b"GET"[..], !tunnel));
    }
}

/// A connection is what it was whichever way it is asked.
#[tokio::test]
async fn a_connection_is_abandoned_when_its_peer_has_left() {
    let (wire, upstream) = connected().await;
    assert!(!wire.is_abandoned());
    drop(upstream);
    let mut byte = [0; 1];
    let mut buffer = tokio::io::ReadBuf::new(&mut byte);
    let mut io = WireIo(Rc::clone(&wire));
    timeout(LIMIT, poll_fn(|cx| Pin::new(&mut io).poll_read(cx, &mut buffer))).await.unwrap().unwrap_err();
    assert!(wire.is_abandoned());
}

#[tokio::test]
async fn whoever_says_goodbye_has_left_though_the_connection_is_open() {
    let (wire, mut upstream) = connected().await;
    upstream.get_mut().1.send_close_notify();
    upstream.flush().await.unwrap();
    let mut byte = [0; 1];
    assert_eq!(timeout(LIMIT, WireIo(Rc::clone(&wire)).read(&mut byte)).await.unwrap().unwrap(), 0);
    assert!(wire.is_abandoned());
}
