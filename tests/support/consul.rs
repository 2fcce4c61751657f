//! A real Consul server on loopback, and its HTTP API as an operator uses it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::port;

/// How long the server may take to start, or to answer, on a busy machine.
const START: Duration = Duration::from_secs(30);

/// A server with its data in a folder of its own. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct Consul {
    child: Option<Child>,
    http: SocketAddr,
    /// Its own configuration; the ports that it does not use are in it too.
    settings: Value,
    is_kept_in_memory: bool,
    folder: TempDir,
}

impl Consul {
    /// An empty server that keeps sessions of one second and more, and its data on disk.
    pub(crate) async fn start() -> Self {
        Self::start_with(false, &json!({"session_ttl_min": "1s"})).await
    }

    /// An empty server with these settings. One that keeps everything in memory is ready sooner, and has forgotten all of
    /// it when it is started again.
    pub(crate) async fn start_with(is_kept_in_memory: bool, settings: &Value) -> Self {
        let mut settings = settings.clone();
        let ports = settings["ports"].as_object().cloned().unwrap_or_default();
        let mut all = json!({"dns": -1, "grpc": -1, "serf_wan": -1, "serf_lan": port::free().port(), "server": port::free().port()});
        all.as_object_mut().expect("an object").extend(ports);
        let http = port::free();
        all["http"] = http.port().into();
        settings["ports"] = all;
        settings["disable_update_check"] = true.into();
        settings["performance"] = json!({"raft_multiplier": 1});
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut consul = Self { child: None, http, settings, is_kept_in_memory, folder };
        consul.restart().await;
        consul
    }

    pub(crate) fn url(&self) -> String {
        format!("consul://{}", self.http)
    }

    /// Where clients reach it.
    pub(crate) fn address(&self) -> SocketAddr {
        self.http
    }

    /// Ends the server as a crash does.
    pub(crate) async fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().await.expect("kill Consul");
        }
    }

    /// Starts the server again with what it has kept.
    pub(crate) async fn restart(&mut self) {
        let file = self.folder.path().join("settings.json");
        std::fs::write(&file, self.settings.to_string()).expect("write Consul's settings");
        let mode: &[&str] = if self.is_kept_in_memory { &["-dev"] } else { &["-server", "-bootstrap-expect=1"] };
        let child = Command::new(binary())
            .arg("agent")
            .args(mode)
            .args(["-bind=127.0.0.1", "-client=127.0.0.1", "-node=tested", "-data-dir"])
            .arg(self.folder.path().join("data"))
            .arg("-config-file")
            .arg(file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn();
        self.child = Some(
            child.unwrap_or_else(|error| panic!("start Consul, which scripts/prepare.sh unpacks from Debian's package consul: {error}")),
        );
        let deadline = Instant::now() + START;
        // Only a server that leads its cluster answers this with something else than 500.
        while !matches!(self.try_api("GET", "/v1/kv/ready?consistent", "").await, Some((404 | 403, _))) {
            assert!(Instant::now() < deadline, "Consul was not ready within {START:?}");
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Starts the server again without its data.
    pub(crate) async fn restart_empty(&mut self) {
        std::fs::remove_dir_all(self.folder.path().join("data")).expect("remove Consul's data");
        self.restart().await;
    }

    /// Freezes the server, or lets it go on.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(Child::id).expect("a running server");
        let pid = Pid::from_raw(pid.try_into().expect("a process id")).expect("a process id");
        kill_process(pid, signal).expect("signal Consul");
    }

    /// What the HTTP API answers to `METHOD /PATH`: its status and its body.
    pub(crate) async fn api(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        self.try_api(method, target, body).await.unwrap_or_else(|| panic!("no answer of Consul to {method} {target}"))
    }

    async fn try_api(&self, method: &str, target: &str, body: &str) -> Option<(u16, String)> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.http).await.ok()?;
            let length = body.len();
            let head = format!("{method} {target} HTTP/1.1\r\nHost: consul\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
            stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.ok()?;
            let (head, body) = answer.split_once("\r\n\r\n")?;
            Some((head.split(' ').nth(1)?.parse().ok()?, body.trim_end().to_owned()))
        };
        timeout(START, exchange).await.ok().flatten()
    }

    /// The key as the API shows it; nothing where there is none.
    pub(crate) async fn key(&self, key: &str) -> Option<Value> {
        let (status, body) = self.api("GET", &format!("/v1/kv/{key}?consistent"), "").await;
        (status == 200).then(|| serde_json::from_str::<Value>(&body).expect("JSON of Consul")[0].clone())
    }

    /// Deletes a key that is there.
    pub(crate) async fn delete(&self, key: &str) {
        assert!(self.key(key).await.is_some(), "there was a key to delete");
        assert_eq!(self.api("DELETE", &format!("/v1/kv/{key}"), "").await, (200, "true".to_owned()));
    }

    /// Ends the session that holds a key, as somebody may with the API or the UI.
    pub(crate) async fn destroy_holder(&self, key: &str) {
        let holder = self.key(key).await.and_then(|key| key["Session"].as_str().map(str::to_owned)).expect("a key that is held");
        assert_eq!(self.api("PUT", &format!("/v1/session/destroy/{holder}"), "").await, (200, "true".to_owned()));
    }
}

/// The one on the PATH, or the one that `scripts/prepare.sh` has unpacked.
pub(crate) fn binary() -> PathBuf {
    let unpacked = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/target/tools/consul/usr/bin/consul"));
    if unpacked.exists() { unpacked } else { PathBuf::from("consul") }
}
