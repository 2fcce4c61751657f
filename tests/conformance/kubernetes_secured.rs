//! Kubernetes with tokens, certificates and roles.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use bellwether::store::{Renewal, StoreError};
use serde_json::json;
use tokio::time::timeout;

use crate::kubernetes_rig::{lock, lock_at, lock_with};
use crate::kubernetes_server::certificates::USER;
use crate::kubernetes_server::{Kubernetes, NAMESPACE};
use crate::rig::{LONG_TTL, Running, SERVICE, node};
use crate::suite::steps::{PROMPT, erase, lose, release, renew, win, withdraw};

/// Shorter calls than some commands take.
const TTL: Duration = Duration::from_secs(6);

/// The rights that the documents ask for.
const VERBS: [&str; 4] = ["get", "watch", "create", "update"];

/// B29: tokens expire after an hour, and whoever issues them replaces the file in time. Nothing is restarted for it.
#[tokio::test]
async fn a_token_that_was_replaced_is_read_again() {
    let server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    server.expire_token("valid-token");
    let refused = lease.renew().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&server.file("token")), "{refused}");
    for text in [format!("{refused} {refused:?}"), format!("{us:?} {lease:?}")] {
        assert!(!text.contains("valid-token"), "{text}");
    }
    server.accept_token("another-token");
    std::fs::write(server.file("token"), "another-token\n").expect("replace the token");
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
}

/// A refusal names the verbs, the resource, the namespace, and the ServiceAccount that lacks them.
#[tokio::test]
async fn missing_rights_are_named_with_whom_to_give_them_to() {
    let server = Kubernetes::start().await;
    for missing in VERBS {
        server.allow_only(&VERBS.into_iter().filter(|verb| *verb != missing).collect::<Vec<_>>());
        let us = lock(&server, 1, LONG_TTL);
        let refused = match missing {
            "watch" => timeout(PROMPT, us.changed(None)).await.expect("an answer in time"),
            _ => us.acquire().await.map(drop),
        };
        let error = refused.unwrap_err();
        assert!(matches!(error, StoreError::Denied { .. }), "without {missing}: {error:?}");
        let text = error.to_string();
        for words in ["the ServiceAccount web of namespace shop", "`leases`", "coordination.k8s.io", "in namespace shop", missing] {
            assert!(text.contains(words), "without {missing}: {text}");
        }
        server.allow_only(&["get", "watch", "create", "update", "delete"]);
        let healed = lock(&server, 1, LONG_TTL);
        win(&*healed, "the rights are there").await;
        withdraw(&*healed).await;
        erase(&*healed).await;
    }
}

/// An election does with the rights that the documents ask for.
#[tokio::test]
async fn an_election_needs_no_more_rights_than_documented() {
    let server = Kubernetes::start().await;
    server.allow_only(&VERBS);
    let (us, other) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
    let mut lease = win(&*us, "nobody else campaigns").await;
    let seen = lose(&*other, "the first has it").await;
    let heard = timeout(PROMPT, other.changed(seen.as_ref()));
    let (heard, ()) = tokio::join!(heard, async {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        release(&mut *lease).await;
    });
    assert!(matches!(heard, Ok(Ok(()))), "{heard:?}");
    win(&*other, "the first has released it").await;
    withdraw(&*other).await;
    let refused = other.erase().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "only `store check` deletes: {refused:?}");
    assert!(refused.to_string().contains("update and delete `leases`"), "{refused}");
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_named() {
    let server = Kubernetes::start().await;
    let options = [format!("kubeconfig={}", server.kubeconfig())];
    let refused = lock_with("nowhere", &options, &node(1), LONG_TTL).expect("open a lock").acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }) && refused.to_string().contains("make the namespace nowhere"), "{refused:?}");
}

/// A command of the kubeconfig gives tokens, and is asked for another one when the server refuses the last.
#[tokio::test]
async fn a_command_is_asked_again_when_its_token_has_expired() {
    let server = Kubernetes::start().await;
    let kubeconfig = signing_in(&server, "true");
    let us = lock_at(&kubeconfig, &node(1), LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    server.expire_token("valid-token");
    server.accept_token("second-token");
    std::fs::write(server.file("token-now"), "second-token").expect("write");
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    assert_eq!(asked(&server), 2, "once for each token");
}

/// A command that takes longer than any call may is waited for by none, and run once all the same.
#[tokio::test]
async fn a_command_may_take_longer_than_a_call() {
    let server = Kubernetes::start().await;
    let kubeconfig = signing_in(&server, "sleep 3");
    let running = Running::start_with(lock_at(&kubeconfig, &node(1), TTL), node(1), TTL);
    running.leads(PROMPT, "the command has given a token").await;
    assert_eq!(asked(&server), 1);
}

/// How often the command was run.
fn asked(server: &Kubernetes) -> usize {
    std::fs::read_to_string(server.file("asked")).expect("what the command left").lines().count()
}

/// A kubeconfig with a command that does `first` something and then gives what is in `token-now`.
fn signing_in(server: &Kubernetes, first: &str) -> String {
    let script = server.folder().join("sign-in");
    let printed = r#"{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"'"$(cat token-now)"'"}}"#;
    std::fs::write(&script, format!("#!/bin/sh\ncd \"$(dirname \"$0\")\" && echo asked >>asked && {first} && echo '{printed}'\n"))
        .expect("write a command");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("make it a command");
    std::fs::write(server.file("token-now"), "valid-token").expect("write a token");
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./sign-in", "interactiveMode": "Never"}});
    server.kubeconfig_with(&format!("https://{}", server.address()), &exec)
}

#[tokio::test]
async fn a_certificate_lets_its_user_in() {
    let server = Kubernetes::start().await;
    let user = json!({"client-certificate": "user.pem", "client-key": "user.key"});
    let kubeconfig = server.kubeconfig_with(&format!("https://{}", server.address()), &user);
    win(&*lock_at(&kubeconfig, &node(1), LONG_TTL), "nobody else campaigns").await;
    assert!(server.requests().iter().all(|request| request.ends_with(&format!("by {USER}"))), "{:?}", server.requests());
}

/// The options replace what the kubeconfig says; and whoever cannot prove to be the cluster is told nothing.
#[tokio::test]
async fn options_replace_what_the_kubeconfig_says() {
    let server = Kubernetes::start().await;
    let nobody = server.kubeconfig_with(&format!("https://{}", server.address()), &json!({"token": "wrong-hunter2"}));
    let refused = lock_at(&nobody, &node(1), LONG_TTL).acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }) && !format!("{refused:?}").contains("hunter2"), "{refused:?}");
    let kubeconfig = format!("kubeconfig={nobody}");
    let token = format!("token-file={}", server.file("token"));
    let open = |options: &[String]| lock_with(NAMESPACE, options, &node(1), LONG_TTL);
    win(&*open(&[kubeconfig.clone(), token.clone()]).expect("open a lock"), "the token is right").await;

    let before = server.requests().len();
    let stranger = format!("cacert={}", server.file("user.pem"));
    let unproven = open(&[kubeconfig.clone(), token, stranger]).expect("open a lock").leader().await;
    assert!(matches!(unproven, Err(StoreError::Unavailable { .. })), "{unproven:?}");
    assert_eq!(server.requests().len(), before);

    for (option, words) in [
        (format!("cacert={}", server.file("none")), "none"),
        (format!("cacert={}", server.file("user.key")), "no PEM block of a certificate"),
        (format!("token-file={}", server.file("none")), "none"),
    ] {
        let error = open(&[kubeconfig.clone(), option]).map(drop).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    assert!(Path::new(&nobody).exists() && server.lease(SERVICE).is_some());
}

/// A server that speaks TLS as nobody we know is no server of ours, and a name that is wrong for its certificate is another one.
#[tokio::test]
async fn a_server_is_known_by_the_name_in_its_certificate() {
    let server = Kubernetes::start().await;
    let config = |name: &str| {
        let text = std::fs::read_to_string(server.kubeconfig()).expect("a kubeconfig");
        let text = text.replace("\"certificate-authority\"", &format!("\"tls-server-name\":\"{name}\",\"certificate-authority\""));
        let file = server.file(name);
        std::fs::write(&file, text).expect("write a kubeconfig");
        file
    };
    win(&*lock_at(&config("kubernetes.default"), &node(1), LONG_TTL), "nobody else campaigns").await;
    // A name with several addresses, of which one may not be the server's.
    let by_name = server.kubeconfig_with(&format!("https://localhost:{}", server.address().port()), &json!({"tokenFile": "token"}));
    for port in 3..6 {
        lock_at(&by_name, &node(port), LONG_TTL).leader().await.expect("one of its addresses answers");
    }
    let other = lock_at(&config("kubernetes.elsewhere"), &node(2), Duration::from_secs(20)).leader().await;
    assert!(matches!(other, Err(StoreError::Unavailable { .. })), "{other:?}");
}
