//! Whoever leaves in the middle is missed soon: a client by its app, at each moment of an exchange, and an app by its client, which is
//! never told that a part of an answer was all of it. By clients and apps in either version of HTTP.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::support::daemon::Manage;
use crate::support::http as client;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Raw};
use crate::support::secure::World;
use crate::support::spoken::{Connection, Spoken};
use crate::support::streams::{Http2Origin, Stream, Streams, piece, request};
use crate::support::{port, wait_for, within};

/// It should take less than a second; a busy machine may take two more.
const SOON: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(20);
/// What either side sends at once.
const PIECE: &str = "some more";

/// How long nothing moves where something is held back.
const A_WHILE: Duration = Duration::from_millis(200);

/// Where an exchange has got to when its client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Moment {
    /// The app thinks.
    BeforeTheAnswer,
    /// Some of the answer has come, and the app goes on and on.
    InAnAnswer,
    /// Some of the answer has come, and then nothing.
    InSilence,
    /// Some of the request has been sent, and all of that has reached the app.
    InAnUpload,
    /// The app has read the head alone, and both nodes hold back what comes.
    InAnUploadThatIsHeldBack,
}

const MOMENTS: [Moment; 4] = [Moment::BeforeTheAnswer, Moment::InAnAnswer, Moment::InSilence, Moment::InAnUpload];

/// How a client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Leaves {
    /// Its connection ends.
    Http1,
    /// The same, with a stream on it.
    Http2,
    /// It takes its stream back, and its connection stays.
    TakingBack,
}

/// A client that has asked for something.
enum Client {
    Http1(Raw),
    /// With the body of the answer, once there is one: dropped, it takes the stream back.
    Http2(Streams, Stream, Option<RecvStream>),
}

impl Client {
    async fn ask(place: &Place, leaves: Leaves, moment: Moment) -> Self {
        let uploads = [Moment::InAnUpload, Moment::InAnUploadThatIsHeldBack].contains(&moment);
        if leaves == Leaves::Http1 {
            let stream = TcpStream::connect(place.address).await.expect("connect");
            if moment == Moment::InAnUploadThatIsHeldBack {
                // An end would wait behind what is held back.
                stream.set_zero_linger().expect("an option of TCP");
            }
            let mut raw = Raw::over(within("connecting", LIMIT, place.over(stream)).await.expect("a connection"));
            let (method, more) = if uploads { ("POST", "Transfer-Encoding: chunked\r\n") } else { ("GET", "") };
            raw.send(format!("{method} / HTTP/1.1\r\nHost: service\r\n{more}\r\n")).await;
            return Self::Http1(raw);
        }
        let mut streams = Streams::connect(place).await;
        let method = if uploads { Method::POST } else { Method::GET };
        let stream = streams.ask(request(method, "/"), !uploads).await.expect("a stream");
        Self::Http2(streams, stream, None)
    }

    async fn sends_some(&mut self) {
        match self {
            Self::Http1(raw) => raw.send(chunk()).await,
            Self::Http2(_, stream, _) => stream.sending.send_data(Bytes::from(PIECE), false).expect("room for it"),
        }
    }

    /// Sends until nothing more is taken for a while.
    async fn sends_all_that_is_taken(&mut self) {
        let mut sending = async || match self {
            Self::Http1(raw) => raw.try_send(format!("10000\r\n{}\r\n", "x".repeat(0x1_0000))).await.expect("it is taken, or not yet"),
            Self::Http2(_, stream, _) => {
                stream.sending.reserve_capacity(0x1_0000);
                let room = poll_fn(|context| stream.sending.poll_capacity(context)).await.expect("a stream").expect("room");
                stream.sending.send_data(vec![b'x'; room].into(), false).expect("there is room");
            }
        };
        while timeout(A_WHILE, sending()).await.is_ok() {}
    }

    async fn hears_some(&mut self) {
        match self {
            Self::Http1(raw) => drop(raw.until(PIECE).await),
            Self::Http2(_, stream, body) => {
                let body = body.insert(stream.head().await.expect("a head").into_body());
                assert_eq!(piece(body).await.expect("a body").expect("some of it"), PIECE);
            }
        }
    }

    /// Leaves, and gives what stays until it is dropped.
    fn leave(self, leaves: Leaves) -> Option<Streams> {
        match self {
            Self::Http2(streams, stream, _) if leaves == Leaves::TakingBack => {
                stream.cancel();
                Some(streams)
            }
            Self::Http1(_) | Self::Http2(..) => None,
        }
    }
}

fn chunk() -> String {
    format!("{:x}\r\n{PIECE}\r\n", PIECE.len())
}

/// An app of which a test plays each exchange.
enum App {
    Http1(Origin),
    Http2(Http2Origin),
}

impl App {
    async fn start(spoken: Spoken) -> Self {
        match spoken {
            Spoken::Http1 => Self::Http1(Origin::bind().await),
            Spoken::Http2 => Self::Http2(Http2Origin::bind().await),
        }
    }

    fn url(&self) -> String {
        match self {
            Self::Http1(origin) => format!("http://{}", origin.address()),
            Self::Http2(origin) => origin.url(),
        }
    }

    /// The next exchange.
    async fn asked(&mut self) -> Asked {
        match self {
            Self::Http1(origin) => {
                let mut raw = origin.accept().await;
                raw.head().await;
                Asked::Http1(raw)
            }
            Self::Http2(origin) => {
                let (request, answer) = origin.accept().await;
                Asked::Http2 { body: request.into_body(), answer, sending: None }
            }
        }
    }
}

/// An exchange at the app.
enum Asked {
    Http1(Raw),
    Http2 { body: RecvStream, answer: SendResponse<Bytes>, sending: Option<SendStream<Bytes>> },
}

impl Asked {
    async fn hears_some(&mut self) {
        match self {
            Self::Http1(raw) => drop(raw.until(&chunk()).await),
            Self::Http2 { body, .. } => assert_eq!(piece(body).await.expect("a body").expect("some of it"), PIECE),
        }
    }

    /// Reads what has come of a body until it breaks off.
    async fn reads_to_the_end(self) {
        match self {
            Self::Http1(mut raw) => drop(raw.end().await),
            Self::Http2 { mut body, answer: _answer, .. } => while let Ok(Some(_)) = piece(&mut body).await {},
        }
    }

    async fn begins_its_answer(&mut self) {
        match self {
            Self::Http1(raw) => {
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
                raw.send(format!("{head}{}", chunk())).await;
            }
            Self::Http2 { answer, sending, .. } => {
                let mut stream = answer.send_response(Response::new(()), false).expect("somebody listens");
                stream.send_data(Bytes::from(PIECE), false).expect("somebody listens");
                *sending = Some(stream);
            }
        }
    }

    /// Says some more to whoever may have left.
    async fn goes_on(&mut self) {
        match self {
            Self::Http1(raw) => drop(raw.try_send(chunk()).await),
            Self::Http2 { sending, .. } => {
                drop(sending.as_mut().expect("an answer has begun").send_data(Bytes::from(PIECE), false));
            }
        }
    }

    /// Returns when nobody is there any more.
    async fn is_left(&mut self) {
        match self {
            Self::Http1(raw) => assert!(raw.is_cut().await, "more has come"),
            Self::Http2 { answer, sending, .. } => {
                // The connection may have ended instead.
                drop(
                    poll_fn(|context| match sending {
                        Some(sending) => sending.poll_reset(context),
                        None => answer.poll_reset(context),
                    })
                    .await,
                );
            }
        }
    }

    /// The same while it goes on talking.
    async fn is_left_talking(&mut self) {
        loop {
            tokio::select! {
                () = self.is_left() => return,
                () = sleep(Duration::from_millis(50)) => {}
            }
            self.goes_on().await;
        }
    }
}

#[tokio::test]
async fn an_app_learns_soon_that_its_client_has_left() {
    for spoken in Spoken::BOTH {
        let mut app = App::start(spoken).await;
        let places = Places::with(&app.url(), |manage| manage).await;
        for place in places.each() {
            for leaves in [Leaves::Http1, Leaves::Http2, Leaves::TakingBack] {
                for moment in MOMENTS {
                    let mut client = Client::ask(&place, leaves, moment).await;
                    let mut asked = app.asked().await;
                    match moment {
                        Moment::BeforeTheAnswer | Moment::InAnUploadThatIsHeldBack => {}
                        Moment::InAnUpload => {
                            client.sends_some().await;
                            asked.hears_some().await;
                        }
                        Moment::InAnAnswer | Moment::InSilence => {
                            asked.begins_its_answer().await;
                            client.hears_some().await;
                        }
                    }
                    let _stays = client.leave(leaves);
                    let what = format!("a client by {leaves:?} at {place} that leaves {moment:?} to be missed by an app in {spoken:?}");
                    match moment {
                        Moment::InAnAnswer => within(&what, SOON, asked.is_left_talking()).await,
                        Moment::BeforeTheAnswer | Moment::InSilence | Moment::InAnUpload | Moment::InAnUploadThatIsHeldBack => {
                            within(&what, SOON, asked.is_left()).await
                        }
                    }
                }
            }
        }
        for node in places.nodes() {
            wait_for("nothing to run", LIMIT, async || match node.metrics_aside().await.value("running_requests") {
                0.0 => Ok(()),
                running => Err(running),
            })
            .await;
        }
    }
}

/// The nodes let go of it, and its app hears of it where it reads on.
#[tokio::test]
async fn an_upload_that_its_app_does_not_read_is_let_go_of_soon_when_its_client_leaves() {
    for spoken in Spoken::BOTH {
        let mut app = App::start(spoken).await;
        let places = Places::with(&app.url(), |manage| manage).await;
        let rest = async || {
            for node in [&places.clear.primary, &places.clear.replica, &places.mutual.primary, &places.mutual.replica] {
                wait_for(&format!("{} to rest", node.place()), SOON, async || match node.metrics_aside().await.value("running_requests") {
                    0.0 => Ok(()),
                    running => Err(running),
                })
                .await;
            }
        };
        for place in places.each() {
            for leaves in [Leaves::Http1, Leaves::Http2, Leaves::TakingBack] {
                let mut client = Client::ask(&place, leaves, Moment::InAnUploadThatIsHeldBack).await;
                let asked = app.asked().await;
                client.sends_all_that_is_taken().await;
                let _stays = client.leave(leaves);
                rest().await;
                let what = format!("a client by {leaves:?} at {place} to be missed by an app in {spoken:?} that reads on");
                within(&what, SOON, asked.reads_to_the_end()).await;
            }
        }
    }
}

/// There is no primary; nor is what they have sent waited for.
#[tokio::test]
async fn a_held_request_is_let_go_of_soon_when_its_client_leaves() {
    let world = World::new();
    for secured in [false, true] {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let manage = Manage::new("node", folder.path()).replicated(&format!("etcd://{}", port::free()), Duration::from_secs(3));
        let manage = manage.with(["--hold-timeout", "10m"]);
        let node = if secured { manage.mutual(&world) } else { manage }.start().await;
        let held = async |count: f64, limit| {
            wait_for(&format!("{count} requests to be held"), limit, async || match node.metrics_aside().await.value("held_requests") {
                now if now == count => Ok(()),
                now => Err(now),
            })
            .await;
        };
        for leaves in [Leaves::Http1, Leaves::Http2, Leaves::TakingBack] {
            for moment in [Moment::BeforeTheAnswer, Moment::InAnUpload] {
                let mut client = Client::ask(&node.place(), leaves, moment).await;
                if moment == Moment::InAnUpload {
                    client.sends_some().await;
                }
                held(1.0, LIMIT).await;
                let _stays = client.leave(leaves);
                held(0.0, SOON).await;
            }
        }
    }
}

/// An answer, and whether it can be told from its end alone that it is whole.
const ANSWERS: [(&str, bool); 5] = [
    ("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome more", false),
    ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nsome more\r\n", false),
    ("HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\nsome more", false),
    ("HTTP/1.0 200 OK\r\n\r\nsome more", true),
    ("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nsome more", true),
];

fn get() -> Request<client::Body> {
    client::request(Method::GET, "/", "")
}

#[tokio::test]
async fn a_client_learns_soon_that_its_app_has_left_in_the_middle() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (answer, ends_with_connection) in ANSWERS {
            for resets in [false, true] {
                for spoken in Spoken::BOTH {
                    let mut client = Connection::open(&place, spoken).await;
                    let (head, app) = tokio::join!(client.start(get()), async {
                        let (stream, _) = origin.accept_bare().await;
                        if resets {
                            stream.set_zero_linger().expect("an option of TCP");
                        }
                        let mut app = Raw::over(stream);
                        app.head().await;
                        app.send(answer).await;
                        app
                    });
                    let mut body = head.expect("a head").into_body();
                    let some = within("some of it", LIMIT, body.frame()).await.expect("some of it").expect("some of it");
                    assert_eq!(some.into_data().expect("data"), PIECE);
                    drop(app);
                    let what = format!("the end of {answer:?} (by a reset: {resets}) for a client in {spoken:?} at {place}");
                    let end = within(&what, SOON, body.frame()).await;
                    let is_whole = ends_with_connection && !resets;
                    assert_eq!(end.is_none_or(|end| end.is_ok()), is_whole, "{what}");
                }
            }
        }
    }
}

/// To one that speaks HTTP/1.0 the end of its connection is the end of the answer: it has to break off.
#[tokio::test]
async fn a_client_without_chunks_sees_its_connection_break_off() {
    let origin = Origin::bind().await;
    let places = Places::of(origin.address()).await;
    for place in places.each() {
        for (answer, _) in ANSWERS.iter().filter(|(_, ends_with_connection)| !ends_with_connection) {
            let mut client = Raw::connect(&place).await;
            client.send("GET / HTTP/1.0\r\n\r\n").await;
            let mut app = origin.accept().await;
            app.head().await;
            app.send(answer).await;
            let head = client.until(PIECE).await;
            drop(app);
            let left = Instant::now();
            let end = client.end().await;
            assert!(left.elapsed() < SOON, "{:?} for {answer:?} at {place}", left.elapsed());
            assert!(end.is_err() || head.contains("content-length: 100\r\n"), "{answer:?} at {place} ends as if it were whole: {head}");
        }
    }
}

#[tokio::test]
async fn a_client_learns_soon_that_its_app_in_http2_has_left_in_the_middle() {
    let mut app = Http2Origin::bind().await;
    let places = Places::with(&app.url(), |manage| manage).await;
    for place in places.each() {
        for spoken in Spoken::BOTH {
            let mut client = Connection::open(&place, spoken).await;
            let (head, mut sending) = tokio::join!(client.start(get()), async {
                let (_, mut answer) = app.accept().await;
                let mut sending = answer.send_response(Response::new(()), false).expect("somebody listens");
                sending.send_data(Bytes::from(PIECE), false).expect("somebody listens");
                sending
            });
            let mut body = head.expect("a head").into_body();
            let some = within("some of it", LIMIT, body.frame()).await.expect("some of it").expect("some of it");
            assert_eq!(some.into_data().expect("data"), PIECE);
            sending.send_reset(h2::Reason::INTERNAL_ERROR);
            let what = format!("the end of an answer for a client in {spoken:?} at {place}");
            let end = within(&what, SOON, body.frame()).await;
            assert!(end.is_some_and(|end| end.is_err()), "{what}");
        }
    }
}
