//! What a client begins to speak: HTTP/2 where it begins with that protocol's preface (RFC 9113 §3.4), else HTTP/1.1.

use std::pin::pin;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::AsyncReadExt;
use tokio::time::sleep;

use crate::api::io::WireIo;
use crate::api::session::Session;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How much is read to find out.
const FIRST_READ: usize = 2 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Waits for a connection's first bytes, and leaves them to be read again. `None` when none came in the time for a head, when
/// the connection broke, or when the node is closing meanwhile.
pub(super) async fn protocol(session: &Session) -> Option<Protocol> {
    let core = &session.core;
    let mut reading = pin!(read(session));
    let mut patience = pin!(sleep(session.head_timeout()));
    loop {
        tokio::select! {
            biased;
            protocol = reading.as_mut() => return protocol,
            () = core.turn.notified() => if session.is_to_end() { return None },
            () = patience.as_mut() => return None,
        }
    }
}

async fn read(session: &Session) -> Option<Protocol> {
    let mut io = WireIo(Rc::clone(&session.wire));
    let mut early = BytesMut::with_capacity(FIRST_READ);
    while early.len() < PREFACE.len() && PREFACE.starts_with(&early) {
        if io.read_buf(&mut early).await.ok()? == 0 {
            break;
        }
    }
    let protocol = if early.starts_with(PREFACE) { Protocol::Http2 } else { Protocol::Http1 };
    session.wire.unread(early.freeze());
    Some(protocol)
}
