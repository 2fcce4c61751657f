//! Requests and answers pass through one hop or two as if there were none.

use super::rig::*;

#[tokio::test]
async fn any_node_answers_through_the_primary() {
    let app = TestApp::hello().await;
    let (primary, replica) = chain(&app);
    for node in [&primary, &replica] {
        let mut client = node.client().await;
        let answer = client.get("/path?query").await;
        assert_eq!((answer.status(), answer.text()), (200, "hello"));
        assert_eq!(answer.field("bellwether-epoch"), Some("1"));
        assert_eq!(answer.field("bellwether-primary"), Some(primary.node.address.as_str()));
        assert_eq!(app.last().line, "GET /path?query HTTP/1.1");
        assert_eq!(app.last().field("bellwether-epoch"), Some("1"));
        assert_eq!(app.last().field("bellwether-hop"), None);

        let answer = client.post("/", b"some body").await;
        assert_eq!((answer.status(), answer.text()), (200, "hello"));
        assert_eq!(app.last().text(), "some body");
        node.until("both are counted", |totals| outcome(totals, "answered") >= 2 && totals.running == 0).await;
    }
}
