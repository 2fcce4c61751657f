//! A real browser with a page of ours, and the app that the page talks to.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tempfile::TempDir;

use super::certificates::{Credentials, openssl};
use super::interop::Served;

/// The app that the page talks to: see there.
const APP: &str = include_str!("app.py");
/// Where it finds the page.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/browser");

/// No window, no sandbox as root has none, nobody called but the page's own host, and nothing drawn that nobody sees.
const FLAGS: [&str; 15] = [
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--no-default-browser-check",
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--password-store=basic",
];

/// What it writes down of the network, and of trouble.
const NETWORK: &str = "network.json";
const COMPLAINTS: &str = "complaints";

/// Starts the app.
pub(crate) async fn app() -> Served {
    Served::start(APP, &[FOLDER]).await
}

/// Chromium with one page open, until it is dropped; when that happens in a failed test, what it complained of is printed.
#[derive(Debug)]
pub(crate) struct Browser {
    child: Child,
    folder: TempDir,
}

impl Browser {
    /// Opens the page at `url`. Of those whose certificate no authority on this machine issued, it believes `trusted` alone; it
    /// shows none of its own, which it would do only by a policy for the whole machine.
    ///
    /// # Panics
    /// When there is no chromium.
    pub(crate) fn open(url: &str, trusted: Option<&Credentials>) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let at = |name: &str| folder.path().join(name);
        let mut command = Command::new("chromium");
        command.args(FLAGS);
        command.arg(format!("--user-data-dir={}", at("profile").display()));
        command.arg(format!("--log-net-log={}", at(NETWORK).display()));
        command.args(trusted.map(|files| format!("--ignore-certificate-errors-spki-list={}", key_of(files, folder.path()))));
        let complaints = File::create(at(COMPLAINTS)).expect("a file for its complaints");
        command.arg(url).env("HOME", folder.path()).process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(complaints);
        let child = command.spawn().unwrap_or_else(|error| panic!("start chromium, of the Debian package of that name: {error}"));
        Self { child, folder }
    }

    /// For how many WebSockets it has asked by an extended CONNECT (RFC 8441), as far as it has written that down.
    pub(crate) fn websocket_streams(&self) -> usize {
        let network = std::fs::read(self.folder.path().join(NETWORK)).expect("what it did on the network");
        let network = String::from_utf8_lossy(&network);
        network.lines().filter(|event| event.contains("\":protocol: websocket\"") && event.contains("\"stream_id\":")).count()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).expect("a process id");
        kill_process_group(group, Signal::KILL).ok();
        self.child.wait().ok();
        if std::thread::panicking() {
            let complaints = std::fs::read(self.folder.path().join(COMPLAINTS)).unwrap_or_default();
            eprintln!("---- chromium ----\n{}", String::from_utf8_lossy(&complaints));
        }
    }
}

/// The hash of the certificate's key, as Chromium wants it.
fn key_of(files: &Credentials, folder: &Path) -> String {
    let cert = files.cert.to_str().expect("a path in UTF-8");
    openssl(folder, &["x509", "-in", cert, "-noout", "-pubkey", "-out", "key.pem"]);
    openssl(folder, &["pkey", "-pubin", "-in", "key.pem", "-outform", "der", "-out", "key.der"]);
    openssl(folder, &["dgst", "-sha256", "-binary", "-out", "key.sum", "key.der"]);
    openssl(folder, &["base64", "-in", "key.sum", "-out", "key.base64"]);
    std::fs::read_to_string(folder.join("key.base64")).expect("a hash").trim().to_owned()
}
