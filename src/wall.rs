//! The wall clock, for people and other programs to read. Nothing is ever compared with it: that is [`clock`](crate::clock)'s.

/// The time now, in UTC and to the millisecond: `2026-03-01T12:00:00.000Z` (RFC 3339).
#[expect(clippy::disallowed_types, reason = "printed, never compared")]
pub(crate) fn stamp() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}
