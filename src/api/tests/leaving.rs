//! Clients that leave, apps that break off, and readers that are slow.

use super::rig::*;
use std::time::Duration;

#[tokio::test]
async fn a_client_that_leaves_is_noticed_by_the_app_through_both_hops() {
    // B99.
    let app = TestApp::scripted(|mut raw, seen| async move {
        let request = raw.request().await.unwrap();
        seen.requests.lock().unwrap().push(request);
        raw.rest().await;
    })
    .await;
    is_left_after(&app, "GET /slow HTTP/1.1\r\nHost: test\r\n\r\n").await;
}

#[tokio::test]
async fn a_client_that_breaks_off_its_body_has_left() {
    let app = TestApp::scripted(|mut raw, seen| async move {
        let request = raw.head().await.unwrap();
        seen.requests.lock().unwrap().push(request);
        raw.rest().await;
    })
    .await;
    is_left_after(&app, "POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nabc").await;
}

#[tokio::test]
async fn a_client_that_leaves_behind_an_upload_that_the_app_does_not_read_is_noticed() {
    // Nobody reads the client's connection then. It is reset: an end waits behind what was sent, for as long as TCP has no
    // room for that.
    let app = TestApp::scripted(|mut raw, seen| async move {
        let request = raw.head().await.unwrap();
        seen.requests.lock().unwrap().push(request);
        // Ready as soon as the connection is reset, whatever could still be read.
        raw.stream.ready(tokio::io::Interest::ERROR).await.unwrap();
    })
    .await;
    let (primary, replica) = chain(&app);
    for (count, way) in [(1, &primary), (2, &replica)] {
        let mut client = way.client().await;
        client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 500000000\r\n\r\n").await;
        socket2::SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
        let (reading, writing) = client.stream.into_split();
        let sending = sending(writing, vec![b'x'; 100_000_000]);
        until("the upload has begun", || app.seen.requests().len() == count).await;
        // Standing still for a while is the state that is waited for.
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop((sending, reading));
        until("the app's connection ends", || app.seen.ended() == count).await;
    }
    primary.until("both count as left", |totals| outcome(totals, "left") == 2 && totals.running == 0).await;
    replica.until("it counts as left", |totals| outcome(totals, "left") == 1 && totals.running == 0).await;
}

/// Leaves when the app has seen what was `said` through both hops: the app is told, and both nodes count it as left.
async fn is_left_after(app: &TestApp, said: &str) {
    let (primary, replica) = chain(app);
    let mut client = replica.client().await;
    client.say(said).await;
    until("the app has it", || app.seen.requests().len() == 1).await;
    drop(client);
    until("the app's connection ends", || app.seen.ended() == 1).await;
    for node in [&primary, &replica] {
        node.until("it counts as left", |totals| outcome(totals, "left") == 1 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_breaks_off_for_the_client() {
    let app = TestApp::scripted(|mut raw, _| async move {
        let request = raw.request().await.unwrap();
        let framing =
            if request.target() == "/length" { "Content-Length: 10\r\n\r\nabc" } else { "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n" };
        raw.say(format!("HTTP/1.1 200 OK\r\n{framing}")).await;
    })
    .await;
    let (primary, replica) = chain(&app);
    for target in ["/length", "/chunked"] {
        let mut client = replica.client().await;
        client.say(format!("GET {target} HTTP/1.1\r\nHost: test\r\n\r\n")).await;
        let head = client.head().await.unwrap();
        assert_eq!(head.status(), 200);
        let rest = client.rest().await;
        assert!(!rest.ends_with(b"0\r\n\r\n") && rest.len() < 10, "{target}: {rest:?}");
    }
    for node in [&primary, &replica] {
        node.until("both count as cut", |totals| outcome(totals, "failed_cut") == 2 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_slow_reader_holds_the_app_back_and_fills_no_memory() {
    // B98: the app's writer blocks long before the whole answer has been taken in.
    const LENGTH: usize = 256 * 1024 * 1024;
    let app = TestApp::scripted(|mut raw, seen| async move {
        raw.request().await;
        raw.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n")).await;
        let piece = vec![b'x'; 64 * 1024];
        for _ in 0..LENGTH / piece.len() {
            if tokio::io::AsyncWriteExt::write_all(&mut raw.stream, &piece).await.is_err() {
                return;
            }
            seen.requests.lock().unwrap().push(Message::default());
        }
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    let mut before = usize::MAX;
    let written = || app.seen.requests().len() * 64 * 1024;
    // Standing still for a while is the state that is waited for.
    while written() != before {
        before = written();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(before < LENGTH / 4, "{before} bytes were taken in for a client that reads none");
}

#[tokio::test]
async fn an_early_answer_reaches_a_client_that_is_still_sending() {
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        raw.say("HTTP/1.1 413 Content Too Large\r\nConnection: close\r\nContent-Length: 3\r\n\r\nbig").await;
    })
    .await;
    let (_primary, replica) = chain(&app);
    let mut client = replica.client().await;
    client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 500000000\r\n\r\n").await;
    let (mut reading, writing) = client.stream.into_split();
    let _sending = sending(writing, vec![b'x'; 3_000_000]);
    let mut heard = Vec::new();
    while !heard.ends_with(b"big") {
        let read = tokio::io::AsyncReadExt::read_buf(&mut reading, &mut heard).await.unwrap();
        assert!(read > 0, "the answer is lost: {}", String::from_utf8_lossy(&heard));
    }
    let heard = String::from_utf8(heard).unwrap().to_lowercase();
    assert!(heard.starts_with("http/1.1 413") && heard.contains("\r\nconnection: close\r\n"), "{heard}");
}

#[tokio::test]
async fn an_app_that_breaks_off_an_upload_leaves_no_connection_behind() {
    // The write that waits for the app is what meets the broken connection, and nobody reads any more.
    let app = TestApp::scripted(|mut raw, _| async move {
        raw.head().await;
        // The upload comes to a stand.
        tokio::time::sleep(Duration::from_millis(300)).await;
    })
    .await;
    let (primary, replica) = chain(&app);
    for way in [&primary, &replica] {
        let mut client = way.client().await;
        client.say("POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 500000000\r\n\r\n").await;
        let (mut reading, writing) = client.stream.into_split();
        let _sending = sending(writing, vec![b'x'; 100_000_000]);
        let mut heard = Vec::new();
        while !heard.ends_with(b"}\n") && tokio::io::AsyncReadExt::read_buf(&mut reading, &mut heard).await.unwrap_or(0) > 0 {}
        assert!(String::from_utf8_lossy(&heard).contains(r#""verdict":"maybe-executed""#), "{}", String::from_utf8_lossy(&heard));
    }
    // Their clients have left; what stays is what the replica keeps for its next request.
    for node in [&primary, &replica] {
        node.until("every connection is closed", |totals| totals.connections == 0 && totals.running == 0).await;
    }
}

#[tokio::test]
async fn a_malformed_body_is_refused_and_nothing_of_it_passes_for_the_next_request() {
    // B93: its beginning has been passed on, so that the app may have acted on it.
    let app = TestApp::scripted(|mut raw, seen| async move {
        let request = raw.head().await.unwrap();
        seen.requests.lock().unwrap().push(request);
        raw.rest().await;
    })
    .await;
    let (primary, replica) = chain(&app);
    let mut sent = 0;
    for node in [&primary, &replica] {
        for chunk in ["xyz\r\n", "3\r\nabcd\r\n", "-1\r\n\r\n"] {
            let mut client = node.client().await;
            client.say("POST / HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n").await;
            sent += 1;
            until("the app has its head", || app.seen.requests().len() == sent).await;
            client.say(format!("{chunk}GET /second HTTP/1.1\r\nHost: test\r\n\r\n")).await;
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.json()["reason"].as_str()), (400, Some("bad-request")), "{chunk:?}");
            assert_eq!(answer.json()["verdict"], "maybe-executed");
            assert!(client.is_closed().await);
        }
    }
    assert!(app.seen.requests().iter().all(|request| request.target() == "/"), "no second request was seen");
}
