//! What HTTP/2 forbids, frame by frame (RFC 9113), at each of the three places: each violation is answered by the error that
//! it is, nothing that is malformed reaches the app, and the connection goes on where it may.
//!
//! The library may take for an error of the connection what is one of a stream, as the RFC lets it (§5.4); where its answer is
//! another than the RFC names, the case says why that is good enough.

use std::time::Duration;

use tokio::time::timeout;

use crate::support::app::App;
use crate::support::frames::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, Frames, GOAWAY, HEADERS, PADDED, PING, PREFACE,
    PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE, REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, WITH_PRIORITY, block,
    frame, get, settings,
};
use crate::support::http;
use crate::support::ledger::Ledger;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::Raw;

/// How long a case may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// A head that ends its request.
const WHOLE: u8 = END_HEADERS | END_STREAM;
/// An answer that takes longer than the case.
const SLOW: &str = "/slow?ms=5000";
/// The most frame payload that the node has allowed.
const MOST: usize = 16 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// GOAWAY with this code, and the end.
    Connection(u32),
    /// RST_STREAM with this code, and the connection goes on.
    Stream(u32),
    /// An answer of this status, and the connection goes on.
    Status(u16),
    /// Nothing; the connection goes on.
    Fine,
    /// The connection ends without a word.
    Cut,
    /// Nothing, and not even an answer to PING.
    Silent,
}

use End::{Connection, Fine, Status, Stream};

/// What the library says to all that it cannot read, and to some of what comes at the wrong time, where the RFC has a finer
/// code, or would end the stream alone: nothing of the request has reached anybody, and a client that sends such things has
/// no more use for the connection.
const COARSE: End = Connection(PROTOCOL_ERROR);

struct Case {
    what: &'static str,
    bytes: Vec<u8>,
    end: End,
}

fn case(what: &'static str, bytes: impl Into<Vec<u8>>, end: End) -> Case {
    Case { what, bytes: bytes.into(), end }
}

fn open(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, get(path, &[]))
}

fn whole(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, WHOLE, stream, get(path, &[]))
}

fn join(frames: &[Vec<u8>]) -> Vec<u8> {
    frames.concat()
}

/// A request with these fields alone.
fn bare(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE, 1, block(fields))
}

/// A good request with these fields more.
fn with(fields: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, WHOLE, 1, get("/echo", fields))
}

/// A good request but for this pseudo-header.
fn but(name: &str, value: &str) -> Vec<u8> {
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", "service"), (":path", "/echo")];
    bare(&fields.map(|(known, good)| (known, if known == name { value } else { good })))
}

/// A request with a body in these pieces.
fn post(fields: &[(&str, &str)], pieces: &[&[u8]]) -> Vec<u8> {
    let head = [(":method", "POST"), (":scheme", "http"), (":authority", "service"), (":path", "/echo")];
    let mut bytes = frame(HEADERS, END_HEADERS, 1, block(&[&head[..], fields].concat()));
    for (number, piece) in pieces.iter().enumerate() {
        bytes.extend(frame(DATA, if number + 1 == pieces.len() { END_STREAM } else { 0 }, 1, piece));
    }
    bytes
}

/// How frames are made up: sections 4 and 5.
fn framing() -> Vec<Case> {
    let dependent_on_itself = [&1_u32.to_be_bytes()[..], &[16]].concat();
    vec![
        case("4.1: a frame of an unknown type", frame(0x77, 0xff, 0, "extension"), Fine),
        case("4.1: flags without a meaning, and the reserved bit", frame(PING, 0xfe, 0x8000_0000, [7; 8]), Fine),
        case(
            "4.2: DATA above the largest frame",
            join(&[open(1, SLOW), frame(DATA, 0, 1, vec![0; MOST + 1])]),
            Connection(FRAME_SIZE_ERROR),
        ),
        case("4.2: HEADERS above the largest frame", frame(HEADERS, END_HEADERS, 1, vec![0; MOST + 1]), Connection(FRAME_SIZE_ERROR)),
        case("4.3: a head that HPACK cannot read", frame(HEADERS, WHOLE, 1, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff]), COARSE),
        case("4.3: a field of a table that is empty", frame(HEADERS, WHOLE, 1, [0xbf + 30]), COARSE),
        case("4.3: a head that is cut in the middle of a field", frame(HEADERS, WHOLE, 1, [0x00, 0x05, b'a']), COARSE),
        case(
            "4.3: another frame in the middle of a head",
            join(&[
                frame(HEADERS, END_STREAM, 1, get("/", &[])),
                frame(PRIORITY, 0, 1, [0, 0, 0, 3, 16]),
                frame(CONTINUATION, END_HEADERS, 1, ""),
            ]),
            Connection(PROTOCOL_ERROR),
        ),
        case(
            "4.3: another stream's head in the middle of one",
            join(&[frame(HEADERS, END_STREAM, 1, get("/", &[])), whole(3, "/")]),
            Connection(PROTOCOL_ERROR),
        ),
        case(
            "5.5: an unknown frame in the middle of a head",
            join(&[frame(HEADERS, END_STREAM, 1, get("/", &[])), frame(0x77, 0, 1, ""), frame(CONTINUATION, END_HEADERS, 1, "")]),
            Connection(PROTOCOL_ERROR),
        ),
        case("5.1: DATA on an idle stream", frame(DATA, END_STREAM, 1, "x"), Connection(PROTOCOL_ERROR)),
        case("5.1: RST_STREAM on an idle stream", frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), Connection(PROTOCOL_ERROR)),
        case("5.1: WINDOW_UPDATE on an idle stream", frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1]), Connection(PROTOCOL_ERROR)),
        case("5.1: CONTINUATION on an idle stream", frame(CONTINUATION, END_HEADERS, 1, get("/", &[])), Connection(PROTOCOL_ERROR)),
        case("5.1: PRIORITY on an idle stream", frame(PRIORITY, 0, 1, [0, 0, 0, 0, 16]), Fine),
        case("5.1: DATA after the end", join(&[whole(1, SLOW), frame(DATA, END_STREAM, 1, "x")]), COARSE),
        case("5.1: HEADERS after the end", join(&[whole(1, SLOW), whole(1, "/")]), COARSE),
        case(
            "5.1: CONTINUATION after the end",
            join(&[whole(1, SLOW), frame(CONTINUATION, END_HEADERS, 1, "")]),
            Connection(PROTOCOL_ERROR),
        ),
        case("5.1: WINDOW_UPDATE after the end", join(&[whole(1, SLOW), frame(WINDOW_UPDATE, 0, 1, [0, 0, 0, 1])]), Fine),
        case("5.1: PRIORITY after the end", join(&[whole(1, SLOW), frame(PRIORITY, 0, 1, [0, 0, 0, 0, 16])]), Fine),
        case(
            "5.1: DATA on a stream that was reset",
            join(&[open(1, SLOW), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), frame(DATA, END_STREAM, 1, "x")]),
            Stream(STREAM_CLOSED),
        ),
        case(
            "5.1: HEADERS on a stream that was reset",
            join(&[open(1, SLOW), frame(RST_STREAM, 0, 1, [0, 0, 0, 8]), whole(1, "/")]),
            COARSE,
        ),
        case("5.1.1: a stream with an even number", whole(2, "/"), Connection(PROTOCOL_ERROR)),
        case("5.1.1: a stream with a lower number than one before", join(&[whole(5, SLOW), whole(3, "/")]), Connection(PROTOCOL_ERROR)),
        case(
            "5.3.1 of RFC 7540: a head that depends on itself",
            frame(HEADERS, WHOLE | WITH_PRIORITY, 1, [&dependent_on_itself[..], &get("/", &[])].concat()),
            Stream(PROTOCOL_ERROR),
        ),
        case("5.3.1 of RFC 7540: PRIORITY that depends on itself", frame(PRIORITY, 0, 1, &dependent_on_itself), Stream(PROTOCOL_ERROR)),
    ]
}

/// Frame by frame: section 6.
fn frames() -> Vec<Case> {
    let setting = |name, value| settings(&[(name, value)]);
    vec![
        case("6.1: DATA on stream 0", frame(DATA, 0, 0, "x"), Connection(PROTOCOL_ERROR)),
        case("6.1: more padding than there is DATA", join(&[open(1, SLOW), frame(DATA, PADDED, 1, [9, 0, 0])]), Connection(PROTOCOL_ERROR)),
        case("6.2: HEADERS on stream 0", whole(0, "/"), Connection(PROTOCOL_ERROR)),
        case("6.2: more padding than there is head", frame(HEADERS, WHOLE | PADDED, 1, [200, 0, 0]), Connection(PROTOCOL_ERROR)),
        case("6.2: a head too short for its priority", frame(HEADERS, WHOLE | WITH_PRIORITY, 1, [0; 3]), Connection(PROTOCOL_ERROR)),
        case("6.3: PRIORITY on stream 0", frame(PRIORITY, 0, 0, [0, 0, 0, 1, 16]), Connection(PROTOCOL_ERROR)),
        case("6.3: PRIORITY of four bytes", frame(PRIORITY, 0, 1, [0; 4]), COARSE),
        case("6.4: RST_STREAM on stream 0", frame(RST_STREAM, 0, 0, [0, 0, 0, 8]), Connection(PROTOCOL_ERROR)),
        case("6.4: RST_STREAM of three bytes", join(&[open(1, SLOW), frame(RST_STREAM, 0, 1, [0; 3])]), COARSE),
        case("6.5: SETTINGS ACK that says something", frame(SETTINGS, ACK, 0, [0; 6]), COARSE),
        case("6.5: SETTINGS on a stream", frame(SETTINGS, 0, 1, ""), Connection(PROTOCOL_ERROR)),
        case("6.5: SETTINGS of five bytes", frame(SETTINGS, 0, 0, [0; 5]), COARSE),
        case("6.5.2: a push that is neither on nor off", setting(2, 2), Connection(PROTOCOL_ERROR)),
        case("6.5.2: a window above the largest", setting(4, 1 << 31), COARSE),
        case("6.5.2: a frame size below the least", setting(5, 16_383), Connection(PROTOCOL_ERROR)),
        case("6.5.2: a frame size above the largest", setting(5, 1 << 24), Connection(PROTOCOL_ERROR)),
        case("6.5.2: a setting that nobody knows", setting(0xfafa, 7), Fine),
        case("3 of RFC 8441: a CONNECT protocol that is neither on nor off", setting(8, 2), Connection(PROTOCOL_ERROR)),
        case(
            "6.6: PUSH_PROMISE of a client",
            join(&[open(1, SLOW), frame(PUSH_PROMISE, END_HEADERS, 1, [0, 0, 0, 2])]),
            Connection(PROTOCOL_ERROR),
        ),
        case("6.7: PING on a stream", frame(PING, 0, 1, [0; 8]), Connection(PROTOCOL_ERROR)),
        case("6.7: PING of six bytes", frame(PING, 0, 0, [0; 6]), COARSE),
        case("6.7: an answer to no PING", frame(PING, ACK, 0, [5; 8]), Fine),
        case("6.8: GOAWAY on a stream", frame(GOAWAY, 0, 1, [0; 8]), Connection(PROTOCOL_ERROR)),
        case("6.9: a connection's window raised by 0", frame(WINDOW_UPDATE, 0, 0, [0; 4]), Connection(PROTOCOL_ERROR)),
        case("6.9: a stream's window raised by 0", join(&[open(1, SLOW), frame(WINDOW_UPDATE, 0, 1, [0; 4])]), COARSE),
        case("6.9: WINDOW_UPDATE of three bytes", frame(WINDOW_UPDATE, 0, 0, [0; 3]), COARSE),
        case(
            "6.9.1: a connection's window above the largest",
            frame(WINDOW_UPDATE, 0, 0, [0x7f, 0xff, 0xff, 0xff]),
            Connection(FLOW_CONTROL_ERROR),
        ),
        case(
            "6.9.1: a stream's window above the largest",
            join(&[open(1, SLOW), frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0xff, 0xff])]),
            Stream(FLOW_CONTROL_ERROR),
        ),
        case(
            "6.9.2: SETTINGS that raise an open window above the largest",
            join(&[open(1, SLOW), frame(WINDOW_UPDATE, 0, 1, [0x7f, 0xff, 0, 0]), setting(4, 0x7fff_ffff)]),
            Connection(FLOW_CONTROL_ERROR),
        ),
        case("6.10: CONTINUATION on stream 0", frame(CONTINUATION, END_HEADERS, 0, ""), Connection(PROTOCOL_ERROR)),
        case(
            "6.10: CONTINUATION after the end of a head",
            join(&[open(1, SLOW), frame(CONTINUATION, END_HEADERS, 1, "")]),
            Connection(PROTOCOL_ERROR),
        ),
    ]
}

/// What a request may say: section 8.
fn requests() -> Vec<Case> {
    let malformed = Stream(PROTOCOL_ERROR);
    vec![
        case("8.2.1: a name in upper case", with(&[("X-Upper", "a")]), COARSE),
        case("8.2.1: a name with a space", with(&[("x y", "a")]), COARSE),
        case("8.2.1: a name with a colon", with(&[("x:y", "a")]), COARSE),
        case("8.2.1: a name with a line break", with(&[("x\r\ny", "a")]), COARSE),
        case("8.2.1: no name", with(&[("", "a")]), COARSE),
        case("8.2.1: a value with a line break", with(&[("x-a", "a\r\nx-smuggled: b")]), COARSE),
        case("8.2.1: a value with a line feed", with(&[("x-a", "a\nb")]), COARSE),
        case("8.2.1: a value with a carriage return", with(&[("x-a", "a\rb")]), COARSE),
        case("8.2.1: a value with a NUL", with(&[("x-a", "a\0b")]), COARSE),
        case("8.2.2: Connection", with(&[("connection", "keep-alive")]), malformed),
        case("8.2.2: Proxy-Connection", with(&[("proxy-connection", "keep-alive")]), malformed),
        case("8.2.2: Keep-Alive", with(&[("keep-alive", "timeout=5")]), malformed),
        case("8.2.2: Transfer-Encoding", with(&[("transfer-encoding", "chunked")]), malformed),
        case("8.2.2: Upgrade", with(&[("upgrade", "websocket")]), malformed),
        case("8.2.2: TE with anything but trailers", with(&[("te", "gzip")]), malformed),
        case("8.2.2: TE with trailers", with(&[("te", "trailers")]), Status(200)),
        case("8.3: a pseudo-header that nobody knows", with(&[(":unknown", "a")]), COARSE),
        case("8.3: one of answers", with(&[(":status", "200")]), malformed),
        case(
            "8.3: one behind a field",
            bare(&[(":method", "GET"), (":scheme", "http"), (":authority", "service"), ("x-a", "b"), (":path", "/")]),
            malformed,
        ),
        // Which is dropped there: nothing that begins with a colon is passed on as a field.
        case("8.3: one among the trailers", join(&[open(1, "/echo"), frame(HEADERS, WHOLE, 1, block(&[(":path", "/")]))]), Status(200)),
        case("8.3.1: no method", bare(&[(":scheme", "http"), (":authority", "service"), (":path", "/")]), malformed),
        case("8.3.1: no scheme", bare(&[(":method", "GET"), (":authority", "service"), (":path", "/")]), malformed),
        case("8.3.1: no path", bare(&[(":method", "GET"), (":scheme", "http"), (":authority", "service")]), malformed),
        case("8.3.1: an empty path", but(":path", ""), malformed),
        case("8.3.1: two methods", with(&[(":method", "POST")]), malformed),
        case("8.3.1: two schemes", with(&[(":scheme", "http")]), malformed),
        case("8.3.1: two paths", with(&[(":path", "/")]), malformed),
        case("8.3.1: two authorities", with(&[(":authority", "other")]), malformed),
        case("8.3.1: a path that is none", but(":path", "echo"), malformed),
        case("8.3.1: a path that is a URL", but(":path", "http://other/echo"), malformed),
        case("8.3.1: a path with a space", but(":path", "/echo HTTP/1.1"), malformed),
        case("8.3.1: a path with a line break", but(":path", "/echo HTTP/1.1\r\nx-smuggled: b"), malformed),
        case("8.3.1: a method with a space", but(":method", "GET /other HTTP/1.1"), COARSE),
        case("8.3.1: a method with a line break", but(":method", "GET\r\n"), COARSE),
        case("8.3.1: an authority with a path", but(":authority", "service/other"), malformed),
        case("8.3.1: an authority with a space", but(":authority", "ser vice"), malformed),
        case("8.3.1: an authority with a line break", but(":authority", "service\r\nx-smuggled: b"), malformed),
        case("8.3.1: an authority with a user", but(":authority", "user@service"), Status(400)),
        case("8.3.1: an authority and another host", with(&[("host", "other")]), Status(400)),
        case("8.3.1: an authority and the same host", with(&[("host", "service")]), Status(200)),
        case("8.3.1: a host alone", bare(&[(":method", "GET"), (":scheme", "http"), (":path", "/echo"), ("host", "service")]), Status(200)),
        case("8.3.1: neither", bare(&[(":method", "GET"), (":scheme", "http"), (":path", "/echo")]), Status(400)),
        case("8.1.1: a body longer than its length", post(&[("content-length", "2")], &[b"abc"]), malformed),
        case("8.1.1: a body shorter than its length", post(&[("content-length", "4")], &[b"abc"]), malformed),
        case("8.1.1: a body whose pieces are longer than its length", post(&[("content-length", "4")], &[b"abc", b"de"]), malformed),
        case("8.1.1: no body, and a length", with(&[("content-length", "4")]), malformed),
        case("8.1.1: two lengths", post(&[("content-length", "3"), ("content-length", "4")], &[b"abc"]), malformed),
        case("8.1.1: a length that is none", post(&[("content-length", "+3")], &[b"abc"]), malformed),
        case("8.1.1: a body as long as its length", post(&[("content-length", "5")], &[b"abc", b"de"]), Status(200)),
        case(
            "8.1: trailers that do not end the request",
            join(&[open(1, "/echo"), frame(HEADERS, END_HEADERS, 1, block(&[("x-a", "b")]))]),
            malformed,
        ),
        case("8.5: CONNECT with a path", but(":method", "CONNECT"), malformed),
    ]
}

/// What comes of a case; `waits` for an answer rather than take silence for one.
async fn observe(connection: &mut Frames, waits: bool) -> End {
    // What comes of an error is on its way before the last of them is answered.
    for round in 0..3 {
        connection.send(frame(PING, 0, 0, [round; 8])).await;
        loop {
            let Some(seen) = connection.next().await else { return End::Cut };
            match (seen.kind, seen.code(), seen.status()) {
                (GOAWAY, Some(code), _) => return Connection(code),
                (RST_STREAM, Some(code), _) => return Stream(code),
                (HEADERS, _, Some(status)) if waits => return Status(status),
                (PING, _, _) if seen.flags == ACK && seen.payload == [round; 8] && !waits => break,
                _ => {}
            }
        }
    }
    Fine
}

/// Whether the connection still takes requests.
async fn goes_on(connection: &mut Frames) -> bool {
    connection.send(whole(1_001, "/who")).await;
    connection.find(|seen| seen.stream == 1_001 && seen.kind == HEADERS).await.is_some_and(|seen| seen.status() == Some(200))
}

async fn check(place: &Place, cases: &[Case], ledger: &Ledger) {
    let mut wrong = Vec::new();
    for Case { what, bytes, end } in cases {
        let mut connection = Frames::begin(place).await;
        let before = ledger.arrivals().len();
        connection.send(bytes).await;
        let seen = timeout(PATIENCE, observe(&mut connection, matches!(end, Status(_)))).await.unwrap_or(End::Silent);
        // What is wrong with a body shows when its head has gone on.
        if ["8.2", "8.3", "8.5"].iter().any(|section| what.starts_with(section)) && *end != Status(200) {
            assert_eq!(ledger.arrivals().len(), before, "{what} at {place} has reached the app");
        }
        let goes_on = match seen {
            End::Silent => false,
            Connection(_) | End::Cut => timeout(PATIENCE, connection.find(|_| false)).await.is_err(),
            Stream(_) | Status(_) | Fine => timeout(PATIENCE, goes_on(&mut connection)).await.unwrap_or(false),
        };
        if seen != *end || goes_on == matches!(end, Connection(_)) {
            wrong
                .push(format!("{what}: {seen:?} and not {end:?}, and then the connection {}", if goes_on { "goes on" } else { "is over" }));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn each_violation_ends_as_the_rfc_has_it() {
    let ledger = Ledger::default();
    let app = App::start("a", &ledger).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let cases: Vec<Case> = [framing(), frames(), requests()].into_iter().flatten().collect();
        check(&place, &cases, &ledger).await;
        assert_eq!(http::get(place, "/who").await.text(), "a");
    }
}

/// RFC 9113 §3.4.
#[tokio::test]
async fn what_does_not_begin_as_http2_does_is_none() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let mut wrong = Raw::connect(&place).await;
        wrong.send("PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n").await;
        let said = String::from_utf8_lossy(&wrong.rest().await).into_owned();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{place}: {said}");
        let mut hasty = Frames::connect(&place).await;
        hasty.send([PREFACE, &whole(1, "/who")].concat()).await;
        // SETTINGS should come first. The library takes none for the defaults, which harms nobody.
        assert_eq!(observe(&mut hasty, true).await, Status(200), "{place}");
    }
}

/// RFC 9113 §5.1.2: as many as SETTINGS said, and the next one when one of them has ended.
#[tokio::test]
async fn no_more_streams_are_taken_than_the_node_has_said() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        limits_streams(&place).await;
    }
}

async fn limits_streams(place: &Place) {
    let mut client = Frames::begin(place).await;
    let said = client.find(|seen| seen.kind == SETTINGS && seen.flags == 0).await.expect("SETTINGS");
    let most = said.payload.chunks(6).find(|pair| pair[..2] == [0, 3]).map(|pair| u32::from_be_bytes([pair[2], pair[3], pair[4], pair[5]]));
    let most = most.expect("the most streams");
    for n in 0..=most {
        client.send(open(1 + 2 * n, "/echo")).await;
    }
    let refused = client.find(|seen| seen.kind == RST_STREAM).await.expect("a refusal");
    assert_eq!((refused.stream, refused.code()), (1 + 2 * most, Some(REFUSED_STREAM)));
    client.send(frame(DATA, END_STREAM, 1, "x")).await;
    assert_eq!(client.find(|seen| seen.kind == HEADERS).await.map(|seen| (seen.stream, seen.status())), Some((1, Some(200))), "{place}");
    assert!(goes_on(&mut client).await);
}
