//! `bellwether resign`: make the primary hand over to another node.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use http::{Method, StatusCode};
use serde_json::Value;

use super::secure::Secure;
use super::{Failure, Output, print, runtime};
use crate::api::Token;
use crate::api::client::{Target, With};
use crate::config::{ConfigError, Span};

const EXAMPLES: &str = "\
The node holds what comes, finishes what runs, gives the lock back, and leaves it to the others for
one TTL. No request fails by it. The node must be the primary, and you need the right to act on it:
come through its --admin listener, bring its token, or show a certificate where it asks for one.

Examples:
  bellwether resign -H unix:///run/bellwether-admin.sock
  bellwether resign -H 10.0.0.1:4000 --token-file /etc/bellwether/token
  bellwether resign -H node-1:4000 --tlsverify --tlscacert ca.pem --tlscert me.pem --tlskey me-key.pem

Exit status: 0 when the lock was given back, 1 otherwise.";

#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Resign {
    /// Which node: host:port, :port, tcp://host:port or unix:///path
    #[arg(short = 'H', long, value_name = "NODE", env = "BELLWETHER_HOST", default_value = "127.0.0.1:4000")]
    host: Target,

    /// A file with the node's admin token
    #[arg(long, value_name = "FILE", env = "BELLWETHER_ADMIN_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// How long to wait for it; longer than the node's --drain-timeout
    #[arg(long, value_name = "DUR", env = "BELLWETHER_TIMEOUT", default_value = "1m")]
    timeout: Span,

    /// How to print it
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_OUTPUT", default_value = "text")]
    output: Output,

    #[command(flatten)]
    secure: Secure,
}

impl Resign {
    pub(super) fn run(self) -> Result<(), Failure> {
        let token = self.token_file.as_deref().map(Token::read).transpose().map_err(|error| {
            let file = self.token_file.as_deref().unwrap_or(std::path::Path::new("")).display();
            ConfigError::new(format!("cannot use the token file {file}: {error}; check --token-file (BELLWETHER_ADMIN_TOKEN_FILE)"))
        })?;
        let token = token.map(|(token, _)| token);
        let tls = self.secure.client()?;
        let with = With { token: token.as_ref(), tls: tls.as_ref() };
        let done = runtime()?.block_on(resign(&self.host, with, self.timeout.0))?;
        match self.output {
            Output::Json => print(format_args!("{done}"))?,
            Output::Text => match done["primary"].as_str() {
                Some("") | None => print(format_args!("resigned, no other node is primary yet"))?,
                Some(primary) => print(format_args!("resigned, {primary} is primary under epoch {}", done["epoch"]))?,
            },
        };
        Ok(())
    }
}

async fn resign(host: &Target, with: With<'_>, limit: Duration) -> anyhow::Result<Value> {
    let answer = host.ask(Method::POST, "/_bellwether/resign", with, limit).await?;
    let said = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
    if answer.status == StatusCode::OK {
        return Ok(said);
    }
    match said["message"].as_str() {
        Some(message) => bail!("{} did not resign: {message}", host),
        None => bail!("{} answered {}, is it a node?", host, answer.status),
    }
}
