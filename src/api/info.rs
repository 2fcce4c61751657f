//! `/info`: what a node says of itself in the shape that the Docker client prints, for people and scripts alike.

use serde_json::{Value, json};

use super::status::Status;
use crate::node::Address;

/// The page. Every pair is in `SystemStatus`, which the client prints as `Role: primary`, and nowhere twice.
pub(super) fn page(status: &Status) -> Value {
    let snapshot = status.snapshot();
    let identity = status.identity();
    let confirmed = snapshot.confirmed_primary();
    let primary = confirmed.map_or("", Address::as_str);
    let epoch = if snapshot.role.leader().is_some() && confirmed.is_none() { 0 } else { snapshot.epoch };
    // This node and its primary: the others are not registered anywhere yet.
    let nodes = 1 + usize::from(snapshot.role.leader().is_some());
    let store = snapshot.store.as_ref().map_or_else(|| "none, this node takes part in no election".to_owned(), |store| store.sentence());

    let mut pairs = vec![
        ("Role", snapshot.role.name().to_owned()),
        ("Primary", primary.to_owned()),
        ("Epoch", epoch.to_string()),
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
        "Epoch": epoch,
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::task::JoinSet;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::api::{ElectionStatus, Identity, Ledger};
    use crate::node::{BootId, Node};
    use crate::replication::{Candidate, Follower, RoleWatch, Timing};
    use crate::store::Memory;

    fn identity(address: &str) -> Identity {
        Identity {
            host: "host".to_owned(),
            memory: 1,
            service: "default".to_owned(),
            address: Some(address.parse().unwrap()),
            boot: BootId::random(),
            has_app: true,
        }
    }

    fn pair(page: &Value, key: &str) -> Option<String> {
        let pairs = page["SystemStatus"].as_array().unwrap();
        pairs.iter().find(|pair| pair[0] == key).map(|pair| pair[1].as_str().unwrap().to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn a_replica_stops_naming_its_leader_once_the_store_was_silent_for_a_ttl() {
        // B122
        let timing = Timing::new(Duration::from_secs(3)).unwrap();
        let (store, stop, mut tasks) = (Memory::new(1), CancellationToken::new(), JoinSet::new());
        let leader = Node::new("10.0.0.1:4000".parse().unwrap());
        let (candidate, _handle, _) = Candidate::new(store.lock(&leader, timing.ttl()), leader.clone(), timing);
        let ours = Node::new("10.0.0.2:4000".parse().unwrap());
        let (follower, roles) = Follower::new(store.lock(&ours, timing.ttl()), Some(&ours), timing);
        let election = ElectionStatus { store: "memory:".to_owned(), ttl: timing.ttl(), counters: follower.counters() };
        let status = Status::new(identity("10.0.0.2:4000"), roles.clone(), Some(election), Arc::new(Ledger::new(1)));
        tasks.spawn(candidate.run(stop.clone()));
        tasks.spawn(follower.run(stop.clone()));
        roles.wait_until(|role| role.leader().is_some()).await;

        let known = page(&status);
        assert_eq!((&known["Role"], &known["Primary"], &known["Nodes"]), (&"replica".into(), &"10.0.0.1:4000".into(), &2.into()));
        assert_eq!((pair(&known, "Store").unwrap().as_str(), &known["StoreSilent"]), ("reachable", &false.into()));

        store.stop();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        let doubtful = page(&status);
        assert_eq!(doubtful["Primary"], "10.0.0.1:4000");
        assert!(pair(&doubtful, "Store").unwrap().starts_with("unreachable for "), "{doubtful}");

        tokio::time::sleep(Duration::from_secs(3)).await;
        let unknown = page(&status);
        assert_eq!((&unknown["Primary"], &unknown["StoreSilent"]), (&"".into(), &true.into()), "{unknown}");
        assert_eq!(pair(&unknown, "Primary").as_deref(), Some(""));
        assert_eq!(unknown["Epoch"], 0);
        let confirmed = pair(&unknown, "Leader last confirmed").unwrap();
        assert!(confirmed.starts_with("10.0.0.1:4000 ") && confirmed.ends_with(" s ago"), "{confirmed}");

        store.start();
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_ne!(page(&status)["Primary"], "", "the store is back");
        stop.cancel();
        tasks.join_all().await;
    }

    #[test]
    fn a_lone_node_says_so() {
        let status = Status::new(identity("10.0.0.1:4000"), RoleWatch::lone(), None, Arc::new(Ledger::new(1)));
        let page = page(&status);
        assert_eq!((&page["Role"], &page["Primary"], &page["Epoch"]), (&"primary".into(), &"10.0.0.1:4000".into(), &1.into()));
        assert!(pair(&page, "Store").unwrap().starts_with("none"), "{page}");
        assert_eq!(pair(&page, "TTL"), None);
    }
}
