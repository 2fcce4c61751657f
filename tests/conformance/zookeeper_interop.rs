//! The election as others see it and meddle with it: Kazoo and Curator as rivals, neighbours, junk, operators.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use bellwether::store::{Leader, Renewal, StoreError};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::kazoo::Kazoo;
use crate::rig::{KEY, Log, lock, node};
use crate::suite::steps::{PROMPT, campaign, hear, leader, lose, release, renew, win, withdraw};
use crate::wait::wait_for;
use crate::zookeeper_server::ZooKeeper;

const TTL: Duration = Duration::from_secs(60);
const FOLDER: &str = "/bellwether/web/leader";
const RIVAL: &str = "10.0.0.9:4000";

async fn start() -> (ZooKeeper, Kazoo) {
    let servers = ZooKeeper::start(1, "").await;
    let hand = Kazoo::start(servers.address(0));
    assert_eq!(FOLDER, format!("/{KEY}"));
    (servers, hand)
}

async fn kazoo_leads(hand: &Kazoo) {
    wait_for("Kazoo to lead", PROMPT, || async { if hand.command(json!(["leads", "rival"])).await { Ok(()) } else { Err(()) } }).await;
}

async fn queue_of(hand: &Kazoo, length: usize) {
    wait_for("all to stand in line", PROMPT, || async {
        let line = hand.line(FOLDER).await;
        if line.len() == length { Ok(()) } else { Err(line) }
    })
    .await;
}

/// Behind a rival of Kazoo's, before it, and seen by it.
async fn kazoo_is_a_rival(kind: &str) {
    let (servers, hand) = start().await;
    let us = lock(&servers.url(), 1, TTL);
    hand.command::<()>(json!(["campaign", "rival", kind, FOLDER, RIVAL])).await;
    kazoo_leads(&hand).await;
    hear(&*us, PROMPT, "Kazoo leads", |leader| leader.is_some_and(|leader| leader.address.as_str() == RIVAL)).await;
    let taken = lose(&*us, "Kazoo leads").await.expect("a leader's name");
    let line = hand.line(FOLDER).await;
    assert!(line[0].name.contains("__lock__") && line[1].name.contains("-latch-"), "{line:?}");
    assert_eq!(taken.epoch.0, line[0].created);

    hand.command::<()>(json!(["resign", "rival"])).await;
    let mut lease = campaign(&*us, PROMPT, "Kazoo has resigned").await;
    assert_eq!(lease.epoch().0, line[1].created, "the place in the line was kept");

    hand.command::<()>(json!(["campaign", "rival", kind, FOLDER, RIVAL])).await;
    queue_of(&hand, 2).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    assert!(!hand.command::<bool>(json!(["leads", "rival"])).await);
    assert_eq!(hand.command::<Vec<String>>(json!(["contenders", "rival"])).await, [node(1).address.as_str(), RIVAL]);
    release(&mut *lease).await;
    kazoo_leads(&hand).await;
    hand.command::<()>(json!(["resign", "rival"])).await;
}

#[tokio::test]
async fn a_lock_of_kazoo_is_a_rival() {
    kazoo_is_a_rival("lock").await;
}

#[tokio::test]
async fn an_election_of_kazoo_is_a_rival() {
    kazoo_is_a_rival("election").await;
}

/// Curator's `LeaderLatch` in a process of its own.
struct Latch {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Latch {
    fn start(servers: &ZooKeeper) -> Self {
        let jars = ["zookeeper", "curator-client", "curator-framework", "curator-recipes", "guava", "slf4j-api"];
        let jars = jars.map(|jar| format!("/usr/share/java/{jar}.jar"));
        assert!(Path::new(&jars[3]).exists(), "there is no {}, of the Debian package libcurator-recipes-java", jars[3]);
        let child = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", &jars.join(":")])
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/Latch.java"))
            .args([&servers.address(0).to_string(), FOLDER, RIVAL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = child.unwrap_or_else(|error| panic!("start java, of the Debian package zookeeper: {error}"));
        let (input, output) = (child.stdin.take().expect("its input"), child.stdout.take().expect("its output"));
        Self { child, input, output: BufReader::new(output).lines() }
    }

    async fn ask(&mut self, question: &str) -> String {
        self.input.write_all(format!("{question}\n").as_bytes()).await.expect("ask Curator");
        let answer = timeout(PROMPT * 3, self.output.next_line()).await.expect("an answer in time");
        answer.expect("Curator's output").expect("an answer")
    }

    async fn leads(&mut self) {
        let until = tokio::time::Instant::now() + PROMPT;
        while self.ask("leads").await != "true" {
            assert!(tokio::time::Instant::now() < until, "Curator should lead");
        }
    }

    /// Leaves the line as a program that ends in good order.
    async fn close(mut self) {
        drop(self.input);
        let status = timeout(PROMPT * 3, self.child.wait()).await.expect("its end in time").expect("its end");
        assert!(status.success(), "{status}");
    }
}

#[tokio::test]
async fn a_leader_latch_of_curator_is_a_rival() {
    let (servers, hand) = start().await;
    let us = lock(&servers.url(), 1, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let mut latch = Latch::start(&servers);
    assert_eq!(latch.ask("leads").await, "false");
    queue_of(&hand, 2).await;
    assert_eq!(latch.ask("leader").await, "127.0.0.1:1", "Curator reads our address as the leader's");
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    release(&mut *lease).await;
    latch.leads().await;

    let taken = lose(&*us, "Curator leads").await.expect("a leader's name");
    assert_eq!((taken.address.as_str(), taken.epoch.0), (RIVAL, hand.line(FOLDER).await[0].created));
    let (next, ()) = tokio::join!(campaign(&*us, PROMPT * 2, "Curator has left"), latch.close());
    assert!(next.epoch() > taken.epoch);
}

/// Elections whose names begin alike, and one that lies within another's prefix.
#[tokio::test]
async fn neighbours_do_not_stand_in_our_way() {
    let (servers, hand) = start().await;
    let log = Log::start(servers.folder());
    for folder in ["/bellwether/web2/leader", "/bellwether/web/leader2", "/bellwether/web"] {
        hand.command::<String>(json!(["create", format!("{folder}/_c_x-latch-"), RIVAL, false, true])).await;
    }
    for (port, url) in [(1, servers.url()), (2, format!("{}/bellwether/web", servers.url())), (3, format!("{}/a/b/c", servers.url()))] {
        win(&*lock(&url, port, TTL), "each election is its own").await;
    }
    assert_eq!(log.warnings_of(""), [""; 0], "neighbours are nothing to warn of");
}

/// B16: what no candidate would write is left alone, and named in the log once.
#[tokio::test]
async fn junk_among_the_candidates_is_ignored_and_named_once() {
    let (servers, hand) = start().await;
    let log = Log::start(servers.folder());
    let junk = ["brace", "latch-0000000000", "_c_x-latch-7", "ünïcode"];
    for name in junk {
        hand.command::<String>(json!(["create", format!("{FOLDER}/{name}"), "{", false, false])).await;
    }
    let (us, other) = (lock(&servers.url(), 1, TTL), lock(&servers.url(), 2, TTL));
    let mut lease = win(&*us, "junk is no rival").await;
    for _ in 0..3 {
        assert_eq!(renew(&mut *lease).await, Renewal::Held);
        assert_eq!(leader(&*us).await.map(|leader| leader.epoch), Some(lease.epoch()));
    }
    let line = hand.line(FOLDER).await;
    for name in junk {
        assert!(line.iter().any(|node| node.name == name && node.data == "{"), "{name} was touched: {line:?}");
        assert_eq!(log.warnings_of(name).len(), 1, "{name}: {:?}", log.warnings_of(""));
    }
    lose(&*other, "the lock is taken all the same").await;
}

/// A scratch election leaves nothing behind; nothing that is used, or was there before, is taken away.
#[tokio::test]
async fn an_erased_election_leaves_no_folders_but_those_that_were_there() {
    let (servers, hand) = start().await;
    hand.command::<String>(json!(["create", "/team", "ours", false, false])).await;
    let (first, second) = (lock(&format!("{}/team/a/b", servers.url()), 1, TTL), lock(&format!("{}/team/a/b", servers.url()), 2, TTL));
    win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    withdraw(&*first).await;
    first.erase().await.expect("an answer");
    assert_eq!(hand.line("/team/a/b/web/leader").await.len(), 1, "the second still stands in line");
    withdraw(&*second).await;
    win(&*first, "nobody else campaigns").await;
    withdraw(&*first).await;
    first.erase().await.expect("an answer");
    second.erase().await.expect("an answer");
    assert_eq!(hand.line("/team/a/b").await, [], "the election's own folders are gone");
    assert_eq!(hand.line("/").await.iter().filter(|node| node.name == "team" && node.data == "ours").count(), 1);
}

/// What lies above the candidates, like the leader's address as others keep it there, is not ours to touch.
#[tokio::test]
async fn the_data_of_folders_is_left_alone() {
    let (servers, hand) = start().await;
    hand.command::<String>(json!(["create", FOLDER, RIVAL, false, false])).await;
    let us = lock(&servers.url(), 1, TTL);
    assert_eq!(leader(&*us).await, None);
    release(&mut *win(&*us, "nobody campaigns").await).await;
    let above = hand.line("/bellwether/web").await;
    assert_eq!((above.len(), above[0].data.as_str(), above[0].version), (1, RIVAL, 0));
}

#[tokio::test]
async fn a_rival_without_an_address_is_foreign_and_named() {
    let (servers, hand) = start().await;
    let us = lock(&servers.url(), 1, TTL);
    let path = hand.command::<String>(json!(["create", format!("{FOLDER}/_c_x-lock-"), "hello", true, true])).await;
    let refused = us.leader().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Foreign { .. }), "{refused:?}");
    assert!(refused.to_string().contains(&path) && refused.to_string().contains("hello"), "{refused}");
    assert!(matches!(us.acquire().await, Err(StoreError::Foreign { .. })));
    hand.delete(&path).await;
    win(&*us, "the foreign rival is gone").await;
}

#[tokio::test]
async fn an_ephemeral_node_where_a_folder_should_be_is_named() {
    let (servers, hand) = start().await;
    hand.command::<String>(json!(["create", "/bellwether/web", "x", true, false])).await;
    let refused = lock(&servers.url(), 1, TTL).acquire().await.map(drop).unwrap_err();
    assert!(matches!(refused, StoreError::Denied { .. }), "{refused:?}");
    assert!(refused.to_string().contains("ephemeral") && refused.to_string().contains(FOLDER), "{refused}");
}

#[tokio::test]
async fn a_holder_hears_of_its_deleted_node_at_once() {
    let (servers, hand) = start().await;
    // So long that nothing here can be an expiry.
    let ttl = Duration::from_secs(60);
    let (first, second) = (lock(&servers.url(), 1, ttl), lock(&servers.url(), 2, ttl));
    let mut lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let me = Leader { address: node(1).address, epoch: lease.epoch() };
    let (hint, ()) = tokio::join!(timeout(PROMPT, first.changed(Some(&me))), hand.delete_leader(FOLDER));
    assert!(matches!(hint, Ok(Ok(()))), "{hint:?}");
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let mut next = win(&*second, "the first one's node is gone").await;
    assert!(next.epoch() > lease.epoch());
    lose(&*first, "the second leads now").await;
    release(&mut *lease).await;
    assert_eq!(renew(&mut *next).await, Renewal::Held, "the first has nothing left to release");
}

/// A person who rewrites our node takes us out of the election; we take it away, and join anew.
#[tokio::test]
async fn a_node_that_somebody_rewrote_is_given_up() {
    let (servers, hand) = start().await;
    let us = lock(&servers.url(), 1, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    let spoilt = hand.line(FOLDER).await.remove(0);
    hand.command::<()>(json!(["set", format!("{FOLDER}/{}", spoilt.name), RIVAL])).await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    let again = win(&*us, "the spoilt node is taken away").await;
    assert!(again.epoch() > lease.epoch());
    let line = hand.line(FOLDER).await;
    assert_eq!((line.len(), line[0].data.as_str(), line[0].created), (1, "127.0.0.1:1", again.epoch().0));
}

/// A waiter's node that is deleted costs it its place, and nothing else.
#[tokio::test]
async fn a_waiter_whose_node_was_deleted_queues_again() {
    let (servers, hand) = start().await;
    let (first, second) = (lock(&servers.url(), 1, TTL), lock(&servers.url(), 2, TTL));
    let _lease = win(&*first, "nobody else campaigns").await;
    lose(&*second, "the first holds it").await;
    let gone = hand.line(FOLDER).await.remove(1);
    hand.delete(&format!("{FOLDER}/{}", gone.name)).await;
    lose(&*second, "the first holds it").await;
    lose(&*second, "the first holds it").await;
    let line = hand.line(FOLDER).await;
    assert_eq!((line.len(), line[1].data.as_str()), (2, "127.0.0.1:2"));
    assert!(line[1].created > gone.created);
}

/// An operator takes the whole election away, folders and all.
#[tokio::test]
async fn an_election_whose_folders_were_deleted_begins_again() {
    let (servers, hand) = start().await;
    let us = lock(&servers.url(), 1, TTL);
    let mut lease = win(&*us, "nobody else campaigns").await;
    hand.delete("/bellwether").await;
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
    assert_eq!(leader(&*us).await, None);
    let again = win(&*us, "nobody else campaigns").await;
    assert!(again.epoch() > lease.epoch(), "numbers in names begin again, epochs do not");
    withdraw(&*us).await;
    assert_eq!(hand.line(FOLDER).await, []);
}
