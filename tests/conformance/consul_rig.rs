//! What the tests of the Consul driver alone have in common: its servers, its command, and eyes on keys and sessions.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::consul_server::{Consul, binary};
use crate::rig::KEY;

/// What a takeover may need on a busy machine, beyond what Consul lets pass by its own rules.
pub(crate) const SLACK: Duration = Duration::from_secs(4);

/// The lock-delay where none is given.
pub(crate) const LOCK_DELAY: Duration = Duration::from_secs(1);

/// A server that is ready soon, and keeps sessions of one second and more.
pub(crate) async fn quick() -> Consul {
    Consul::start_with(true, &json!({"session_ttl_min": "1s"})).await
}

/// Who the key names, and which session holds it; both empty where there is none.
pub(crate) async fn held(consul: &Consul) -> (String, String) {
    let key = consul.key(KEY).await.unwrap_or_default();
    let text = |name: &str| key[name].as_str().unwrap_or_default().to_owned();
    let value = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, text("Value")).expect("base64");
    (String::from_utf8(value).expect("text"), text("Session"))
}

/// All sessions there are.
pub(crate) async fn sessions(consul: &Consul) -> Vec<Value> {
    let (status, body) = consul.api("GET", "/v1/session/list?consistent", "").await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).expect("a list of sessions")
}

/// A session of another make.
pub(crate) async fn stranger(consul: &Consul, name: &str, ttl: &str) -> String {
    let wanted = json!({"Name": name, "TTL": ttl, "LockDelay": "1ms", "Checks": [], "NodeChecks": []});
    let (status, body) = consul.api("PUT", "/v1/session/create", &wanted.to_string()).await;
    assert_eq!(status, 200, "{body}");
    let created: Value = serde_json::from_str(&body).expect("a session");
    created["ID"].as_str().expect("its name").to_owned()
}

/// A change of the key by the API; whether Consul made it.
pub(crate) async fn change(consul: &Consul, query: &str, value: &str) -> bool {
    let (status, body) = consul.api("PUT", &format!("/v1/kv/{KEY}?{query}"), value).await;
    assert_eq!(status, 200, "{body}");
    body == "true"
}

/// What the `consul` command prints for these arguments.
///
/// # Panics
/// When it fails.
pub(crate) async fn cli(consul: &Consul, arguments: &[&str]) -> String {
    let output = command(consul, arguments).output().await.expect("start the command");
    assert!(output.status.success(), "consul {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A running `consul` command; it ends with its value.
pub(crate) fn spawn_cli(consul: &Consul, arguments: &[&str]) -> Child {
    command(consul, arguments).spawn().expect("start the command")
}

fn command(consul: &Consul, arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments).env("CONSUL_HTTP_ADDR", consul.address().to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}
