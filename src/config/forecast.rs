//! What the settings of an election come to: its plan, and whether requests are held for long enough.

use std::time::Duration;

use super::{ConfigError, DEFAULT_TTL, Election, Seconds, Span, api, drain_timeout, file, hold_timeout};
use crate::cli::Settings;
use crate::replication::Plan;
use crate::store::Takeover;

/// The settings that decide what a failover costs, and what follows from them.
#[derive(Clone, Debug)]
pub struct Forecast {
    /// Which election.
    pub election: Election,
    /// How long a request is held.
    pub hold_timeout: Duration,
    /// How long running requests get when the primary steps down.
    pub drain_timeout: Duration,
}

impl Forecast {
    /// Takes what it needs from `settings`, completed from the configuration file that they name.
    ///
    /// # Errors
    /// [`ConfigError`] about the first thing that cannot be used.
    pub fn resolve(settings: Settings) -> Result<Self, ConfigError> {
        let settings = file::complete(settings)?;
        let store = settings.store.as_deref().ok_or_else(|| {
            ConfigError::new("STORE (BELLWETHER_STORE) is missing, give it as the election's nodes have it, or name their --config")
        })?;
        let service = settings.service.as_deref().unwrap_or("default");
        let ttl = settings.replication_ttl.unwrap_or(Span(DEFAULT_TTL));
        let election = Election::resolve(store, settings.store_opt.as_deref().unwrap_or_default(), service, ttl)?;
        let hold_timeout = hold_timeout(&settings, election.timing)?;
        Ok(Self { election, hold_timeout, drain_timeout: drain_timeout(&settings)? })
    }

    /// How the store ends a lease.
    pub fn takeover(&self) -> Takeover {
        self.election.store.takeover(&self.election.options)
    }

    /// What a failover costs where the store grants `ttl`.
    pub fn plan(&self, ttl: Duration) -> Plan {
        Plan::new(ttl, &self.takeover(), self.drain_timeout)
    }

    /// How long requests must be held for `plan`.
    pub fn hold_needed(&self, plan: &Plan) -> Duration {
        plan.hold(api::Limits::default().connect_timeout)
    }

    /// What is wrong with how long requests are held, and what to use; nothing where it will do, or nothing is held at all.
    pub fn too_short_a_hold(&self, plan: &Plan) -> Option<String> {
        let needed = self.hold_needed(plan);
        let enough = self.hold_timeout.is_zero() || self.hold_timeout >= needed;
        (!enough).then(|| {
            let (hold, store) = (Span(self.hold_timeout), self.election.store.scheme());
            let (needed, least) = (Seconds(needed), needed.as_secs() + u64::from(needed.subsec_nanos() > 0));
            format!(
                "--hold-timeout {hold} is shorter than the {needed} that a crash can take on {store}: requests will fail then; \
                 use --hold-timeout {least}s or more"
            )
        })
    }

    /// What its server, as it comes, will not do with the TTL; and what to use.
    pub fn refused_ttl(&self) -> Result<Duration, String> {
        let (ttl, usual) = (self.election.timing.ttl(), self.takeover().usual);
        usual.granted(ttl).map_err(|nearest| {
            let (store, ttl, nearest) = (self.election.store.scheme(), Span(ttl), Span(nearest));
            let set_by = usual.set_by.unwrap_or("its settings");
            format!("{store} refuses a TTL of {ttl}, unless its server is set otherwise ({set_by}): use --replication-ttl {nearest}")
        })
    }
}
