//! Durations as people write them, for messages and pages that name one.

use std::time::Duration;

const DAY: u64 = 24 * 60 * 60;

/// A duration to the millisecond, in units of a fixed length: `167ms`, `1s 667ms`, `277days 18h 40m`. Months and years would be
/// those of an average, which nobody has written.
pub(crate) fn words(duration: Duration) -> String {
    let millis = duration.saturating_add(Duration::from_micros(500)).as_millis();
    let rounded = Duration::from_millis(u64::try_from(millis).unwrap_or(u64::MAX));
    let days = rounded.as_secs() / DAY;
    let rest = rounded - Duration::from_secs(days * DAY);
    let days = match days {
        0 => String::new(),
        1 => "1day".to_owned(),
        days => format!("{days}days"),
    };
    match (days.is_empty(), rest.is_zero()) {
        (true, _) => humantime::format_duration(rest).to_string(),
        (false, true) => days,
        (false, false) => format!("{days} {}", humantime::format_duration(rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_as_it_would_be_written() {
        for (millis, text) in [
            (0.0, "0s"),
            (166.666_666, "167ms"),
            (1_000.0, "1s"),
            (1_500.0, "1s 500ms"),
            (1_666.666_666, "1s 667ms"),
            (60_000.0, "1m"),
            (90_500.0, "1m 30s 500ms"),
            (3_600_000.0, "1h"),
            (86_400_000.0, "1day"),
            (90_000_000.0, "1day 1h"),
            (172_800_000.0, "2days"),
            (24_000_000_000.0, "277days 18h 40m"),
            (35_996_400_000.0, "416days 15h"),
        ] {
            assert_eq!(words(Duration::from_secs_f64(millis / 1_000.0)), text);
        }
        assert_eq!(words(Duration::MAX), "213503982334days 14h 25m 51s 615ms");
    }
}
