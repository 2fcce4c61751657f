//! Certificates that are replaced while nodes run: nothing that is open ends, and what is opened from then on is new.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::App;
use crate::support::certificates::{Authority, Credentials, LONG, Wanted};
use crate::support::daemon::{Daemon, Manage};
use crate::support::http::{Client, Method, request};
use crate::support::ledger::Ledger;
use crate::support::load::{Load, Outcome};
use crate::support::pair::Pair;
use crate::support::place::Place;
use crate::support::raw::Raw;
use crate::support::secure::{HERE, NODE, Secure, World, first};
use crate::support::{wait_for, within};

const LIMIT: Duration = Duration::from_secs(30);

/// Replaces a file by renaming, as careful tools do.
fn replace(from: &Path, to: &Path) {
    let beside = to.with_extension("new");
    std::fs::copy(from, &beside).expect("copy a file");
    std::fs::rename(&beside, to).expect("rename a file");
}

async fn shows(node: &Daemon, secure: &Secure, cert: &Path) {
    let wanted = first(cert);
    wait_for(&format!("{} to show another certificate", node.name()), LIMIT, async || match secure.shown_at(node.address()).await {
        shown if shown == wanted => Ok(()),
        _ => Err("the former one"),
    })
    .await;
}

async fn logs(node: &Daemon, words: &str) {
    wait_for(words, LIMIT, async || if node.log().contains(words) { Ok(()) } else { Err(node.log()) }).await;
}

/// B102: both nodes, the hop between them, and whatever is open meanwhile.
#[tokio::test]
async fn a_new_certificate_ends_no_connection() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let files = [world.node("primary"), world.node("replica")];
    let own = |manage: Manage| {
        let files = if manage.name == "primary" { &files[0] } else { &files[1] };
        manage.secured("--tlsverify", files, &world.secure())
    };
    let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
    let epoch = pair.primary.info().await.epoch;
    let get = "GET /who HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept = Raw::over(world.secure().connect(pair.replica.address()).await.unwrap());
    kept.send(get).await;
    assert_eq!(kept.answer().await.1, "a");
    const MEGABYTES: usize = 64;
    let mut download = world.secure().connect(pair.replica.address()).await.unwrap();
    download.write_all(format!("GET /big?mb={MEGABYTES} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap();
    let mut begun = vec![0; 1 << 20];
    download.read_exact(&mut begun).await.unwrap();

    for (node, files) in [(&pair.primary, &files[0]), (&pair.replica, &files[1])] {
        let next = world.node(&format!("{}-next", node.name()));
        replace(&next.cert, &files.cert);
        replace(&next.key, &files.key);
        shows(node, &world.secure(), &next.cert).await;
        logs(node, "new handshakes use the new ones").await;
    }
    kept.send(get).await;
    assert_eq!(kept.answer().await.1, "a");
    let mut rest = Vec::new();
    within("the rest of a download", LIMIT, download.read_to_end(&mut rest)).await.expect("a whole answer");
    assert!(begun.len() + rest.len() > MEGABYTES << 20, "{} bytes of {MEGABYTES} MiB", begun.len() + rest.len());
    assert_eq!(pair.primary.info().await.epoch, epoch);
}

#[tokio::test]
async fn half_a_pair_is_kept_out_and_named() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let files = world.node("node");
    let before = world.folder.path().join("before.pem");
    std::fs::copy(&files.cert, &before).unwrap();
    let node =
        Manage::new("node", world.folder.path()).upstream(app.address()).secured("--tlsverify", &files, &world.secure()).start().await;
    let next = world.node("next");
    replace(&next.cert, &files.cert);
    logs(&node, "does not belong to the certificate in").await;
    let warning = node.log().lines().find(|line| line.contains("does not belong")).unwrap().to_owned();
    assert!(warning.contains("WARN") && warning.contains(files.key.to_str().unwrap()), "{warning}");
    shows(&node, &world.secure(), &before).await;
    replace(&next.key, &files.key);
    shows(&node, &world.secure(), &next.cert).await;
    let said = node.log().lines().filter(|line| line.contains("does not belong")).count();
    assert_eq!(said, 1, "{}", node.log());

    std::fs::remove_file(&files.cert).unwrap();
    node.signal(Signal::HUP);
    logs(&node, "cannot be read: No such file").await;
    assert_eq!(Client::new(node.place()).send(request(Method::GET, "/who", "")).await.unwrap().text(), "a");
}

/// How Kubernetes replaces a mounted secret: a link to a folder is swapped, and the files' paths stay.
#[tokio::test]
async fn a_folder_behind_a_link_may_be_swapped() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let folder = |name: &str| {
        let (files, folder) = (world.node(name), world.folder.path().join(name));
        std::fs::create_dir(&folder).unwrap();
        for (from, to) in [(&files.ca, "ca.pem"), (&files.cert, "cert.pem"), (&files.key, "key.pem")] {
            std::fs::copy(from, folder.join(to)).unwrap();
        }
        folder
    };
    let (old, new) = (folder("old"), folder("new"));
    let mounted = world.folder.path().join("data");
    symlink(&old, &mounted).unwrap();
    let files = Credentials { ca: mounted.join("ca.pem"), cert: mounted.join("cert.pem"), key: mounted.join("key.pem") };
    let node = Manage::new("node", world.folder.path()).upstream(app.address()).secured("--tls", &files, &world.secure()).start().await;
    let swapped = world.folder.path().join("data.new");
    symlink(&new, &swapped).unwrap();
    std::fs::rename(&swapped, &mounted).unwrap();
    node.signal(Signal::HUP);
    shows(&node, &world.secure(), &new.join("cert.pem")).await;
    assert!(!node.log().contains("stay in use"), "{}", node.log());
}

/// One CA is followed by another without an end: both are believed for a while, certificates change, and the old one goes.
#[tokio::test]
async fn a_new_ca_can_take_over_while_requests_run() {
    let world = World::new();
    let app = App::start("a", &Ledger::default()).await;
    let successor = Authority::new(world.folder.path(), "successor");
    let wanted = Wanted { name: "heir", hosts: "", usage: "clientAuth", life: LONG };
    // Each node has files of its own, as on machines of their own.
    let own_files = |name: &str| {
        let files = world.node(name);
        let ca = world.folder.path().join(format!("{name}-ca.pem"));
        std::fs::copy(&files.ca, &ca).unwrap();
        Credentials { ca, ..files }
    };
    let files = [own_files("primary"), own_files("replica")];
    let own = |manage: Manage| {
        let files = if manage.name == "primary" { &files[0] } else { &files[1] };
        manage.secured("--tlsverify", files, &world.secure())
    };
    let pair = Pair::start_with(&format!("http://{}", app.address()), own).await;
    let both = world.folder.path().join("both.pem");
    std::fs::write(&both, [world.authority.file(), successor.file()].map(|file| std::fs::read_to_string(file).unwrap()).concat()).unwrap();
    let user = Secure::of(&Credentials { ca: both.clone(), ..world.user.clone() });
    let heir = Secure::of(&Credentials { ca: both.clone(), ..successor.issue(wanted) });
    let nodes = [(&pair.primary, &files[0]), (&pair.replica, &files[1])];
    let through = |secure: &Secure| nodes.map(|(node, _)| Place { address: node.address(), tls: Some(secure.clone()) });

    let load = Load::start(through(&user), 5);
    load.answers(20).await;
    for (_, files) in nodes {
        replace(&both, &files.ca);
    }
    for (node, _) in nodes {
        logs(node, "new handshakes use the new ones").await;
    }
    for (node, files) in nodes {
        let next = successor.issue(Wanted { name: node.name(), hosts: HERE, usage: NODE, life: LONG });
        replace(&next.cert, &files.cert);
        replace(&next.key, &files.key);
        shows(node, &user, &next.cert).await;
    }
    load.answers(20).await;
    load.stop().await.iter().for_each(Outcome::assert_answered);

    let load = Load::start(through(&heir), 5);
    load.answers(20).await;
    for (_, files) in nodes {
        replace(&successor.file(), &files.ca);
    }
    for (node, _) in nodes {
        let place = Place { address: node.address(), tls: Some(user.clone()) };
        wait_for("the old CA to be believed no more", LIMIT, async || {
            match Client::new(place.clone()).send(request(Method::GET, "/who", "")).await {
                Err(_) => Ok(()),
                Ok(answer) => Err(answer),
            }
        })
        .await;
    }
    load.answers(20).await;
    load.stop().await.iter().for_each(Outcome::assert_answered);
}
