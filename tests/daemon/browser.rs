//! A page in a real browser, through a node: all that pages do, and a planned change of primary in the middle of it.

use std::time::Duration;

use serde_json::Value;

use crate::support::browser::{self, Browser};
use crate::support::daemon::{Daemon, Manage};
use crate::support::interop::Served;
use crate::support::pair::Pair;
use crate::support::secure::World;
use crate::support::{wait_for, within};

/// How long a browser may take to start, and its page to do all that it does, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);
/// Short, as the page reads events until it is told to connect again; and no request may give up meanwhile.
const PATIENT: [&str; 4] = ["--drain-timeout", "2s", "--hold-timeout", "60s"];

/// What the page does.
const CASES: [&str; 20] = [
    "get, query as it is",
    "post of 5 MB and back",
    "upload in pieces",
    "form with files",
    "other methods",
    "stream, piece by piece",
    "compressed, and in part",
    "an answer that breaks off",
    "a stream that the page leaves",
    "events, one by one and after a break",
    "websocket, echo and close",
    "cookies, each by itself",
    "redirects",
    "cache, asked again",
    "thirty at once",
    "an order to the node is refused, on a page",
    "requests before the change",
    "requests during the change",
    "websocket over the change",
    "events over the change",
];

/// How many WebSockets that takes.
const WEBSOCKETS: usize = 4;

/// Two nodes that may both lead, in front of the page's app.
struct Stage {
    app: Served,
    pair: Pair,
}

impl Stage {
    async fn set(own: impl Fn(Manage) -> Manage) -> Self {
        let app = browser::app().await;
        let upstream = format!("http://127.0.0.1:{}", app.port);
        let own = |manage: Manage| {
            let manage = own(manage.with(PATIENT));
            if manage.name == "replica" { manage.with(["--upstream", &upstream]) } else { manage }
        };
        let pair = Pair::start_with(&upstream, own).await;
        Self { app, pair }
    }

    /// Has the primary resign once the page is ready for it, waits for the page's report, and returns which protocol
    /// it was served in.
    ///
    /// # Panics
    /// When a case is missing, or went wrong.
    async fn play(&mut self) -> String {
        let mut said = within("all before the change", LIMIT, self.app.running.line()).await;
        if said == "ready" {
            let resigned = self.pair.primary.resign().await;
            assert_eq!(resigned.status, 200, "{}", resigned.text());
            said = within("the page's report", LIMIT, self.app.running.line()).await;
        }
        let report: Vec<Value> = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        let failed: Vec<&Value> = report.iter().filter(|case| case["ok"] != true).collect();
        assert!(failed.is_empty(), "{failed:#?}");
        let cases: Vec<&str> = report.iter().filter_map(|case| case["case"].as_str()).collect();
        assert_eq!(cases, CASES);
        report[0]["detail"].as_str().expect("a protocol").to_owned()
    }
}

#[tokio::test]
async fn a_page_works_at_a_primary_that_becomes_a_replica() {
    let mut stage = Stage::set(|manage| manage).await;
    let _browser = Browser::open(&format!("http://{}/page", stage.pair.primary.address()), None);
    assert_eq!(stage.play().await, "http/1.1");
}

#[tokio::test]
async fn a_page_works_at_a_replica_that_becomes_the_primary() {
    let mut stage = Stage::set(|manage| manage).await;
    let _browser = Browser::open(&format!("http://{}/page", stage.pair.replica.address()), None);
    assert_eq!(stage.play().await, "http/1.1");
}

/// By HTTP/2, as TLS lets a browser have it.
#[tokio::test]
async fn a_page_over_tls_works_at_a_primary_that_becomes_a_replica() {
    over_tls(|pair| &pair.primary).await;
}

#[tokio::test]
async fn a_page_over_tls_works_at_a_replica_that_becomes_the_primary() {
    over_tls(|pair| &pair.replica).await;
}

/// The nodes ask nobody for a certificate, as a browser that nobody looks at can be given none.
async fn over_tls(node: impl Fn(&Pair) -> &Daemon) {
    let world = World::new();
    let files = world.node("node");
    let mut stage = Stage::set(|manage| manage.secured("--tls", &files, &world.secure())).await;
    let browser = Browser::open(&format!("https://{}/page", node(&stage.pair).address()), Some(&files));
    assert_eq!(stage.play().await, "h2");
    wait_for("the browser to write down that its WebSockets were streams", LIMIT, async || match browser.websocket_streams() {
        WEBSOCKETS => Ok(()),
        other => Err(other),
    })
    .await;
}
