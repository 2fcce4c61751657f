//! Whole daemons on database servers: services side by side, and wall clocks that are wrong.

use std::time::Duration;

use crate::support::daemon::{Daemon, Manage};
use crate::support::one::One;
use crate::support::store::{Kind, Store};

const TTL: Duration = Duration::from_secs(3);
const LIMIT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn two_services_on_one_postgres_are_led_by_different_nodes() {
    two_services(Kind::Postgres).await;
}

#[tokio::test]
async fn two_services_on_one_mysql_are_led_by_different_nodes() {
    two_services(Kind::Mysql).await;
}

#[tokio::test]
async fn a_wrong_wall_clock_makes_no_second_primary_on_postgres() {
    wrong_clocks(Kind::Postgres).await;
}

#[tokio::test]
async fn a_wrong_wall_clock_makes_no_second_primary_on_mysql() {
    wrong_clocks(Kind::Mysql).await;
}

/// One row each: what befalls the one is nothing to the other.
async fn two_services(kind: Kind) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(kind, folder.path()).await;
    let start = async |name: &str, service: &str, role: &str| {
        let manage = Manage::new(name, folder.path()).replicated(&store.url(), TTL).with(["--service", service]);
        let daemon = manage.start().await;
        daemon.becomes(role, LIMIT).await;
        daemon
    };
    let mut web = start("web-1", "web", "primary").await;
    let api = start("api-2", "api", "primary").await;
    let (web_2, api_1) = (start("web-2", "web", "replica").await, start("api-1", "api", "replica").await);
    assert_eq!(web_2.info().await.primary, web.address().to_string());
    assert_eq!(api_1.info().await.primary, api.address().to_string());
    assert_eq!(store.rows().await, 2);

    let epoch = api.info().await.epoch;
    web.kill().await;
    web_2.becomes("primary", TTL + LIMIT).await;
    let info = api.info().await;
    assert_eq!((info.role.as_str(), info.epoch), ("primary", epoch));
}

/// One node an hour ahead, one an hour behind, one right: none of their clocks decides anything. Each leads in its turn,
/// and none before the last one's time is over.
async fn wrong_clocks(kind: Kind) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Store::start(kind, folder.path()).await;
    let manage = |name: &str| Manage::new(name, folder.path()).replicated(&store.url(), TTL);
    let nodes = [manage("ahead").by_clock("+1h"), manage("behind").by_clock("-1h"), manage("right")];
    let mut nodes = nodes.map(|manage| manage.spawn());
    let one = One::watch(nodes.each_ref().map(Daemon::address));
    let mut epoch = 0;
    leads_after(&nodes, epoch).await;
    // The date and the hour of each node's first line.
    let hours = nodes.each_ref().map(|node| node.log().chars().take(13).collect::<String>());
    assert!(hours[1] < hours[2] && hours[2] < hours[0], "the clocks are as far off as they should be: {hours:?}");
    for _ in 0..6 {
        let primary = leads_after(&nodes, epoch).await;
        epoch = nodes[primary].info().await.epoch;
        nodes[primary].kill().await;
        nodes[primary] = nodes[primary].manage().spawn();
    }
    leads_after(&nodes, epoch).await;
    one.assert_never_two();
}

/// Waits for a primary under a later epoch than `epoch` that the other two follow.
async fn leads_after(nodes: &[Daemon; 3], epoch: u64) -> usize {
    crate::support::wait_for("a primary and two replicas of it", TTL + LIMIT, async || {
        let mut states = Vec::new();
        for node in nodes {
            states.push(node.look().await.ok().map(|info| (info.role, info.epoch)));
        }
        let later = states.iter().flatten().all(|(_, at)| *at > epoch);
        let replicas = states.iter().flatten().filter(|(role, _)| role == "replica").count();
        match states.iter().position(|state| state.as_ref().is_some_and(|(role, _)| role == "primary")) {
            Some(primary) if later && replicas == 2 => Ok(primary),
            _ => Err(states),
        }
    })
    .await
}
