//! TLS as clients meet it: curl, openssl and docker, the versions, the certificates, and what is no TLS.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::support::app::App;
use crate::support::certificates::{Authority, Credentials, LONG, Wanted};
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Broken, Client, Method, post, request, with};
use crate::support::ledger::Ledger;
use crate::support::pair::Pair;
use crate::support::place::Place;
use crate::support::raw::{Raw, header};
use crate::support::secure::{HERE, Secure, World};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);

/// Two nodes that ask everybody for a certificate.
async fn mutual(world: &World, app: &str) -> Pair {
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure())
    };
    Pair::start_with(app, own).await
}

/// A lone node that speaks TLS by `flag`.
async fn lone(world: &World, flag: &str, app: &App) -> Daemon {
    let files = world.node("node");
    Manage::new("node", world.folder.path()).upstream(app.address()).secured(flag, &files, &world.secure()).start().await
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// What a command prints, and whether it succeeded; standard error comes last.
async fn run(program: &str, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).env_remove("DOCKER_HOST").env_remove("DOCKER_CONTEXT");
    let output = within(program, LIMIT, command.output()).await;
    let output = output.unwrap_or_else(|error| panic!("start {program}, of the Debian package of that name: {error}"));
    (output.status.success(), [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat())
}

async fn curl(files: &Credentials, more: &[&str]) -> (bool, String) {
    let own = ["--silent", "--show-error", "--cacert", text(&files.ca), "--cert", text(&files.cert), "--key", text(&files.key)];
    run("curl", &[&own[..], more].concat()).await
}

fn values(seen: &Value, name: &str) -> Vec<String> {
    let pairs = seen["headers"].as_array().expect("headers").iter();
    pairs.filter(|pair| pair[0] == name).map(|pair| pair[1].as_str().expect("text").to_owned()).collect()
}

#[tokio::test]
async fn curl_openssl_and_docker_reach_the_app_through_any_node() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let pair = mutual(&world, &format!("http://{}", app.address())).await;
    for way in pair.ways() {
        for version in ["--tlsv1.2", "--tlsv1.3"] {
            let most = version.replace("--tlsv", "");
            let (done, out) = curl(&world.user, &[version, "--tls-max", &most, "-d", "an order", &format!("https://{way}/echo")]).await;
            let seen: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
            assert!(done && seen["body"] == "an order", "{out}");
            assert_eq!(values(&seen, "x-forwarded-proto"), ["https"], "{out}");
        }
        let (done, out) =
            curl(&world.user, &["--tlsv1.0", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", &format!("https://{way}/who")]).await;
        assert!(!done, "TLS 1.1 was spoken: {out}");
        let (done, out) = curl(
            &world.user,
            &[&format!("https://localhost:{}/big?mb=4", way.port()), "--output", "/dev/null", "--write-out", "%{size_download}"],
        )
        .await;
        assert_eq!((done, out.as_str()), (true, "4194304"));
        let [ca, cert, key] = [&world.user.ca, &world.user.cert, &world.user.key].map(|file| text(file));
        let at = way.to_string();
        let asked =
            ["s_client", "-connect", &at, "-CAfile", ca, "-cert", cert, "-key", key, "-verify_ip", "127.0.0.1", "-alpn", "http/1.1"];
        let (done, out) = run("openssl", &asked).await;
        assert!(done && out.contains("Verify return code: 0 (ok)") && out.contains("ALPN protocol: http/1.1"), "{out}");
        let docker = ["-H", &format!("tcp://{way}"), "--tlsverify", "--tlscacert", ca, "--tlscert", cert, "--tlskey", key, "info"];
        let (done, out) = run("docker", &docker).await;
        assert!(done && out.contains(&format!("Primary: {}", pair.primary.address())), "{out}");
    }
}

#[tokio::test]
async fn who_shows_no_good_certificate_is_not_served() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let node = lone(&world, "--tlsverify", &app).await;
    let others = Authority::new(world.folder.path(), "others");
    let wanted = Wanted { name: "stranger", hosts: "", usage: "clientAuth", life: LONG };
    let foreign = Credentials { ca: world.user.ca.clone(), ..others.issue(wanted) };
    let over = world.authority.issue(Wanted { name: "over", life: ("20200101000000Z", "20210101000000Z"), ..wanted });
    let for_servers = world.authority.issue(Wanted { name: "server", hosts: HERE, usage: "serverAuth", life: LONG });
    for secure in [Secure::new(&world.user.ca, None), Secure::of(&foreign), Secure::of(&over), Secure::of(&for_servers)] {
        let client = Client::new(Place { address: node.address(), tls: Some(secure) });
        let refused = client.send(request(Method::POST, "/who", "an order")).await;
        // A client of TLS 1.3 has sent its request before it hears of it.
        assert!(matches!(refused, Err(Broken::Refused | Broken::Cut)), "{refused:?}");
    }
    assert_eq!(app.connections(), 0);
    // The request is never read, and takes no alert with it.
    for version in ["--http1.1", "--http2"].repeat(10) {
        let way = format!("https://{}/who", node.address());
        let (done, out) =
            run("curl", &["--silent", "--show-error", version, "--cacert", text(&world.user.ca), "-d", "an order", &way]).await;
        assert!(!done && out.contains("alert certificate required"), "{out}");
    }
    assert_eq!(app.connections(), 0);
    assert_eq!(Client::new(node.place()).send(request(Method::GET, "/who", "")).await.unwrap().text(), "a");
}

#[tokio::test]
async fn a_certificate_gives_the_right_to_act_where_one_is_asked_for() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let pair = mutual(&world, &format!("http://{}", app.address())).await;
    let page = with(request(Method::POST, "/_bellwether/resign", ""), "origin", "https://evil.example");
    assert_eq!(Client::new(pair.primary.place()).send(page).await.unwrap().status, 403, "a page in the user's browser");
    let resigned = post(pair.primary.place(), "/_bellwether/resign", "").await;
    assert_eq!(resigned.status, 200, "{}", resigned.text());

    let alone = lone(&world, "--tls", &app).await;
    assert_eq!(post(alone.place(), "/_bellwether/resign", "").await.status, 403, "nobody asked for the certificate");
}

#[tokio::test]
async fn plain_http_on_a_port_with_tls_gets_a_sentence_and_tls_on_a_plain_one_an_end() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let node = lone(&world, "--tls", &app).await;
    for asked in ["GET /who HTTP/1.1\r\nHost: a\r\n\r\n", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello"] {
        let mut client = Raw::connect(node.address()).await;
        client.send(asked).await;
        let (head, body) = client.answer().await;
        assert!(head.starts_with("HTTP/1.1 400 ") && header(&head, "connection") == Some("close"), "{head}");
        let said: Value = serde_json::from_str(&body).unwrap();
        assert!(said["message"].as_str().unwrap().contains("this port speaks TLS: use https://"), "{said}");
        assert_eq!((said["reason"].as_str(), said["verdict"].as_str()), (Some("bad-request"), Some("not-sent")));
        assert_eq!(client.rest().await, b"");
    }
    assert_eq!(node.metrics().await.value("tls_handshakes_total{result=\"plain\"}"), 2.0);
    let (_, out) = run("docker", &["-H", &format!("tcp://{}", node.address()), "info"]).await;
    assert!(out.contains("this port speaks TLS"), "{out}");

    let plain = Manage::new("plain", world.folder.path()).upstream(app.address()).start().await;
    let failed = within("TLS to a plain port", LIMIT, world.secure().connect(plain.address())).await;
    assert!(failed.is_err());
    assert_eq!(Client::new(plain.place()).send(request(Method::GET, "/who", "")).await.unwrap().text(), "a");
}

#[tokio::test]
async fn a_handshake_that_does_not_come_is_cut_and_keeps_nobody_waiting() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let node = lone(&world, "--tls", &app).await;
    let mut slow = TcpStream::connect(node.address()).await.unwrap();
    slow.write_all(&[22, 3, 1]).await.unwrap();
    let mut silent = TcpStream::connect(node.address()).await.unwrap();
    assert_eq!(Client::new(node.place()).send(request(Method::GET, "/who", "")).await.unwrap().text(), "a");
    for stream in [&mut slow, &mut silent] {
        let read = within("the end of a slow handshake", LIMIT, stream.read(&mut [0; 64])).await;
        assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
    }
    wait_for("both to be counted", LIMIT, async || match node.metrics().await.value("tls_handshakes_total{result=\"late\"}") {
        2.0 => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(node.metrics().await.value("tls_certificate_expiry_timestamp_seconds") > 2_500_000_000.0);
}

#[tokio::test]
async fn a_node_that_stops_does_not_wait_for_a_handshake() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let mut node = lone(&world, "--tls", &app).await;
    let mut slow = TcpStream::connect(node.address()).await.unwrap();
    slow.write_all(&[22, 3, 1]).await.unwrap();
    wait_for("the connection to be taken", LIMIT, async || match node.metrics().await.value("connections") {
        2.0.. => Ok(()),
        other => Err(other),
    })
    .await;
    node.signal(rustix::process::Signal::TERM);
    assert_eq!(node.ended(LIMIT).await.code(), Some(0));
    assert_eq!(slow.read(&mut [0; 64]).await.unwrap_or(0), 0);
}

/// A tunnel ends each direction by itself, over TLS as well: what docker needs for `run` and `exec`.
#[tokio::test]
async fn a_tunnel_over_tls_keeps_the_other_half_open() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let pair = mutual(&world, &format!("http://{}", app.address())).await;
    for way in pair.ways() {
        let open = async |target: &str| {
            let mut client = Raw::over(world.secure().connect(way).await.unwrap());
            client
                .send(format!("POST {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n\r\n"))
                .await;
            let head = client.head().await;
            assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
            client
        };
        let mut client = open("/hijack?after=1000000").await;
        client.send("abc").await;
        client.finish().await;
        assert_eq!(client.rest().await.len(), 1_000_000);

        let mut client = open("/hijack?first=bye").await;
        assert_eq!(client.rest().await, b"bye");
        client.send("and more").await;
        client.finish().await;
        let mut tunnelled = app.tunnelled();
        within("what came after the app's end", LIMIT, tunnelled.wait_for(|all| all.iter().any(|one| one == b"and more"))).await.unwrap();
        assert!(tunnelled.borrow().iter().any(|one| one == b"abc"));

        let mut client = open("/hijack").await;
        for piece in ["a", "few", "small pieces"] {
            client.send(piece).await;
            assert_eq!(client.take(piece.len()).await, piece.as_bytes());
        }
        for length in [16 * 1024, 60_000, 100_000] {
            client.send(vec![b'x'; length]).await;
            assert_eq!(client.take(length).await.len(), length);
        }
    }
}
