use std::future::poll_fn;

use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinSet;

use super::*;

/// The library's body of a message that the test writes, as far as it has been written.
struct Script {
    far_end: DuplexStream,
    _connection: JoinSet<()>,
}

impl Script {
    /// A body of `length` bytes, of which none has come yet.
    async fn body(length: usize) -> (Self, Incoming) {
        let (near_end, mut far_end) = tokio::io::duplex(1024 * 1024);
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake::<_, http_body_util::Empty<Bytes>>(TokioIo::new(near_end)).await.unwrap();
        let mut driving = JoinSet::new();
        driving.spawn(async move { drop(connection.await) });
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        let (message, ()) = tokio::join!(sender.send_request(http::Request::new(http_body_util::Empty::new())), async {
            // Not before the library has asked.
            far_end.read_u8().await.unwrap();
            far_end.write_all(head.as_bytes()).await.unwrap();
        });
        let message = message.unwrap();
        (Self { far_end, _connection: driving }, message.into_body())
    }

    async fn write(&mut self, bytes: &[u8]) {
        self.far_end.write_all(bytes).await.unwrap();
    }
}

async fn ahead(feed: &Feed, room: usize) -> usize {
    let mut read = 0;
    poll_fn(|cx| {
        feed.poll_ahead(cx, &mut |bytes| {
            read += bytes;
            read < room
        })
    })
    .await;
    read
}

async fn whole(body: RequestBody) -> Bytes {
    body.collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_body_starts_over_with_each_attempt() {
    // B90.
    let (mut script, incoming) = Script::body(6).await;
    let feed = Feed::new(incoming, false);
    let mut first = feed.next_turn(true).unwrap();
    assert_eq!(first.size_hint().exact(), Some(6));
    script.write(b"abc").await;
    assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
    let second = feed.next_turn(true).unwrap();
    assert_eq!(second.size_hint().exact(), Some(6));
    assert!(matches!(first.frame().await, Some(Err(BodyError::Revoked))), "the first attempt can take nothing from the second");
    script.write(b"def").await;
    assert_eq!(whole(second).await, "abcdef");
    assert_eq!(whole(feed.next_turn(true).unwrap()).await, "abcdef");
}

#[tokio::test]
async fn a_body_that_was_not_remembered_is_never_sent_short() {
    let (mut script, incoming) = Script::body(6).await;
    let feed = Feed::new(incoming, false);
    drop(feed.next_turn(false).unwrap());
    let mut only = feed.next_turn(false).unwrap();
    script.write(b"abc").await;
    only.frame().await.unwrap().unwrap();
    assert!(!feed.is_whole());
    assert!(feed.next_turn(true).is_none(), "its beginning is gone");
}

#[tokio::test]
async fn no_more_than_the_limit_is_remembered() {
    let (mut script, incoming) = Script::body(KEPT * 2).await;
    let feed = Feed::new(incoming, false);
    let body = feed.next_turn(true).unwrap();
    script.write(&vec![b'x'; KEPT * 2]).await;
    assert_eq!(whole(body).await.len(), KEPT * 2, "it streams all the same");
    assert!(feed.next_turn(true).is_none());
    assert_eq!(feed.state.borrow().kept_bytes, 0);
}

#[tokio::test]
async fn what_was_read_ahead_is_sent_first() {
    let (mut script, incoming) = Script::body(KEPT * 2).await;
    let feed = Feed::new(incoming, false);
    script.write(&vec![b'x'; KEPT * 2]).await;
    let read = ahead(&feed, usize::MAX).await;
    assert!((KEPT..KEPT * 2).contains(&read), "{read} bytes read ahead");
    assert_eq!(whole(feed.next_turn(true).unwrap()).await.len(), KEPT * 2);
}

#[tokio::test]
async fn reading_ahead_stops_where_there_is_no_room() {
    let (mut script, incoming) = Script::body(10).await;
    let feed = Feed::new(incoming, false);
    script.write(b"hello").await;
    assert_eq!(ahead(&feed, 5).await, 5);
    script.write(b"there").await;
    assert_eq!(whole(feed.next_turn(true).unwrap()).await, "hellothere");
}

#[tokio::test]
async fn a_client_that_breaks_off_is_told_apart() {
    let (mut script, incoming) = Script::body(10).await;
    let feed = Feed::new(incoming, false);
    script.write(b"hello").await;
    drop(script.far_end);
    let body = feed.next_turn(true).unwrap();
    assert!(matches!(body.collect().await, Err(BodyError::Client(_))));
    assert!(feed.is_broken() && feed.is_unfinished());
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_client_that_waits_is_not_touched_for_a_second() {
    // B85.
    let (mut script, incoming) = Script::body(2).await;
    let feed = Feed::new(incoming, true);
    script.write(b"hi").await;
    assert_eq!(ahead(&feed, usize::MAX).await, 0, "not in the hold either");
    let asked = tokio::time::Instant::now();
    assert_eq!(whole(feed.next_turn(true).unwrap()).await, "hi");
    assert_eq!(asked.elapsed().as_secs(), 1);
    assert!(!feed.is_awaited());
}

#[tokio::test(start_paused = true)]
async fn a_go_ahead_opens_the_way_at_once_and_for_every_later_attempt() {
    let (mut script, incoming) = Script::body(2).await;
    let feed = Feed::new(incoming, true);
    script.write(b"hi").await;
    let asked = tokio::time::Instant::now();
    let go_ahead = feed.go_ahead().unwrap();
    let body = feed.next_turn(true).unwrap();
    let (sent, ()) = tokio::join!(whole(body), async { go_ahead.give() });
    assert_eq!(sent, "hi");
    assert_eq!(whole(feed.next_turn(true).unwrap()).await, "hi");
    assert!(asked.elapsed().is_zero());
}

#[tokio::test]
async fn an_attempt_that_is_given_up_ends_while_it_waits() {
    let (_script, incoming) = Script::body(2).await;
    let feed = Feed::new(incoming, true);
    let body = feed.next_turn(true).unwrap();
    let (sent, ()) = tokio::join!(body.collect(), async { feed.revoke() });
    assert!(matches!(sent, Err(BodyError::Revoked)));
}
