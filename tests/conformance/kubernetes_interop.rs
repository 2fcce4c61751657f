//! The election as others see it and meddle with it: the Kubernetes client's own leader election as rival, kubectl as operator.

use std::process::{Output, Stdio};
use std::time::Duration;

use bellwether::clock;
use bellwether::store::{Attempt, Renewal, StoreError};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::kubernetes_rig::{PYTHON_PACKAGES, lock, spec};
use crate::kubernetes_server::{Kubernetes, NAMESPACE, lease_name};
use crate::rig::{LONG_TTL, SERVICE, SLACK, node};
use crate::suite::steps::{PROMPT, leader, lose, release, renew, win};
use crate::wait::wait_for;

/// What the rival's leases last.
const RIVAL: Duration = Duration::from_secs(4);

/// A candidate of the Python client's leader election. It ends with its value, without giving anything back.
struct Rival {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Rival {
    fn start(server: &Kubernetes, identity: &str) -> Self {
        let mut child = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance/kubernetes_candidate.py"))
            .args([&lease_name(SERVICE), NAMESPACE, identity])
            .env("PYTHONPATH", PYTHON_PACKAGES)
            .env(
                "KUBECONFIG",
                server.kubeconfig_with(&format!("https://{}", server.address()), &serde_json::json!({"token": "valid-token"})),
            )
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap_or_else(|error| panic!("start python3: {error}"));
        let said = BufReader::new(child.stdout.take().expect("its output")).lines();
        Self { child, said }
    }

    /// Waits until it says something with these words in it.
    async fn says(&mut self, words: &str) {
        let mut lines = Vec::new();
        let heard = timeout(PROMPT + SLACK, async {
            while let Some(line) = self.said.next_line().await.expect("text") {
                if line.contains(words) {
                    return true;
                }
                lines.push(line);
            }
            false
        });
        let heard = heard.await.unwrap_or(false);
        assert!(heard, "a rival that says `{words}`, with the Python package kubernetes that scripts/prepare.sh installs: {lines:?}");
    }

    async fn crash(mut self) {
        self.child.kill().await.expect("kill the rival");
    }
}

#[tokio::test]
async fn a_rival_of_another_make_is_honoured_and_followed_when_it_is_gone() {
    let server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let mut rival = Rival::start(&server, "python-1");
    rival.says("python-1 leads").await;
    for outcome in [us.acquire().await.map(drop), us.leader().await.map(drop)] {
        let error = outcome.unwrap_err();
        assert!(matches!(error, StoreError::Foreign { .. }), "{error:?}");
        assert!(error.to_string().contains("python-1") && error.to_string().contains("shop/bellwether-web"), "{error}");
    }
    // It goes on renewing, so waiting for its time is not enough.
    tokio::time::sleep(RIVAL * 2).await;
    assert!(matches!(us.acquire().await, Err(StoreError::Foreign { .. })), "it is alive");
    let alive = clock::now();
    rival.crash().await;
    let epoch = wait_for("the rival's lease to run out", RIVAL + SLACK, || async {
        match us.acquire().await {
            Ok(Attempt::Held(lease)) => Ok(lease.epoch()),
            other => Err(other.map(drop)),
        }
    })
    .await;
    assert!(clock::now() - alive >= RIVAL - Duration::from_secs(1), "not before its time");
    assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(epoch));
}

#[tokio::test]
async fn a_rival_of_another_make_waits_for_us_and_leads_when_we_let_go() {
    let server = Kubernetes::start().await;
    let (us, other) = (lock(&server, 1, LONG_TTL), lock(&server, 2, LONG_TTL));
    let mut lease = win(&*us, "nobody else campaigns").await;
    let mut rival = Rival::start(&server, "python-1");
    // It observes, too: it reads our record, and names its holder.
    let holder = spec(&server, "holderIdentity").as_str().expect("a holder").to_owned();
    rival.says(&format!("lease held by {holder}")).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    lose(&*other, "the first has it").await;
    release(&mut *lease).await;
    rival.says("python-1 leads").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(matches!(other.acquire().await, Err(StoreError::Foreign { .. })));
}

/// One that signs as our nodes do can be followed.
#[tokio::test]
async fn a_rival_that_signs_with_an_address_is_followed() {
    let server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let mut rival = Rival::start(&server, "10.0.0.9:4000_00000000000000ab");
    rival.says("00000000000000ab leads").await;
    let taken = lose(&*us, "the rival leads").await.expect("a leader's name");
    assert_eq!(taken.address.as_str(), "10.0.0.9:4000");
}

async fn kubectl(server: &Kubernetes, arguments: &[&str]) -> Output {
    let output = timeout(PROMPT + SLACK, server.kubectl().args(["--namespace", NAMESPACE]).args(arguments).output());
    let output = output.await.expect("kubectl in time");
    output.unwrap_or_else(|error| panic!("start kubectl, of the Debian package kubernetes-client: {error}"))
}

/// An operator with kubectl: looks, labels, and deletes.
#[tokio::test]
async fn an_operator_sees_the_leader_and_can_end_its_tenure() {
    let server = Kubernetes::start().await;
    let us = lock(&server, 1, LONG_TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let name = lease_name(SERVICE);
    let shown = kubectl(&server, &["get", "lease", &name, "--output", "jsonpath={.spec.holderIdentity}"]).await;
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let address = node(1).address;
    assert!(text.starts_with(&format!("{address}_")), "{text} {}", String::from_utf8_lossy(&shown.stderr));

    let patch = r#"{"metadata":{"labels":{"team":"a"}}}"#;
    let patched = kubectl(&server, &["patch", "lease", &name, "--type=merge", "--patch", patch]).await;
    assert!(patched.status.success(), "{}", String::from_utf8_lossy(&patched.stderr));
    assert_eq!(renew(&mut *lease).await, Renewal::Held);

    let deleted = kubectl(&server, &["delete", "lease", &name, "--wait=false"]).await;
    assert!(deleted.status.success(), "{}", String::from_utf8_lossy(&deleted.stderr));
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert!(win(&*us, "the record is gone").await.epoch() > lease.epoch());
}
