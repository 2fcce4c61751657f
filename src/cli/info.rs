//! `bellwether info`: what a node says of itself.

use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use super::secure::Secure;
use super::{Failure, Output, print, runtime};
use crate::api::client::{Target, With};
use crate::tls;

const EXAMPLES: &str = "\
Examples:
  bellwether info
  bellwether info -H 10.0.0.1:4000 --output json
  bellwether info -H unix:///run/bellwether.sock
  bellwether info -H node-1:4000 --tls --tlscacert /etc/bellwether/ca.pem

Exit status: 0 when the node knows what it says; 1 when it could not be asked, or when it knows no
primary because its store has been silent for longer than the TTL.";

/// A node answers this from memory; more than this is a network that does not work.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Info {
    /// Which node: host:port, :port, tcp://host:port or unix:///path
    #[arg(short = 'H', long, value_name = "NODE", env = "BELLWETHER_HOST", default_value = "127.0.0.1:4000")]
    host: Target,

    /// How to print it
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,

    #[command(flatten)]
    secure: Secure,
}

impl Info {
    pub(super) fn run(self) -> Result<(), Failure> {
        let tls = self.secure.client()?;
        let info = runtime()?.block_on(ask(&self.host, tls.as_ref()))?;
        match self.output {
            Output::Text => print(format_args!("{}", pairs(&info)))?,
            Output::Json => print(format_args!("{info:#}"))?,
        };
        if info["StoreSilent"] == true && info["Primary"] == "" {
            return Err(anyhow!(
                "{} knows no primary: its store has not answered for longer than the TTL, look after the store",
                self.host
            )
            .into());
        }
        Ok(())
    }
}

async fn ask(host: &Target, tls: Option<&tls::Client>) -> anyhow::Result<Value> {
    let answer = host.ask(Method::GET, "/info", With { tls, ..With::default() }, PATIENCE).await?;
    let info = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    if answer.status != StatusCode::OK || !info["SystemStatus"].is_array() {
        let hint = "is it a node, and does its --local-routes leave /info to it?";
        bail!("{} answered {} and nothing that a node says of itself; {hint}", host, answer.status);
    }
    Ok(info)
}

/// One line for each pair, the values in a column.
fn pairs(info: &Value) -> String {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let own = ["Name", "ID", "ServerVersion"].map(|key| (key.to_owned(), text(&info[key])));
    let rest = info["SystemStatus"].as_array().into_iter().flatten().map(|pair| (text(&pair[0]), text(&pair[1])));
    let pairs = own.into_iter().chain(rest).collect::<Vec<_>>();
    let widest = pairs.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0) + 1;
    let lines = pairs.iter().map(|(key, value)| format!("{:widest$} {value}", format!("{key}:")).trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n")
}
