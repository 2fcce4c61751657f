//! The chains that are compared: two processes of one proxy in a row, the second next to the app.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// Clock ticks per second in `/proc`, on every Linux that Rust runs on.
const TICKS: u64 = 100;

/// Two hops, which end with this value.
pub(crate) struct Chain {
    pub(crate) name: &'static str,
    pub(crate) entry: SocketAddr,
    hops: Vec<Child>,
}

fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port")
}

fn start(command: &mut Command) -> Option<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()
}

impl Chain {
    /// HAProxy with two threads a hop; `None` where it is not installed.
    pub(crate) fn haproxy(folder: &Path, app: SocketAddr) -> Option<Self> {
        Self::of_files("haproxy", folder, app, haproxy_file, |file, _| {
            let mut command = Command::new("haproxy");
            command.arg("-db").arg("-f").arg(file);
            command
        })
    }

    /// nginx with two workers a hop; `None` where it is not installed.
    pub(crate) fn nginx(folder: &Path, app: SocketAddr) -> Option<Self> {
        Self::of_files("nginx", folder, app, nginx_file, |file, folder| {
            let mut command = Command::new("nginx");
            command.arg("-p").arg(folder).arg("-c").arg(file);
            command
        })
    }

    fn of_files(
        name: &'static str,
        folder: &Path,
        app: SocketAddr,
        text: impl Fn(SocketAddr, SocketAddr) -> String,
        command: impl Fn(&Path, &Path) -> Command,
    ) -> Option<Self> {
        let mut hops = Vec::new();
        let mut next = app;
        for hop in ["second", "first"] {
            let own = folder.join(format!("{name}-{hop}"));
            fs::create_dir_all(&own).expect("a folder for a proxy");
            let (file, port) = (own.join("conf"), free_port());
            fs::write(&file, text(port, next)).expect("a proxy's configuration");
            let Some(child) = start(&mut command(&file, &own)) else {
                eprintln!("{name} is not installed, so it is not compared (Debian: apt-get install {name})");
                return None;
            };
            hops.push(child);
            next = port;
        }
        Some(Self { name, entry: next, hops })
    }

    /// A primary beside the app and a replica in front of it, over an SQLite file.
    pub(crate) fn bellwether(folder: &Path, app: SocketAddr) -> Option<Self> {
        let store = format!("sqlite://{}", folder.join("bench.db").display());
        let node = |port: SocketAddr| {
            let port = port.to_string();
            start(
                Command::new(env!("CARGO_BIN_EXE_bellwether"))
                    .args(["manage", "--replication", "--replication-ttl", "5s", "--workers", "2", "--log-level", "warn"])
                    .args(["--advertise", &port, "-H", &port, "--upstream", &format!("http://{app}"), &store]),
            )
            .expect("start bellwether")
        };
        let (primary, entry) = (free_port(), free_port());
        let first = node(primary);
        wait_for_200(primary, "/_bellwether/primary");
        Some(Self { name: "bellwether", entry, hops: vec![first, node(entry)] })
    }

    pub(crate) fn wait_until_ready(&self) {
        wait_for_200(self.entry, "/small");
    }

    /// The CPU time of all processes of the chain so far.
    pub(crate) fn cpu(&self) -> Duration {
        self.hops.iter().map(|hop| cpu_of(hop.id())).sum()
    }
}

impl Drop for Chain {
    fn drop(&mut self) {
        for hop in &mut self.hops {
            for child in children(hop.id()) {
                Command::new("kill").arg(child.to_string()).status().ok();
            }
            hop.kill().ok();
            hop.wait().ok();
        }
    }
}

fn children(process: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|child| child.parse().ok()).collect()
}

/// User and system time of a process and its children, from proc(5): fields 14 and 15, counted behind the name.
fn cpu_of(process: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    let own = Duration::from_millis(ticks * 1_000 / TICKS);
    own + children(process).into_iter().map(cpu_of).sum::<Duration>()
}

fn wait_for_200(address: SocketAddr, path: &str) {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.starts_with("HTTP/1.1 200"))
    };
    for _ in 0..200 {
        if ask().unwrap_or(false) {
            return;
        }
        sleep(Duration::from_millis(50));
    }
    panic!("{address}{path} did not answer 200 within ten seconds");
}

fn haproxy_file(listen: SocketAddr, next: SocketAddr) -> String {
    format!(
        "global\n  nbthread 2\n  maxconn 4096\ndefaults\n  mode http\n  timeout connect 2s\n  timeout client 60s\n  timeout server 60s\n  \
         timeout http-keep-alive 60s\n  http-reuse always\nfrontend f\n  bind {listen}\n  default_backend b\nbackend b\n  server s {next}\n"
    )
}

fn nginx_file(listen: SocketAddr, next: SocketAddr) -> String {
    format!(
        "worker_processes 2;\ndaemon off;\npid nginx.pid;\nerror_log error.log;\nevents {{ worker_connections 4096; }}\nhttp {{\n  \
         access_log off;\n  tcp_nodelay on;\n  keepalive_requests 100000000;\n  client_body_buffer_size 64k;\n  client_body_temp_path body;\n  \
         proxy_temp_path proxy;\n  fastcgi_temp_path f;\n  uwsgi_temp_path u;\n  scgi_temp_path s;\n  \
         upstream next {{ server {next}; keepalive 256; keepalive_requests 100000000; }}\n  server {{\n    listen {listen} reuseport;\n    \
         location / {{ proxy_pass http://next; proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_buffers 16 16k; proxy_buffer_size 16k; }}\n  \
         }}\n}}\n"
    )
}
