//! Kazoo, ZooKeeper's client for Python, as the operator's hand and as a rival.

use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;
use tokio::time::timeout;

/// How long one command may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running Kazoo; it ends with its value, and its sessions with it.
#[derive(Debug)]
pub(crate) struct Kazoo {
    _child: Child,
    pipes: Mutex<(ChildStdin, Lines<BufReader<ChildStdout>>)>,
}

/// One candidate's node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) session: i64,
    pub(crate) created: u64,
    pub(crate) version: i32,
}

impl Kazoo {
    pub(crate) fn start(server: SocketAddr) -> Self {
        // Debian's own Python, which has Debian's packages.
        let child = Command::new("/usr/bin/python3")
            .args(["-c", include_str!("kazoo.py"), &server.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("start python3, of the Debian package python3-kazoo: {error}"));
        let pipes = (child.stdin.take().expect("its input"), BufReader::new(child.stdout.take().expect("its output")).lines());
        Self { _child: child, pipes: Mutex::new(pipes) }
    }

    /// All candidates below `folder`, the leader first.
    pub(crate) async fn line(&self, folder: &str) -> Vec<Node> {
        self.command(json!(["line", folder])).await
    }

    pub(crate) async fn delete(&self, path: &str) {
        self.command(json!(["delete", path])).await
    }

    /// Deletes the node of whoever leads, as an operator may.
    pub(crate) async fn delete_leader(&self, folder: &str) {
        let line = self.line(folder).await;
        self.delete(&format!("{folder}/{}", line.first().expect("a leader's node").name)).await;
    }

    /// Any other command of `kazoo.py`.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) async fn command<T: DeserializeOwned>(&self, command: Value) -> T {
        let answer = timeout(PATIENCE, self.ask(&command)).await;
        let mut answer = answer.unwrap_or_else(|_| panic!("{command}: no answer within {PATIENCE:?}"));
        assert!(answer.get("error").is_none(), "{command}: {answer}");
        serde_json::from_value(answer["ok"].take()).expect("an answer of the kind that was asked for")
    }

    async fn ask(&self, command: &Value) -> Value {
        let (input, output) = &mut *self.pipes.lock().await;
        let missing = "Kazoo runs; it is in the Debian package python3-kazoo";
        input.write_all(format!("{command}\n").as_bytes()).await.expect(missing);
        let line = output.next_line().await.expect("Kazoo's output").expect(missing);
        serde_json::from_str(&line).expect("JSON of kazoo.py")
    }
}
