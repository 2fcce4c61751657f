//! `/info`: what a node says of itself in the shape that the Docker client prints, for people and scripts alike.

use serde_json::{Value, json};

use super::status::Status;
use crate::node::Address;

/// The page. Every pair is in `SystemStatus`, which the client prints as `Role: primary`, and nowhere twice.
pub(super) fn page(status: &Status) -> Value {
    let snapshot = status.snapshot();
    let identity = status.identity();
    let primary = snapshot.confirmed_primary().map_or("", Address::as_str);
    // This node and its primary: the others are not registered anywhere yet.
    let nodes = 1 + usize::from(snapshot.role.leader().is_some());
    let store = snapshot.store.as_ref().map_or_else(|| "none, this node takes part in no election".to_owned(), |store| store.sentence());

    let mut pairs = vec![
        ("Role", snapshot.role.name().to_owned()),
        ("Primary", primary.to_owned()),
        ("Epoch", snapshot.epoch.to_string()),
        ("Nodes", nodes.to_string()),
        ("Service", identity.service.clone()),
        ("Advertise", identity.address.as_ref().map_or_else(String::new, Address::to_string)),
        ("Store", store.clone()),
    ];
    if let Some(store) = &snapshot.store {
        pairs.push(("TTL", humantime::format_duration(store.ttl).to_string()));
        if let Some(error) = &store.failing {
            pairs.push(("Store error", error.clone()));
        }
        if let Some(leader) = snapshot.role.leader() {
            let seconds = store.silent_for.as_secs();
            pairs.push(("Leader last confirmed", format!("{} {seconds} s ago", leader.address)));
        }
    }

    json!({
        "ID": identity.boot.to_string(),
        "Name": identity.host,
        "ServerVersion": concat!("bellwether/", env!("CARGO_PKG_VERSION")),
        "Role": snapshot.role.name(),
        "Primary": primary,
        "Epoch": snapshot.epoch,
        "Nodes": nodes,
        "Store": store,
        "StoreSilent": snapshot.store.as_ref().is_some_and(|store| store.is_silent()),
        "SystemStatus": pairs,
        "Driver": "",
        "Swarm": { "LocalNodeState": "inactive" },
        "OSType": std::env::consts::OS,
        "Architecture": std::env::consts::ARCH,
        "NCPU": std::thread::available_parallelism().map_or(1, usize::from),
        "MemTotal": identity.memory,
    })
}
