//! ZooKeeper with users, rights and certificates.

use std::time::Duration;

use bellwether::store::{Renewal, StoreError};
use serde_json::json;
use tokio::time::timeout;

use crate::kazoo::Kazoo;
use crate::papers::Papers;
use crate::port;
use crate::rig::{KEY, Running, lock, lock_with, node};
use crate::suite::steps::{PROMPT, leader, lose, renew, win};
use crate::zookeeper_server::ZooKeeper;

const TTL: Duration = Duration::from_secs(3);

/// A server where `/team` is the user `bw`'s alone, with these rights.
async fn guarded(rights: &str) -> (ZooKeeper, Kazoo) {
    let servers = ZooKeeper::start(1, "").await;
    let hand = Kazoo::start(servers.address(0));
    hand.command::<()>(json!(["guard", "/team", "bw", "hunter3", rights])).await;
    (servers, hand)
}

fn url(servers: &ZooKeeper) -> String {
    format!("{}/team", servers.url())
}

fn as_user(servers: &ZooKeeper, user: &str, password: &str) -> Vec<String> {
    let file = servers.folder().join(format!("password-{password}"));
    std::fs::write(&file, format!("{password}\n")).expect("write a password");
    vec![format!("username={user}"), format!("password-file={}", file.display())]
}

#[tokio::test]
async fn a_user_leads_below_a_prefix_that_is_its_own() {
    let (servers, hand) = guarded("cdrwa").await;
    let us = lock_with(&url(&servers), &as_user(&servers, "bw", "hunter3"), &node(1), TTL).expect("open a lock");
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    let all = 31;
    let read = 1;
    for path in ["/team/web", "/team/web/leader"] {
        let acls = hand.command::<serde_json::Value>(json!(["acls", path])).await;
        assert_eq!(acls, json!([["digest", "bw", all], ["world", "anyone", read]]), "{path}");
    }
}

/// Strangers may see who leads, and neither join nor delete.
#[tokio::test]
async fn what_a_user_creates_others_can_only_read() {
    let servers = ZooKeeper::start(1, "").await;
    let us = lock_with(&servers.url(), &as_user(&servers, "bw", "hunter3"), &node(1), TTL).expect("open a lock");
    let lease = win(&*us, "nobody else campaigns").await;
    let stranger = lock(&servers.url(), 2, TTL);
    assert_eq!(leader(&*stranger).await.map(|leader| leader.epoch), Some(lease.epoch()));
    assert!(matches!(stranger.acquire().await, Err(StoreError::Denied { .. })));
    let hand = Kazoo::start(servers.address(0));
    assert_eq!(hand.line(&format!("/{KEY}")).await.len(), 1);
}

/// A password is wrong by not opening what the right one does: ZooKeeper itself takes any.
#[tokio::test]
async fn a_refusal_says_what_to_check_and_never_the_password() {
    for (rights, user, password) in [
        ("cdrwa", "bw", "wrong-hunter"),
        ("cdrwa", "nobody", "hunter3"),
        ("cdrwa", "", ""),
        ("r", "bw", "hunter3"),
        ("dw", "bw", "hunter3"),
    ] {
        let (servers, hand) = guarded(rights).await;
        let options = if user.is_empty() { Vec::new() } else { as_user(&servers, user, password) };
        let refused = lock_with(&url(&servers), &options, &node(1), TTL).expect("open a lock");
        let error = refused.acquire().await.map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "{rights} {user}: {error:?}");
        for words in ["username=USER and password-file=FILE", "cdrw on /team/web/leader", "setAcl"] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert!(!format!("{error} {error:?} {refused:?}").contains("hunter"), "{error:?} {refused:?}");
        assert_eq!(hand.line("/team").await, []);
    }
}

/// Where a person has put the rights right, nothing need be restarted.
#[tokio::test]
async fn a_refusal_that_was_seen_to_heals_by_itself() {
    let (servers, hand) = guarded("a").await;
    let options = as_user(&servers, "bw", "hunter3");
    let waiting = lock_with(&url(&servers), &options, &node(1), TTL).expect("open a lock");
    let waiting = Running::start_with(waiting, node(1), TTL);
    let probe = lock_with(&url(&servers), &options, &node(2), TTL).expect("open a lock");
    assert!(matches!(probe.acquire().await, Err(StoreError::Denied { .. })));
    hand.delete("/team").await;
    hand.command::<()>(json!(["guard", "/team", "bw", "hunter3", "cdrwa"])).await;
    waiting.leads(PROMPT, "it may now").await;
}

/// Neither does one that is not there, or that says nothing, keep the program from saying what is wrong at once.
#[tokio::test]
async fn a_password_that_cannot_be_read_is_named_before_anything_is_sent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").expect("write a file");
    for (path, words) in [(&empty, "is empty"), (&folder.path().join("none"), "cannot read")] {
        let options = ["username=bw".to_owned(), format!("password-file={}", path.display())];
        let error = lock_with("zk://127.0.0.1:1", &options, &node(1), TTL).map(drop).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(&path.display().to_string()), "{error}");
    }
}

/// ZooKeeper that is reached by clients with a certificate too, where `127.0.0.1` is its name.
async fn with_tls(papers: &Papers) -> (ZooKeeper, String) {
    let read = |name: &str| std::fs::read_to_string(papers.file(name)).expect("read a certificate");
    let (own, trusted, secure) = (papers.file("own.pem"), papers.file("ca.pem"), port::free());
    std::fs::write(&own, read("server.key") + &read("server.pem")).expect("write a certificate and its key");
    let settings = format!(
        "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
secureClientPort={}
secureClientPortAddress={}
ssl.keyStore.location={}
ssl.keyStore.type=PEM
ssl.trustStore.location={}
ssl.trustStore.type=PEM
ssl.clientAuth=need
",
        secure.port(),
        secure.ip(),
        own.display(),
        trusted.display(),
    );
    (ZooKeeper::start(1, &settings).await, format!("zk://{secure}"))
}

#[tokio::test]
async fn zookeeper_is_reached_over_tls_with_a_certificate_of_ours() {
    let papers = Papers::for_a_server_at("IP:127.0.0.1");
    let (servers, url) = with_tls(&papers).await;
    let shown = papers.shown();
    let open = |url: &str, options: &[String], number| lock_with(url, options, &node(number), TTL).expect("open a lock");
    let us = open(&url, &shown, 1);
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*open(&servers.url(), &[], 2), "the first holds it, and one without TLS sees that").await;
    let me = leader(&*us).await;
    let quiet = timeout(TTL, us.changed(me.as_ref())).await;
    assert!(quiet.is_err(), "nothing has changed: {quiet:?}");
    lease.release().await.expect("release");

    let stranger = papers.option("cacert", "server.pem");
    let [trust, cert, key] = shown.clone();
    let other_name = url.replace("127.0.0.1", "localhost");
    for (url, options, words) in [
        (&url, vec![trust], "handshake failed|alert"),
        (&url, vec![stranger, cert, key], "invalid peer certificate"),
        (&url, Vec::new(), "closed the connection"),
        (&other_name, shown.to_vec(), "not valid for name"),
        (&servers.url(), shown.to_vec(), "the TLS handshake failed"),
    ] {
        let error = open(url, &options, 2).leader().await.expect_err("refused");
        assert!(matches!(error, StoreError::Unavailable { .. }), "{url} {options:?}: {error:?}");
        assert!(words.split('|').any(|words| error.to_string().contains(words)), "{url} {options:?}: {error}");
    }
}

/// What cannot be used is named at the start, and nothing that is in it.
#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_named_before_anything_is_sent() {
    let papers = Papers::for_a_server_at("IP:127.0.0.1");
    for (ca, cert, key, words) in [
        ("none.pem", "veiled.pem", "veiled.key", "none.pem: No such file"),
        ("ca.key", "veiled.pem", "veiled.key", "ca.key: it has no PEM block of a certificate"),
        ("ca.pem", "veiled.pem", "veiled.pem", "veiled.pem: it has no PEM block of a private key"),
        ("ca.pem", "veiled.pem", "server.key", "veiled.pem: the client certificate does not go with its key"),
    ] {
        let options = [papers.option("cacert", ca), papers.option("cert", cert), papers.option("key", key)];
        let error = lock_with("zk://127.0.0.1:1", &options, &node(1), TTL).map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{ca} {cert} {key}: {error}");
    }
}
