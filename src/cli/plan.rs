//! `bellwether plan`: what a failover will cost, before it happens.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::anyhow;
use clap::Args;
use serde_json::{Value, json};

use super::{Failure, Output, Settings, print, runtime};
use crate::check::{AskError, Scratch};
use crate::config::{ConfigError, Count, Forecast, Seconds, Span};
use crate::replication::{Estimate, Plan};

const EXAMPLES: &str = "\
Give it the settings of your nodes, or the file that has them. It says how long the service is
without a primary after a crash and during a planned stop, how long requests must be held for that,
and how often the store is called. Where the store's server decides which TTL it keeps (Consul, etcd,
ZooKeeper), it is asked with a lock in a scratch place of its own, which is then removed; where it
does not answer, the settings that such a server comes with are assumed.

The worst case counts a store that answers as slowly as an election bears, TTL/12 for a call. It does
not count an outage or a failover of the store itself.

Examples:
  bellwether plan etcd://10.0.0.7:2379 --replication-ttl 3s
  bellwether plan --config /etc/bellwether/bellwether.toml --nodes 5
  bellwether plan consul://10.0.0.7:8500 --offline --output json

Exit status: 0 when the settings fit together; 1 when requests would fail in a crash, or the store
refuses the TTL; 2 when no store of this kind could keep them. The sentence says what to use.";

/// How long the store is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct PlanCommand {
    /// Where the election lives, as `manage` takes it; may come from the --config file
    #[arg(value_name = "STORE", env = "BELLWETHER_STORE", hide_env_values = true)]
    store: Option<String>,

    /// How long the lock outlives a silent holder [default: 10s]
    #[arg(long, value_name = "DUR", env = "BELLWETHER_REPLICATION_TTL", allow_hyphen_values = true)]
    replication_ttl: Option<Span>,

    /// How long a request waits while there is no primary [default: 2 × TTL + 5s]
    #[arg(long, value_name = "DUR", env = "BELLWETHER_HOLD_TIMEOUT", allow_hyphen_values = true)]
    hold_timeout: Option<Span>,

    /// How long running requests get when the primary steps down [default: 10s]
    #[arg(long, value_name = "DUR", env = "BELLWETHER_DRAIN_TIMEOUT", allow_hyphen_values = true)]
    drain_timeout: Option<Span>,

    /// How many nodes take part, for what they ask of the store together
    #[arg(long, value_name = "N", env = "BELLWETHER_NODES", default_value = "3")]
    nodes: Count,

    /// An option of the store, key=value; repeat for more
    #[arg(long, value_name = "KEY=VALUE", env = "BELLWETHER_STORE_OPT", hide_env_values = true, value_delimiter = ',')]
    store_opt: Option<Vec<String>>,

    /// Read settings from this file, as `manage` does
    #[arg(long, value_name = "FILE", env = "BELLWETHER_CONFIG")]
    config: Option<PathBuf>,

    /// Ask nothing of the store; assume the settings that a server comes with
    #[arg(long, env = "BELLWETHER_OFFLINE")]
    offline: bool,

    /// How to print it
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,
}

/// The TTL to plan with, and where it comes from.
struct Kept {
    ttl: Duration,
    /// Whether the store itself said so.
    granted: bool,
    why: String,
}

impl PlanCommand {
    pub(super) fn run(self) -> Result<(), Failure> {
        let (nodes, output, offline) = (self.nodes.0, self.output, self.offline);
        if nodes == 0 {
            return Err(ConfigError::new("--nodes (BELLWETHER_NODES): must be 1 or more").into());
        }
        let forecast = Forecast::resolve(self.settings())?;
        let kept = runtime()?.block_on(kept(&forecast, offline))?;
        let plan = forecast.plan(kept.ttl);
        match output {
            Output::Text => print(format_args!("{}", text(&forecast, &plan, &kept, nodes)))?,
            Output::Json => print(format_args!("{:#}", value(&forecast, &plan, &kept, nodes)))?,
        };
        match forecast.too_short_a_hold(&plan) {
            Some(sentence) => Err(anyhow!(sentence).into()),
            None => Ok(()),
        }
    }

    fn settings(self) -> Settings {
        Settings {
            store: self.store,
            replication_ttl: self.replication_ttl,
            hold_timeout: self.hold_timeout,
            drain_timeout: self.drain_timeout,
            store_opt: self.store_opt,
            config: self.config,
            ..Settings::default()
        }
    }
}

/// Which TTL the store keeps: by its own word where its server decides and can be asked, else by how such a server comes.
async fn kept(forecast: &Forecast, offline: bool) -> Result<Kept, Failure> {
    let (election, usual) = (&forecast.election, forecast.takeover().usual);
    let assumed = |why: &str| match forecast.refused_ttl() {
        Ok(ttl) => Ok(Kept { ttl, granted: false, why: why.to_owned() }),
        Err(sentence) => Err(Failure::Failed(anyhow!(sentence))),
    };
    let Some(set_by) = usual.set_by else { return assumed("every such store keeps it") };
    if offline {
        return assumed(&format!("assumed, the server was not asked; it depends on {set_by}"));
    }
    let scratch = Scratch::of(&election.store, &election.options).map_err(anyhow::Error::from)?;
    match tokio::time::timeout(PATIENCE, scratch.ask(election.timing.ttl())).await {
        Ok(Ok(ttl)) => Ok(Kept { ttl, granted: true, why: "granted by the server".to_owned() }),
        Ok(Err(AskError::Closed(error))) => Err(anyhow::Error::from(error).context(format!("STORE {}", election.store)).into()),
        Ok(Err(AskError::Refused(sentence))) => Err(anyhow!("STORE {}: {sentence}; --offline plans without asking", election.store).into()),
        Ok(Err(AskError::Unavailable(_))) | Err(_) => assumed(&format!("assumed, the server did not answer; it depends on {set_by}")),
    }
}

fn text(forecast: &Forecast, plan: &Plan, kept: &Kept, nodes: usize) -> String {
    let between = |estimate: &Estimate| format!("typically {}, at worst {}", Seconds(estimate.typical), Seconds(estimate.worst));
    let election = &forecast.election;
    let asked = election.timing.ttl();
    let ttl =
        if kept.ttl == asked { Seconds(asked).to_string() } else { format!("{} for the {} asked for", Seconds(kept.ttl), Seconds(asked)) };
    let takeover = forecast.takeover();
    let hold = match (forecast.hold_timeout, forecast.hold_needed(plan)) {
        (Duration::ZERO, needed) => format!("off: requests fail while there is no primary; {} would do", Seconds(needed)),
        (hold, needed) if hold < needed => format!("{} is too short, {} is needed", Seconds(hold), Seconds(needed)),
        (hold, needed) => format!("{} is enough, {} is needed", Seconds(hold), Seconds(needed)),
    };
    let mut lines = vec![
        ("store", election.store.to_string()),
        ("TTL", format!("{ttl} ({})", kept.why)),
        ("crash", format!("{} without a primary", between(&plan.crash))),
        ("host lost", format!("{}, for nobody says that it is gone", between(&lost_host(forecast, plan)))),
        ("planned stop", planned(forecast, plan)),
        ("hold", hold),
        (
            "store silent",
            format!(
                "{} go unnoticed; the primary stops serving {} after its last renewal",
                Seconds(plan.rides_out),
                Seconds(plan.serves_for)
            ),
        ),
        ("renewals", calls(plan.renewals_per_second, nodes)),
    ];
    if plan.looks_per_second > 0.0 {
        lines.push(("looks", format!("{}, fewer where the store announces changes", calls(plan.looks_per_second, nodes))));
    }
    lines.push(("expiry", format!("a lock is free {}, by {}", takeover.expiry(), takeover.clock)));
    let widest = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    lines.iter().map(|(name, text)| format!("{name:widest$}  {text}")).collect::<Vec<_>>().join("\n")
}

fn planned(forecast: &Forecast, plan: &Plan) -> String {
    let (drain, worst) = (Seconds(forecast.drain_timeout), Seconds(plan.planned.worst));
    let soon = match plan.planned.typical {
        Duration::ZERO => "at once".to_owned(),
        typical => format!("within {}", Seconds(typical)),
    };
    let held = if forecast.hold_timeout < plan.planned.worst && !forecast.hold_timeout.is_zero() {
        ", which is longer than requests are held"
    } else {
        ""
    };
    format!("{soon} after the last running request; {worst} where one takes all of --drain-timeout {drain}{held}")
}

/// A host that is gone refuses no connection, so each one that was being opened costs its own time.
fn lost_host(forecast: &Forecast, plan: &Plan) -> Estimate {
    Estimate { typical: plan.crash.typical, worst: forecast.hold_needed(plan) }
}

fn calls(per_second: f64, nodes: usize) -> String {
    format!("{per_second:.2} a second by each node, {:.2} by {nodes}", per_second * nodes as f64)
}

/// As many digits as mean something.
fn thousandths(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn value(forecast: &Forecast, plan: &Plan, kept: &Kept, nodes: usize) -> Value {
    let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let estimate = |estimate: &Estimate| json!({ "typical_ms": millis(estimate.typical), "worst_ms": millis(estimate.worst) });
    let (takeover, needed) = (forecast.takeover(), forecast.hold_needed(plan));
    json!({
        "store": forecast.election.store.as_str(),
        "ttl": { "asked_ms": millis(forecast.election.timing.ttl()), "kept_ms": millis(kept.ttl), "granted": kept.granted, "why": kept.why },
        "crash": estimate(&plan.crash),
        "host_lost": estimate(&lost_host(forecast, plan)),
        "planned": estimate(&plan.planned),
        "hold": {
            "needed_ms": millis(needed),
            "set_ms": millis(forecast.hold_timeout),
            "enough": forecast.hold_timeout >= needed,
        },
        "drain_ms": millis(forecast.drain_timeout),
        "store_silent_ms": millis(plan.rides_out),
        "serves_for_ms": millis(plan.serves_for),
        "nodes": nodes,
        "renewals_per_second": thousandths(plan.renewals_per_second * nodes as f64),
        "looks_per_second": thousandths(plan.looks_per_second * nodes as f64),
        "expiry": {
            "clock": takeover.clock,
            "ttls": takeover.lasts,
            "delay_ms": millis(takeover.delay),
            "late_ms": millis(takeover.late),
        },
    })
}
