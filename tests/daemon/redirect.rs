//! Replicas that send clients to the primary, and curl, which goes there.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::support::app::App;
use crate::support::daemon::Manage;
use crate::support::frames::{DATA, END_HEADERS, END_STREAM, Frames, GOAWAY, HEADERS, PING, RST_STREAM, block, frame};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::secure::World;
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);
const REDIRECT: [&str; 2] = ["--forward", "redirect"];
const TARGET: &str = "/echo/a%2Fb?q=x%20y&q=";

/// What curl prints.
///
/// # Panics
/// When it fails.
async fn curl(arguments: &[&str]) -> String {
    let mut command = Command::new("curl");
    command.args(["--silent", "--show-error"]).args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output =
        within("curl", LIMIT, command.output()).await.unwrap_or_else(|error| panic!("start curl, of the Debian package curl: {error}"));
    let [said, complaints] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "curl {arguments:?}: {said}{complaints}");
    said
}

/// Asks the replica, without going where it says and then with, by every version that curl has.
async fn goes_to_the_primary(pair: &Pair, scheme: &str, own: &[&str], versions: &[&str]) {
    let [primary, replica] = pair.ways().map(|way| format!("{scheme}://{way}{TARGET}"));
    for version in versions {
        let ask = async |more: &[&str]| curl(&[own, &[*version, &replica], more].concat()).await;
        let said = ask(&["--data", "an order", "--output", "/dev/null", "--write-out", "%{http_code} %{redirect_url}"]).await;
        assert_eq!(said, format!("307 {primary}"), "{version}");

        let said =
            ask(&["--location", "--request", "PUT", "--data", "an order", "--write-out", "\n%{num_redirects} %{url_effective}"]).await;
        let (seen, went) = said.rsplit_once('\n').expect("an answer, and how it was come by");
        assert_eq!(went, format!("1 {primary}"), "{version}");
        let seen: Value = serde_json::from_str(seen).unwrap_or_else(|error| panic!("{error}: {seen}"));
        assert_eq!((&seen["method"], &seen["target"], &seen["body"]), (&"PUT".into(), &TARGET.into(), &"an order".into()), "{version}");
    }
}

#[tokio::test]
async fn curl_goes_to_the_primary_with_method_and_body() {
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start_with(&format!("http://{}", app.address()), |manage| manage.with(REDIRECT)).await;
    goes_to_the_primary(&pair, "http", &[], &["--http1.1", "--http2-prior-knowledge"]).await;
}

#[tokio::test]
async fn curl_goes_to_the_primary_over_tls() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let [ca, cert, key] = [&world.user.ca, &world.user.cert, &world.user.key].map(|file| file.to_str().expect("a path in UTF-8"));
    // At both nodes, as curl shows what it has to whoever asks.
    for (flag, shown) in [("--tls", &[][..]), ("--tlsverify", &["--cert", cert, "--key", key])] {
        let own = |manage: Manage| {
            let files = world.node(&manage.name);
            manage.with(REDIRECT).with(["--access-log", "json"]).secured(flag, &files, &world.secure())
        };
        let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
        goes_to_the_primary(&pair, "https", &[&["--cacert", ca], shown].concat(), &["--http1.1", "--http2"]).await;
        let lines = wait_for("a line of each request", LIMIT, async || {
            let log = pair.replica.access_log();
            let lines = log.lines().filter(|line| line.contains(TARGET)).map(str::to_owned).collect::<Vec<_>>();
            if lines.len() == 4 { Ok(lines) } else { Err(log) }
        })
        .await;
        for line in lines {
            let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            assert_eq!((&line["status"], &line["outcome"], &line["verdict"]), (&307.into(), &"redirected".into(), &Value::Null), "{line}");
        }
    }
}

/// An answer that needs no body is not followed by a reset while that body is on its way: curl 7.88 would lose the answer.
#[tokio::test]
async fn a_body_that_nobody_needs_is_heard_out_over_http2() {
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start_with(&format!("http://{}", app.address()), |manage| manage.with(REDIRECT)).await;
    let mut client = Frames::begin(&pair.replica.place()).await;
    let cases = [("/order", "service", 307), ("/_bellwether/nothing", "service", 404), ("/order", "a:b", 400)];
    for (stream, (path, authority, status)) in (1..).step_by(2).zip(cases) {
        let head = block(&[(":method", "POST"), (":scheme", "http"), (":authority", authority), (":path", path), ("content-length", "8")]);
        client.send(frame(HEADERS, END_HEADERS, stream, head)).await;
        let answer = client.find(|seen| seen.stream == stream).await.expect("an answer");
        assert_eq!(answer.status(), Some(status), "{answer:?}");
        for sent in [Vec::new(), frame(DATA, END_STREAM, stream, "an order")] {
            client.send([sent, frame(PING, 0, 0, [7; 8])].concat()).await;
            let next = client.find(|seen| matches!(seen.kind, RST_STREAM | GOAWAY | PING)).await.expect("an echo");
            assert_eq!(next.kind, PING, "{path}: {next:?}");
        }
    }
}
