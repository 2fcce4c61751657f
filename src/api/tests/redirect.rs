//! Replicas that send clients to the primary.

use super::rig::*;
use crate::api::Forward;

fn redirecting() -> TestNode {
    TestNode::with(None, |config| config.forward = Forward::Redirect)
}

#[tokio::test]
async fn a_client_of_a_replica_is_sent_to_the_primary_with_its_target_as_it_came() {
    let app = TestApp::hello().await;
    let primary = TestNode::with(Some(&app), |config| config.forward = Forward::Redirect);
    primary.lead(1);
    let replica = redirecting();
    replica.follow(&primary, 1);
    let mut client = replica.client().await;
    for target in ["/", "/a%2Fb/../c?q=select%20*&empty=&a=1&a=2", "//double", "/echo?", "/;v=1"] {
        let answer = client.get(target).await;
        let location = format!("http://{}{target}", primary.address);
        assert_eq!((answer.status(), answer.field("location")), (307, Some(location.as_str())));
        assert_eq!(answer.field("bellwether-primary"), Some(primary.address.to_string().as_str()));
        assert_eq!((answer.field("content-length"), answer.field("connection")), (Some("0"), None));
    }
    let answer = client.get("http://shop.example/x?y").await;
    assert_eq!(answer.field("location"), Some(format!("http://{}/x?y", primary.address).as_str()), "absolute form");
    assert_eq!(outcome(&replica.totals(), "redirected"), 6);
    assert_eq!(app.seen.requests().len(), 0);
    assert_eq!(primary.client().await.get("/").await.text(), "hello", "a primary serves");
    assert_eq!(client.get("/_ping").await.text(), "OK", "and everybody answers for itself");
}

#[tokio::test]
async fn a_body_that_is_on_its_way_is_not_taken_for_the_next_request() {
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let replica = redirecting();
    replica.follow(&primary, 1);
    let mut client = replica.client().await;
    client.say("POST /x HTTP/1.1\r\nHost: test\r\nContent-Length: 40\r\n\r\nGET /hidden HTTP/1.1\r\nHost").await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.field("connection")), (307, Some("close")));
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn without_a_primary_a_client_waits_and_is_then_sent() {
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    let replica = redirecting();
    let mut client = replica.client().await;
    client.say("GET /later HTTP/1.1\r\nHost: test\r\n\r\n").await;
    replica.until("it waits", |totals| totals.held == 1).await;
    primary.lead(1);
    replica.follow(&primary, 1);
    let answer = client.answer().await;
    assert_eq!(answer.field("location"), Some(format!("http://{}/later", primary.address).as_str()));
    assert!(answer.field("server-timing").is_some_and(|timing| timing.starts_with("held;dur=")));
}

#[tokio::test]
async fn what_another_node_passed_on_and_what_has_no_path_is_not_sent_elsewhere() {
    let app = TestApp::hello().await;
    let primary = TestNode::start(Some(&app));
    primary.lead(1);
    let middle = redirecting();
    middle.follow(&primary, 1);
    let replica = TestNode::start(None);
    replica.follow(&middle, 1);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    replica.until("it is refused, and waits for another leader", |totals| totals.held == 1).await;
    assert_eq!(outcome(&middle.totals(), "redirected"), 0);

    let mut client = middle.client().await;
    client.say("OPTIONS * HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "hello");
}

#[tokio::test]
async fn a_leader_s_record_that_points_at_this_node_sends_nobody_in_circles() {
    // B67.
    let replica = redirecting();
    let itself = replica.address.to_string();
    replica.follow_address(&itself, 1);
    let mut client = replica.client().await;
    client.say("GET / HTTP/1.1\r\nHost: test\r\n\r\n").await;
    replica.until("it waits", |totals| totals.held == 1).await;
    assert_eq!(outcome(&replica.totals(), "redirected"), 0);
}
