//! The access logs of nodes, read in either format.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::daemon::Daemon;
use super::wait_for;

/// How long a line may take to be written.
const LIMIT: Duration = Duration::from_secs(30);

/// How lines are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Format {
    Json,
    Text,
}

impl Format {
    /// As `--access-log` has it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Text => "text",
        }
    }

    /// A line's fields by their names in JSON.
    fn parse(self, line: &str) -> Value {
        match self {
            Self::Json => serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")),
            Self::Text => fields(line).unwrap_or_else(|| panic!("no line of an access log: {line}")),
        }
    }
}

/// `TIME CLIENT "METHOD TARGET VERSION" STATUS BYTES OUTCOME KEY=VALUE…`
fn fields(line: &str) -> Option<Value> {
    let (before, rest) = line.split_once(" \"")?;
    let (asked, rest) = rest.split_once("\" ")?;
    let mut fields = Map::new();
    let mut enter = |key: &str, value: &str| {
        let number =
            |value: &str| value.parse::<f64>().ok().map(|number| if number.fract() == 0.0 { json!(number as u64) } else { json!(number) });
        let value = match key {
            _ if value == "-" => Value::Null,
            "status" | "bytes" | "received" | "epoch" | "total_ms" | "held_ms" | "head_ms" => number(value).unwrap_or(value.into()),
            "from_node" => json!(value == "true"),
            _ => value.into(),
        };
        fields.insert(key.to_owned(), value);
    };
    for (text, keys) in [(before, &["time", "client"][..]), (asked, &["method", "target", "version"])] {
        let words: Vec<&str> = text.split(' ').collect();
        (words.len() == keys.len()).then_some(())?;
        keys.iter().zip(words).for_each(|(key, word)| enter(key, word));
    }
    let words: Vec<&str> = rest.split(' ').collect();
    ["status", "bytes", "outcome"].iter().zip(&words).for_each(|(key, word)| enter(key, word));
    for word in words.get(3..)? {
        let (key, value) = word.split_once('=')?;
        match key {
            "total" | "held" | "head" if value == "-" => enter(&format!("{key}_ms"), value),
            "total" | "held" | "head" => enter(&format!("{key}_ms"), value.strip_suffix("ms")?),
            _ => enter(key, value),
        }
    }
    Some(Value::Object(fields))
}

/// The one line that `node` has written of what was asked at `target`.
///
/// # Panics
/// When there are several, or there is none in time.
pub(crate) async fn line_of(node: &Daemon, format: Format, target: &str) -> Value {
    wait_for(&format!("a line of {target}"), LIMIT, async || {
        let log = node.access_log();
        // The last one may be half written.
        let whole = log.rfind('\n').map_or("", |end| &log[..end]);
        let mut lines: Vec<Value> = whole.lines().map(|line| format.parse(line)).filter(|line| line["target"] == target).collect();
        assert!(lines.len() <= 1, "{lines:#?}");
        lines.pop().ok_or(log.lines().count())
    })
    .await
}
