//! The contract's word for an error of a database server, in a sentence that names the database.

use sqlx::Error;

use super::{Access, Driver, Meaning};
use crate::store::contract::StoreError;
use crate::store::sql::Failure;

/// The contract's word for `error`, which has this meaning.
pub(super) fn judge<D: Driver>(access: &Access, operation: &'static str, meaning: Meaning, error: Error) -> StoreError {
    let advice = match meaning {
        Meaning::OnlyReads => return StoreError::denied(operation, Failure::new(only_reads::<D>(access), error)),
        Meaning::TooSlow => {
            let sentence = format!("{access} was too slow: somebody may keep the row locked");
            return StoreError::unavailable(operation, Failure::new(sentence, error));
        }
        Meaning::OtherTable => "has a table leader_leases that does not take our row: name another database".to_owned(),
        Meaning::Denied(advice) => advice,
        Meaning::Unknown if is_about_tls(&error) => {
            "is not reached by TLS as it is asked for: check --store-opt cacert, cert and key".to_owned()
        }
        Meaning::Unknown => return StoreError::unavailable(operation, Failure::new(format!("{access} failed"), error)),
    };
    StoreError::denied(operation, Failure::new(format!("{access} {advice}"), error))
}

/// A replica, or a server that was told to take no writes.
pub(super) fn only_reads<D: Driver>(access: &Access) -> String {
    format!("{access} {}: name the primary", D::ONLY_READS)
}

fn is_about_tls(error: &Error) -> bool {
    match error {
        Error::Tls(_) | Error::Configuration(_) => true,
        // A certificate that is refused, by either side, ends the handshake like this.
        Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
        _ => false,
    }
}
