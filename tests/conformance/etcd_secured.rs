//! etcd with users, tokens and certificates.

use std::path::PathBuf;
use std::time::Duration;

use bellwether::store::{Renewal, StoreError};
use tokio::time::timeout;

use crate::certificates::openssl;
use crate::etcd_server::{Etcd, QUICK};
use crate::papers::Papers;
use crate::rig::{KEY, LONG_TTL, Running, SLACK, lock_with, node};
use crate::suite::steps::{PROMPT, hear, leader, renew, win};

/// For whole candidates, which renew: long enough that no stall of this machine costs a lease.
const TTL: Duration = Duration::from_secs(6);

struct Guarded {
    etcd: Etcd,
    options: Vec<String>,
}

impl Guarded {
    /// etcd with authentication, where tokens live for two seconds and `bw` may use this prefix.
    async fn start(prefix: &str) -> Self {
        Self::start_with(prefix, &["--auth-token=simple", "--auth-token-ttl=2"]).await
    }

    async fn start_with(prefix: &str, tokens: &[&str]) -> Self {
        let etcd = Etcd::start_with(1, &[&QUICK[..], &["--bcrypt-cost=4"], tokens].concat()).await;
        for arguments in [
            &["user", "add", "root:hunter2"][..],
            &["user", "add", "bw:hunter3"],
            &["role", "add", "election"],
            &["role", "grant-permission", "election", "readwrite", "--prefix=true", prefix],
            &["user", "grant-role", "bw", "election"],
            &["role", "add", "root"],
            &["user", "grant-role", "root", "root"],
            &["auth", "enable"],
        ] {
            etcd.etcdctl(arguments).await;
        }
        let options = as_user(&etcd, "bw", "hunter3");
        Self { etcd, options }
    }

    /// Lets `bw` use one more prefix.
    async fn grant(&self, prefix: &str) {
        let root = "--user=root:hunter2";
        self.etcd.etcdctl(&[root, "role", "grant-permission", "election", "readwrite", "--prefix=true", prefix]).await;
    }

    fn running(&self, port: u16) -> Running {
        let lock = lock_with(&self.etcd.url(), &self.options, &node(port), TTL).expect("open a lock");
        Running::start_with(lock, node(port), TTL)
    }
}

fn as_user(etcd: &Etcd, user: &str, password: &str) -> Vec<String> {
    let file: PathBuf = etcd.folder().join(format!("password-{password}"));
    std::fs::write(&file, format!("{password}\n")).expect("write a password");
    vec![format!("username={user}"), format!("password-file={}", file.display())]
}

/// B29: who has waited for longer than its token lives still wins, and hears of it through its watch.
#[tokio::test]
async fn a_token_that_expired_while_waiting_does_not_cost_the_lock() {
    let guarded = Guarded::start(&format!("{KEY}/")).await;
    let first = guarded.running(1);
    first.leads(PROMPT, "nobody else campaigns").await;
    let second = guarded.running(2);
    second.follows(PROMPT, "the first leads").await;
    let observer = lock_with(&guarded.etcd.url(), &guarded.options, &node(3), LONG_TTL).expect("open a lock");
    let seen = leader(&*observer).await;
    // Three lives of a token, in which the observer makes no call that could renew its own.
    let quiet = timeout(Duration::from_secs(6), observer.changed(seen.as_ref())).await;
    assert!(quiet.is_err(), "nothing has changed: {quiet:?}");
    assert_eq!(first.roles.current().name(), "primary", "{:?}", first.roles.current());

    drop(first);
    second.leads(TTL + SLACK, "the first has crashed").await;
    hear(&*observer, PROMPT, "the second leads", |leader| leader.is_some_and(|leader| leader.address == node(2).address)).await;
}

#[tokio::test]
async fn a_refusal_says_what_to_grant_and_never_the_password() {
    let guarded = Guarded::start("elsewhere/").await;
    let cases = [
        (guarded.options.clone(), format!("grant-permission ROLE readwrite --prefix=true {KEY}/")),
        (as_user(&guarded.etcd, "bw", "wrong-hunter"), "password-file".to_owned()),
        (as_user(&guarded.etcd, "nobody", "hunter3"), "username".to_owned()),
        (Vec::new(), "username=NAME and password-file=FILE".to_owned()),
    ];
    for (options, advice) in cases {
        let refused = lock_with(&guarded.etcd.url(), &options, &node(1), LONG_TTL).expect("open a lock");
        for error in [refused.acquire().await.map(drop).unwrap_err(), refused.leader().await.map(drop).unwrap_err()] {
            assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
            assert!(error.to_string().contains(&advice), "{error}");
            assert!(!format!("{error} {error:?} {refused:?}").contains("hunter"), "{error:?} {refused:?}");
        }
    }
}

/// Where a person has granted what was missing, or put the password right, nothing need be restarted.
#[tokio::test]
async fn a_refusal_that_was_seen_to_heals_by_itself() {
    let guarded = Guarded::start("elsewhere/").await;
    let waiting = guarded.running(1);
    let lock = lock_with(&guarded.etcd.url(), &guarded.options, &node(2), LONG_TTL).expect("open a lock");
    assert!(matches!(lock.leader().await, Err(StoreError::Denied { .. })));
    guarded.grant(&format!("{KEY}/")).await;
    waiting.leads(PROMPT, "it may now").await;
}

/// A signed token names the state of all rights when it was made: whoever is given more has to sign in again.
#[tokio::test]
async fn a_change_of_rights_costs_no_call() {
    let keys = tempfile::tempdir().expect("a temporary folder");
    let key = |name: &str| keys.path().join(name).display().to_string();
    openssl(keys.path(), &["genrsa", "-out", "signing.pem", "2048"]);
    openssl(keys.path(), &["rsa", "-in", "signing.pem", "-pubout", "-out", "checking.pem"]);
    let tokens = format!("--auth-token=jwt,pub-key={},priv-key={},sign-method=RS256,ttl=10m", key("checking.pem"), key("signing.pem"));
    let guarded = Guarded::start_with(&format!("{KEY}/"), &[&tokens]).await;
    let us = lock_with(&guarded.etcd.url(), &guarded.options, &node(1), LONG_TTL).expect("open a lock");
    let mut lease = win(&*us, "nobody else campaigns").await;
    for prefix in ["one/", "two/", "three/"] {
        guarded.grant(prefix).await;
        assert!(matches!(lease.renew().await, Ok(Renewal::Held)));
        guarded.grant(&format!("more/{prefix}")).await;
        assert!(matches!(us.leader().await, Ok(Some(_))));
    }
}

#[tokio::test]
async fn etcd_is_reached_over_tls_with_a_certificate_of_ours() {
    let papers = Papers::for_a_server_at("IP:127.0.0.1");
    let server = [
        format!("--cert-file={}", papers.path("server.pem")),
        format!("--key-file={}", papers.path("server.key")),
        format!("--trusted-ca-file={}", papers.path("ca.pem")),
        "--client-cert-auth".to_owned(),
    ];
    let arguments = QUICK.into_iter().chain(server.iter().map(String::as_str)).collect::<Vec<_>>();
    let etcd = Etcd::start_with(1, &arguments).await;

    let shown = papers.shown();
    let us = lock_with(&etcd.url(), &shown, &node(1), LONG_TTL).expect("open a lock");
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);

    let [trust, cert, key] = shown;
    for options in [vec![trust], vec![papers.option("cacert", "server.pem"), cert, key], Vec::new()] {
        let refused = lock_with(&etcd.url(), &options, &node(2), TTL).expect("open a lock").leader().await;
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{options:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_certificate_is_named_before_anything_is_sent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "hunter2").expect("write a file");
    for (path, words) in [(&empty, "no PEM block"), (&folder.path().join("none.pem"), "cannot read")] {
        let refused = lock_with("etcd://127.0.0.1:1", &[format!("cacert={}", path.display())], &node(1), TTL);
        let error = refused.map(drop).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(&path.display().to_string()) && !error.contains("hunter2"), "{error}");
    }
}
