//! `bellwether manage`: the daemon.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use clap::builder::BoolishValueParser;
use serde::Deserialize;

use crate::api::access::Format;
use crate::api::{Forward, Listen, LocalRoutes};
use crate::config::{self, Block, ByteSize, Config, Count, Span, TlsFlags};
use crate::node::Address;
use crate::telemetry::{LogFormat, LogLevel};

const EXAMPLES: &str = "\
Every flag can be given as an environment variable (BELLWETHER_REPLICATION_TTL=5s) or as a key of
the --config file (replication-ttl = \"5s\"). Flags override the environment, and that overrides the
file.

Examples:
  One of three nodes; the same on the other two, each with its own address:
    bellwether manage -H :4000 --replication --advertise 10.0.0.1:4000 \\
        --upstream http://127.0.0.1:8080 etcd://10.0.0.7:2379,10.0.0.8:2379,10.0.0.9:2379

  One of two nodes on one machine, no server needed; the other one with 4002 and 8082:
    bellwether manage -H :4001 --replication --advertise 127.0.0.1:4001 \\
        --upstream http://127.0.0.1:8081 sqlite:///tmp/lock.db

  A lone primary in front of a Docker engine, no store:
    bellwether manage -H :4000 --upstream unix:///var/run/docker.sock

The first SIGTERM or SIGINT hands over, drains and exits with 0; a second one ends at once, with 1.
SIGHUP has the files of --tlscert, --tlskey and --tlscacert read at once, as they are every two
seconds anyway. Nothing else can be changed without a restart.
Exit status: 0 stopped by a signal, 1 could not start or go on, 2 wrong usage.";

/// Every setting of the daemon, written once: its flag, its environment variable and its key in the configuration file.
#[derive(Args, Deserialize, Clone, Default, Debug)]
#[command(after_help = EXAMPLES)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Settings {
    /// Where the election lives: etcd://HOST:PORT,HOST:PORT/PREFIX, or one of consul, zk, postgres, mysql, kubernetes and sqlite
    ///
    /// consul://HOST:PORT/PREFIX, zk://HOST:PORT,HOST:PORT/PREFIX, postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE,
    /// kubernetes://NAMESPACE, sqlite:///ABSOLUTE/PATH.db.
    ///
    /// All nodes of one election name the same store and the same --service. The prefix is `bellwether` unless given.
    /// Credentials belong in files: see --store-opt.
    #[arg(value_name = "STORE", env = "BELLWETHER_STORE", hide_env_values = true)]
    #[serde(deserialize_with = "config::one")]
    pub store: Option<String>,

    /// Listen here; repeat for more [default: 127.0.0.1:4000]
    ///
    /// One of `:4000` (all interfaces), `ip:port`, `[v6]:port`, `tcp://ip:port` or `unix:///path`. Port 0 takes any free
    /// one; the log line `Listening for HTTP` tells which.
    #[arg(short = 'H', long, value_name = "ADDR", env = "BELLWETHER_HOST", value_delimiter = ',', help_heading = "Serving")]
    #[serde(deserialize_with = "config::many")]
    pub host: Option<Vec<Listen>>,

    /// The app that this node serves while it is primary: http://, h2c:// or https://HOST:PORT, or unix:///PATH
    ///
    /// Without one a primary answers 503 `no-upstream`. An app behind https:// must show a certificate for HOST, issued by
    /// a CA of this system or of --tlscacert; it is shown --tlscert if it asks for a certificate.
    #[arg(long, value_name = "URL", env = "BELLWETHER_UPSTREAM", hide_env_values = true, value_delimiter = ',', help_heading = "Serving")]
    #[serde(deserialize_with = "config::many")]
    pub upstream: Option<Vec<String>>,

    /// Paths that the node answers itself, also under /vN.NN; empty for none [default: /_ping,/info]
    ///
    /// Leave one out when the app must answer it. Everything under /_bellwether/ is always the node's own.
    #[arg(long, value_name = "LIST", env = "BELLWETHER_LOCAL_ROUTES", help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub local_routes: Option<LocalRoutes>,

    /// Whose X-Forwarded-* headers are believed, like 10.0.0.0/8,fd00::/8 [default: nobody's]
    ///
    /// Name the load balancers in front of the nodes, and nothing that a client can send from.
    #[arg(long, value_name = "CIDR", env = "BELLWETHER_TRUSTED_PROXIES", value_delimiter = ',', help_heading = "Serving")]
    #[serde(deserialize_with = "config::many")]
    pub trusted_proxies: Option<Vec<Block>>,

    /// Tell the app by Forwarded (RFC 7239), too, where requests come from [default: false]
    ///
    /// Beside X-Forwarded-*: `for=ADDRESS;host="HOST";proto=SCHEME`, an element for each node and each trusted proxy before it.
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_FORWARDED", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true", help_heading = "Serving")]
    pub forwarded: Option<bool>,

    /// Whether clients may speak HTTP/2, and apps behind TLS; HTTP/1.1 they always may [default: true]
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_HTTP2", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true", help_heading = "Serving")]
    pub http2: Option<bool>,

    /// Threads that carry requests [default: one per core]
    ///
    /// The election has a thread of its own, whatever this says.
    #[arg(long, value_name = "N", env = "BELLWETHER_WORKERS", allow_negative_numbers = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub workers: Option<Count>,

    /// What a replica does with requests for the primary: proxy or redirect [default: proxy]
    ///
    /// With redirect clients get 307 with the primary's --advertise, which they must be able to reach; while there is no
    /// primary they wait as usual. WebSocket clients, and many others, follow no redirect.
    #[arg(long, value_name = "WAY", env = "BELLWETHER_FORWARD", help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub forward: Option<Forward>,

    /// How many client connections may be open at once [default: 20000, or what the limit of open files has room for]
    ///
    /// A few more are in reserve for other nodes and for the node's own routes; every other client in excess gets 503
    /// `too-many-connections` and is cut. Each may take two open files. The --admin listener does not count.
    #[arg(long, value_name = "N", env = "BELLWETHER_MAX_CONNECTIONS", allow_negative_numbers = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub max_connections: Option<Count>,

    /// How long the head of a request or an answer may be [default: 64KiB]
    ///
    /// A longer request gets 431, a longer answer turns into 502. The same on all nodes: each has room for what another adds.
    #[arg(long, value_name = "SIZE", env = "BELLWETHER_MAX_HEADER_SIZE", allow_hyphen_values = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub max_header_size: Option<ByteSize>,

    /// How many lines it may have [default: 100]
    ///
    /// Answers may have as many, and 256 in any case.
    #[arg(long, value_name = "N", env = "BELLWETHER_MAX_HEADER_LINES", allow_negative_numbers = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub max_header_lines: Option<Count>,

    /// How long a request's head may take to come, and how long a client's connection may idle [default: 30s]
    ///
    /// A head that began and did not end gets 408. At least 5s, as other nodes keep connections idle for nearly as long.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_HEADER_TIMEOUT", allow_hyphen_values = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub header_timeout: Option<Span>,

    /// How long a client may rest in the middle of a body that it owes; 0s for as long as it likes [default: 5m]
    ///
    /// It owes the rest of a request's body while the app waits for it and has not answered (gRPC excepted), and the taking
    /// of an answer that is being sent to it. Streams without news, long polls and tunnels owe nothing and are never cut.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_BODY_IDLE_TIMEOUT", allow_hyphen_values = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub body_idle_timeout: Option<Span>,

    /// How long the app may take to begin its answer, once it has the request [default: as long as the client waits]
    ///
    /// Past that, the client gets 504 `upstream-timeout` with `maybe-executed`, and the exchange is broken off; it is not tried
    /// again. At least 1s, and it may take up to a second longer. Leave it out where answers to long polls may begin late.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_UPSTREAM_TIMEOUT", allow_hyphen_values = true, help_heading = "Serving")]
    #[serde(deserialize_with = "config::one")]
    pub upstream_timeout: Option<Span>,

    /// Take part in the election; without it this node is a lone primary [default: false]
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_REPLICATION", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true", help_heading = "Election")]
    pub replication: Option<bool>,

    /// How the other nodes reach this one: `host:port`, `ip:port` or `[v6]:port`; required with --replication
    ///
    /// It must lead to this node from every other node, through whatever maps ports on the way. It need not be an address
    /// of this machine. There is no default, because a guess that is wrong sends requests to the wrong place.
    #[arg(long, value_name = "HOST:PORT", env = "BELLWETHER_ADVERTISE", help_heading = "Election")]
    #[serde(deserialize_with = "config::one")]
    pub advertise: Option<Address>,

    /// How long the lock outlives a silent holder [default: 10s]
    ///
    /// The one timing knob of the election: a crashed primary is replaced about this long after its last renewal. Renewals
    /// go out at every third of it. Shorten it for a quicker failover, lengthen it when the store or the network pauses.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_REPLICATION_TTL", allow_hyphen_values = true, help_heading = "Election")]
    #[serde(deserialize_with = "config::one")]
    pub replication_ttl: Option<Span>,

    /// The election's name; nodes with the same name in the same store elect one primary [default: default]
    #[arg(long, value_name = "NAME", env = "BELLWETHER_SERVICE", help_heading = "Election")]
    #[serde(deserialize_with = "config::one")]
    pub service: Option<String>,

    /// An option of the store, key=value; repeat for more: cacert, cert, key, username, password-file, token-file, lock-delay
    ///
    /// Which of them apply depends on the store. Secrets are read from files, so that no process list shows them.
    #[arg(
        long,
        value_name = "KEY=VALUE",
        env = "BELLWETHER_STORE_OPT",
        hide_env_values = true,
        value_delimiter = ',',
        help_heading = "Election"
    )]
    #[serde(deserialize_with = "config::options")]
    pub store_opt: Option<Vec<String>>,

    /// How long a request waits while there is no primary [default: 2 × TTL + 5s]
    ///
    /// The default outlasts one crash and one more try. Then the client gets 503 with Retry-After. 0s holds nothing.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_HOLD_TIMEOUT", allow_hyphen_values = true, help_heading = "Waiting")]
    #[serde(deserialize_with = "config::one")]
    pub hold_timeout: Option<Span>,

    /// How many requests may wait at once [default: 10000]
    #[arg(long, value_name = "N", env = "BELLWETHER_HOLD_REQUESTS", allow_negative_numbers = true, help_heading = "Waiting")]
    #[serde(deserialize_with = "config::one")]
    pub hold_requests: Option<Count>,

    /// How many bytes the waiting requests may take, heads and what is kept of bodies [default: 64MiB]
    #[arg(long, value_name = "SIZE", env = "BELLWETHER_HOLD_BYTES", allow_negative_numbers = true, help_heading = "Waiting")]
    #[serde(deserialize_with = "config::one")]
    pub hold_bytes: Option<ByteSize>,

    /// How long running requests get when the primary steps down [default: 10s]
    ///
    /// A resigning or stopping primary takes on nothing new, waits this long for what runs, and cuts what is left. Make it
    /// longer than the slowest request that must not be cut.
    #[arg(long, value_name = "DUR", env = "BELLWETHER_DRAIN_TIMEOUT", allow_hyphen_values = true, help_heading = "Waiting")]
    #[serde(deserialize_with = "config::one")]
    pub drain_timeout: Option<Span>,

    /// One more listener, whose callers may act on the node: unix:///path or a loopback address
    ///
    /// Other addresses are refused unless --admin-token-file is given; their callers then need the token.
    #[arg(long, value_name = "ADDR", env = "BELLWETHER_ADMIN", help_heading = "Operating")]
    #[serde(deserialize_with = "config::one")]
    pub admin: Option<Listen>,

    /// A file with a token; whoever sends it as `Authorization: Bearer TOKEN` may act on the node, on any listener
    #[arg(long, value_name = "FILE", env = "BELLWETHER_ADMIN_TOKEN_FILE", help_heading = "Operating")]
    pub admin_token_file: Option<PathBuf>,

    /// Speak TLS 1.2 or 1.3 to clients and between nodes [default: false]
    ///
    /// On every TCP address of --host; unix sockets and the --admin listener stay plain. All nodes of an election speak
    /// it, or none. A node believes the primary whose certificate is for the host of its --advertise.
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_TLS", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true", help_heading = "TLS")]
    pub tls: Option<bool>,

    /// Ask clients and nodes for a certificate of the CA, too; implies --tls, and whoever shows one may act [default: false]
    #[arg(long, value_name = "BOOL", env = "BELLWETHER_TLSVERIFY", value_parser = BoolishValueParser::new(), num_args = 0..=1,
          require_equals = true, default_missing_value = "true", help_heading = "TLS")]
    pub tlsverify: Option<bool>,

    /// The PEM file of the CA of nodes and clients [default: the system's CAs, for nodes]
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSCACERT", help_heading = "TLS")]
    pub tlscacert: Option<PathBuf>,

    /// The PEM file of this node's certificate, and of those between it and its CA
    ///
    /// This file, the key's and the CA's are read again when they change: no connection and no tenure ends by that. Files
    /// that do not fit together are kept out, and the log says why.
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSCERT", help_heading = "TLS")]
    pub tlscert: Option<PathBuf>,

    /// The PEM file of its key, not encrypted
    #[arg(long, value_name = "FILE", env = "BELLWETHER_TLSKEY", help_heading = "TLS")]
    pub tlskey: Option<PathBuf>,

    /// What the certificates of all nodes are for, where that is not the host of each one's --advertise
    ///
    /// For nodes that share one certificate, like that of the service's own name.
    #[arg(long, value_name = "NAME", env = "BELLWETHER_TLS_SERVER_NAME", help_heading = "TLS")]
    pub tls_server_name: Option<String>,

    /// Read settings from this TOML file
    #[arg(long, value_name = "FILE", env = "BELLWETHER_CONFIG", help_heading = "Operating")]
    #[serde(skip)]
    pub config: Option<PathBuf>,

    /// Write a line for each request to standard output: text or json [default: no access log]
    ///
    /// With it, each request is named: by the X-Request-Id that a trusted proxy or another node sent, or anew. The app and the
    /// client are told. A reader that is too slow loses lines, and never holds up a request.
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_ACCESS_LOG", help_heading = "Operating")]
    #[serde(deserialize_with = "config::one")]
    pub access_log: Option<Format>,

    /// How log lines on standard error are written: text or json [default: text]
    #[arg(long, value_name = "FORMAT", env = "BELLWETHER_LOG_FORMAT", help_heading = "Operating")]
    #[serde(deserialize_with = "config::one")]
    pub log_format: Option<LogFormat>,

    /// Which log lines: off, error, warn, info, debug, trace, or directives like info,bellwether::api=debug [default: info]
    #[arg(long, value_name = "LEVEL", env = "BELLWETHER_LOG_LEVEL", help_heading = "Operating")]
    #[serde(deserialize_with = "config::one")]
    pub log_level: Option<LogLevel>,
}

impl Settings {
    /// These settings where they say something, and `under` where they do not.
    #[must_use]
    pub fn over(self, under: Self) -> Self {
        macro_rules! first_of {
            ($($field:ident),* $(,)?) => { Self { $($field: self.$field.or(under.$field)),* } };
        }
        first_of!(
            store,
            host,
            upstream,
            local_routes,
            trusted_proxies,
            forwarded,
            http2,
            workers,
            forward,
            max_connections,
            max_header_size,
            max_header_lines,
            header_timeout,
            body_idle_timeout,
            upstream_timeout,
            replication,
            advertise,
            replication_ttl,
            service,
            store_opt,
            hold_timeout,
            hold_requests,
            hold_bytes,
            drain_timeout,
            admin,
            admin_token_file,
            tls,
            tlsverify,
            tlscacert,
            tlscert,
            tlskey,
            tls_server_name,
            config,
            access_log,
            log_format,
            log_level,
        )
    }

    /// What they say about TLS.
    pub(crate) fn tls_flags(&self) -> TlsFlags {
        TlsFlags {
            tls: self.tls,
            tlsverify: self.tlsverify,
            tlscacert: self.tlscacert.clone(),
            tlscert: self.tlscert.clone(),
            tlskey: self.tlskey.clone(),
            tls_server_name: self.tls_server_name.clone(),
        }
    }

    pub(super) fn run(self) -> Result<(), super::Failure> {
        let config = Config::resolve(self)?;
        let log = crate::telemetry::init_as_daemon(&config.log).context("start the log")?;
        let outcome = crate::app::run(config, &log);
        log.finish(super::UNREAD);
        Ok(outcome?)
    }
}
