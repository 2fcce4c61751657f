//! Consul with access control, tokens and certificates.

use std::time::Duration;

use bellwether::store::{Renewal, StoreError};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::consul_rig::cli;
use crate::consul_server::Consul;
use crate::papers::Papers;
use crate::port;
use crate::rig::{KEY, Running, lock_with, node};
use crate::suite::steps::{PROMPT, leader, lose, renew, win};

const TTL: Duration = Duration::from_secs(2);
const ROOT: &str = "-token=11111111-2222-3333-4444-555555555555";
const UNKNOWN: &str = "99999999-2222-3333-4444-555555555555";

struct Guarded {
    consul: Consul,
    folder: tempfile::TempDir,
}

impl Guarded {
    /// Consul that lets nobody do anything without a token that says so.
    async fn start() -> Self {
        let acl = json!({"enabled": true, "default_policy": "deny", "tokens": {"master": &ROOT[7..]}, "token_ttl": "0s"});
        let consul = Consul::start_with(true, &json!({"session_ttl_min": "1s", "acl": acl})).await;
        Self { consul, folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A new token with these rules.
    async fn token(&self, name: &str, rules: &str) -> String {
        cli(&self.consul, &["acl", "policy", "create", ROOT, "-name", name, "-rules", rules]).await;
        let created = cli(&self.consul, &["acl", "token", "create", ROOT, "-policy-name", name, "-format=json"]).await;
        let created: Value = serde_json::from_str(&created).expect("JSON of Consul");
        created["SecretID"].as_str().expect("a token").to_owned()
    }

    async fn revoke(&self, token: &str) {
        let listed = cli(&self.consul, &["acl", "token", "read", "-self", &format!("-token={token}"), "-format=json"]).await;
        let listed: Value = serde_json::from_str(&listed).expect("JSON of Consul");
        cli(&self.consul, &["acl", "token", "delete", ROOT, "-id", listed["AccessorID"].as_str().expect("its public name")]).await;
    }

    /// The option that names a file with this token in it.
    fn with(&self, token: &str) -> Vec<String> {
        let file = self.folder.path().join("token");
        std::fs::write(&file, format!("{token}\n")).expect("write a token");
        vec![format!("token-file={}", file.display())]
    }
}

/// What the documents tell a person to grant.
fn rules() -> String {
    format!("key \"{KEY}\" {{ policy = \"write\" }} session_prefix \"\" {{ policy = \"write\" }}")
}

#[tokio::test]
async fn the_documented_rules_are_all_that_an_election_needs() {
    let guarded = Guarded::start().await;
    let options = guarded.with(&guarded.token("election", &rules()).await);
    let lock = |port| lock_with(&guarded.consul.url(), &options, &node(port), PROMPT).expect("open a lock");
    let (first, second) = (lock(1), lock(2));
    let mut lease = win(&*first, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*second, "the first holds it").await;
    assert_eq!(leader(&*second).await.map(|leader| leader.epoch), Some(lease.epoch()));
    lease.release().await.expect("release");
    win(&*second, "the first has released it").await;
}

#[tokio::test]
async fn a_refusal_says_what_to_grant_and_never_the_token() {
    let guarded = Guarded::start().await;
    let read = guarded.token("read", &format!("key \"{KEY}\" {{ policy = \"read\" }} session_prefix \"\" {{ policy = \"write\" }}")).await;
    let elsewhere = guarded.token("elsewhere", "key_prefix \"x/\" { policy = \"write\" }").await;
    let wanted = format!("the rules {}", rules());
    for (token, advice) in
        [(None, &*wanted), (Some(&read), &wanted), (Some(&elsewhere), &wanted), (Some(&UNKNOWN.to_owned()), "has run out")]
    {
        let options = token.map(|token| guarded.with(token)).unwrap_or_default();
        let refused = lock_with(&guarded.consul.url(), &options, &node(1), TTL).expect("open a lock");
        let error = refused.acquire().await.map(drop).unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }) && error.to_string().contains(advice), "{token:?}: {error}");
        if let Some(token) = token {
            assert!(!format!("{error} {error:?} {refused:?}").contains(token.as_str()), "{error:?} {refused:?}");
        }
    }
    let may_read = lock_with(&guarded.consul.url(), &guarded.with(&read), &node(2), TTL).expect("open a lock");
    assert_eq!(leader(&*may_read).await, None, "who may only read can follow");
}

/// Who hands tokens out replaces the file, and nothing is restarted for it.
#[tokio::test]
async fn a_token_that_was_replaced_in_its_file_costs_no_call() {
    let guarded = Guarded::start().await;
    let earlier = guarded.token("earlier", &rules()).await;
    let options = guarded.with(&earlier);
    let us = lock_with(&guarded.consul.url(), &options, &node(1), PROMPT).expect("open a lock");
    let mut lease = win(&*us, "nobody else campaigns").await;
    let later = guarded.token("later", &rules()).await;
    guarded.with(&later);
    guarded.revoke(&earlier).await;
    assert!(matches!(lease.renew().await, Ok(Renewal::Held)));
    assert!(matches!(us.leader().await, Ok(Some(_))));
}

/// A primary whose token was taken away cannot renew: it stops by its own clock, and leads again with a token.
#[tokio::test]
async fn a_primary_whose_token_was_revoked_stops_in_time_and_leads_again_with_another() {
    let guarded = Guarded::start().await;
    let token = guarded.token("election", &rules()).await;
    let lock = lock_with(&guarded.consul.url(), &guarded.with(&token), &node(1), TTL).expect("open a lock");
    let node = Running::start_with(lock, node(1), TTL);
    let before = node.leads(PROMPT, "nobody else campaigns").await;
    guarded.revoke(&token).await;
    timeout(TTL + TTL, node.roles.wait_until(|role| role.tenure().is_none())).await.expect("it stops within its TTL");
    let next = guarded.token("next", &rules()).await;
    guarded.with(&next);
    assert!(node.leads(PROMPT, "it has a token again").await >= before);
}

#[tokio::test]
async fn a_token_that_no_header_can_carry_is_told_without_showing_it() {
    let guarded = Guarded::start().await;
    let us = lock_with(&guarded.consul.url(), &guarded.with("hunter2\nhunter3"), &node(1), TTL).expect("open a lock");
    let error = us.acquire().await.map(drop).unwrap_err();
    assert!(matches!(error, StoreError::Denied { .. }), "{error:?}");
    assert!(error.to_string().contains("token-file") && !format!("{error} {error:?}").contains("hunter"), "{error:?}");
}

/// Consul with its API behind TLS, where `127.0.0.1` is its name.
async fn with_tls(papers: &Papers) -> (Consul, u16) {
    let https = port::free().port();
    let settings = json!({
        "session_ttl_min": "1s",
        "ports": {"https": https},
        "ca_file": papers.path("ca.pem"), "cert_file": papers.path("server.pem"), "key_file": papers.path("server.key"),
        "verify_incoming_https": true,
    });
    (Consul::start_with(true, &settings).await, https)
}

#[tokio::test]
async fn consul_is_reached_over_tls_with_a_certificate_of_ours() {
    let papers = Papers::for_a_server_at("IP:127.0.0.1");
    let (_consul, https) = with_tls(&papers).await;
    let url = format!("consul://127.0.0.1:{https}");
    let shown = papers.shown();
    let us = lock_with(&url, &shown, &node(1), PROMPT).expect("open a lock");
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    let me = leader(&*us).await;
    let quiet = timeout(Duration::from_millis(300), us.changed(me.as_ref())).await;
    assert!(quiet.is_err(), "nothing has changed: {quiet:?}");
    lease.release().await.expect("release");

    let stranger = papers.option("cacert", "server.pem");
    let [trust, cert, key] = shown.clone();
    let other_name = format!("consul://localhost:{https}");
    for (url, options) in [(&url, vec![trust]), (&url, vec![stranger, cert, key]), (&url, Vec::new()), (&other_name, shown.to_vec())] {
        let refused = lock_with(url, &options, &node(2), TTL).expect("open a lock").leader().await;
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{url} {options:?}: {refused:?}");
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_used_is_named_before_anything_is_sent() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("junk"), "hunter2").expect("write a file");
    std::fs::write(path("empty"), "\n").expect("write a file");
    for (option, words) in [
        (format!("cacert={}", path("junk")), "no PEM block"),
        (format!("cacert={}", path("none")), "cannot use"),
        (format!("token-file={}", path("none")), "cannot read"),
        (format!("token-file={}", path("empty")), "is empty"),
    ] {
        let refused = lock_with("consul://127.0.0.1:1", std::slice::from_ref(&option), &node(1), TTL);
        let error = refused.map(drop).unwrap_err().to_string();
        assert!(error.contains(words) && error.contains(&path("")) && !error.contains("hunter2"), "{option}: {error}");
    }
}
