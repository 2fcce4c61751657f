//! How a request is written down.

use std::fmt::Write;
use std::time::Duration;

use http::HeaderValue;
use serde_json::json;

use super::Format;
use super::entry::Entry;

/// The line of a request that ended at `node` at the time `at`, with its end.
pub(super) fn line(entry: &Entry, format: Format, at: &str, node: &str) -> String {
    match format {
        Format::Text => text(entry, at, node),
        Format::Json => format!("{}\n", object(entry, at, node)),
    }
}

fn text(entry: &Entry, at: &str, node: &str) -> String {
    let target = target(entry).replace('"', "%22");
    let mut line = format!("{at} {} \"{} {target} {:?}\" ", client(entry).unwrap_or("-"), entry.method, entry.version);
    match entry.status {
        Some(status) => write!(line, "{}", status.as_u16()),
        None => write!(line, "-"),
    }
    .and_then(|()| {
        writeln!(
            line,
            " {} {} received={} total={:.1}ms held={:.1}ms head={} node={} epoch={} verdict={} from_node={} id={}",
            entry.bytes,
            entry.outcome.name(),
            entry.received.map_or_else(|| "-".to_owned(), |received| received.to_string()),
            millis(entry.total),
            millis(entry.held),
            entry.head.map_or_else(|| "-".to_owned(), |head| format!("{:.1}ms", millis(head))),
            if node.is_empty() { "-" } else { node },
            entry.epoch,
            entry.verdict.map_or("-", |verdict| verdict.as_str()),
            entry.from_node,
            id(entry),
        )
    })
    .expect("a string takes everything");
    line
}

fn object(entry: &Entry, at: &str, node: &str) -> serde_json::Value {
    let tenth = |duration: Duration| (millis(duration) * 10.0).round() / 10.0;
    json!({
        "time": at,
        "id": id(entry),
        "client": client(entry),
        "from_node": entry.from_node,
        "method": entry.method.as_str(),
        "target": target(entry),
        "version": format!("{:?}", entry.version),
        "status": entry.status.map(|status| status.as_u16()),
        "bytes": entry.bytes,
        "received": entry.received,
        "outcome": entry.outcome.name(),
        "verdict": entry.verdict.map(|verdict| verdict.as_str()),
        "total_ms": tenth(entry.total),
        "held_ms": tenth(entry.held),
        "head_ms": entry.head.map(tenth),
        "node": node,
        "epoch": entry.epoch,
    })
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1_000.0
}

fn id(entry: &Entry) -> &str {
    entry.id.to_str().unwrap_or_default()
}

/// The first of those that the request came through; `None` for a unix socket.
fn client(entry: &Entry) -> Option<&str> {
    let first = |chain: &HeaderValue| chain.as_bytes().iter().position(|byte| *byte == b',').unwrap_or(chain.len());
    let chain = entry.client.as_ref()?;
    let client = std::str::from_utf8(&chain.as_bytes()[..first(chain)]).ok()?.trim();
    let plain = !client.is_empty() && client.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"');
    plain.then_some(client)
}

/// As it came, but for the host of one that named it.
fn target(entry: &Entry) -> &str {
    entry.target.path_and_query().map_or_else(|| entry.target.path(), |target| target.as_str())
}
