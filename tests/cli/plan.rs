//! `bellwether plan`: numbers before the failover, and refusals that name the number to use.

use std::fs;

use serde_json::Value;

use crate::node::Ended;

fn plan(arguments: &[&str]) -> Ended {
    Ended::with([&["plan"], arguments].concat())
}

/// The plan as JSON, of settings that fit together.
fn good(arguments: &[&str]) -> Value {
    let ended = plan(&[arguments, &["--output", "json"]].concat());
    assert_eq!((ended.status, ended.err.as_str()), (Some(0), ""), "{arguments:?}");
    serde_json::from_str(&ended.out).unwrap_or_else(|error| panic!("{error}: {}", ended.out))
}

#[test]
fn every_kind_of_store_has_its_plan() {
    for (arguments, kept, typical, worst) in [
        (&["consul://h", "--offline"][..], 10_000, 19_400, 22_700),
        (&["consul://h", "--offline", "--store-opt", "lock-delay=0s"], 10_000, 18_400, 21_700),
        (&["etcd://h", "--offline", "--replication-ttl", "1s"], 2_000, 2_000, 2_900),
        (&["kubernetes://n", "--replication-ttl", "15s"], 15_000, 12_500, 17_500),
        (&["memory:"], 10_000, 8_400, 11_700),
        (&["mysql://u@h/d"], 10_000, 8_400, 11_800),
        (&["postgres://u@h/d"], 10_000, 8_400, 11_800),
        (&["sqlite:///nowhere/x.db", "--replication-ttl", "3s"], 3_000, 2_600, 3_700),
        (&["zk://h", "--offline", "--replication-ttl", "4s"], 4_000, 4_400, 6_700),
    ] {
        let plan = good(arguments);
        assert_eq!(plan["ttl"]["kept_ms"], kept, "{arguments:?}: {plan:#}");
        assert_eq!((&plan["crash"]["typical_ms"], &plan["crash"]["worst_ms"]), (&typical.into(), &worst.into()), "{arguments:?}");
        assert!(plan["host_lost"]["worst_ms"].as_u64() > plan["crash"]["worst_ms"].as_u64(), "{plan:#}");
        assert_eq!(plan["hold"]["enough"], true, "{plan:#}");
    }
}

#[test]
fn what_the_nodes_ask_of_the_store_together_is_counted() {
    let plan = good(&["sqlite:///nowhere/x.db", "--replication-ttl", "6s", "--nodes", "5"]);
    assert_eq!((&plan["renewals_per_second"], &plan["looks_per_second"]), (&2.5.into(), &50.0.into()), "{plan:#}");
    assert_eq!(good(&["etcd://h", "--offline"])["looks_per_second"], 0.0);
}

#[test]
fn people_read_a_line_for_each_question() {
    let ended = plan(&["consul://h", "--offline"]);
    for words in [
        "crash         typically 19.4s, at worst 22.7s without a primary",
        "planned stop  at once after the last running request",
        "hold          25s is enough, 23.7s is needed",
        "expiry        a lock is free 2 TTLs after its last renewal and 1s of lock delay, by the Consul leader's clock",
        "(assumed, the server was not asked; it depends on session_ttl_min, 10s by default)",
    ] {
        assert!(ended.out.contains(words), "`{words}` in\n{}", ended.out);
    }
}

#[test]
fn settings_that_do_not_fit_are_refused_with_the_number_to_use() {
    for (arguments, status, words) in [
        (&["consul://h", "--offline", "--replication-ttl", "9s"][..], 1, "use --replication-ttl 10s"),
        (&["etcd://h", "--replication-ttl", "1500ms"], 2, "use 2s"),
        (&["kubernetes://n", "--replication-ttl", "999ms"], 2, "the least is 1s"),
        (&["sqlite:///x.db", "--replication-ttl", "499ms"], 2, "the least is 500ms"),
        (&["memory:", "--replication-ttl", "2days"], 2, "the most is 1day"),
        (&["memory:", "--hold-timeout", "10s"], 1, "use --hold-timeout 13s or more"),
        (&["memory:", "--hold-timeout", "2h"], 2, "the most is 1h"),
        (&["consul://h", "--offline", "--replication-ttl", "30s"], 1, "use --hold-timeout 67s or more"),
        (&["sqlite:///x.db", "--store-opt", "cacert=/c"], 2, "takes no option `cacert`"),
        (&["etcd://root:sesame@h"], 2, "has a password in it"),
        (&["memory:", "--nodes", "0"], 2, "must be 1 or more"),
        (&[], 2, "STORE (BELLWETHER_STORE) is missing"),
    ] {
        let ended = plan(arguments);
        assert_eq!(ended.status, Some(status), "{arguments:?}: {ended:?}");
        assert!(ended.sentence().starts_with("error: ") && ended.sentence().contains(words), "{arguments:?}: {}", ended.err);
        assert!(!ended.err.contains("sesame"), "{}", ended.err);
    }
    // What was found too short is shown beside what it would take; a hold that is off was meant.
    assert!(plan(&["memory:", "--hold-timeout", "10s"]).out.contains("10s is too short, 12.7s is needed"));
    assert_eq!(plan(&["memory:", "--hold-timeout", "0s"]).status, Some(0));
}

#[test]
fn a_store_that_does_not_answer_is_planned_with_as_it_comes() {
    let plan = good(&["etcd://127.0.0.1:1", "--replication-ttl", "1s"]);
    assert_eq!((&plan["ttl"]["granted"], &plan["ttl"]["kept_ms"]), (&false.into(), &2_000.into()), "{plan:#}");
    assert!(plan["ttl"]["why"].as_str().unwrap().contains("did not answer"), "{plan:#}");
}

#[test]
fn the_file_of_the_nodes_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bellwether.toml");
    fs::write(&file, "store = \"memory:\"\nreplication = true\nreplication-ttl = \"6s\"\nhold-timeout = \"8s\"\n").unwrap();
    let path = file.to_str().unwrap();
    assert_eq!(good(&["--config", path])["hold"]["set_ms"], 8_000);
    // A flag counts more than the file.
    assert_eq!(good(&["--config", path, "--replication-ttl", "3s"])["ttl"]["asked_ms"], 3_000);
    assert_eq!(plan(&["--config", "/nowhere/bellwether.toml"]).status, Some(2));
}
