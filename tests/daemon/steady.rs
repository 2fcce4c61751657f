//! B98, the other half: whoever reads slowly gets everything, in either direction and version of HTTP and at each of the three places, and no
//! node keeps much of it meanwhile, however much faster it comes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as _, Frame, Incoming};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::support::bulk::{PIECE, Pattern};
use crate::support::daemon::Daemon;
use crate::support::http::{Body, Method, request};
use crate::support::places::Places;
use crate::support::spoken::{Connection, Speaker, Spoken, whole};
use crate::support::within;

const LIMIT: Duration = Duration::from_secs(120);
/// How much goes each way, on each connection.
const SIZE: u64 = 24 * 1024 * 1024;
/// How long a reader rests behind each piece: far longer than a piece takes to come.
const REST: Duration = Duration::from_millis(5);
/// How much a node may grow, in KiB, for all that passes it at once: several times as much would come in a moment.
const MOST: u64 = 32 * 1024;

/// Reads all of a pattern, and rests in between. Gives how much of it came.
async fn read_slowly(mut body: Incoming, pattern: &Pattern) -> u64 {
    let (mut read, mut rested) = (0, 0);
    while let Some(frame) = within("more of it", LIMIT, body.frame()).await {
        let Ok(bytes) = frame.expect("it goes on").into_data() else { continue };
        pattern.assert_at(read, &bytes);
        read += bytes.len() as u64;
        while rested + PIECE as u64 <= read {
            rested += PIECE as u64;
            sleep(REST).await;
        }
    }
    read
}

fn all_of(pattern: &Pattern, given: &Arc<AtomicU64>) -> Body {
    let given = Arc::clone(given);
    let pieces = pattern.clone().pieces().map(move |piece| {
        given.fetch_add(piece.len() as u64, Ordering::Relaxed);
        Ok(Frame::data(piece))
    });
    StreamBody::new(stream::iter(pieces)).boxed()
}

#[tokio::test]
async fn a_slow_reader_gets_everything_and_costs_no_node_much() {
    let pattern = Pattern::new(SIZE);
    let given = Arc::<AtomicU64>::default();
    let mut apps = Vec::new();
    for _ in 0..2 {
        let (pattern, given) = (pattern.clone(), Arc::clone(&given));
        let answer = move |request: Request<Incoming>| {
            let (pattern, given) = (pattern.clone(), Arc::clone(&given));
            async move {
                let uploads = !request.body().is_end_stream();
                let answer =
                    if uploads { whole(read_slowly(request.into_body(), &pattern).await.to_string()) } else { all_of(&pattern, &given) };
                Response::new(answer)
            }
        };
        apps.push(Speaker::start(Spoken::Http1, answer).await);
    }
    let places = Places::apart([&apps[0].url, &apps[1].url], |manage| manage).await;
    let nodes = [&places.clear.primary, &places.clear.replica, &places.mutual.primary, &places.mutual.replica];
    let idle = nodes.map(Daemon::resident);
    nodes.iter().for_each(|node| node.forget_peak());
    let mut running = JoinSet::new();
    for place in places.each() {
        for spoken in Spoken::BOTH {
            let (place, pattern, given) = (place.clone(), pattern.clone(), Arc::clone(&given));
            running.spawn(async move {
                let (mut up, mut down) = (Connection::open(&place, spoken).await, Connection::open(&place, spoken).await);
                let upload = request(Method::PUT, "/", "").map(|_| all_of(&pattern, &given));
                let download = async {
                    let answer = down.start(request(Method::GET, "/", "")).await.expect("an answer");
                    read_slowly(answer.into_body(), &pattern).await
                };
                let (taken, read) = tokio::join!(up.send(upload), download);
                assert_eq!((taken.text(), read), (SIZE.to_string().as_str(), SIZE), "{spoken:?} at {place}");
            });
        }
    }
    let ended = async {
        while let Some(ended) = running.join_next().await {
            ended.expect("everything has come");
        }
    };
    within("all of it", LIMIT, ended).await;
    assert_eq!(given.load(Ordering::Relaxed), SIZE * 12, "each was read by somebody");
    for (node, idle) in nodes.into_iter().zip(idle) {
        let more = node.peak().saturating_sub(idle);
        assert!(more < MOST, "{} at {} took {more} KiB more than idle", node.name(), node.place());
    }
}
