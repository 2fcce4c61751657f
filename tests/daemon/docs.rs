//! Every example in the documents is run: shell commands against real nodes, files by the code that reads them.
//!
//! A block of shell commands names the test that runs it in its first line (`sh run=NAME`). Addresses and paths of the
//! documents are replaced by those of the test; everything else is run as it is written.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::support::app::App;
use crate::support::consul::{self, Consul};
use crate::support::daemon::Manage;
use crate::support::etcd::Etcd;
use crate::support::http::{self, get, request};
use crate::support::kubernetes::ACCOUNT;
use crate::support::ledger::Ledger;
use crate::support::mariadb::Mariadb;
use crate::support::postgres::Postgres;
use crate::support::store::{Kind, Store};
use crate::support::{port, wait_for, within};

/// How long one example may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(20);
/// The tests of this file that run shell examples, by the names that the documents use.
const RUN: [&str; 17] = [
    "make",
    "before",
    "etcd-node",
    "etcd-client",
    "etcdctl",
    "consul",
    "consul-token",
    "kubernetes",
    "sqlite",
    "resign",
    "psql",
    "postgres-table",
    "mysql",
    "mysql-table",
    "certificates",
    "tls-node",
    "tls-client",
];

#[derive(Debug)]
struct Example {
    file: PathBuf,
    kind: String,
    text: String,
}

/// All blocks between fences in the documents.
fn examples() -> Vec<Example> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files =
        ["", "docs", "docs/decisions"].into_iter().flat_map(|folder| std::fs::read_dir(root.join(folder)).expect("a folder of documents"));
    let files = files.map(|entry| entry.expect("a document").path()).filter(|path| path.extension().is_some_and(|it| it == "md"));
    let mut examples = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file).expect("read a document");
        let mut open: Option<Example> = None;
        for line in text.lines() {
            match (line.strip_prefix("```"), &mut open) {
                (Some(kind), None) => open = Some(Example { file: file.clone(), kind: kind.trim().to_owned(), text: String::new() }),
                (Some(_), Some(_)) => examples.extend(open.take()),
                (None, Some(example)) => example.text.extend([line, "\n"]),
                (None, None) => {}
            }
        }
    }
    assert!(examples.len() > 10, "the documents have examples");
    examples
}

/// The example of this kind that is the only one.
fn example(kind: &str) -> Example {
    let mut found: Vec<_> = examples().into_iter().filter(|example| example.kind == kind).collect();
    assert_eq!(found.len(), 1, "one `{kind}`: {found:?}");
    found.remove(0)
}

/// The text with the documents' addresses and paths replaced, in this order.
fn translated(text: &str, here: &[(&str, String)]) -> String {
    here.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

/// A shell that runs `command`, with the binary under test on its path.
fn shell(command: &str) -> Command {
    let folder = Path::new(env!("CARGO_BIN_EXE_bellwether")).parent().expect("a folder of binaries");
    let tools = consul::binary();
    let tools = tools.parent().expect("a folder of tools");
    let path = format!("{}:{}:{}", folder.display(), tools.display(), std::env::var("PATH").expect("a path"));
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).env("PATH", path).stdin(Stdio::null()).kill_on_drop(true);
    shell
}

async fn output(command: &str) -> Output {
    within(command, LIMIT, shell(command).output()).await.expect("run a shell")
}

async fn succeeds(command: &str) -> String {
    let output = output(command).await;
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Starts a node by a documented command.
fn node(command: &str) -> Child {
    shell(&format!("exec {command}")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("start a node")
}

#[test]
fn every_example_is_of_a_kind_that_is_run() {
    for Example { file, kind, text } in examples() {
        let known = match kind.split_once(" run=") {
            Some(("sh" | "sql", name)) => RUN.contains(&name),
            Some(_) => false,
            // What is not marked is a picture, or names targets of the Makefile.
            None => {
                ["toml", "json", "yaml", "ini"].contains(&kind.as_str())
                    || (kind.is_empty() && (text.contains(['│', '▼', '►', '▶']) || text.contains("make ")))
            }
        };
        assert!(known, "{}: nothing runs this `{kind}` example:\n{text}", file.display());
    }
}

#[test]
fn every_make_target_of_the_documents_exists() {
    let makefile = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Makefile")).expect("a Makefile");
    let examples = examples();
    let lines =
        examples.iter().filter(|example| example.kind.is_empty() || example.kind == "sh run=make").flat_map(|example| example.text.lines());
    let targets: Vec<_> = lines.filter_map(|line| line.strip_prefix("make ")?.split_whitespace().next()).collect();
    assert!(targets.contains(&"demo") && targets.contains(&"test"), "{targets:?}");
    for target in targets {
        assert!(makefile.contains(&format!("\n{target}:")), "no target {target}");
    }
}

/// The README's set-up: three nodes by the documented line, and each of the commands that follow it.
#[tokio::test]
async fn the_set_up_with_three_hosts_and_etcd_works_as_written() {
    let etcd = Etcd::start().await;
    let app = App::start("app", &Ledger::default()).await;
    let addresses = [port::free(), port::free(), port::free()];
    let mut here = vec![
        ("10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379", etcd.address().to_string()),
        ("10.0.0.1:2379", etcd.address().to_string()),
        ("http://127.0.0.1:8080", format!("http://{}", app.address())),
    ];
    let start = example("sh run=etcd-node").text;
    let nodes = addresses.map(|address| {
        let own = [("10.0.0.1:4000", address.to_string()), ("-H :4000", format!("-H {address}"))];
        node(&translated(&translated(&start, &here), &own))
    });
    here.extend(["10.0.0.1:4000", "10.0.0.2:4000", "10.0.0.3:4000"].into_iter().zip(addresses.map(|address| address.to_string())));

    wait_for("a primary that every node knows", LIMIT, async || {
        let mut roles = Vec::new();
        for address in addresses {
            let answer = http::Client::new(address).send(request(http::Method::GET, "/_bellwether/leader", "")).await;
            roles.push(answer.map_or(Value::Null, |answer| answer.json()["primary"].clone()));
        }
        if roles.iter().all(|role| role.as_str().is_some_and(|primary| !primary.is_empty())) { Ok(()) } else { Err(roles) }
    })
    .await;
    let leader = get(addresses[0], "/_bellwether/leader").await.json()["primary"].as_str().expect("a primary").to_owned();

    for command in translated(&example("sh run=etcd-client").text, &here).lines() {
        if command.contains(" observe ") {
            let mut observing = shell(&format!("exec {command}")).stdout(Stdio::piped()).spawn().expect("start an observer");
            let mut lines = BufReader::new(observing.stdout.take().expect("its output")).lines();
            let line = within("the first line of an observer", LIMIT, lines.next_line()).await.expect("text").expect("a line");
            assert!(line.contains(&leader), "{command}: {line}");
        } else {
            let text = succeeds(command).await;
            assert!(text.contains("bellwether-epoch") || text.contains(&leader), "{command}: {text}");
        }
    }
    let keys = succeeds(&translated(&example("sh run=etcdctl").text, &here)).await;
    assert!(addresses.iter().all(|address| keys.contains(&address.to_string())), "{keys}");
    drop(nodes);
}

/// What to ask before anything is started.
#[tokio::test]
async fn asking_the_store_and_the_plan_works_as_written() {
    let etcd = Etcd::start().await;
    let here = [("10.0.0.1:2379", etcd.address().to_string())];
    for (command, words) in translated(&example("sh run=before").text, &here).lines().zip(["  expiry  ", "crash         typically"]) {
        let text = succeeds(command).await;
        assert!(text.contains(words), "{command}: {text}");
    }
}

/// The configuration file, started by the line of the systemd unit.
#[tokio::test]
async fn the_configuration_file_and_the_unit_that_names_it_start_a_node() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let address = port::free();
    let inside = |name: &str| folder.path().join(name).display().to_string();
    let etcd = Etcd::start().await;
    let here = [
        ("127.0.0.1:4000", address.to_string()),
        ("10.0.0.1:4000", address.to_string()),
        ("10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379", etcd.address().to_string()),
        ("/run/bellwether", folder.path().display().to_string()),
        ("/etc/bellwether", folder.path().display().to_string()),
        ("/usr/local/bin/", String::new()),
    ];
    std::fs::write(inside("bellwether.toml"), translated(&example("toml").text, &here)).expect("write the file");
    std::fs::write(inside("etcd-password"), "secret\n").expect("write the password");

    let unit = example("ini").text;
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let _node = node(&translated(line, &here));
    let answer = wait_for("the node of the file", LIMIT, async || {
        http::Client::new(address).send(request(http::Method::GET, "/_bellwether/status", "")).await
    })
    .await;
    assert_eq!(answer.json()["service"], "registry");
    assert!(Path::new(&inside("admin.sock")).exists() && Path::new(&inside("app.sock")).exists());
}

/// `resign` by the admin socket, and what SQLite's own tool shows.
#[tokio::test]
async fn resigning_and_looking_into_the_sqlite_file_work_as_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let inside = |name: &str| folder.path().join(name).display().to_string();
    let here = [("/run/bellwether", folder.path().display().to_string()), ("/var/lib/bellwether", folder.path().display().to_string())];
    let store = format!("sqlite://{}", inside("lock.db"));
    let manage = Manage::new("a", folder.path()).replicated(&store, Duration::from_secs(60));
    let admin = format!("unix://{}", inside("admin.sock"));
    let daemon = manage.administered_at(&admin).start().await;
    let epoch = daemon.becomes("primary", LIMIT).await.epoch;

    let row = succeeds(&translated(&example("sh run=sqlite").text, &here)).await;
    assert!(row.contains("default|") && row.contains(&epoch.to_string()), "{row}");
    let said = succeeds(&translated(&example("sh run=resign").text, &here)).await;
    assert!(said.starts_with("resigned"), "{said}");
}

/// The documented certificates are good for a node and its user, and the commands reach the app with them.
#[tokio::test]
async fn a_node_with_the_documented_certificates_works_as_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let app = App::start("a", &Ledger::default()).await;
    let here = [
        ("etcd://10.0.0.1:2379", format!("sqlite://{}", folder.path().join("election.db").display())),
        ("-H :4000", format!("-H 127.0.0.1:{}", port::free().port())),
        ("127.0.0.1:8080", app.address().to_string()),
    ];
    let listen = here[1].1.strip_prefix("-H ").expect("an address").to_owned();
    let here = here.into_iter().chain([("10.0.0.1:4000", listen), ("IP:10.0.0.1", "IP:127.0.0.1".to_owned())]).collect::<Vec<_>>();
    let there = |kind: &str| translated(&example(kind).text, &here);
    let enter = format!("cd {} && ", folder.path().display());
    succeeds(&format!("{enter} set -e; {}", there("sh run=certificates"))).await;
    let node = shell(&format!("{enter} exec {}", there("sh run=tls-node"))).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _node = node.expect("start a node");
    let commands = format!("{enter} set -e; {}", there("sh run=tls-client"));
    let said = wait_for("the commands to succeed", LIMIT, async || {
        let output = output(&commands).await;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        if output.status.success() && said.contains("Role: primary") { Ok(said) } else { Err((said, output.stderr)) }
    })
    .await;
    assert!(said.starts_with('{') && said.contains("x-forwarded-proto"), "the app's echo: {said}");
}

/// The rules for a token, what it then allows, and what Consul's own tool shows.
#[tokio::test]
async fn an_election_with_the_documented_token_in_consul_works_as_written() {
    const ROOT: &str = "11111111-2222-3333-4444-555555555555";
    let folder = tempfile::tempdir().expect("a temporary folder");
    let acl = json!({"enabled": true, "default_policy": "deny", "tokens": {"master": ROOT}});
    let consul = Consul::start_with(true, &json!({"acl": acl})).await;
    let as_root = format!("export CONSUL_HTTP_ADDR={} CONSUL_HTTP_TOKEN={ROOT}; ", consul.address());
    let made = succeeds(&(as_root.clone() + &example("sh run=consul-token").text)).await;
    let token = made.lines().find_map(|line| line.strip_prefix("SecretID:")).expect("a token").trim();
    let file = folder.path().join("token");
    std::fs::write(&file, token).expect("write the token");

    let manage = Manage::new("a", folder.path()).replicated(&consul.url(), Duration::from_secs(10));
    let node = manage.with(["--store-opt", &format!("token-file={}", file.display())]).start().await;
    let epoch = node.becomes("primary", LIMIT).await.epoch.to_string();
    let here = [("10.0.0.1:8500", consul.address().to_string())];
    let shown = succeeds(&(as_root + &translated(&example("sh run=consul").text, &here))).await;
    assert!(shown.contains(&node.address().to_string()) && shown.contains(&epoch), "{shown}");
}

/// The rights of the documents are enough for an election, and no more; and what kubectl shows of it.
#[tokio::test]
async fn an_election_with_the_documented_rights_in_kubernetes_works_as_written() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(Kind::Kubernetes, folder.path()).await;
    let Store::Kubernetes(kubernetes) = &store else { unreachable!("this test runs on Kubernetes") };
    let manifests = example("yaml").text;
    let read = serde_norway::Deserializer::from_str(&manifests).map(|one| Value::deserialize(one).expect("YAML"));
    let [role, binding] = read.collect::<Vec<_>>().try_into().expect("a Role and a RoleBinding");
    let account = &binding["subjects"][0];
    let (home, name) = (account["namespace"].as_str().expect("a namespace"), account["name"].as_str().expect("a name"));
    assert_eq!(format!("system:serviceaccount:{home}:{name}"), ACCOUNT);
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let rule = &role["rules"][0];
    assert_eq!((&rule["apiGroups"][0], &rule["resources"][0]), (&json!("coordination.k8s.io"), &json!("leases")));
    let verbs = rule["verbs"].as_array().expect("verbs").iter().map(|verb| verb.as_str().expect("a verb")).collect::<Vec<_>>();
    kubernetes.allow_only(&verbs);

    let manage = |name: &str| Manage::new(name, folder.path()).replicated(&store.url(), Duration::from_secs(10));
    let (first, second) = (manage("a").start().await, manage("b").start().await);
    let one_of_them = wait_for("a primary and its replica", LIMIT, async || match [first.info().await, second.info().await] {
        [a, b] if a.role == "primary" && b.role == "replica" => Ok(&first),
        [a, b] if b.role == "primary" && a.role == "replica" => Ok(&second),
        roles => Err(roles),
    });
    let leader = one_of_them.await;
    let kubeconfig = kubernetes.kubeconfig_to(kubernetes.address());
    let shown = succeeds(&format!("export KUBECONFIG={kubeconfig}; {}", example("sh run=kubernetes").text)).await;
    assert!(shown.contains(&format!("holderIdentity: {}_", leader.address())), "{shown}");
    let lease: Value = serde_norway::from_str(&shown).expect("YAML of kubectl");
    let base: u64 = lease["metadata"]["annotations"]["bellwether/epoch-base"].as_str().expect("a base").parse().expect("a number");
    let transitions = lease["spec"]["leaseTransitions"].as_u64().expect("a number");
    assert_eq!(base + transitions, leader.info().await.epoch, "the epoch is their sum");
    assert_eq!(leader.resign().await.status, 200);
}

/// The table of the documents, made by somebody who may, and the two commands of the database's own tool: the first shows the
/// leader, the second ends its lease.
#[tokio::test]
async fn looking_into_postgres_and_ending_a_lease_there_work_as_written() {
    let server = Postgres::start().await;
    server.query(&example("sql run=postgres-table").text).await;
    let here = [("-h 10.0.0.5", format!("-h 127.0.0.1 -p {}", server.address().port()))];
    shown_and_ended(&server.url(), &translated(&example("sh run=psql").text, &here)).await;
}

#[tokio::test]
async fn looking_into_mysql_and_ending_a_lease_there_work_as_written() {
    let server = Mariadb::start().await;
    server.query(&example("sql run=mysql-table").text).await;
    let here = [("-h 10.0.0.6 -P 3306", format!("-h 127.0.0.1 -P {}", server.address().port()))];
    shown_and_ended(&server.url(), &translated(&example("sh run=mysql").text, &here)).await;
}

async fn shown_and_ended(url: &str, commands: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = Manage::new("a", folder.path()).replicated(url, Duration::from_secs(3)).start().await;
    let epoch = daemon.becomes("primary", LIMIT).await.epoch;
    let [show, end] = commands.lines().collect::<Vec<_>>()[..] else { panic!("two commands: {commands}") };
    let shown = succeeds(show).await;
    let words = ["default", &daemon.address().to_string(), &epoch.to_string()];
    assert!(words.iter().all(|word| shown.contains(word)), "{words:?}: {shown}");
    succeeds(end).await;
    wait_for("a tenure after the one that was ended", LIMIT, async || match daemon.info().await {
        info if info.role == "primary" && info.epoch > epoch => Ok(()),
        info => Err(info),
    })
    .await;
}

/// The error that the documents show has the keys of a real one.
#[tokio::test]
async fn the_json_of_an_error_is_as_shown() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let daemon = Manage::new("a", folder.path()).start().await;
    let real = get(daemon.address(), "/nothing-behind").await.json();
    let shown: Value = serde_json::from_str(&example("json").text).expect("JSON");
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(&real), keys(&shown));
}
