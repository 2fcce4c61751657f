//! What the drivers for database servers have in common: the row, the connections of a lock on which it is asked for, how
//! they are made, how values get into statements, and what comes of errors. A [`Driver`] is what differs.
//!
//! Statements are sent as text, in one message with the settings that they need, and not prepared: so each call is one
//! round trip, also the first on a connection, and none needs anything of the connection that an earlier one left there.

mod access;
mod driver;
mod failure;
mod line;
mod row;
mod session;

use std::time::Duration;

pub(super) use access::Access;
pub(super) use driver::{Driver, Errors, Found, Meaning, Statements};
pub(super) use row::ServerRow;

use line::{Answered, Line, Patience};

/// What the lines of a lock wait for, given how long its caller waits for one call.
fn patience(call_timeout: Duration) -> Patience {
    // Opening may take as long as several calls.
    Patience { open: call_timeout * 3, answer: call_timeout }
}

/// Shorter than the caller's patience, so that a row that somebody else has locked is reported as such, and the next
/// call finds an idle connection.
pub(super) fn statement_timeout(call_timeout: Duration) -> Duration {
    (call_timeout * 2 / 3).max(Duration::from_millis(10))
}

/// A text between quotes. Characters that mean anything else between quotes are left out: they occur in no name of ours,
/// and nothing equals a text that lacks them.
pub(super) fn quoted(text: &str) -> String {
    let plain = text.chars().filter(|letter| letter.is_ascii_alphanumeric() || "._-/:[]".contains(*letter));
    format!("'{}'", plain.collect::<String>())
}

#[cfg(test)]
mod tests {
    #[test]
    fn nothing_ends_a_quoted_text_but_its_quote() {
        assert_eq!(super::quoted("team/prod/web"), "'team/prod/web'");
        assert_eq!(super::quoted("[fe80::1]:4000/0123456789abcdef"), "'[fe80::1]:4000/0123456789abcdef'");
        assert_eq!(super::quoted("x'; DROP TABLE y; --\\ \0é"), "'xDROPTABLEy--'");
    }
}
