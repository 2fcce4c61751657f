//! The TLS flags of the commands that ask a node, which are the Docker client's.

use std::path::PathBuf;

use clap::Args;
use clap::builder::BoolishValueParser;

use crate::config::{ConfigError, TlsFlags};
use crate::tls;

/// How a node is asked; a unix socket never speaks TLS.
#[derive(Args)]
#[command(next_help_heading = "TLS")]
pub(super) struct Secure {
    /// Speak TLS, and believe the node when a CA of --tlscacert, else of this system, has issued its certificate [default: false]
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_TLS", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    tls: Option<bool>,

    /// The same; here for those who know the Docker client's flags [default: false]
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_TLSVERIFY", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true")]
    tlsverify: Option<bool>,

    /// The PEM file of the CA that issued the node's certificate [default: the system's CAs]
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSCACERT")]
    tlscacert: Option<PathBuf>,

    /// The PEM file of a certificate to show, where the node asks for one
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSCERT")]
    tlscert: Option<PathBuf>,

    /// The PEM file of its key
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSKEY")]
    tlskey: Option<PathBuf>,

    /// What the node's certificate is for, where that is not the host of --host
    #[arg(long, value_name = "NAME", env = "BELLWETHER_TLS_SERVER_NAME")]
    tls_server_name: Option<String>,
}

impl Secure {
    /// How nodes are dialled, unless in plain HTTP.
    pub(super) fn client(self) -> Result<Option<tls::Client>, ConfigError> {
        let Self { tls, tlsverify, tlscacert, tlscert, tlskey, tls_server_name } = self;
        TlsFlags { tls, tlsverify, tlscacert, tlscert, tlskey, tls_server_name }.client()
    }
}
