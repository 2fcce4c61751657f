//! Connections that an app ends just as they are used again (B88): no client sees an error, nothing is executed twice, and where
//! nobody can know what has been executed the node says so.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, StatusCode};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::support::http::{Answer, Body, Method, request, with};
use crate::support::ledger::REQUEST_ID;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::raw::{Origin, Played, Raw, header};
use crate::support::spoken::{Connection, Spoken};

/// How an app ends its connections.
#[derive(Clone, Copy, Debug)]
enum Manner {
    /// By FIN in the same packet as an answer that says nothing of it, after so many.
    Silently { after: usize },
    /// As it has said in its answer.
    Announced,
    /// When it has been idle for so long behind an answer, by nobody's clock but its own.
    Idle(Duration),
    /// After the first answer it takes one more request, and says nothing to that.
    Swallowing,
}

/// How often each request has been executed.
#[derive(Clone, Default)]
struct Executed(Arc<Mutex<HashMap<String, usize>>>);

impl Executed {
    fn enter(&self, head: &str) {
        let id = header(head, REQUEST_ID).expect("a request with a name").to_owned();
        *self.0.lock().expect("no panic under this lock").entry(id).or_default() += 1;
    }

    fn times(&self, id: &str) -> usize {
        self.0.lock().expect("no panic under this lock").get(id).copied().unwrap_or_default()
    }
}

async fn app(manner: Manner) -> (Played, Executed) {
    let executed = Executed::default();
    let entered = executed.clone();
    let app = Origin::bind().await.play_bare(move |stream| converse(stream, manner, entered.clone()));
    (app, executed)
}

async fn converse(stream: TcpStream, manner: Manner, executed: Executed) {
    let same = stream.as_fd().try_clone_to_owned().expect("one more handle");
    let mut raw = Raw::over(stream);
    for number in 1.. {
        let next = match manner {
            Manner::Idle(limit) if number > 1 => timeout(limit, raw.next_request()).await.unwrap_or(None),
            Manner::Idle(_) | Manner::Silently { .. } | Manner::Announced | Manner::Swallowing => raw.next_request().await,
        };
        let Some((head, _)) = next else { return };
        executed.enter(&head);
        let last = match manner {
            Manner::Silently { after } => number == after,
            Manner::Announced => true,
            Manner::Idle(_) => false,
            Manner::Swallowing if number == 2 => return,
            Manner::Swallowing => false,
        };
        if last {
            // What is written waits for more, and leaves with the end.
            SockRef::from(&same).set_tcp_cork(true).expect("an option of TCP");
        }
        let more = if matches!(manner, Manner::Announced) { "Connection: close\r\n" } else { "" };
        let said = raw.try_send(format!("HTTP/1.1 200 OK\r\n{more}Content-Length: 4\r\n\r\ndone")).await;
        if last || said.is_err() {
            return;
        }
    }
}

/// A request of that name.
fn named(method: Method, id: &str) -> Request<Body> {
    let body = if method == Method::POST { "an order" } else { "" };
    with(request(method, "/", body), REQUEST_ID, id)
}

#[tokio::test]
async fn an_app_that_ends_connections_with_its_answers_costs_no_request() {
    for manner in [Manner::Silently { after: 1 }, Manner::Silently { after: 3 }, Manner::Announced] {
        let (app, executed) = app(manner).await;
        let places = Places::of(app.address).await;
        for place in places.each() {
            let mut clients = Vec::new();
            for spoken in Spoken::BOTH {
                clients.push(Connection::open(&place, spoken).await);
            }
            for number in 0..300 {
                let method = if number % 2 == 0 { Method::POST } else { Method::GET };
                let id = format!("{place} {number}");
                let answer = clients[number / 2 % 2].send(named(method, &id)).await;
                assert_eq!((answer.status, answer.text()), (StatusCode::OK, "done"), "{id}, {manner:?}");
                assert_eq!(executed.times(&id), 1, "{id}, {manner:?}");
            }
        }
    }
}

/// All at once, as it is the waiting that takes the time.
#[tokio::test]
async fn an_app_that_ends_idle_connections_costs_no_request() {
    const IDLE: Duration = Duration::from_secs(1);
    const CLIENTS: usize = 80;
    const TIMES: usize = 4;
    let (app, executed) = app(Manner::Idle(IDLE)).await;
    let places = Places::of(app.address).await;
    let mut running = JoinSet::new();
    for (place, number) in places.each().iter().flat_map(|place| (0..CLIENTS).map(move |number| (place, number))) {
        let (place, executed) = (place.clone(), executed.clone());
        running.spawn(async move {
            let mut client = Connection::open(&place, Spoken::BOTH[number % 2]).await;
            let method = if number % 4 < 2 { Method::POST } else { Method::GET };
            for time in 0..TIMES {
                let id = format!("{place} {number} {time}");
                let answer = client.send(named(method.clone(), &id)).await;
                assert_eq!((answer.status, answer.text()), (StatusCode::OK, "done"), "{method} {id}");
                let times = executed.times(&id);
                assert!(times == 1 || method == Method::GET && times > 1, "{method} {id} was executed {times} times");
                // About when the app's patience ends.
                sleep(IDLE.mul_f64(0.99 + 0.02 * fastrand::f64())).await;
            }
        });
    }
    while let Some(ended) = running.join_next().await {
        ended.expect("no request has failed");
    }
}

/// An app that ends connections within milliseconds can have taken a request that it never answers; and it has lost one at most for
/// each worker before that is known of it.
#[tokio::test]
async fn an_app_in_a_hurry_costs_no_safe_request_and_others_are_told_of_it() {
    const WORKERS: usize = 2;
    const HURRY: Duration = Duration::from_millis(2);
    let (app, executed) = app(Manner::Idle(HURRY)).await;
    let places = Places::with(&format!("http://{}", app.address), |manage| manage.with(["--workers", "2"])).await;
    let mut untold = HashMap::<bool, usize>::new();
    for place in places.each() {
        let mut client = Connection::open(&place, Spoken::Http1).await;
        for number in 0..300 {
            let method = if number % 2 == 0 { Method::POST } else { Method::GET };
            let id = format!("{place} {number}");
            let answer = client.send(named(method.clone(), &id)).await;
            if answer.status == StatusCode::OK {
                assert!(method == Method::GET || executed.times(&id) == 1, "{id}");
            } else {
                assert_eq!(method, Method::POST, "{}", answer.text());
                assert!(executed.times(&id) <= 1, "{id}");
                says_that_it_does_not_know(&answer);
                *untold.entry(place.tls.is_some()).or_default() += 1;
            }
            sleep(HURRY.mul_f64(2.0 * fastrand::f64())).await;
        }
    }
    assert!(untold.values().all(|lost| *lost <= WORKERS), "{untold:?}");
}

fn says_that_it_does_not_know(answer: &Answer) {
    let said = answer.json();
    assert_eq!((answer.status, &said["reason"]), (StatusCode::BAD_GATEWAY, &"upstream-failed".into()), "{said}");
    assert_eq!(said["verdict"], "maybe-executed", "{said}");
    assert_eq!(answer.header("proxy-status"), "bellwether; error=connection_terminated");
}

/// Asks again and again until the app has swallowed one on a connection that was used before. Gives what came of that, and how often
/// it was executed.
async fn swallowed(place: &Place, executed: &Executed, asked: impl Fn(&str) -> Request<Body>) -> (Answer, usize) {
    let mut client = Connection::open(place, Spoken::Http1).await;
    // A machine that takes long from one to the next has a new connection opened for it.
    for number in 0..20 {
        let id = number.to_string();
        let answer = client.send(asked(&id)).await;
        if executed.times(&id) > 1 || answer.status != StatusCode::OK {
            return (answer, executed.times(&id));
        }
    }
    panic!("no request ever went over a connection that was used before");
}

#[tokio::test]
async fn what_was_swallowed_is_sent_again_where_it_may_be_and_else_said_to_be_unknown() {
    // What is lost at a node is known there from then on, so each place is a fresh one.
    for at in 0..3 {
        for (method, key) in [(Method::POST, None), (Method::POST, Some("idempotency-key")), (Method::GET, None)] {
            let (app, executed) = app(Manner::Swallowing).await;
            let places = Places::with(&format!("http://{}", app.address), |manage| manage.with(["--workers", "1"])).await;
            let asked = |id: &str| key.into_iter().fold(named(method.clone(), id), |request, key| with(request, key, "\"a key\""));
            let (answer, times) = swallowed(&places.each()[at], &executed, asked).await;
            if method == Method::GET || key.is_some() {
                assert_eq!((answer.status, answer.text(), times), (StatusCode::OK, "done", 2), "{method} {key:?} at {at}");
            } else {
                says_that_it_does_not_know(&answer);
                assert_eq!(times, 1, "at {at}");
            }
        }
    }
}
