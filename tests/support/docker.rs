//! A real Docker engine on a unix socket, without a network, and the real client. Needs root, as the engine does.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

use super::certificates::Credentials;
use super::{wait_for, within};

/// How long an engine may take to start, and a command to end, on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// How long an engine gets to stop its containers and itself.
const STOP: Duration = Duration::from_secs(20);
/// What is missing where one of them is.
const PACKAGES: &str = "run scripts/prepare.sh test, or apt-get install docker.io (Debian 13: and docker-cli)";
/// Where programs are that only root runs, and the others.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The one image that each engine has.
pub(crate) const IMAGE: &str = "bellwether-test:1";
/// What can be run in it.
const APPLETS: [&str; 10] = ["sh", "cat", "sleep", "wc", "touch", "test", "true", "md5sum", "stty", "tty"];

/// An engine with its data in a folder of its own. Dropping it ends its containers, and then itself.
#[derive(Debug)]
pub(crate) struct Engine {
    child: std::process::Child,
    folder: TempDir,
}

impl Engine {
    /// An engine that has [`IMAGE`] and can run it.
    ///
    /// # Panics
    /// With what is missing, on a machine on which none runs.
    pub(crate) async fn start() -> Self {
        assert!(geteuid().is_root(), "a Docker engine needs root: run the tests as root");
        let folder = tempfile::tempdir().expect("a temporary folder");
        let place = |name: &str| folder.path().join(name).into_os_string();
        std::fs::write(place("settings.json"), "{}").expect("write an engine's settings");
        let log = File::create(place("log")).expect("an engine's log");
        let mut command = std::process::Command::new("dockerd");
        command.env("PATH", PATH).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        for (flag, value) in [
            ("--data-root", place("data")),
            ("--exec-root", place("run")),
            ("--pidfile", place("pid")),
            ("--config-file", place("settings.json")),
        ] {
            command.arg(flag).arg(value);
        }
        command.arg("--host").arg(format!("unix://{}", folder.path().join("socket").display()));
        // The machine's network stays as it is, and so do its systemd and, where an engine takes itself to be in a container,
        // its AppArmor. A storage driver that mounts nothing works on every file system.
        command.args(["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]);
        command.args(["--group=0", "--storage-driver=vfs", "--shutdown-timeout=1", "--log-level=warn"]);
        command.args(["--exec-opt", "native.cgroupdriver=cgroupfs"]).env("container", "bellwether-test");
        let child = command.spawn().unwrap_or_else(|error| panic!("dockerd is missing ({error}): {PACKAGES}"));
        let mut engine = Self { child, folder };
        wait_for("the Docker engine to answer", LIMIT, async || match engine.child.try_wait().expect("a child's status") {
            Some(status) => panic!("no Docker engine runs on this machine: dockerd ended with {status}, saying {}", engine.last_words()),
            None => engine.ping().await.ok_or("no answer"),
        })
        .await;
        let done = engine.client().feed(image().await, &["import", "-", IMAGE]).await;
        assert!(done.status.success(), "the Docker engine takes no image: {done:?}");
        let done = engine.client().run(&["run", "--rm", "--network", "none", IMAGE, "true"]).await;
        assert!(done.status.success(), "the Docker engine of this machine runs no container: {} {}", done.err, engine.last_words());
        engine
    }

    /// What a node is given as its app.
    pub(crate) fn url(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("socket")
    }

    /// The client, asking the engine itself.
    pub(crate) fn client(&self) -> Docker {
        Docker::at(self.url())
    }

    /// The head of its answer to a ping, if it answers.
    pub(crate) async fn ping(&self) -> Option<String> {
        let mut stream = UnixStream::connect(self.socket()).await.ok()?;
        stream.write_all(b"HEAD /_ping HTTP/1.1\r\nHost: docker\r\nConnection: close\r\n\r\n").await.ok()?;
        let mut head = String::new();
        stream.read_to_string(&mut head).await.ok()?;
        head.starts_with("HTTP/1.1 200").then_some(head)
    }

    fn last_words(&self) -> String {
        let mut log = String::new();
        File::open(self.folder.path().join("log")).and_then(|mut file| file.read_to_string(&mut log)).ok();
        let lines: Vec<_> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.child);
        let containerd = std::fs::read_to_string(self.folder.path().join("run/containerd/containerd.pid"));
        kill_process(pid, Signal::TERM).ok();
        let deadline = Instant::now() + STOP;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= deadline {
                self.child.kill().ok();
                // It has a child of its own, which it can no longer end.
                if let Some(pid) = containerd.ok().and_then(|text| Pid::from_raw(text.trim().parse().ok()?)) {
                    kill_process(pid, Signal::KILL).ok();
                }
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child.wait().ok();
    }
}

/// The files of an image in which one program does everything.
async fn image() -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin).expect("a folder of an image");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let busybox = busybox.expect("busybox is missing: run scripts/prepare.sh test, or apt-get install busybox-static");
    std::fs::copy(busybox, bin.join("busybox")).expect("copy busybox");
    for applet in APPLETS {
        std::os::unix::fs::symlink("busybox", bin.join(applet)).expect("a link in an image");
    }
    let tar = Command::new("tar").arg("-C").arg(folder.path()).args(["-c", "."]).output().await.expect("tar starts");
    assert!(tar.status.success(), "{tar:?}");
    tar.stdout
}

/// The client, asking one place.
#[derive(Debug)]
pub(crate) struct Docker {
    arguments: Vec<String>,
    /// Where it keeps nothing.
    folder: TempDir,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) status: ExitStatus,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Docker {
    /// A client of what is at `host`.
    pub(crate) fn at(host: String) -> Self {
        Self { arguments: vec!["--host".to_owned(), host], folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// The same over TLS, showing what is in `files`.
    pub(crate) fn secured(mut self, files: &Credentials) -> Self {
        let text = |path: &Path| path.to_str().expect("a path in UTF-8").to_owned();
        self.arguments.extend(["--tlsverify".to_owned()]);
        for (flag, path) in [("--tlscacert", &files.ca), ("--tlscert", &files.cert), ("--tlskey", &files.key)] {
            self.arguments.extend([flag.to_owned(), text(path)]);
        }
        self
    }

    /// Runs a command to its end, with nothing to read.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Done {
        self.feed(Vec::new(), arguments).await
    }

    /// Runs a command to its end, with this to read.
    pub(crate) async fn feed(&self, input: Vec<u8>, arguments: &[&str]) -> Done {
        let mut command = self.command("docker");
        let command = command.args(&self.arguments).args(arguments);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("docker is missing ({error}): {PACKAGES}"));
        let mut stdin = child.stdin.take().expect("its input");
        let feeding = async move {
            // A command that has enough need not read on.
            stdin.write_all(&input).await.ok();
        };
        let reason = format!("docker {arguments:?}");
        let (output, ()) = within(&reason, LIMIT, async { tokio::join!(child.wait_with_output(), feeding) }).await;
        let output = output.expect("a child's output");
        Done { status: output.status, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
    }

    /// What a command prints that must succeed, without the last line's end.
    pub(crate) async fn says(&self, arguments: &[&str]) -> String {
        self.run(arguments).await.said(&format!("docker {arguments:?}"))
    }

    /// Begins a command.
    pub(crate) fn begin(&self, arguments: &[&str]) -> Begun {
        let mut command = self.command("docker");
        Begun::spawn(command.args(&self.arguments).args(arguments))
    }

    /// Begins a command at a terminal of its own.
    pub(crate) fn begin_at_terminal(&self, arguments: &[&str]) -> Begun {
        let quoted = |words: &[String]| words.iter().map(|word| format!(" '{word}'")).collect::<String>();
        let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let line = format!("docker{}{}", quoted(&self.arguments), quoted(&arguments));
        let mut command = self.command("script");
        Begun::spawn(command.args(["--quiet", "--return", "--command", &line, "/dev/null"]))
    }

    /// Nothing of the tester's own Docker reaches it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("PATH", PATH).env("HOME", self.folder.path()).env("DOCKER_CONFIG", self.folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command
    }
}

impl Done {
    /// What it printed, and its exit code.
    pub(crate) fn outcome(&self) -> (&str, Option<i32>) {
        (std::str::from_utf8(&self.out).expect("an output in UTF-8"), self.status.code())
    }

    /// What it printed, without the last line's end.
    ///
    /// # Panics
    /// When it failed, with the name of the command.
    pub(crate) fn said(self, command: &str) -> String {
        assert!(self.status.success(), "`{command}` ended with {}: {}{}", self.status, String::from_utf8_lossy(&self.out), self.err);
        String::from_utf8(self.out).expect("an output in UTF-8").trim_end().to_owned()
    }
}

/// A command that runs. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Begun {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    /// What it has printed, and nobody has asked for.
    unread: Vec<u8>,
}

impl Begun {
    fn spawn(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap_or_else(|error| panic!("docker or script is missing ({error}): {PACKAGES}"));
        let (stdin, stdout) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        Self { child, stdin, stdout, unread: Vec::new() }
    }

    /// Lets it read this.
    pub(crate) async fn send(&mut self, text: &str) {
        self.stdin.write_all(text.as_bytes()).await.expect("write to a command");
    }

    /// What it prints, up to and with `end`.
    pub(crate) async fn until(&mut self, end: &str) -> String {
        loop {
            let printed = String::from_utf8_lossy(&self.unread).into_owned();
            if let Some(at) = printed.find(end) {
                let (asked, rest) = printed.split_at(at + end.len());
                self.unread = rest.as_bytes().to_vec();
                return asked.to_owned();
            }
            let read = within(&format!("{end:?}, after {printed:?},"), LIMIT, self.stdout.read_buf(&mut self.unread)).await;
            assert!(read.expect("a command's output") > 0, "the command ended before {end:?}, after {printed:?}");
        }
    }

    /// What it prints from now on, once it has ended by itself, and how it ended: its input stays open.
    pub(crate) async fn ended(self) -> Done {
        let Self { child, stdin: _open, mut stdout, mut unread } = self;
        let ending = async {
            let (output, read) = tokio::join!(child.wait_with_output(), stdout.read_to_end(&mut unread));
            read.expect("a command's output");
            output.expect("a child's status")
        };
        let output = within("a docker command to end", LIMIT, ending).await;
        Done { status: output.status, out: unread, err: String::from_utf8_lossy(&output.stderr).into_owned() }
    }
}
