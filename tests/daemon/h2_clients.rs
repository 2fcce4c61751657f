//! Clients that speak HTTP/2 and that nobody here wrote: curl, nghttp, h2load and httpx, through one hop and two, in the clear
//! and over mutual TLS.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use crate::support::adapter::Adapter;
use crate::support::app::App;
use crate::support::daemon::Manage;
use crate::support::interop::{HTTPX, httpx};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::places::Places;
use crate::support::secure::World;
use crate::support::within;

const LIMIT: Duration = Duration::from_secs(120);
/// What curl prints after an answer.
const VERSION: &str = "\n%{http_version} %{response_code}";
/// How many things httpx says went well.
const THINGS: usize = 9;

/// What a command prints on both of its outputs.
///
/// # Panics
/// When it fails.
async fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    let output = within(program, LIMIT, command.output()).await;
    let output = output.unwrap_or_else(|error| panic!("start {program} (nghttp and h2load are of nghttp2-client): {error}"));
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    said
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Both nodes as URLs, the flags with which curl and nghttp reach them, and the files for whoever wants those.
struct Ways {
    pair: Pair,
    world: Option<World>,
}

impl Ways {
    async fn all(app: &App) -> [Self; 2] {
        let upstream = format!("http://{}", app.address());
        let clear = Pair::start_with(&upstream, |manage| manage).await;
        let world = World::new();
        let own = |manage: Manage| {
            let files = world.node(&manage.name);
            manage.secured("--tlsverify", &files, &world.secure())
        };
        let mutual = Pair::start_with(&upstream, own).await;
        [Self { pair: clear, world: None }, Self { pair: mutual, world: Some(world) }]
    }

    fn urls(&self) -> [String; 2] {
        let scheme = if self.world.is_some() { "https" } else { "http" };
        self.pair.ways().map(|way| format!("{scheme}://{way}"))
    }

    fn curl(&self) -> Vec<&str> {
        match &self.world {
            None => vec!["--http2-prior-knowledge"],
            Some(world) => {
                let user = &world.user;
                vec!["--http2", "--cacert", text(&user.ca), "--cert", text(&user.cert), "--key", text(&user.key)]
            }
        }
    }

    fn files(&self) -> Vec<&str> {
        self.world.iter().flat_map(|world| [&world.user.ca, &world.user.cert, &world.user.key]).map(|file| text(file)).collect()
    }
}

#[tokio::test]
async fn curl_speaks_http2_through_any_node() {
    let app = App::start("a", &Ledger::default()).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let upload = folder.path().join("upload");
    std::fs::write(&upload, vec![b'u'; 5_000_000]).expect("a file");
    for ways in Ways::all(&app).await {
        for url in ways.urls() {
            let curl = async |more: &[&str]| run("curl", &[&["-sS", "-w", VERSION], &ways.curl()[..], more].concat()).await;
            assert_eq!(curl(&[&format!("{url}/who")]).await, "a\n2 200");
            let seen = curl(&["-T", text(&upload), &format!("{url}/echo")]).await;
            assert!(seen.contains("\"length\":5000000") && seen.ends_with("\n2 200"), "{seen}");
            let seen = curl(&["-d", "a=b", "-H", "Expect: 100-continue", &format!("{url}/echo")]).await;
            assert!(seen.contains("\"body\":\"a=b\"") && seen.ends_with("\n2 200"), "{seen}");
            let head = curl(&["-I", &format!("{url}/status?code=304")]).await;
            assert!(head.starts_with("HTTP/2 304") && head.ends_with("\n2 304"), "{head}");
            if ways.world.is_some() {
                // Twenty at once on one connection. With prior knowledge, Debian's curl cannot use one twice, whoever serves it.
                let said = curl(&["-Z", &format!("{url}/who?[1-20]")]).await;
                assert_eq!(said.matches("2 200").count(), 20, "{said}");
            }
        }
    }
}

/// `Upgrade: h2c` is for the app to answer, which does not know it: the request goes on as what it is.
#[tokio::test]
async fn curl_that_asks_for_an_upgrade_is_answered_in_http1() {
    let app = App::start("a", &Ledger::default()).await;
    let pair = Pair::start(app.address()).await;
    for way in pair.ways() {
        let said = run("curl", &["-sS", "-w", VERSION, "--http2", &format!("http://{way}/echo")]).await;
        assert!(said.ends_with("\n1.1 200") && !said.contains("http2-settings"), "{said}");
    }
}

#[tokio::test]
async fn nghttp_is_served_by_any_node() {
    let app = App::start("a", &Ledger::default()).await;
    let folder = tempfile::tempdir().expect("a temporary folder");
    let upload = folder.path().join("upload");
    std::fs::write(&upload, vec![b'u'; 3_000_000]).expect("a file");
    for ways in Ways::all(&app).await {
        for url in ways.urls() {
            let files = ways.files();
            let own = files.get(1..).map(|pair| vec![format!("--cert={}", pair[0]), format!("--key={}", pair[1])]).unwrap_or_default();
            let own: Vec<&str> = own.iter().map(String::as_str).collect();
            let nghttp = async |more: &[&str]| run("nghttp", &[&["-y"], &own[..], more].concat()).await;
            assert_eq!(nghttp(&[&format!("{url}/who")]).await, "a");
            let seen = nghttp(&["-d", text(&upload), &format!("{url}/echo")]).await;
            assert!(seen.contains("\"length\":3000000"), "{seen}");
            // A hundred streams at once, the smallest windows that it has, a dependency for each, and much padding.
            let said = nghttp(&["-m100", "-w10", "-W10", "-b200", &format!("{url}/who")]).await;
            assert_eq!(said, "a".repeat(100));
            let said = nghttp(&["-s", "-n", "-w12", &format!("{url}/big?mb=2")]).await;
            assert!(said.contains(" 200 "), "{said}");
        }
    }
}

async fn loads(url: &str) {
    let said = run("h2load", &["-n3000", "-c4", "-m50", &format!("{url}/who")]).await;
    assert!(said.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{url}: {said}");
}

/// It has no certificate to show: where one is asked for it comes by an adapter that has one.
#[tokio::test]
async fn h2load_is_served_by_any_node() {
    let app = App::start("a", &Ledger::default()).await;
    let places = Places::of(app.address()).await;
    for place in places.each() {
        let adapter = Adapter::to(place.for_http2()).await;
        loads(&format!("http://{}", adapter.address)).await;
    }
    let world = World::new();
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tls", &files, &world.secure())
    };
    let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
    for way in pair.ways() {
        loads(&format!("https://{way}")).await;
    }
}

#[tokio::test]
async fn httpx_speaks_http2_through_any_node() {
    let app = App::start("a", &Ledger::default()).await;
    for ways in Ways::all(&app).await {
        for url in ways.urls() {
            let said = httpx(HTTPX, &[&[url.as_str()], &ways.files()[..]].concat()).await;
            assert_eq!(said.lines().count(), THINGS, "{said}");
        }
    }
}
