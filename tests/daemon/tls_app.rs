//! Apps behind TLS: who is believed, and how connections to them end.

use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::App;
use crate::support::certificates::{Authority, LONG, Wanted};
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Broken, Client, Method, get, request, with};
use crate::support::ledger::Ledger;
use crate::support::raw::Origin;
use crate::support::secure::{self, NODE, World};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);

/// A lone node without TLS of its own in front of an app that speaks it, believing what `SSL_CERT_FILE` names.
async fn in_front_of(app: &str, ca: &Path, folder: &Path) -> Daemon {
    let manage = Manage::new("node", folder).with(["--upstream", app]);
    manage.env([("SSL_CERT_FILE", ca.display().to_string())]).start().await
}

#[tokio::test]
async fn an_app_behind_tls_is_reached_and_checked() {
    let world = World::new();
    let ca = world.authority.file();
    let app = App::start_secured("a", &Ledger::default(), &world.node("app")).await;
    let port = app.address().port();
    for host in ["127.0.0.1", "localhost"] {
        let node = in_front_of(&format!("https://{host}:{port}"), &ca, world.folder.path()).await;
        let asked = with(request(Method::POST, "/echo", vec![b'x'; 3_000_000]), "host", "service.example");
        let seen = Client::new(node.place()).send(asked).await.unwrap().json();
        assert_eq!(seen["length"], 3_000_000, "{seen}");
        assert!(seen["headers"].as_array().unwrap().contains(&serde_json::json!(["host", "service.example"])), "{seen}");
        assert_eq!(get(node.place(), "/big?mb=8").await.body.len(), 8 << 20);
    }
    let others = Authority::new(world.folder.path(), "others");
    let elsewhere = world.authority.issue(Wanted { name: "elsewhere", hosts: "DNS:ha.example", usage: NODE, life: LONG });
    let named = App::start_secured("b", &Ledger::default(), &elsewhere).await;
    for (app, ca, words) in [
        (&app, others.file(), "its certificate was issued by no CA"),
        (&named, ca, "its certificate is for ha.example and not for 127.0.0.1"),
    ] {
        let node = in_front_of(&format!("https://{}", app.address()), &ca, world.folder.path()).await;
        let answer = Client::new(node.place()).send(request(Method::POST, "/who", "an order")).await.unwrap();
        let said = answer.json();
        assert!(answer.status == 502 && said["verdict"] == "not-sent" && said["message"].as_str().unwrap().contains(words), "{said}");
    }
}

/// RFC 9112 §9.8: where the end of the connection is the end of the body, only TLS tells a whole one from a cut one.
#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_whole_only_if_tls_says_so() {
    let world = World::new();
    let files = world.node("app");
    for says_so in [true, false] {
        let origin = Origin::bind().await;
        let node = in_front_of(&format!("https://{}", origin.address()), &world.authority.file(), world.folder.path()).await;
        let app = async {
            let (stream, _) = origin.accept_bare().await;
            let mut stream = secure::accept(&files, stream).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nall of it").await.unwrap();
            stream.flush().await.unwrap();
            if says_so {
                stream.shutdown().await.unwrap();
            } else {
                let (tcp, _) = stream.into_inner();
                tcp.into_std().unwrap().shutdown(std::net::Shutdown::Write).unwrap();
            }
        };
        let client = Client::new(node.place());
        let (answer, ()) = tokio::join!(client.send(request(Method::GET, "/", "")), app);
        match answer {
            Ok(answer) => assert!(says_so && answer.text() == "all of it", "{answer:?}"),
            Err(broken) => assert!(!says_so && broken == Broken::Cut, "{broken:?}"),
        }
    }
}

/// Both sides say goodbye: a client is told that an idle connection was closed and not cut, and so is an app.
#[tokio::test]
async fn idle_connections_end_with_a_goodbye() {
    let world = World::new();
    let files = world.node("app");
    let origin = Origin::bind().await;
    let upstream = format!("https://{}", origin.address());
    let mut node = Manage::new("node", world.folder.path())
        .with(["--upstream", &upstream])
        .secured("--tls", &world.node("node"), &world.secure())
        .start()
        .await;
    let mut client = world.secure().connect(node.address()).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
    let (stream, _) = origin.accept_bare().await;
    let mut app = secure::accept(&files, stream).await.unwrap();
    app.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    let mut read = vec![0; 4096];
    let length = within("an answer", LIMIT, client.read(&mut read)).await.unwrap();
    assert!(read[..length].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&read[..length]));
    // Without a goodbye the library makes an error of an end. The node gives an idle app up after some seconds.
    let mut head = Vec::new();
    within("the end of the app's connection", LIMIT, app.read_to_end(&mut head)).await.expect("a goodbye to the app");
    node.signal(Signal::TERM);
    within("the end of the client's connection", LIMIT, client.read_to_end(&mut read)).await.expect("a goodbye to the client");
    assert_eq!(node.ended(LIMIT).await.code(), Some(0));
    wait_for("the log to say so", LIMIT, async || if node.log().contains("Stopped") { Ok(()) } else { Err(node.log()) }).await;
}
