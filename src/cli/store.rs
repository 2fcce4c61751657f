//! `bellwether store check`: does this store keep the promises that the election needs?

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::json;

use super::{Failure, Output, print, runtime};
use crate::check::{Check, Finding, Scratch, Verdict};
use crate::config::{Election, Span};
use crate::shutdown::Signals;
use crate::telemetry;

const EXAMPLES: &str = "\
Examples:
  bellwether store check etcd://10.0.0.7:2379,10.0.0.8:2379

See `bellwether store check --help`.";

const CHECK_EXAMPLES: &str = "\
It makes an election of its own, PREFIX/bellwether-check-RANDOM, tries each promise there with several
clients, prints a line for each as soon as it is known, and removes what it wrote. No election that
anybody uses is touched; the user needs the same rights there as in a real one. It takes some ten
seconds, and with Consul about a minute, for most of that is waiting for a lease to run out.

  kept    as the election needs it
  odd     kept, and yet to be known: the sentence says what it costs
  BROKEN  an election would not be safe here, or would not go on after a crash

Examples:
  bellwether store check etcd://10.0.0.7:2379,10.0.0.8:2379
  bellwether store check etcd://10.0.0.7:2379 --replication-ttl 3s --output json
  bellwether store check sqlite:///var/lib/bellwether/lock.db

Exit status: 0 when an election would be safe there, 1 when not or when it could not be tried.";

/// Asks a store itself.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Store {
    #[command(subcommand)]
    command: StoreCommand,
}

#[derive(Subcommand)]
enum StoreCommand {
    /// Does this store keep the promises that the election needs?
    Check(StoreCheck),
}

#[derive(Args)]
#[command(after_help = CHECK_EXAMPLES)]
struct StoreCheck {
    /// Where the election lives, as `manage` takes it
    #[arg(value_name = "STORE", env = "BELLWETHER_STORE", hide_env_values = true)]
    store: String,

    /// The TTL that the nodes will use: whether it is granted, and whether calls are quick enough for it
    #[arg(long, value_name = "DUR", env = "BELLWETHER_REPLICATION_TTL", default_value = "10s", allow_hyphen_values = true)]
    replication_ttl: Span,

    /// An option of the store, key=value; repeat for more
    #[arg(long, value_name = "KEY=VALUE", env = "BELLWETHER_STORE_OPT", hide_env_values = true, value_delimiter = ',')]
    store_opt: Vec<String>,

    /// How to print it
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,
}

impl Store {
    pub(super) fn run(self) -> Result<(), Failure> {
        let StoreCommand::Check(check) = self.command;
        check.run()
    }
}

impl StoreCheck {
    fn run(self) -> Result<(), Failure> {
        let election = Election::resolve(&self.store, &self.store_opt, "default", self.replication_ttl)?;
        telemetry::init(&telemetry::Config { level: telemetry::LogLevel::warn(), ..Default::default() });
        let (findings, safe) = runtime()?.block_on(check(&election, self.output))?;
        if self.output == Output::Json {
            let promises = findings.iter().map(|Finding { promise, verdict, detail }| {
                json!({ "promise": promise, "verdict": word(*verdict).to_lowercase(), "detail": detail })
            });
            let promises = promises.collect::<Vec<_>>();
            print(format_args!("{:#}", json!({ "store": election.store.as_str(), "safe": safe, "promises": promises })))?;
        }
        if safe {
            return Ok(());
        }
        let broken =
            findings.iter().filter(|finding| finding.verdict == Verdict::Broken).map(|finding| finding.promise).collect::<Vec<_>>();
        Err(anyhow!("an election would not be safe at {}: {} broken, see above", election.store, broken.join(", ")).into())
    }
}

/// Tries every promise, printing each line as it comes unless all are wanted at once. Whether an election would be safe, too.
async fn check(election: &Election, output: Output) -> anyhow::Result<(Vec<Finding>, bool)> {
    let scratch = Scratch::of(&election.store, &election.options)?;
    // What is wrong with the command line is said as such, before anything is tried.
    election.open(crate::node::Node::new("check.invalid:1".parse()?))?;
    let mut signals = Signals::listen()?;
    let mut findings = Vec::new();
    let check = Check::new(&scratch, election.store.takeover(&election.options), election.timing);
    let running = check.run(|finding| {
        if output == Output::Text {
            // Whoever reads no more still wants the place to be cleared.
            print(format_args!("{:6}  {:16} {}", word(finding.verdict), finding.promise, finding.detail)).ok();
        }
        findings.push(finding.clone());
    });
    tokio::select! {
        safe = running => Ok((findings, safe)),
        signal = signals.next() => {
            // The first promise is that it answers.
            if findings.is_empty() {
                return Err(anyhow!("{signal} broke the check off before {} had answered", election.store));
            }
            scratch.abandon().await.map_err(|sentence| anyhow!(sentence))?;
            Err(anyhow!("{signal} broke the check off; nothing of it is left in the store"))
        }
    }
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Kept => "kept",
        Verdict::Odd => "odd",
        Verdict::Broken => "BROKEN",
    }
}
