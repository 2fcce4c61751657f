//! What a node can be told to do. So far: `resign`.
//!
//! A verb may take as long as a drain, and anybody with the right may ask; so verbs are few at a time, each has its
//! time, and one too many is turned away at once instead of queued.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::timeout;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, ServiceBuilder, ServiceExt};

use super::error::Verdict;
use super::status::Status;
use crate::node::Address;
use crate::replication::{CandidateHandle, ResignError, Role};

/// How many verbs may run at once.
const AT_ONCE: usize = 4;

/// How long a done `resign` waits to be able to say who came next.
const SUCCESSOR_WITHIN: Duration = Duration::from_secs(1);

/// What a node can be told to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verb {
    /// Step down, drain, and give the lock back.
    Resign,
}

/// Why a verb was not done.
#[derive(Debug, thiserror::Error)]
pub(super) enum VerbError {
    #[error("this node takes part in no election, so there is nobody it could hand over to")]
    Lone,
    #[error("{0}")]
    Resign(#[from] ResignError),
}

/// A problem with a verb as a caller sees it.
#[derive(Debug)]
pub(super) struct Undone {
    pub(super) status: StatusCode,
    pub(super) reason: &'static str,
    /// Whether it can have been done all the same.
    pub(super) verdict: Verdict,
    pub(super) message: String,
}

/// Does verbs, a few at a time and each in a bounded time.
#[derive(Clone)]
pub(super) struct Verbs {
    stack: BoxCloneSyncService<Verb, Value, BoxError>,
    limit: Duration,
}

impl Verbs {
    /// Verbs that act on `candidate`, each within `limit`; without a candidate every one is refused.
    pub(super) fn new(status: Arc<Status>, candidate: Option<CandidateHandle>, limit: Duration) -> Self {
        let perform = move |verb| {
            let (status, candidate) = (Arc::clone(&status), candidate.clone());
            async move {
                match verb {
                    Verb::Resign => resign(&status, candidate.as_ref()).await,
                }
            }
        };
        let stack = ServiceBuilder::new().load_shed().concurrency_limit(AT_ONCE).timeout(limit).service_fn(perform);
        Self { stack: BoxCloneSyncService::new(stack), limit }
    }

    /// Does `verb`, and tells what came of it.
    pub(super) async fn perform(&self, verb: Verb) -> Result<Value, Undone> {
        let undone = |status, reason, message| Undone { status, reason, verdict: Verdict::NotSent, message };
        self.stack.clone().oneshot(verb).await.map_err(|error| {
            if error.is::<tower::timeout::error::Elapsed>() {
                let limit = humantime::format_duration(self.limit);
                let message = format!("not done within {limit}, it may still be done: ask /_bellwether/status");
                Undone { status: StatusCode::GATEWAY_TIMEOUT, reason: "not-in-time", verdict: Verdict::MaybeExecuted, message }
            } else if error.is::<tower::load_shed::error::Overloaded>() {
                undone(StatusCode::SERVICE_UNAVAILABLE, "busy", format!("{AT_ONCE} verbs are being done already, try again when they are"))
            } else {
                let reason = match error.downcast_ref() {
                    Some(VerbError::Resign(ResignError::NotPrimary)) => "not-primary",
                    Some(VerbError::Resign(ResignError::LostMeanwhile)) => "lost-meanwhile",
                    Some(VerbError::Resign(ResignError::Stopped)) => "stopping",
                    Some(VerbError::Lone) => "no-election",
                    None => "failed",
                };
                undone(StatusCode::CONFLICT, reason, error.to_string())
            }
        })
    }
}

impl std::fmt::Debug for Verbs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Verbs").field("limit", &self.limit).finish_non_exhaustive()
    }
}

async fn resign(status: &Status, candidate: Option<&CandidateHandle>) -> Result<Value, VerbError> {
    let candidate = candidate.ok_or(VerbError::Lone)?;
    let released = candidate.resign().await?;
    let follows = |role: &Role| role.leader().is_some_and(|leader| leader.epoch > released);
    // Whether or not the successor shows in time, the lock was given back: that is what was asked for.
    timeout(SUCCESSOR_WITHIN, status.roles().wait_until(follows)).await.ok();
    let after = status.snapshot();
    Ok(json!({
        "released": released.0,
        "epoch": after.epoch.max(released.0),
        "primary": after.primary.as_ref().map_or("", Address::as_str),
    }))
}
