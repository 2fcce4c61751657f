//! `bellwether demo`: a failover to watch.

use anyhow::{Context, anyhow};
use clap::Args;

use super::{Failure, Output, print, runtime};
use crate::demo::{self, Options, Summary};

const EXAMPLES: &str = "\
Examples:
  bellwether demo
  bellwether demo --stay
  bellwether demo --output json

Exit status: 0 when the demo showed what it should, else 1 and a sentence that says what went wrong.";

/// Starts three nodes and an app with an SQLite file in a temporary folder as the store, sends a steady load to all
/// nodes, kills the primary, restarts the next one as for an upgrade, and says what the clients saw. Needs nothing,
/// takes about seven seconds and at most thirty, and leaves nothing behind.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Demo {
    /// Keep the nodes running afterwards, and say what to try with curl
    #[arg(long)]
    stay: bool,

    /// How to print what was measured
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,
}

impl Demo {
    pub(super) fn run(self) -> Result<(), Failure> {
        let options = Options { stay: self.stay, silent: self.output == Output::Json };
        let mut printed = Ok(true);
        let finish = |summary: &Summary| printed = self.print(summary);
        let summary = runtime()?.block_on(demo::run(options, finish)).map_err(anyhow::Error::from)?;
        printed?;
        match summary.shortcoming() {
            None => Ok(()),
            Some(shortcoming) => Err(anyhow!("the demo did not show what it should: {shortcoming}").into()),
        }
    }

    fn print(&self, summary: &Summary) -> anyhow::Result<bool> {
        match self.output {
            Output::Text => print(format_args!("\n{}", summary.text())),
            Output::Json => {
                let json = serde_json::to_string_pretty(summary).context("write the summary as JSON")?;
                print(format_args!("{json}"))
            }
        }
    }
}
