//! The story itself: a steady load, a crash of the primary, a planned restart of the next one, and what came of it.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::Full;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::app::{App, Ledger};
use super::cast::{Cast, Watch};
use super::client::Client;
use super::folder::Folder;
use super::load::{self, Counts, Tally};
use super::node::{Node, store_url};
use super::screen::Screen;
use super::summary::{Change, Fate, Summary};
use super::{DemoError, TTL};

const NODES: usize = 3;
/// How long the load runs undisturbed before a change, and after it.
const CALM: Duration = Duration::from_millis(1_500);
/// How often the story looks whether what it waits for has come.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a node that was asked to end may take.
const END_TIMEOUT: Duration = Duration::from_secs(12);
/// With `--stay`: how long a node that somebody ended stays away.
const REST: Duration = Duration::from_secs(4);

/// Everything that the demo runs. Dropping it ends all of that too; [`Stage::close`] also waits for it.
pub(super) struct Stage<'a> {
    screen: &'a Screen,
    nodes: Vec<Node>,
    apps: Vec<App>,
    ledger: Arc<Ledger>,
    counts: Counts,
    load: JoinSet<()>,
    load_stop: CancellationToken,
    watch: Watch,
    every_second: Interval,
    awaited: &'static str,
    folder: Folder,
}

impl<'a> Stage<'a> {
    /// Makes the folder, starts the apps and the nodes, and opens the table on the screen.
    pub(super) async fn set(screen: &'a Screen) -> Result<Self, DemoError> {
        let folder = Folder::create().map_err(DemoError::system("make a temporary folder"))?;
        let ledger = Arc::new(Ledger::default());
        let (mut apps, mut nodes) = (Vec::new(), Vec::new());
        for number in 1..=NODES {
            let app = App::start(format!("app-{number}"), Arc::clone(&ledger)).await;
            let app = app.map_err(DemoError::system("start the app"))?;
            let node = Node::new(format!("node-{number}"), app.address(), folder.path());
            nodes.push(node.map_err(DemoError::system("find a free port"))?);
            apps.push(app);
        }
        let watch = Watch::start(&nodes.iter().map(|node| node.address).collect::<Vec<_>>());
        let (counts, load, load_stop) = (Counts::default(), JoinSet::new(), CancellationToken::new());
        let every_second = interval(Duration::from_secs(1));
        let awaited = "the nodes to start";
        let mut stage = Self { screen, nodes, apps, ledger, counts, load, load_stop, watch, every_second, awaited, folder };
        stage.introduce();
        for node in &mut stage.nodes {
            node.start().map_err(DemoError::system("start a node"))?;
        }
        Ok(stage)
    }

    /// Plays all acts and sums them up.
    pub(super) async fn tell(&mut self) -> Result<Summary, DemoError> {
        self.until("a primary with two replicas", |cast, _| cast.is_settled(NODES)).await?;
        let rate = load::per_second(NODES);
        self.screen.event(&format!("load: {rate} requests a second, GET and POST, to all three nodes"));
        self.start_load();
        self.calm().await?;
        let (crash, rejoined, late_write_refused) = self.crash().await?;
        let planned = self.planned().await?;
        self.load_stop.cancel();
        self.until("the last answers", |_, tally| tally.in_flight() == 0).await?;
        Ok(self.sum_up(crash, planned, rejoined, late_write_refused))
    }

    /// Ends the nodes before the folder goes that they write to.
    pub(super) async fn close(mut self) {
        for node in &mut self.nodes {
            if let Err(error) = node.kill().await {
                tracing::warn!(%error, node = node.name, "node not ended");
            }
        }
    }

    /// The error for a story that took too long.
    pub(super) fn too_late(&self) -> DemoError {
        let states = self.watch.seen.borrow().clone();
        let mut nodes = String::new();
        for (node, state) in self.nodes.iter().zip(&states.0) {
            nodes += &format!("{} was {}; its log ends with:\n{}\n", node.name, state.word(), node.log_tail());
        }
        DemoError::TooLate { awaited: self.awaited.to_owned(), nodes }
    }

    /// Tells what a person may try now.
    pub(super) fn invite(&self) {
        let [first, second, third] = &self.nodes[..] else { return };
        let store = store_url(self.folder.path());
        let primary = self.watch.seen.borrow().primary().map_or(first, |(index, _)| &self.nodes[index]);
        let pid = primary.pid().unwrap_or_default();
        let program = std::env::current_exe().unwrap_or_else(|_| "bellwether".into());
        let program = program.display();
        let [any, other, asked] = [second, third, first].map(|node| &node.address);
        let tries = [
            (format!("curl -i http://{any}/"), "any node answers for the primary".to_owned()),
            (format!("curl -i -d 'one of those' http://{other}/orders"), "a POST as well".to_owned()),
            (format!("curl -s http://{asked}/info"), "what a node is, and whom it follows".to_owned()),
            (format!("kill -9 {pid}"), format!("a crash of {}, the primary", primary.name)),
            (format!("kill {pid}"), "or a planned stop".to_owned()),
            (format!("curl -i http://{any}/"), "and at once: it waits, and is answered".to_owned()),
        ];
        let widest = tries.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
        let tries = tries.map(|(command, meaning)| format!("\n  {command:widest$}  # {meaning}")).concat();
        self.screen.line(&format!(
            "\nThe nodes stay up; one that you end is started again after {} s. In another terminal, try\n\
             {tries}\
             \n  {program} observe '{store}' --service demo\n\
             \nLogs and store: {}. Ctrl-C ends everything.\n",
            REST.as_secs(),
            self.folder.path().display(),
        ));
    }

    /// Shows what the nodes become, and starts those again that somebody ended, for ever.
    pub(super) async fn stay(&mut self) -> Infallible {
        let mut resting = [None::<Instant>; NODES];
        loop {
            for (node, rests_until) in self.nodes.iter_mut().zip(&mut resting) {
                if let Some(status) = node.failed() {
                    self.screen.event(&format!("{} ended ({status})", node.name));
                    *rests_until = Some(Instant::now() + REST);
                }
                if rests_until.take_if(|until| Instant::now() >= *until).is_some() {
                    let outcome =
                        node.start().map_or_else(|error| format!("cannot be started: {error}"), |()| "is started again".to_owned());
                    self.screen.event(&format!("{} {outcome}", node.name));
                }
            }
            self.show_change();
            sleep(LOOK_EVERY).await;
        }
    }

    /// The primary dies in the middle of its work, and comes back as a replica.
    async fn crash(&mut self) -> Result<(Change, bool, bool), DemoError> {
        let (victim, epoch) = self.primary().await?;
        let before = self.counts.now();
        self.counts.measure_silence();
        self.screen.event(&format!("kill -9 {}, the primary, in the middle of its work", self.nodes[victim].name));
        self.nodes[victim].kill().await.map_err(DemoError::system("kill a node"))?;
        self.until_served_after("a new primary after the crash", epoch).await?;

        let refused = self.late_write(epoch).await;
        let what = if refused { "is refused by the app" } else { "is ACCEPTED by the app" };
        self.screen.event(&format!("a late write under the dead primary's epoch {what}"));

        self.screen.event(&format!("{} is started again", self.nodes[victim].name));
        self.nodes[victim].start().map_err(DemoError::system("start a node"))?;
        self.until("the killed node to come back as a replica", |cast, _| cast.is_settled(NODES)).await?;
        self.calm().await?;
        let change = Change::between(&before, &self.counts.now(), self.counts.longest_silence());
        let rejoined = self.watch.seen.borrow().0[victim].word() == "replica";
        Ok((change, rejoined, refused))
    }

    /// The next primary is restarted as for an upgrade: nothing may fail.
    async fn planned(&mut self) -> Result<Change, DemoError> {
        let (leaving, epoch) = self.primary().await?;
        let before = self.counts.now();
        self.counts.measure_silence();
        self.screen.event(&format!("SIGTERM {}, the primary: a planned restart", self.nodes[leaving].name));
        self.nodes[leaving].terminate().map_err(DemoError::system("signal a node"))?;
        self.until_served_after("a new primary after the planned stop", epoch).await?;
        self.end(leaving).await?;
        self.screen.event(&format!("{} has ended and is started again", self.nodes[leaving].name));
        self.nodes[leaving].start().map_err(DemoError::system("start a node"))?;
        self.until("the restarted node to come back as a replica", |cast, _| cast.is_settled(NODES)).await?;
        self.calm().await?;
        Ok(Change::between(&before, &self.counts.now(), self.counts.longest_silence()))
    }

    /// Waits until a node that was asked to end has done so, while the clients go on.
    async fn end(&mut self, leaving: usize) -> Result<(), DemoError> {
        self.awaited = "the stopped node to end";
        let node = &mut self.nodes[leaving];
        match node.ended(END_TIMEOUT).await {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(ended(node, &status.to_string())),
            None => Err(self.too_late()),
        }
    }

    /// Who is primary, and under which epoch.
    async fn primary(&mut self) -> Result<(usize, u64), DemoError> {
        self.until("exactly one primary", |cast, _| cast.primary().is_some()).await?;
        self.watch.seen.borrow().primary().ok_or_else(|| self.too_late())
    }

    /// Waits until the app answers under a later epoch than `epoch`.
    async fn until_served_after(&mut self, awaited: &'static str, epoch: u64) -> Result<(), DemoError> {
        let ledger = Arc::clone(&self.ledger);
        let served = move || ledger.epochs().into_keys().any(|served| served > epoch);
        self.until(awaited, |cast, _| cast.primary().is_some_and(|(_, now)| now > epoch) && served()).await
    }

    async fn calm(&mut self) -> Result<(), DemoError> {
        let end = Instant::now() + CALM;
        self.until("a moment to pass", |_, _| Instant::now() >= end).await
    }

    /// Shows what happens until `done`, and that no node ends meanwhile.
    async fn until(&mut self, awaited: &'static str, mut done: impl FnMut(&Cast, &Tally) -> bool) -> Result<(), DemoError> {
        self.awaited = awaited;
        loop {
            for node in &mut self.nodes {
                if let Some(status) = node.failed() {
                    return Err(ended(node, &status.to_string()));
                }
            }
            self.show_change();
            let cast = self.watch.seen.borrow().clone();
            if done(&cast, &self.counts.now()) {
                return Ok(());
            }
            tokio::select! {
                () = sleep(LOOK_EVERY) => {}
                _ = self.every_second.tick(), if !self.load.is_empty() => self.screen.row(&cast, &self.counts.now()),
            }
        }
    }

    fn show_change(&mut self) {
        if self.watch.seen.has_changed().unwrap_or(false) {
            let cast = self.watch.seen.borrow_and_update().clone();
            self.screen.row(&cast, &self.counts.now());
            self.every_second.reset();
        }
    }

    /// What a primary that was frozen, and does not know that it is over, would send to its app.
    async fn late_write(&self, epoch: u64) -> bool {
        let request = Request::post("/orders").header("bellwether-epoch", epoch).body(Full::<Bytes>::default());
        let answer = Client::new(self.apps[0].address()).exchange(request.expect("a valid request"), TTL).await;
        answer.is_ok_and(|response| response.status() == StatusCode::CONFLICT)
    }

    fn start_load(&mut self) {
        let addresses = self.nodes.iter().map(|node| node.address).collect();
        self.load.spawn(load::send(addresses, self.counts.clone(), self.load_stop.clone()));
    }

    fn introduce(&self) {
        let ttl = humantime::format_duration(TTL);
        self.screen.line("Three nodes, three copies of an app, and one SQLite file that decides who is primary.");
        self.screen.line(&format!("TTL {ttl}; everything is in {}\n", self.folder.path().display()));
        for (node, app) in self.nodes.iter().zip(&self.apps) {
            self.screen.line(&format!("  {}   http://{}   in front of its app at {}", node.name, node.address, app.address()));
        }
        self.screen.line("");
        self.screen.head(self.nodes.iter().map(|node| node.name.as_str()));
    }

    fn sum_up(&self, crash: Change, planned: Change, rejoined: bool, late_write_refused: bool) -> Summary {
        let tally = self.counts.now();
        let executed = tally.maybe_executed.iter().filter(|id| self.ledger.executions(id) > 0).count();
        Summary {
            gap_ms: crash.gap_ms,
            sent: tally.sent,
            answered: tally.answered,
            held: tally.held,
            moved_on: tally.moved_on,
            failed_gets: tally.failed_gets,
            maybe_executed: Fate { executed, not_executed: tally.maybe_executed.len() - executed },
            executed_twice: self.ledger.executed_twice(),
            failed: tally.failed,
            late_write_refused,
            rejoined,
            epochs: self.ledger.epochs(),
            crash,
            planned,
            seconds: self.screen.elapsed().as_secs_f64(),
        }
    }
}

fn ended(node: &Node, status: &str) -> DemoError {
    DemoError::NodeEnded { node: node.name.clone(), status: status.to_owned(), log: node.log_tail() }
}
