//! Times as they are written into a Lease: for people and for other programs, and never compared by us.

/// The wall clock's time, but another one than `last`: a server that finds nothing to change would not renew anything.
pub(super) fn unlike(last: Option<&str>) -> String {
    let now = now();
    if last == Some(now.as_str()) { next_to(&now) } else { now }
}

/// By the wall clock, for that is what the field means to others, with six digits after the second, as the API server wants it.
#[expect(clippy::disallowed_types, reason = "written into the record, and never compared")]
fn now() -> String {
    humantime::format_rfc3339_micros(std::time::SystemTime::now()).to_string()
}

/// A microsecond after `time`, or before it at the end of a second.
fn next_to(time: &str) -> String {
    let (start, micros) = time.split_at(time.len() - "000000Z".len());
    let micros: u32 = micros.trim_end_matches('Z').parse().unwrap_or(0);
    format!("{start}{:06}Z", if micros < 999_999 { micros + 1 } else { micros - 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_six_digits_and_can_be_told_from_the_last() {
        let now = unlike(None);
        assert_eq!((now.len(), &now[19..20], &now[26..]), (27, ".", "Z"), "{now}");
        assert_ne!(unlike(Some(&now)), now);
        assert_eq!(next_to("2026-01-02T03:04:05.000009Z"), "2026-01-02T03:04:05.000010Z");
        assert_eq!(next_to("2026-01-02T03:04:05.999999Z"), "2026-01-02T03:04:05.999998Z");
    }
}
