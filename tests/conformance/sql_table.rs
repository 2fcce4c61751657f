//! The table in each kind of server: its form, other programs in it, and zones.

use std::time::Duration;

use bellwether::store::{Attempt, Renewal, StoreError};

use crate::rig::{node, service_at};
use crate::sql_rig::{Server, denied, on_each_server};
use crate::suite::steps::{leader, lose, release, renew, win};

const TTL: Duration = Duration::from_secs(60);

on_each_server! {
    the_table_is_the_one_that_gorm_would_make
    the_row_says_who_leads_and_for_how_long_in_every_zone
    rows_of_other_components_and_other_programs_are_left_alone
    a_row_that_is_not_of_our_form_is_somebody_elses
    names_that_differ_in_their_case_are_different_elections
    a_table_of_other_columns_is_denied_and_left_alone
    a_lease_can_be_ended_by_hand
}

async fn the_table_is_the_one_that_gorm_would_make<S: Server>() {
    let server = S::make().await;
    server.open(1, TTL * 20).leader().await.expect("the table is made");
    assert_eq!(server.texts(S::COLUMNS).await, S::GORM);
    assert_eq!(server.texts(S::UNIQUE_INDEX).await, ["idx_leader_leases_component"]);
}

/// Whatever zone the server and everybody's session count in.
async fn the_row_says_who_leads_and_for_how_long_in_every_zone<S: Server>() {
    let server = S::make().await;
    let near = server.open(1, TTL);
    assert_eq!(leader(&*near).await, None);
    server.administer(S::FAR_ZONE).await;
    let far = server.open(2, TTL);
    let mut lease = win(&*near, "nobody else campaigns").await;
    let remaining: i64 = server.texts(S::REMAINING).await[0].parse().expect("milliseconds");
    assert!((1..=60_000).contains(&remaining), "{remaining}");
    let named = lose(&*far, "it has not expired there either").await.expect("a leader");
    assert_eq!((named.address, named.epoch), (node(1).address, lease.epoch()));
    release(&mut *lease).await;
    let mut next = win(&*far, "the first released it").await;
    lose(&*near, "it has not expired here either").await;
    assert_eq!(renew(&mut *next).await, Renewal::Held);
    assert_eq!(server.texts("SELECT holder_id FROM leader_leases").await.len(), 1);
}

/// Dubbo Admin's own statements, as gorm sends them, beside ours.
async fn rows_of_other_components_and_other_programs_are_left_alone<S: Server>() {
    const THEIRS: &str = "SELECT concat(holder_id, ' ', expires_at, ' ', version) FROM leader_leases WHERE component = 'discovery'";
    const OURS: &str = "SELECT concat(holder_id, ' ', acquired_at, ' ', version) FROM leader_leases WHERE component = 'default'";
    let server = S::make().await;
    let lock = server.open(1, TTL);
    let mut lease = win(&*lock, "nobody else campaigns").await;
    let ours = server.texts(OURS).await;
    for statement in [
        "INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version)
            VALUES ('discovery', 'web-1-0b9e2c1e', '2026-01-01 00:00:00.123', '2026-01-01 00:00:30.123', 1)",
        "UPDATE leader_leases SET acquired_at = '2026-01-01 00:01:00', expires_at = '2026-01-01 00:01:30', holder_id = 'web-2-77e1',
            version = version + 1 WHERE component = 'discovery' AND (expires_at < '2026-01-01 00:01:00' OR holder_id = 'web-2-77e1')",
        "UPDATE leader_leases SET acquired_at = '2026-01-01 00:01:10', expires_at = '2026-01-01 00:01:40', version = version + 1
            WHERE component = 'discovery' AND holder_id = 'web-2-77e1' AND version = 2",
        "UPDATE leader_leases SET expires_at = '2026-01-01 00:01:19' WHERE component = 'discovery' AND holder_id = 'web-2-77e1'",
    ] {
        server.texts(statement).await;
    }
    let theirs = server.texts(THEIRS).await;
    assert!(theirs[0].starts_with("web-2-77e1 2026-01-01 00:01:19") && theirs[0].ends_with(" 3"), "{theirs:?}");
    assert_eq!(server.texts(OURS).await, ours);
    assert_eq!(renew(&mut *lease).await, Renewal::Held);
    let other = service_at(&server.here(), "other", &[], &node(2), TTL).expect("open a lock");
    let _other = win(&*other, "another node may lead another service").await;
    release(&mut *lease).await;
    lock.withdraw().await.expect("nothing is left to give back");
    assert_eq!(server.texts(THEIRS).await, theirs);
    assert_eq!(leader(&*other).await.expect("a leader").address, node(2).address);
}

async fn a_row_that_is_not_of_our_form_is_somebody_elses<S: Server>() {
    let server = S::make().await;
    let lock = server.open(1, TTL);
    assert_eq!(leader(&*lock).await, None);
    for (holder, version) in [
        ("web-1-0b9e2c1e-7d5c", 7),
        ("10.0.0.1:4000", 7),
        ("10.0.0.1:4000/0123", 7),
        ("/0123456789abcdef", 7),
        ("10.0.0.1:4000/0123456789abcdef", -1),
        ("10.0.0.1:4000/0123456789abcdef", i64::MAX),
    ] {
        server.texts("DELETE FROM leader_leases").await;
        let row = format!("'default', '{holder}', '2026-01-01 00:00:00', '2026-01-01 00:00:30', {version}");
        server.texts(&format!("INSERT INTO leader_leases (component, holder_id, acquired_at, expires_at, version) VALUES ({row})")).await;
        let refused = lock.acquire().await;
        assert!(matches!(refused, Err(StoreError::Foreign { .. })), "{row}: {refused:?}");
        let refused = lock.changed(None).await.expect_err("nobody can be named").to_string();
        assert!(refused.contains("row `default` of leader_leases in database `election`") && refused.contains(holder), "{refused}");
        assert_eq!(server.texts("SELECT holder_id FROM leader_leases").await, [holder]);
    }
}

async fn names_that_differ_in_their_case_are_different_elections<S: Server>() {
    let server = S::make().await;
    let lower = service_at(&server.here(), "web", &[], &node(1), TTL).expect("open a lock");
    let upper = service_at(&server.here(), "WEB", &[], &node(2), TTL).expect("open a lock");
    let (mut first, mut second) = (win(&*lower, "nobody else campaigns").await, win(&*upper, "that was another election").await);
    assert_eq!((renew(&mut *first).await, renew(&mut *second).await), (Renewal::Held, Renewal::Held));
    // In a table that somebody made with other rules, the first to come keeps the place.
    if let Some(statements) = S::BLIND_TO_CASE {
        release(&mut *second).await;
        server.texts("DELETE FROM leader_leases WHERE holder_id LIKE '%:2/%'").await;
        server.texts(statements).await;
        let refused = upper.acquire().await;
        assert!(matches!(&refused, Err(StoreError::Foreign { place, .. }) if place.contains("`web`")), "{refused:?}");
        upper.withdraw().await.expect("nothing is left to give back");
        assert_eq!(renew(&mut *first).await, Renewal::Held);
    }
}

async fn a_table_of_other_columns_is_denied_and_left_alone<S: Server>() {
    let server = S::make().await;
    for (table, words) in S::OTHER_TABLES {
        server.texts(&format!("CREATE TABLE leader_leases ({table})")).await;
        server.texts("GRANT ALL ON leader_leases TO bellwether").await;
        let before = server.texts(S::COLUMNS).await;
        let lock = server.open(1, TTL);
        for _ in 0..2 {
            denied(lock.acquire().await, &["database `election` at 127.0.0.1:", "leader_leases", words]);
        }
        assert_eq!(server.texts(S::COLUMNS).await, before);
        server.texts("DROP TABLE leader_leases").await;
        win(&*lock, "it can make the table now").await;
        server.texts("DROP TABLE leader_leases").await;
    }
}

/// The statement of docs/stores.md: whoever waits takes over, and the holder stops at its next renewal.
async fn a_lease_can_be_ended_by_hand<S: Server>() {
    let server = S::make().await;
    let (lock, other) = (server.open(1, TTL), server.open(2, TTL));
    let mut lease = win(&*lock, "nobody else campaigns").await;
    lose(&*other, "the first holds it").await;
    server.texts("UPDATE leader_leases SET expires_at = '2000-01-01' WHERE component = 'default'").await;
    let Ok(Attempt::Held(next)) = other.acquire().await else { panic!("the lease was ended") };
    assert!(next.epoch() > lease.epoch());
    assert_eq!(renew(&mut *lease).await, Renewal::Lost);
}
