//! The real Docker client and a real engine, with nodes between them: each command does what it does without.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;

use crate::support::daemon::{Daemon, Manage};
use crate::support::docker::{Docker, Engine, IMAGE};
use crate::support::http::{Client, Method, request};
use crate::support::pair::Pair;
use crate::support::place::Place;
use crate::support::raw::{Raw, header};
use crate::support::secure::World;
use crate::support::{wait_for, within};

/// How long one case may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Short enough that a change of primary is quick.
const TTL: Duration = Duration::from_secs(2);
/// What runs until a file named `go` is there.
const WAIT_FOR_GO: &str = "while ! test -e /go; do sleep 0.1; done";

#[tokio::test]
async fn every_docker_command_works_at_the_node_of_the_engine() {
    let engine = Engine::start().await;
    let pair = Pair::start_with(&engine.url(), |manage| manage).await;
    every_command(&engine, &pair.primary, Docker::at(tcp(&pair.primary))).await;
}

#[tokio::test]
async fn every_docker_command_works_through_a_replica() {
    let engine = Engine::start().await;
    let pair = Pair::start_with(&engine.url(), |manage| manage).await;
    every_command(&engine, &pair.replica, Docker::at(tcp(&pair.replica))).await;
}

#[tokio::test]
async fn every_docker_command_works_over_mutual_tls_on_both_hops() {
    let world = World::new();
    let engine = Engine::start().await;
    let own = |manage: Manage| {
        let files = world.node(&manage.name);
        manage.secured("--tlsverify", &files, &world.secure())
    };
    let pair = Pair::start_with(&engine.url(), own).await;
    every_command(&engine, &pair.replica, Docker::at(tcp(&pair.replica)).secured(&world.user)).await;
}

/// How a tenure ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Resigned,
    Killed,
}

/// What is attached when the primary steps down is cut once the time for draining is over, or at once where the primary is killed, and
/// fails: nobody takes half of an output for all of it. What comes next meets the next primary.
#[tokio::test]
async fn attached_commands_fail_with_their_tenure_and_the_next_ones_work() {
    let engine = Engine::start().await;
    attached_at_the_end(&engine, None, End::Resigned).await;
    attached_at_the_end(&engine, None, End::Killed).await;
}

#[tokio::test]
async fn attached_commands_fail_with_their_tenure_under_mutual_tls_too() {
    let (engine, world) = (Engine::start().await, World::new());
    attached_at_the_end(&engine, Some(&world), End::Resigned).await;
    attached_at_the_end(&engine, Some(&world), End::Killed).await;
}

async fn attached_at_the_end(engine: &Engine, world: Option<&World>, end: End) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = format!("sqlite://{}", folder.path().join("election.db").display());
    let manage = |name: &str| {
        let manage = Manage::new(name, folder.path()).replicated(&store, TTL);
        let manage = manage.with(["--upstream", &engine.url(), "--drain-timeout", "1s"]);
        world.into_iter().fold(manage, |manage, world| manage.mutual(world))
    };
    let mut old = manage("old").start().await;
    old.becomes("primary", LIMIT).await;
    let new = manage("new").start().await;
    new.becomes("replica", LIMIT).await;
    let clients = [&old, &new].map(|node| world.into_iter().fold(Docker::at(tcp(node)), |docker, world| docker.secured(&world.user)));
    let (mut attached, mut containers) = (Vec::new(), Vec::new());
    for (docker, node) in clients.iter().zip(["old", "new"]) {
        let container = docker.says(&["run", "-d", "-i", "--network", "none", IMAGE, "sh", "-c", "echo one; cat"]).await;
        for (command, said) in [
            ("logs -f CONTAINER".to_owned(), "one\n"),
            (format!("events --since 0 --filter container={container} --format {{{{.Action}}}};"), "start;\n"),
        ] {
            let command = command.replace("CONTAINER", &container);
            let mut begun = docker.begin(&command.split(' ').collect::<Vec<_>>());
            begun.until(said).await;
            attached.push((node, command, begun));
        }
        for command in ["run -i --network none IMAGE cat", "attach CONTAINER", "exec -i CONTAINER cat"] {
            let command = command.replace("IMAGE", IMAGE).replace("CONTAINER", &container);
            let mut begun = docker.begin(&command.split(' ').collect::<Vec<_>>());
            begun.send("to and fro\n").await;
            begun.until("to and fro\n").await;
            attached.push((node, command, begun));
        }
        containers.push(container);
    }
    match end {
        End::Resigned => assert_eq!(old.resign().await.status, 200),
        End::Killed => old.kill().await,
    }
    for (node, command, begun) in attached {
        let done = begun.ended().await;
        let says_why = ["connection reset by peer", "unexpected EOF"].iter().any(|why| done.err.contains(why));
        // Whoever was connected to a node that is gone may hear of that first.
        let says_what = end == End::Killed && node == "old" && done.err.contains("Cannot connect to the Docker daemon");
        assert!(says_why || says_what, "`docker {command}` at {node}, {end:?}: {done:?}");
        let code = done.status.code().expect("a command that ends by itself");
        assert!(code == 1 || code == 125 && command.starts_with("run "), "`docker {command}` at {node}, {end:?}: {done:?}");
    }
    for (docker, container) in clients.iter().zip(&containers).skip(usize::from(end == End::Killed)) {
        assert_eq!(docker.says(&["exec", container, "sh", "-c", "echo what ran goes on"]).await, "what ran goes on");
    }
    clients[1].says(&["rm", "-f", &containers[0], &containers[1]]).await;
}

fn tcp(node: &Daemon) -> String {
    format!("tcp://{}", node.address())
}

/// One engine, and one place to reach it at.
struct At<'a> {
    engine: &'a Engine,
    place: Place,
    docker: Docker,
}

async fn every_command(engine: &Engine, node: &Daemon, docker: Docker) {
    let at = &At { engine, place: node.place(), docker };
    let cases: [(&str, LocalBoxFuture<'_, ()>); 16] = [
        ("version", Box::pin(version(at))),
        ("run", Box::pin(run(at))),
        ("run -i", Box::pin(run_with_input(at))),
        ("run -it", Box::pin(run_at_a_terminal(at))),
        ("exec", Box::pin(exec(at))),
        ("exec -i", Box::pin(exec_with_input(at))),
        ("attach", Box::pin(attach(at))),
        ("logs -f", Box::pin(follow_logs(at))),
        ("cp", Box::pin(copy(at))),
        ("events", Box::pin(events(at))),
        ("stats", Box::pin(stats(at))),
        ("wait", Box::pin(wait(at))),
        ("save, load", Box::pin(save_and_load(at))),
        ("the client ends its direction first", Box::pin(client_ends_first(at))),
        ("the engine ends its direction first", Box::pin(engine_ends_first(at))),
        ("attach without an upgrade", Box::pin(attach_in_the_old_way(at))),
    ];
    for (name, case) in cases {
        within(&format!("`{name}`"), LIMIT, case).await;
    }
}

impl At<'_> {
    /// Starts a container that runs this in its shell, with an input that stays open.
    async fn container(&self, script: &str) -> String {
        self.docker.says(&["run", "-d", "-i", "--network", "none", IMAGE, "sh", "-c", script]).await
    }

    /// A container that only waits.
    async fn idle_container(&self) -> String {
        self.container(WAIT_FOR_GO).await
    }

    async fn remove(&self, container: &str) {
        self.docker.says(&["rm", "-f", container]).await;
    }

    /// A connection to the place for raw bytes.
    async fn raw(&self) -> Raw {
        match &self.place.tls {
            None => Raw::connect(self.place.address).await,
            Some(tls) => Raw::over(tls.connect(self.place.address).await.expect("a handshake")),
        }
    }

    /// A container that is not started yet, and a connection that is attached to it by a request with these fields.
    async fn attached(&self, script: &str, query: &str, fields: &str) -> (String, Raw, String) {
        let create = ["create", "-i", "--network", "none", IMAGE, "sh", "-c", script];
        let container = self.docker.says(&create).await;
        let mut raw = self.raw().await;
        raw.send(format!("POST /containers/{container}/attach?stream=1&{query} HTTP/1.1\r\nHost: docker\r\n{fields}\r\n")).await;
        let head = raw.head().await;
        (container, raw, head)
    }
}

/// The fields of a ping that clients act upon are the engine's, and so is the version that they agree on.
async fn version(at: &At<'_>) {
    let engines = at.engine.ping().await.expect("an engine");
    let client = Client::new(at.place.clone());
    wait_for("the engine's own words in a ping", LIMIT, async || {
        let answer = client.send(request(Method::HEAD, "/_ping", "")).await.expect("a ping is answered");
        let differs = ["api-version", "ostype", "docker-experimental", "builder-version", "swarm", "server"]
            .into_iter()
            .find(|name| header(&engines, name).unwrap_or_default() != answer.header(name));
        if differs.is_none() && answer.epoch().is_some() { Ok(()) } else { Err((differs, answer)) }
    })
    .await;
    let versions = ["version", "--format", "{{.Server.APIVersion}} {{.Server.Version}} {{.Client.APIVersion}}"];
    let agreed = at.docker.says(&versions).await;
    assert_eq!(agreed, at.engine.client().says(&versions).await);
    assert!(agreed.starts_with("1."), "{agreed}");
}

async fn run(at: &At<'_>) {
    let script = "echo out; echo err >&2; exit 7";
    let done = at.docker.run(&["run", "--rm", "--network", "none", IMAGE, "sh", "-c", script]).await;
    assert_eq!((done.outcome(), done.err.as_str()), (("out\n", Some(7)), "err\n"));
}

async fn run_with_input(at: &At<'_>) {
    let input: Vec<u8> = (0..5_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let done = at.docker.feed(input.clone(), &["run", "-i", "--rm", "--network", "none", IMAGE, "cat"]).await;
    assert!(done.status.success(), "{}", done.err);
    assert!(done.out == input, "{} of {} bytes came back, or others", done.out.len(), input.len());
}

async fn run_at_a_terminal(at: &At<'_>) {
    let script = "tty; echo ready; read line; echo \"<$line>\"; exit 5";
    let mut run = at.docker.begin_at_terminal(&["run", "-it", "--rm", "--network", "none", IMAGE, "sh", "-c", script]);
    let tty = run.until("ready").await;
    assert!(tty.contains("/dev/"), "{tty}");
    run.send("typed\r").await;
    run.until("<typed>").await;
    assert_eq!(run.ended().await.status.code(), Some(5));
}

/// The client ends its direction at once, and the output comes later.
async fn exec(at: &At<'_>) {
    let container = at.idle_container().await;
    assert_eq!(at.docker.says(&["exec", &container, "sh", "-c", "echo soon; sleep 0.5; echo late"]).await, "soon\nlate");
    let done = at.docker.run(&["exec", &container, "sh", "-c", "exit 9"]).await;
    assert_eq!(done.status.code(), Some(9), "{}", done.err);
    at.remove(&container).await;
}

async fn exec_with_input(at: &At<'_>) {
    let container = at.idle_container().await;
    let done = at.docker.feed(b"a\nb\n".to_vec(), &["exec", "-i", &container, "sh", "-c", "wc -l; echo end; exit 9"]).await;
    assert_eq!(done.outcome(), ("2\nend\n", Some(9)), "{}", done.err);
    at.remove(&container).await;
}

async fn attach(at: &At<'_>) {
    let container = at.container("cat; exit 3").await;
    let mut attached = at.docker.begin(&["attach", &container]);
    attached.send("to and fro\n").await;
    assert_eq!(attached.until("fro\n").await, "to and fro\n");
    at.docker.says(&["kill", &container]).await;
    assert_eq!(attached.ended().await.outcome(), ("", Some(137)));
    at.remove(&container).await;

    let container = at.docker.says(&["create", "-i", "--network", "none", IMAGE, "sh", "-c", "wc -c; exit 4"]).await;
    let done = at.docker.feed(b"12345".to_vec(), &["start", "-ai", &container]).await;
    assert_eq!(done.outcome(), ("5\n", Some(4)), "{}", done.err);
    at.remove(&container).await;
}

/// The second line is only written once the first was seen.
async fn follow_logs(at: &At<'_>) {
    let container = at.container(&format!("echo one; {WAIT_FOR_GO}; echo two")).await;
    let mut logs = at.docker.begin(&["logs", "-f", &container]);
    logs.until("one\n").await;
    at.docker.says(&["exec", &container, "touch", "/go"]).await;
    assert_eq!(logs.ended().await.outcome(), ("two\n", Some(0)));
    at.remove(&container).await;
}

async fn copy(at: &At<'_>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number % 251) as u8).collect();
    std::fs::write(&there, &content).expect("write");
    let container = at.idle_container().await;
    at.docker.says(&["cp", there.to_str().expect("a path in UTF-8"), &format!("{container}:/copied")]).await;
    assert_eq!(at.docker.says(&["exec", &container, "wc", "-c", "/copied"]).await, "3000000 /copied");
    at.docker.says(&["cp", &format!("{container}:/copied"), back.to_str().expect("a path in UTF-8")]).await;
    assert!(std::fs::read(&back).expect("a file that came back") == content, "another file came back");
    at.remove(&container).await;
}

async fn events(at: &At<'_>) {
    let container = at.idle_container().await;
    let filter = format!("container={container}");
    let mut events = at.docker.begin(&["events", "--since", "0", "--filter", &filter, "--format", "{{.Action}};"]);
    events.until("start;").await;
    at.docker.says(&["kill", &container]).await;
    events.until("kill;").await;
    events.until("die;").await;
    at.remove(&container).await;
}

async fn stats(at: &At<'_>) {
    let container = at.idle_container().await;
    let said = at.docker.says(&["stats", "--no-stream", "--format", "{{.Container}} {{.PIDs}}", &container]).await;
    assert!(said.starts_with(&container) && !said.ends_with(" 0"), "{said}");
    at.remove(&container).await;
}

async fn wait(at: &At<'_>) {
    let container = at.container(&format!("{WAIT_FOR_GO}; exit 5")).await;
    let wait = at.docker.begin(&["wait", &container]);
    at.docker.says(&["exec", &container, "touch", "/go"]).await;
    assert_eq!(wait.ended().await.outcome(), ("5\n", Some(0)));
    at.remove(&container).await;
}

async fn save_and_load(at: &At<'_>) {
    let other = "bellwether-saved:1";
    at.docker.says(&["tag", IMAGE, other]).await;
    let saved = at.docker.run(&["save", other]).await;
    assert!(saved.status.success() && saved.out.len() > 1_000_000, "{}", saved.err);
    at.docker.says(&["rmi", other]).await;
    assert!(at.docker.feed(saved.out, &["load"]).await.said("docker load").contains(other));
    at.docker.says(&["run", "--rm", "--network", "none", other, "true"]).await;
}

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: tcp\r\nContent-Length: 0\r\n";

async fn client_ends_first(at: &At<'_>) {
    let (container, mut raw, head) = at.attached("wc -c; echo end", "stdin=1&stdout=1", UPGRADE).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    assert_eq!(header(&head, "upgrade"), Some("tcp"));
    at.docker.says(&["start", &container]).await;
    raw.send("1234567").await;
    raw.finish().await;
    let rest = String::from_utf8_lossy(&raw.rest().await).into_owned();
    assert!(rest.contains("7\n") && rest.ends_with("end\n"), "{rest:?}");
    at.remove(&container).await;
}

async fn engine_ends_first(at: &At<'_>) {
    let (container, mut raw, head) = at.attached("echo end", "stdin=1&stdout=1", UPGRADE).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    at.docker.says(&["start", &container]).await;
    let rest = String::from_utf8_lossy(&raw.rest().await).into_owned();
    assert!(rest.ends_with("end\n"), "{rest:?}");
    raw.finish().await;
    at.remove(&container).await;
}

/// Without `Upgrade` an engine answers 200, and what the container prints is the body.
async fn attach_in_the_old_way(at: &At<'_>) {
    let (container, mut raw, head) = at.attached("echo out; exit 0", "stdout=1", "Connection: close\r\nContent-Length: 0\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(header(&head, "content-type"), Some("application/vnd.docker.raw-stream"));
    at.docker.says(&["start", &container]).await;
    let rest = String::from_utf8_lossy(&raw.rest().await).into_owned();
    assert!(rest.contains("out\n"), "{rest:?}");
    at.remove(&container).await;
}
