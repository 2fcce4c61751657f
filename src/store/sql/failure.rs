//! An error of a database, in a sentence that names the place.

use std::fmt;

/// What was wrong where, and what the database said.
#[derive(Debug)]
pub(in crate::store) struct Failure {
    what: String,
    source: sqlx::Error,
}

impl Failure {
    pub(in crate::store) fn new(what: impl Into<String>, source: sqlx::Error) -> Self {
        Self { what: what.into(), source }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_database_error() {
            Some(error) => write!(out, "{} ({})", self.what, error.message()),
            None => write!(out, "{} ({})", self.what, self.source),
        }
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}
