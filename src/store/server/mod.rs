//! What the drivers for database servers have in common: a connection of a lock's own, how it is reached, and how values
//! get into statements.
//!
//! Statements are sent as text, in one message with the settings that they need, and not prepared: so each call is one
//! round trip, also the first on a connection, and none needs anything of the connection that an earlier one left there.

mod access;
mod line;

use std::time::Duration;

pub(super) use access::Access;
pub(super) use line::{Answered, Line, Patience};

/// What the lines of a lock wait for, given how long its caller waits for one call.
pub(super) fn patience(call_timeout: Duration) -> Patience {
    // Opening may take as long as several calls.
    Patience { open: call_timeout * 3, answer: call_timeout }
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
