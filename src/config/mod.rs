//! From settings to a configuration that can be run: the sum of what the rooms need.
//!
//! Everything that can be wrong without asking the system is found here, before anything is bound, opened or written.
//! Each error is one sentence: what is wrong, where it was said, and what to do.

mod file;
mod forecast;
mod tls;
mod value;

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;

use crate::api::access;
use crate::api::{self, Limits, Listen, LocalRoutes, Token};
use crate::cli::Settings;
use crate::cluster::Upstream;
use crate::machine;
use crate::node::{Address, Node};
use crate::replication::Timing;
use crate::store::{Lock, LockConfig, StoreOption, StoreOptions, StoreUrl};
use crate::telemetry;
use tls::Spoken;

pub(crate) use file::{many, one, options};
pub use forecast::Forecast;
pub use tls::TlsFlags;
pub use value::{Block, ByteSize, Count, Seconds, Span, ValueError};

const DEFAULT_TTL: Duration = Duration::from_secs(10);
const DEFAULT_DRAIN: Duration = Duration::from_secs(10);
const LONGEST_HOLD: Duration = Duration::from_secs(60 * 60);
const LONGEST_DRAIN: Duration = Duration::from_secs(60 * 60);
const MOST_WORKERS: usize = 256;
const MOST_HELD: usize = 1_000_000;
const DEFAULT_CONNECTIONS: u64 = 20_000;
const MOST_CONNECTIONS: usize = 10_000_000;
/// What one client's connection may take: its own, and one to the app or the primary.
const FILES_PER_CONNECTION: u64 = 2;
/// What the election, the log and the listeners take.
const OTHER_FILES: u64 = 256;
/// How long a head may be allowed to be, in bytes: browsers with a few cookies need the least, and each connection that sends one
/// has that much in memory.
const HEADER_SIZES: RangeInclusive<usize> = 8 << 10..=1 << 20;
/// And how many lines it may be allowed to have.
const HEADER_LINES: RangeInclusive<usize> = 32..=1_000;
/// Other nodes use idle connections for up to four seconds, and must not come upon one that is being closed.
const SHORTEST_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
const LONGEST_HEADER_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// What is shorter is measured by the half-second sweep too roughly.
const SHORTEST_BODY_IDLE: Duration = Duration::from_secs(1);
const LONGEST_BODY_IDLE: Duration = Duration::from_secs(24 * 60 * 60);

/// As above.
const SHORTEST_ANSWER: Duration = Duration::from_secs(1);
const LONGEST_ANSWER: Duration = Duration::from_secs(24 * 60 * 60);

/// Everything that a node needs to run.
#[derive(Debug)]
pub struct Config {
    /// The data plane.
    pub api: api::Config,
    /// Which paths the node answers itself.
    pub local_routes: LocalRoutes,
    /// The election's name.
    pub service: String,
    /// Where the other nodes reach this one.
    pub advertise: Option<Address>,
    /// The election, unless this is a lone primary.
    pub election: Option<Election>,
    /// One more listener, and whether coming through it gives the right to act.
    pub admin: Option<Admin>,
    /// What gives the right to act on any listener.
    pub token: Option<Token>,
    /// How long running requests get when the primary steps down.
    pub drain_timeout: Duration,
    /// What a failover will cost, as far as it can be said without asking the store: a line of the log.
    pub forecast: Option<String>,
    /// Whether requests are written down, and how.
    pub access_log: Option<access::Format>,
    /// What is logged, and how.
    pub log: telemetry::Config,
    /// What is odd and yet allowed: a line of the log each.
    pub warnings: Vec<String>,
}

/// The admin listener.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where it listens.
    pub listen: Listen,
    /// Whether only this machine can come through it, so that coming through it gives the right to act.
    pub is_private: bool,
}

/// Which election, and how it is timed.
#[derive(Clone, Debug)]
pub struct Election {
    /// Where it lives.
    pub store: StoreUrl,
    /// How to be let into the store.
    pub options: StoreOptions,
    /// Its name.
    pub service: String,
    /// Its durations.
    pub timing: Timing,
}

/// A setting that cannot be used: one sentence, which names it and says what to do.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

impl ConfigError {
    pub(crate) fn new(sentence: impl Into<String>) -> Self {
        Self(sentence.into())
    }

    fn about(setting: &str, problem: impl std::fmt::Display) -> Self {
        let variable = setting.trim_start_matches('-').replace('-', "_").to_uppercase();
        Self(format!("{setting} (BELLWETHER_{variable}): {problem}"))
    }
}

impl Config {
    /// Completes `settings` from the configuration file that they name, checks all of it, and fills in the defaults.
    ///
    /// # Errors
    /// [`ConfigError`] about the first thing that cannot be used.
    pub fn resolve(settings: Settings) -> Result<Self, ConfigError> {
        let settings = file::complete(settings)?;
        let mut warnings = Vec::new();
        let service = settings.service.clone().unwrap_or_else(|| "default".to_owned());
        let election = election(&settings, &service, &mut warnings)?;
        let token = settings.admin_token_file.as_deref().map(|path| token(path, &mut warnings)).transpose()?;
        let admin = settings.admin.clone().map(|listen| admin(listen, token.is_some())).transpose()?;
        let timing = election.as_ref().map_or(Timing::granted(DEFAULT_TTL), |election| election.timing);
        let drain_timeout = drain_timeout(&settings)?;
        let dialled_at = settings.advertise.as_ref().filter(|_| election.is_some()).map(Address::host);
        let api = data_plane(&settings, timing, dialled_at, &mut warnings)?;
        if api.upstream.is_empty() {
            warnings.push("--upstream is not given: as primary this node answers 503 no-upstream".to_owned());
        }
        let forecast = election.clone().map(|election| {
            let forecast = Forecast { election, hold_timeout: api.hold_timeout, drain_timeout };
            let granted = forecast.refused_ttl().unwrap_or_else(|sentence| {
                warnings.push(sentence);
                timing.ttl()
            });
            let plan = forecast.plan(granted);
            warnings.extend(forecast.too_short_a_hold(&plan));
            let (store, expiry) = (forecast.election.store.scheme(), forecast.takeover().expiry());
            let (typical, worst) = (Seconds(plan.crash.typical), Seconds(plan.crash.worst));
            format!("A crash of the primary costs {typical} typically and {worst} at worst: {store} frees its lock {expiry}")
        });
        Ok(Self {
            api,
            local_routes: settings.local_routes.unwrap_or_default(),
            service,
            advertise: settings.advertise,
            election,
            admin,
            token,
            drain_timeout,
            forecast,
            access_log: settings.access_log,
            log: telemetry::Config { format: settings.log_format.unwrap_or_default(), level: settings.log_level.unwrap_or_default() },
            warnings,
        })
    }
}

impl Election {
    /// The election named `service` in `store`, with `ttl` if the store can keep it.
    ///
    /// # Errors
    /// [`ConfigError`] about the first of these that cannot be used.
    pub fn resolve(store: &str, options: &[String], service: &str, ttl: Span) -> Result<Self, ConfigError> {
        let store: StoreUrl = store.parse().map_err(|error| ConfigError::new(format!("STORE (BELLWETHER_STORE): {error}")))?;
        let about = |error: &dyn std::fmt::Display| ConfigError::about("--store-opt", error);
        let options = options.iter().map(|option| option.parse::<StoreOption>()).collect::<Result<Vec<_>, _>>();
        let options = StoreOptions::new(options.map_err(|error| about(&error))?).map_err(|error| about(&error))?;
        store.election(service).map_err(|error| ConfigError::about("--service", error))?;
        store.check_options(&options).map_err(|error| about(&error))?;
        let timing = Timing::new(ttl.0).map_err(|error| ConfigError::about("--replication-ttl", error))?;
        store.check_ttl(ttl.0).map_err(|error| ConfigError::about("--replication-ttl", error))?;
        Ok(Self { store, options, service: service.to_owned(), timing })
    }

    /// The election's lock, as `node` sees it; nothing is sent yet.
    ///
    /// # Errors
    /// When the store cannot be used as it was given.
    pub fn open(&self, node: Node) -> anyhow::Result<Arc<dyn Lock>> {
        let election = self.store.election(&self.service).context("name the election")?;
        let config = LockConfig { election, node, ttl: self.timing.ttl(), call_timeout: self.timing.call_timeout() };
        self.store.open(&self.options, config).with_context(|| format!("STORE {}", self.store))
    }
}

fn election(settings: &Settings, service: &str, warnings: &mut Vec<String>) -> Result<Option<Election>, ConfigError> {
    if let Some(address) = settings.advertise.as_ref().filter(|address| address.is_unspecified()) {
        let problem = format_args!("nobody can dial {address}, give an address at which the other nodes reach this one");
        return Err(ConfigError::about("--advertise", problem));
    }
    match (settings.replication, &settings.store) {
        (Some(true), None) => {
            Err(ConfigError::about("--replication", "an election needs a STORE, for example etcd://10.0.0.7:2379 or sqlite:///tmp/lock.db"))
        }
        // Two nodes that each think they are alone would both serve: too dear a slip to guess what was meant.
        (None, Some(_)) => Err(ConfigError::new(
            "a STORE is given without --replication (BELLWETHER_REPLICATION), so nothing would be elected in it; \
             add --replication, or leave the STORE out to run a lone primary",
        )),
        (Some(false), Some(_)) => {
            warnings.push("--replication=false: this node is a lone primary and does not use its STORE".to_owned());
            Ok(None)
        }
        (Some(false) | None, None) if settings.store_opt.as_ref().is_some_and(|options| !options.is_empty()) => {
            let problem = "is given without a STORE that it could be an option of; add STORE and --replication, or leave it out";
            Err(ConfigError::new(format!("--store-opt (BELLWETHER_STORE_OPT) {problem}")))
        }
        (Some(false) | None, None) => Ok(None),
        (Some(true), Some(store)) => {
            let Some(address) = &settings.advertise else {
                let problem = "is required with --replication, give the host:port at which the other nodes reach this one";
                return Err(ConfigError::new(format!("--advertise (BELLWETHER_ADVERTISE) {problem}")));
            };
            let options = settings.store_opt.as_deref().unwrap_or_default();
            let ttl = settings.replication_ttl.unwrap_or(Span(DEFAULT_TTL));
            let election = Election::resolve(store, options, service, ttl)?;
            if address.is_loopback() && !election.store.is_local() {
                let scheme = election.store.scheme();
                warnings.push(format!(
                    "--advertise {address}: only this machine reaches that, while other machines can take part through {scheme}"
                ));
            }
            Ok(Some(election))
        }
    }
}

fn token(path: &Path, warnings: &mut Vec<String>) -> Result<Token, ConfigError> {
    let named = path.display();
    let (token, exposed) =
        Token::read(path).map_err(|error| ConfigError::about("--admin-token-file", format_args!("cannot use {named}: {error}")))?;
    if exposed {
        warnings.push(format!("--admin-token-file {named}: every user of this machine can read it, chmod it to 600"));
    }
    Ok(token)
}

fn admin(listen: Listen, has_token: bool) -> Result<Admin, ConfigError> {
    let is_private = match &listen {
        Listen::Unix(_) => true,
        Listen::Tcp(address) => address.ip().is_loopback(),
    };
    if is_private || has_token {
        return Ok(Admin { listen, is_private });
    }
    let problem = "others than this machine reach it; use unix:///path or a loopback address, or add --admin-token-file";
    Err(ConfigError::about("--admin", format_args!("{listen}: {problem}")))
}

fn data_plane(
    settings: &Settings,
    timing: Timing,
    dialled_at: Option<&str>,
    warnings: &mut Vec<String>,
) -> Result<api::Config, ConfigError> {
    let upstream = settings.upstream.iter().flatten().map(|url| url.parse::<Upstream>());
    let upstream = upstream.collect::<Result<Vec<_>, _>>().map_err(|error| ConfigError::about("--upstream", error))?;
    if upstream.len() > 1 {
        let problem = format_args!("{} are given, and this version serves through one app: give one", upstream.len());
        return Err(ConfigError::about("--upstream", problem));
    }
    let listen = settings.host.clone().unwrap_or_else(|| vec![Listen::Tcp(([127, 0, 0, 1], 4000).into())]);
    let hold_timeout = hold_timeout(settings, timing)?;
    let hold_requests = settings.hold_requests.map_or(10_000, |count| count.0);
    if hold_requests > MOST_HELD {
        return Err(ConfigError::about("--hold-requests", format_args!("{hold_requests} is too many, the most is {MOST_HELD}")));
    }
    let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let workers = settings.workers.map_or(Some(cores), |count| NonZeroUsize::new(count.0)).filter(|workers| workers.get() <= MOST_WORKERS);
    let max_connections = max_connections(settings, machine::most_open_files(), warnings)?;
    let limits = limits(settings)?;
    let Spoken { tls, to_app } = Spoken::resolve(settings, &upstream, &listen, dialled_at, warnings)?;
    Ok(api::Config {
        listen,
        upstream,
        tls,
        to_app,
        hold_timeout,
        ttl: timing.ttl(),
        hold_requests,
        hold_bytes: settings.hold_bytes.map_or(64 << 20, |size| size.0),
        workers: workers.ok_or_else(|| ConfigError::about("--workers", format_args!("must be from 1 to {MOST_WORKERS}")))?,
        http2: settings.http2.unwrap_or(true),
        forwarded: settings.forwarded.unwrap_or(false),
        trusted_proxies: settings.trusted_proxies.iter().flatten().map(|block| block.0).collect(),
        max_connections,
        forward: settings.forward.unwrap_or_default(),
        limits,
    })
}

/// How many clients may be connected, where the process may open `open_files` files.
fn max_connections(settings: &Settings, open_files: Option<u64>, warnings: &mut Vec<String>) -> Result<usize, ConfigError> {
    let room = open_files.map_or(u64::MAX, |files| (files.saturating_sub(OTHER_FILES) / FILES_PER_CONNECTION).max(64));
    let Some(Count(asked)) = settings.max_connections else {
        return Ok(usize::try_from(room.min(DEFAULT_CONNECTIONS)).unwrap_or(MOST_CONNECTIONS));
    };
    if !(1..=MOST_CONNECTIONS).contains(&asked) {
        return Err(ConfigError::about("--max-connections", format_args!("must be from 1 to {MOST_CONNECTIONS}")));
    }
    if asked as u64 > room {
        let needed = asked as u64 * FILES_PER_CONNECTION + OTHER_FILES;
        warnings.push(format!(
            "--max-connections {asked}: that can take {needed} open files, and this process may open {}; raise its limit \
             (LimitNOFILE= of systemd, ulimit -Hn), or allow no more than {room}",
            open_files.unwrap_or_default()
        ));
    }
    Ok(asked)
}

fn limits(settings: &Settings) -> Result<Limits, ConfigError> {
    let usual = Limits::default();
    let head_bytes = settings.max_header_size.map_or(usual.head_bytes, |size| size.0);
    if !HEADER_SIZES.contains(&head_bytes) {
        return Err(ConfigError::about("--max-header-size", "must be from 8KiB to 1MiB"));
    }
    let head_lines = settings.max_header_lines.map_or(usual.head_lines, |lines| lines.0);
    if !HEADER_LINES.contains(&head_lines) {
        let (least, most) = HEADER_LINES.into_inner();
        return Err(ConfigError::about("--max-header-lines", format_args!("must be from {least} to {most}")));
    }
    let answer_lines = usual.answer_lines.max(head_lines);
    let head_timeout = settings.header_timeout.map_or(usual.head_timeout, |span| span.0);
    at_least("--header-timeout", head_timeout, SHORTEST_HEADER_TIMEOUT)?;
    at_most("--header-timeout", head_timeout, LONGEST_HEADER_TIMEOUT)?;
    let body_idle_timeout =
        settings.body_idle_timeout.map_or(usual.body_idle_timeout, |span| Some(span.0)).filter(|limit| !limit.is_zero());
    if let Some(limit) = body_idle_timeout {
        at_least("--body-idle-timeout", limit, SHORTEST_BODY_IDLE)?;
        at_most("--body-idle-timeout", limit, LONGEST_BODY_IDLE)?;
    }
    let answer_timeout = settings.upstream_timeout.map(|span| span.0);
    if let Some(limit) = answer_timeout {
        at_least("--upstream-timeout", limit, SHORTEST_ANSWER)?;
        at_most("--upstream-timeout", limit, LONGEST_ANSWER)?;
    }
    Ok(Limits { head_bytes, head_lines, answer_lines, head_timeout, body_idle_timeout, answer_timeout, ..usual })
}

fn hold_timeout(settings: &Settings, timing: Timing) -> Result<Duration, ConfigError> {
    let hold_timeout = settings.hold_timeout.map_or(timing.hold_timeout(), |span| span.0);
    at_most("--hold-timeout", hold_timeout, LONGEST_HOLD)?;
    Ok(hold_timeout)
}

fn drain_timeout(settings: &Settings) -> Result<Duration, ConfigError> {
    let drain_timeout = settings.drain_timeout.map_or(DEFAULT_DRAIN, |span| span.0);
    at_most("--drain-timeout", drain_timeout, LONGEST_DRAIN)?;
    Ok(drain_timeout)
}

fn at_least(setting: &str, given: Duration, least: Duration) -> Result<(), ConfigError> {
    if given >= least {
        return Ok(());
    }
    Err(ConfigError::about(setting, format_args!("{} is too short, the least is {}", Span(given), Span(least))))
}

fn at_most(setting: &str, given: Duration, most: Duration) -> Result<(), ConfigError> {
    if given <= most {
        return Ok(());
    }
    Err(ConfigError::about(setting, format_args!("{} is too long, the most is {}", Span(given), Span(most))))
}
