//! What came of one promise.

use std::fmt;

use crate::store::{Leader, OpenError, StoreError};

/// What came of one promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Which promise, by its short name.
    pub promise: &'static str,
    /// Whether it is kept.
    pub verdict: Verdict,
    /// What was seen: one sentence without a full stop.
    pub detail: String,
}

/// Whether a promise is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is.
    Kept,
    /// It is, and yet something about it should be known.
    Odd,
    /// It is not, or nobody can tell: an election would not be safe here.
    Broken,
}

impl Finding {
    pub(super) fn new(promise: &'static str, outcome: Result<Proof, Flaw>) -> Self {
        match outcome {
            Ok(Proof { verdict, detail }) => Self { promise, verdict, detail },
            Err(flaw) => Self { promise, verdict: Verdict::Broken, detail: flaw.to_string() },
        }
    }
}

/// Whom a store names, in words.
pub(super) fn named(leader: Option<&Leader>) -> String {
    leader.map_or_else(|| "nobody".to_owned(), |leader| format!("{} under epoch {}", leader.address, leader.epoch))
}

/// How a promise was seen to be kept.
pub(super) struct Proof {
    verdict: Verdict,
    detail: String,
}

impl Proof {
    pub(super) fn of(detail: impl Into<String>) -> Self {
        Self { verdict: Verdict::Kept, detail: detail.into() }
    }

    pub(super) fn odd(detail: impl Into<String>) -> Self {
        Self { verdict: Verdict::Odd, detail: detail.into() }
    }
}

/// Why a promise does not hold.
#[derive(Debug)]
pub(super) enum Flaw {
    /// The store did what it must not do.
    Broken(String),
    /// The store gave no decision, so that nobody can tell.
    Undecided(StoreError),
    /// There is no lock to be had.
    Closed(OpenError),
}

impl Flaw {
    pub(super) fn broken(detail: impl Into<String>) -> Self {
        Self::Broken(detail.into())
    }

    /// The same, with a sentence before it.
    pub(super) fn with(&self, before: impl fmt::Display) -> Self {
        Self::Broken(format!("{before}: {self}"))
    }
}

impl From<StoreError> for Flaw {
    fn from(error: StoreError) -> Self {
        Self::Undecided(error)
    }
}

impl From<OpenError> for Flaw {
    fn from(error: OpenError) -> Self {
        Self::Closed(error)
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(detail) => out.write_str(detail),
            Self::Undecided(error) => write!(out, "could not be tried: {error}"),
            Self::Closed(error) => write!(out, "could not be tried: {error}"),
        }
    }
}
