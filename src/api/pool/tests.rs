use http_body_util::BodyExt;
use tokio::task::LocalSet;

use super::*;
use crate::api::tests::rig::{Raw, SOON, Seen, TestApp, ok, until};
use crate::replication::{Role, RolePublisher};
use crate::store::Epoch;

async fn upstream<F: Future<Output = ()> + Send + 'static>(
    script: impl Fn(Raw, std::sync::Arc<Seen>) -> F + Send + 'static,
    change: impl FnOnce(&mut Limits),
) -> (TestApp, Rc<Pool>) {
    let app = TestApp::scripted(script).await;
    let mut limits = Limits::default();
    change(&mut limits);
    let pool = Pool::new(app.upstream(), limits, None);
    (app, pool)
}

async fn answering(mut raw: Raw, _seen: std::sync::Arc<Seen>) {
    while raw.request().await.is_some() {
        raw.say(ok("hello")).await;
    }
}

fn request(target: &'static str) -> Request<RequestBody> {
    let mut request = Request::new(RequestBody::Empty);
    *request.uri_mut() = http::Uri::from_static(target);
    request
}

async fn send(pool: &Rc<Pool>, terms: Sending) -> Sent {
    pool.send(request("/"), terms, || true, async |_| Ok(())).await
}

/// Whether no connection is left.
fn is_over(pool: &Pool) -> bool {
    pool.sweep();
    pool.connections.borrow().is_empty()
}

const SAFE: Sending = Sending { repeatable: true, fresh: false, upgrades: false };
const ONCE: Sending = Sending { repeatable: false, fresh: false, upgrades: false };

/// Sends a request and gives the connection back.
async fn exchange(pool: &Rc<Pool>, terms: Sending) {
    let Sent::Answered(answer, lease) = send(pool, terms).await else { panic!("no answer") };
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "hello");
    lease.give_back();
}

#[tokio::test]
async fn the_youngest_connection_is_used_first() {
    LocalSet::new()
        .run_until(async {
            let (app, pool) = upstream(answering, |_| {}).await;
            let Sent::Answered(first, older) = send(&pool, SAFE).await else { panic!("no answer") };
            let Sent::Answered(second, Carrier::Connection(younger)) = send(&pool, SAFE).await else { panic!("no answer") };
            for answer in [first, second] {
                answer.into_body().collect().await.unwrap();
            }
            let wire = Rc::clone(&younger.connection.wire);
            older.give_back();
            younger.give_back();
            let Sent::Answered(_, Carrier::Connection(again)) = send(&pool, SAFE).await else { panic!("no answer") };
            assert!(Rc::ptr_eq(&again.connection.wire, &wire) && again.reused);
            assert_eq!(app.seen.connections(), 2);
        })
        .await;
}

#[tokio::test]
async fn an_aged_connection_is_not_trusted_with_what_must_not_be_repeated() {
    LocalSet::new()
        .run_until(async {
            let (app, pool) = upstream(answering, |_| {}).await;
            exchange(&pool, SAFE).await;
            pool.idle.borrow_mut()[0].since -= FRESH * 2;
            exchange(&pool, ONCE).await;
            assert_eq!(app.seen.connections(), 2);
            // However long ago that was by now on this machine.
            pool.idle.borrow_mut()[0].since = Instant::now() + FRESH;
            exchange(&pool, ONCE).await;
            assert_eq!(app.seen.connections(), 2, "used a moment ago");
        })
        .await;
}

#[tokio::test]
async fn a_connection_that_said_something_unasked_or_closed_is_not_used() {
    LocalSet::new()
        .run_until(async {
            let script = |mut raw: Raw, _| async move {
                raw.request().await;
                raw.say([ok("hello"), b"HTTP/1.1 408 Request Timeout\r\n\r\n".to_vec()].concat()).await;
            };
            let (app, pool) = upstream(script, |_| {}).await;
            for exchanges in 1..4 {
                exchange(&pool, if exchanges % 2 == 0 { SAFE } else { ONCE }).await;
                assert_eq!(app.seen.connections(), exchanges);
            }
        })
        .await;
}

#[tokio::test]
async fn a_request_whose_right_lapsed_while_a_connection_was_opened_comes_back_unsent() {
    LocalSet::new()
        .run_until(async {
            let (app, pool) = upstream(answering, |_| {}).await;
            let sent = pool.send(request("/mine"), SAFE, || false, async |_| Ok(())).await;
            let Sent::Unsent(request, Unsent::Forbidden) = sent else { panic!("it was sent") };
            assert_eq!(request.uri(), "/mine");
            assert!(app.seen.requests().is_empty());
        })
        .await;
}

#[tokio::test]
async fn opening_a_connection_is_bounded_in_time() {
    LocalSet::new()
        .run_until(async {
            let silent = |mut raw: Raw, _| async move { drop(raw.rest().await) };
            let (_app, pool) = upstream(silent, |limits| limits.connect_timeout = Duration::from_millis(50)).await;
            let asked = Instant::now();
            let sent = pool
                .send(request("/"), SAFE, || true, async |greeting| greeting.ask(request("/who")).await.map(drop).map_err(io::Error::other))
                .await;
            let Sent::Unsent(_, Unsent::Dial(error)) = sent else { panic!("it was sent") };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(asked.elapsed() < SOON / 4);
        })
        .await;
}

#[tokio::test]
async fn a_crowd_does_not_become_as_many_connections() {
    LocalSet::new()
        .run_until(async {
            let (app, pool) = upstream(answering, |_| {}).await;
            let mut crowd = JoinSet::new();
            for _ in 0..DIALS * 8 {
                let pool = Rc::clone(&pool);
                crowd.spawn_local(async move { exchange(&pool, SAFE).await });
            }
            while let Some(ended) = crowd.join_next().await {
                ended.unwrap();
            }
            assert!(app.seen.connections() < DIALS * 4, "{} connections", app.seen.connections());
        })
        .await;
}

#[tokio::test]
async fn a_connection_that_was_being_opened_dies_with_its_pool() {
    LocalSet::new()
        .run_until(async {
            let (app, pool) = upstream(answering, |_| {}).await;
            // The first poll begins to connect, and only then comes the cut.
            let (sent, ()) = tokio::join!(send(&pool, ONCE), async { pool.cut() });
            assert!(matches!(sent, Sent::Unsent(_, Unsent::Dial(_))));
            assert!(is_over(&pool) && app.seen.requests().is_empty());
        })
        .await;
}

#[tokio::test]
async fn a_pool_that_is_cut_ends_what_runs_and_keeps_nothing() {
    LocalSet::new()
        .run_until(async {
            let silent = |mut raw: Raw, _| async move {
                raw.request().await;
                raw.rest().await;
            };
            let (app, pool) = upstream(silent, |_| {}).await;
            let (sent, ()) = tokio::join!(send(&pool, SAFE), async {
                until("it is connected", || app.seen.connections() == 1).await;
                pool.cut();
            });
            assert!(matches!(sent, Sent::Lost { reused: false, .. } | Sent::Unsent(..)));
            until("the connection ends", || app.seen.ended() == 1).await;
            assert!(is_over(&pool));
            assert!(matches!(send(&pool, SAFE).await, Sent::Unsent(_, Unsent::Dial(_))), "nothing new is opened");
        })
        .await;
}

#[tokio::test]
async fn nothing_is_written_under_a_tenure_that_is_over() {
    LocalSet::new()
        .run_until(async {
            let recording = |mut raw: Raw, seen: std::sync::Arc<Seen>| async move {
                while let Some(request) = raw.request().await {
                    seen.requests.lock().unwrap().push(request);
                    raw.say(ok("hello")).await;
                }
            };
            let app = TestApp::scripted(recording).await;
            let (publisher, roles) = RolePublisher::new();
            let deadline = crate::clock::now() + Duration::from_secs(60);
            publisher.publish(Role::Primary { epoch: Epoch(1), deadline });
            let fence = Fence { roles, epoch: Epoch(1) };
            let pool = Pool::new(app.upstream(), Limits::default(), Some(fence));
            exchange(&pool, SAFE).await;
            publisher.publish(Role::SteppingDown { epoch: Epoch(1), deadline });
            exchange(&pool, SAFE).await;

            // A request that has passed all checks is handed to the library, and the process may be stopped right then.
            publisher.publish(Role::Primary { epoch: Epoch(2), deadline });
            assert!(matches!(send(&pool, ONCE).await, Sent::Lost { .. }));
            assert_eq!(app.seen.requests().len(), 2, "the third was not written");
        })
        .await;
}

#[tokio::test]
async fn an_upstream_that_closes_what_it_just_used_gets_a_new_connection_for_what_must_not_be_repeated() {
    LocalSet::new()
        .run_until(async {
            // It closes after each third answer, and does not say so.
            let hasty = |mut raw: Raw, _| async move {
                for _ in 0..3 {
                    if raw.request().await.is_none() {
                        return;
                    }
                    raw.say(ok("hello")).await;
                }
            };
            let (app, pool) = upstream(hasty, |_| {}).await;
            for round in 0..3 {
                exchange(&pool, SAFE).await;
                until("it is closed, or open for more", || app.seen.ended() == usize::from(round == 2)).await;
            }
            let mut lost = 0;
            for _ in 0..100 {
                match send(&pool, ONCE).await {
                    Sent::Answered(answer, lease) => {
                        answer.into_body().collect().await.unwrap();
                        lease.give_back();
                    }
                    Sent::Lost { reused, .. } => {
                        assert!(reused);
                        lost += 1;
                    }
                    Sent::Unsent(..) | Sent::Refused(_) => panic!("it can be reached"),
                }
            }
            assert!(lost <= 1, "{lost} of 100 were lost");
        })
        .await;
}
