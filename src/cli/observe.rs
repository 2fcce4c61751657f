//! `bellwether observe`: each change of leader, straight from the store.

use clap::Args;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Failure, Output, print, runtime};
use crate::config::{Election, Span};
use crate::node::Node;
use crate::replication::{Follower, Role};
use crate::shutdown::Signals;
use crate::{telemetry, wall};

const EXAMPLES: &str = "\
One line for each change, until a signal ends it; it takes part in nothing and outlives an outage of
the store.

Examples:
  bellwether observe etcd://10.0.0.7:2379,10.0.0.8:2379
  bellwether observe sqlite:///var/lib/bellwether/lock.db --service billing --output json";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Observe {
    /// Where the election lives: etcd://HOST:PORT,HOST:PORT/PREFIX or sqlite:///ABSOLUTE/PATH.db
    #[arg(value_name = "STORE", env = "BELLWETHER_STORE", hide_env_values = true)]
    store: String,

    /// The election's name
    #[arg(long, value_name = "NAME", env = "BELLWETHER_SERVICE", default_value = "default")]
    service: String,

    /// The TTL of the election's nodes: how often to look where the store cannot announce a change
    #[arg(long, value_name = "DUR", env = "BELLWETHER_REPLICATION_TTL", default_value = "10s", allow_hyphen_values = true)]
    replication_ttl: Span,

    /// An option of the store, key=value; repeat for more
    #[arg(long, value_name = "KEY=VALUE", env = "BELLWETHER_STORE_OPT", hide_env_values = true, value_delimiter = ',')]
    store_opt: Vec<String>,

    /// How to print it
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,
}

impl Observe {
    pub(super) fn run(self) -> Result<(), Failure> {
        let election = Election::resolve(&self.store, &self.store_opt, &self.service, self.replication_ttl)?;
        telemetry::init(&telemetry::Config { level: telemetry::LogLevel::of_an_observer(), ..Default::default() });
        Ok(runtime()?.block_on(watch(&election, self.output))?)
    }
}

/// Prints each change until a signal, or until nobody reads.
async fn watch(election: &Election, output: Output) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    // The store wants to know who asks; this one never writes, so its name is never seen.
    let nobody = Node::new("observer:1".parse()?);
    let lock = election.open(nobody)?;
    let (follower, roles) = Follower::new(lock, None, election.timing);
    let stop = CancellationToken::new();
    let mut tasks = JoinSet::new();
    tasks.spawn(follower.run(stop.clone()));
    let mut role = Role::Electing;
    loop {
        tokio::select! {
            _ = signals.next() => break,
            next = roles.changed(&role) => role = next,
        }
        if !print(format_args!("{}", line(&role, output)))? {
            break;
        }
    }
    stop.cancel();
    tasks.join_all().await;
    Ok(())
}

fn line(role: &Role, output: Output) -> String {
    let time = wall::stamp();
    let (primary, epoch) = role.leader().map_or(("", 0), |leader| (leader.address.as_str(), leader.epoch.0));
    match output {
        Output::Json => json!({ "time": time, "primary": primary, "epoch": epoch }).to_string(),
        Output::Text if primary.is_empty() => format!("{time} no leader"),
        Output::Text => format!("{time} {primary} leads under epoch {epoch}"),
    }
}
