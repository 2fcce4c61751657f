//! Errors of ours: the same head and the same body, whichever part of a node says them.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use crate::support::app::App;
use crate::support::daemon::Info;
use crate::support::http::{Client, Method, request, with};
use crate::support::ledger::Ledger;
use crate::support::place::Place;
use crate::support::places::Places;
use crate::support::port;
use crate::support::raw::{Origin, Raw, header};

/// An error's head, and what it says in JSON.
struct Told {
    head: String,
    said: Value,
}

impl Told {
    async fn by(client: &mut Raw) -> Self {
        let (head, body) = client.answer().await;
        Self { said: serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {head}{body}")), head }
    }

    /// # Panics
    /// Unless it is the error that is named, by a node that knows the primary of `info`.
    fn assert_is(&self, status: u16, reason: &str, proxy_error: &str, info: &Info) {
        let Self { head, said } = self;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && said["reason"] == reason, "{status} {reason}: {head}{said}");
        assert_eq!(header(head, "proxy-status"), Some(format!("bellwether; error={proxy_error}").as_str()), "{head}");
        assert_eq!(header(head, "bellwether-primary"), Some(info.primary.as_str()), "{head}");
        assert_eq!(header(head, "retry-after").is_some(), status == 503, "{head}");
        assert_eq!((&said["primary"], &said["epoch"]), (&info.primary.as_str().into(), &info.epoch.into()), "{said}");
    }
}

#[tokio::test]
async fn errors_of_the_own_routes_are_errors_like_any_other() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for node in places.nodes() {
        let info = node.info().await;
        // Whoever has the right to a verb, as a user's certificate gives it, is told why it cannot be done.
        let resign = if node.place().tls.is_some() {
            (409, "not-primary", "proxy_internal_response")
        } else {
            (403, "forbidden", "http_request_denied")
        };
        for (method, path, (status, reason, proxy_error)) in [
            ("GET", "/_bellwether/nothing", (404, "not-found", "proxy_internal_response")),
            ("DELETE", "/info", (405, "method-not-allowed", "proxy_internal_response")),
            ("GET", "/_bellwether/nodes", (501, "not-in-this-version", "proxy_internal_response")),
            ("POST", "/_bellwether/resign", resign),
        ] {
            let mut client = Raw::connect(node.place()).await;
            client.send(format!("{method} {path} HTTP/1.1\r\nHost: service\r\nContent-Length: 0\r\n\r\n")).await;
            Told::by(&mut client).await.assert_is(status, reason, proxy_error, &info);
        }
        // What a load balancer polls is a state, and no error.
        let route = if info.role == "primary" { "/_bellwether/replica" } else { "/_bellwether/primary" };
        let state = Client::new(node.place()).send(request(Method::GET, route, "")).await.unwrap();
        assert_eq!((state.status.as_u16(), state.header("proxy-status"), state.header("retry-after")), (503, "", ""), "{state:?}");
        assert_eq!(state.json()["role"], info.role);
    }
}

/// The node in front of the app decides, and what it says reaches the client through any other.
#[tokio::test]
async fn an_app_that_does_not_begin_to_answer_is_given_up() {
    let origin = Origin::bind().await;
    let places = Places::with(&format!("http://{}", origin.address()), |manage| manage.with(["--upstream-timeout", "2s"])).await;
    for node in places.nodes() {
        let info = node.info().await;
        for request in ["GET / HTTP/1.1\r\nHost: service\r\n\r\n", "POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 4\r\n\r\nbody"] {
            let mut client = Raw::connect(node.place()).await;
            client.send(request).await;
            let mut app = origin.accept().await;
            app.head().await;
            let told = Told::by(&mut client).await;
            told.assert_is(504, "upstream-timeout", "http_response_timeout", &info);
            assert_eq!(told.said["verdict"], "maybe-executed");
            app.rest().await;
        }
    }
    assert!(origin.is_left_alone(Duration::from_millis(100)).await, "nothing was sent twice");
    for (primary, timeouts) in [(&places.clear.primary, 4.0), (&places.mutual.primary, 2.0)] {
        assert_eq!(primary.metrics().await.value("requests_total{outcome=\"failed_upstream_timeout\"}"), timeouts);
    }
    for replica in [&places.clear.replica, &places.mutual.replica] {
        let metrics = replica.metrics().await;
        assert_eq!(metrics.value("requests_total{outcome=\"failed_upstream_timeout\"}"), 0.0, "a replica passes on what it is told");
        assert_eq!(replica.info().await.role, "replica");
        assert!(!replica.log().contains("stopped answering"), "{}", replica.log());
    }
}

/// Nothing of the request has left: it can be sent again, also where that would not be safe.
#[tokio::test]
async fn an_app_that_is_not_there_has_seen_nothing() {
    let nobody = port::free();
    let places = Places::of(nobody).await;
    for node in places.nodes() {
        let mut client = Raw::connect(node.place()).await;
        client.send("POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 4\r\n\r\nbody").await;
        let told = Told::by(&mut client).await;
        told.assert_is(502, "upstream-failed", "destination_unavailable", &node.info().await);
        assert_eq!(told.said["verdict"], "not-sent");
        let page = Client::new(node.place()).send(with(request(Method::GET, "/", ""), "accept", "text/html,*/*;q=0.8")).await.unwrap();
        assert_eq!((page.status.as_u16(), page.header("content-type")), (502, "text/html; charset=utf-8"));
        assert!(page.text().contains("upstream-failed") && page.text().contains("not-sent: "), "{}", page.text());
    }
}

#[tokio::test]
async fn a_wait_in_vain_says_how_long_it_was_and_when_to_come_back() {
    let app = App::start("a", &Ledger::default()).await;
    let mut places = Places::of(app.address()).await;
    for pair in [&mut places.clear, &mut places.mutual] {
        let info = pair.replica.info().await;
        pair.primary.kill().await;
        let mut client = Raw::connect(pair.replica.place()).await;
        client.send("POST / HTTP/1.1\r\nHost: service\r\nContent-Length: 4\r\nPrefer: wait=1\r\n\r\nbody").await;
        let told = Told::by(&mut client).await;
        told.assert_is(503, "no-primary", "destination_unavailable", &info);
        assert_eq!(told.said["verdict"], "not-sent");
        assert!(header(&told.head, "server-timing").is_some_and(|timing| timing.starts_with("held;dur=")), "{}", told.head);
    }
}

#[tokio::test]
async fn what_is_said_before_a_head_was_read_names_the_primary_too() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::with(&format!("http://{}", app.address()), |manage| manage.with(["--header-timeout", "5s"])).await;
    join_all(places.nodes().map(|node| async {
        let mut slow = Raw::connect(node.place()).await;
        slow.send("GET / HTTP/1.1\r\nHost: ser").await;
        Told::by(&mut slow).await.assert_is(408, "request-timeout", "http_request_error", &node.info().await);
    }))
    .await;
    for node in [&places.mutual.primary, &places.mutual.replica] {
        let address: SocketAddr = node.address();
        let mut plain = Raw::connect(Place::from(address)).await;
        plain.send("GET / HTTP/1.1\r\nHost: service\r\n\r\n").await;
        Told::by(&mut plain).await.assert_is(400, "bad-request", "http_request_error", &node.info().await);
    }
}
