//! `Expect: 100-continue` in both hops (B85): no stall, no 100 that the app did not mean, and a refusal before the body.

use super::rig::*;
use std::time::Duration;

const ASK: &str = "POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n";

#[tokio::test]
async fn a_client_may_send_its_body_once_the_app_agrees() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        let mut request = raw.head().await.unwrap();
        assert!(raw.heard.is_empty(), "no body before the 100");
        raw.say("HTTP/1.1 100 Continue\r\n\r\n").await;
        request.body = raw.exactly(5).await;
        seen.requests.lock().unwrap().push(request);
        raw.say(ok("thanks")).await;
        raw.rest().await;
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    client.say("hello").await;
    assert_eq!(client.answer().await.text(), "thanks");
    assert_eq!(app.last().text(), "hello");
}

#[tokio::test]
async fn a_refusal_comes_before_the_body_and_ends_both_connections() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        raw.say("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 2\r\n\r\nno").await;
        assert_eq!(raw.rest().await, b"", "no body is ever sent");
    })
    .await;
    let (primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say(ASK).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.text()), (417, "no"));
    assert_eq!(answer.field("connection"), Some("close"), "the body was never asked for");
    assert!(client.is_closed().await, "whether a body follows is not known any more");
    until("the app's connection ends", || app.seen.ended() == 1).await;
    until("the inner connection ends", || primary.totals().connections == 0).await;
}

#[tokio::test]
async fn an_app_that_ignores_the_question_gets_the_body_after_a_second() {
    let app = TestApp::answering(|request| ok(request.text())).await;
    let (_primary, replica) = chain(&app);
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let mut client = replica.client().await;
        client.say(ASK).await;
        let asked = tokio::time::Instant::now();
        assert_eq!(client.head().await.unwrap().status(), 100);
        quickest = quickest.min(asked.elapsed());
        client.say("hello").await;
        assert_eq!(client.answer().await.text(), "hello");
        if quickest < Duration::from_millis(1_900) {
            return;
        }
    }
    // A busy machine makes some slow; hops that wait one after the other make all slow.
    panic!("{quickest:?} at the quickest");
}

#[tokio::test]
async fn a_held_client_gets_no_100_before_there_is_a_primary() {
    let app = TestApp::answering(|request| ok(request.text())).await;
    let node = TestNode::start(Some(&app));
    let mut client = node.client().await;
    client.say(ASK).await;
    node.until("it is held", |totals| totals.held == 1).await;
    let early = tokio::time::timeout(Duration::from_millis(1_300), client.head()).await;
    assert!(early.is_err(), "{early:?}");
    node.lead(1);
    assert_eq!(client.head().await.unwrap().status(), 100);
    client.say("hello").await;
    assert_eq!(client.answer().await.text(), "hello");
}
