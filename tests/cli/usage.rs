//! Wrong input: one sentence that names it and says what to do, status 2, and nothing bound, opened or written.

use std::fs;
use std::net::TcpListener;

use crate::node::{Ended, bellwether};

/// A complete and good election, to which a test adds what is wrong.
const GOOD: &[&str] = &["manage", "--replication", "--advertise", "10.0.0.1:4000", "sqlite:///tmp/bellwether-never-opened.db"];

fn assert_refused(arguments: &[&str], words: &str) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let socket = folder.path().join("node.sock");
    let mut arguments = arguments.to_vec();
    let listen = format!("unix://{}", socket.display());
    if arguments[0] == "manage" && !arguments.contains(&"--") {
        arguments.extend(["-H", &listen]);
    }
    let ended = Ended::with(&arguments);
    assert_eq!(ended.status, Some(2), "{arguments:?}: {ended:?}");
    assert!(ended.sentence().starts_with("error: ") && ended.sentence().contains(words), "{arguments:?}: {}", ended.sentence());
    assert_eq!(ended.out, "", "{arguments:?}");
    assert!(!socket.exists(), "{arguments:?}: something was bound before all was checked");
}

#[test]
fn every_wrong_flag_gets_its_sentence() {
    for (wrong, words) in [
        (&["--workers", "0"][..], "--workers (BELLWETHER_WORKERS): must be from 1 to 256"),
        (&["--workers", "257"], "from 1 to 256"),
        (&["--workers", "many"], "write a whole number"),
        (&["--hold-timeout", "2h"], "the most is 1h"),
        (&["--hold-timeout", "10"], "like 500ms, 10s or 1m"),
        (&["--hold-timeout", "-1s"], "cannot be negative"),
        (&["--hold-requests", "1000001"], "the most is 1000000"),
        (&["--hold-requests", "-1"], "write a whole number"),
        (&["--hold-bytes", "64Mib"], "like 512KiB or 64MiB"),
        (&["--drain-timeout", "61m"], "the most is 1h"),
        (&["--max-connections", "0"], "--max-connections (BELLWETHER_MAX_CONNECTIONS): must be from 1 to 10000000"),
        (&["--max-header-size", "4KiB"], "--max-header-size (BELLWETHER_MAX_HEADER_SIZE): must be from 8KiB to 1MiB"),
        (&["--max-header-size", "2MiB"], "must be from 8KiB to 1MiB"),
        (&["--max-header-lines", "31"], "--max-header-lines (BELLWETHER_MAX_HEADER_LINES): must be from 32 to 1000"),
        (&["--max-header-lines", "-1"], "write a whole number"),
        (&["--header-timeout", "4s"], "the least is 5s"),
        (&["--header-timeout", "0s"], "the least is 5s"),
        (&["--body-idle-timeout", "1ms"], "the least is 1s"),
        (&["--body-idle-timeout", "25h"], "the most is 1day"),
        (&["--upstream-timeout", "0s"], "0s is too short, the least is 1s"),
        (&["--upstream-timeout", "25h"], "the most is 1day"),
        (&["--upstream-timeout", "soon"], "write a duration like 500ms, 10s or 1m"),
        (&["--upstream-timeout", "-1s"], "cannot be negative"),
        (&["--local-routes", "/_ping,/metrics"], "not `/metrics`"),
        (&["--trusted-proxies", "10.0.0.0/33"], "10.0.0.0/8 or fd00::/8"),
        (&["--trusted-proxies", "load-balancer"], "10.0.0.0/8 or fd00::/8"),
        (&["--upstream", "127.0.0.1:8080"], "http://, h2c://, https:// or unix://"),
        (&["--upstream", "https://app/path"], "end after the port"),
        (&["--upstream", "http://127.0.0.1:1", "--upstream", "http://127.0.0.1:2"], "2 are given, and this version serves through one app"),
        (&["-H", "4000"], ":port, ip:port"),
        (&["-H", "::1:4000"], "brackets"),
        (&["-H", "127.0.0.1:65536"], "0 to 65535"),
        (&["--access-log", "xml"], "`text` or `json`"),
        (&["--forward", "guess"], "`proxy` or `redirect`"),
        (&["--log-format", "xml"], "`text` or `json`"),
        (&["--log-level", "loud"], "debug or trace"),
        (&["--admin", "0.0.0.0:0"], "--admin-token-file"),
        (&["--admin", ":0"], "--admin-token-file"),
        (&["--admin-token-file", "/nowhere/token"], "/nowhere/token"),
        (&["--admin-token-file", "/dev/null"], "one line of 1 to 4096"),
        (&["--config", "/nowhere/bellwether.toml"], "/nowhere/bellwether.toml"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        assert_refused(&[&["manage"], wrong].concat(), words);
    }
}

#[test]
fn an_election_needs_a_store_an_address_and_a_time_that_fit() {
    for (arguments, words) in [
        (&["manage", "--replication"][..], "an election needs a STORE"),
        (&["manage", "--replication", "--advertise", "10.0.0.1:4000"], "an election needs a STORE"),
        (&["manage", "--replication", "memory:"], "--advertise (BELLWETHER_ADVERTISE) is required with --replication"),
        // A node that only thinks it is alone would serve beside another.
        (&["manage", "memory:"], "a STORE is given without --replication"),
        (&["manage", "--store-opt", "cacert=/ca.pem"], "--store-opt (BELLWETHER_STORE_OPT) is given without a STORE"),
        (&["manage", "--advertise", "10.0.0.1"], "ip:port or hostname:port"),
        (&["manage", "--advertise", "10.0.0.1:0"], "1 to 65535"),
        // B127: an address that nobody can dial.
        (&["manage", "--advertise", "0.0.0.0:4101"], "nobody can dial 0.0.0.0:4101"),
        (&["manage", "--advertise", "[::]:4101"], "nobody can dial [::]:4101"),
        (&["manage", "--advertise", ":4101"], "ip:port or hostname:port"),
        // B128: IPv6 with and without brackets.
        (&["manage", "--advertise", "::1:4101"], "like [::1]:4000"),
        (&["manage", "--advertise", "[::1]"], "ip:port or hostname:port"),
        (&["manage", "one", "two"], "unexpected argument 'two'"),
        (&["manage", "memory:", "etcd://10.0.0.1:2379"], "more than one STORE"),
    ] {
        assert_refused(arguments, words);
    }
    for (more, words) in [
        (&["--replication-ttl", "0s"][..], "the least is 500ms"),
        (&["--replication-ttl", "-5s"], "cannot be negative"),
        (&["--replication-ttl", "2days"], "a TTL of 2days is too long: the most is 1day"),
        (&["--replication-ttl", "400000m"], "a TTL of 277days 18h 40m is too long"),
        (&["--service", "a/b"], "--service (BELLWETHER_SERVICE)"),
        (&["--service", ""], "--service (BELLWETHER_SERVICE)"),
        (&["--store-opt", "colour=red"], "no store option `colour`"),
        (&["--store-opt", "cacert"], "key=value"),
        (&["--store-opt", "username=root"], "takes no option `username`"),
    ] {
        assert_refused(&[GOOD, more].concat(), words);
    }
}

#[test]
fn the_store_says_which_ttl_it_can_keep() {
    let etcd = &["manage", "--replication", "--advertise", "10.0.0.1:4000", "etcd://127.0.0.1:1"];
    assert_refused(&[&etcd[..], &["--replication-ttl", "600ms"]].concat(), "the least is 1s");
    assert_refused(&[&etcd[..], &["--replication-ttl", "1500ms"]].concat(), "use 2s");
}

#[test]
fn every_wrong_store_gets_its_sentence() {
    let manage = &["manage", "--replication", "--advertise", "10.0.0.1:4000"];
    for (store, words) in [
        ("etcd", "no store URL"),
        ("etcd://", "no host"),
        ("redis://10.0.0.1", "no store `redis`"),
        ("sqlite://lock.db", "three slashes"),
        ("postgres://bellwether@10.0.0.1", "names no database"),
        ("mysql://10.0.0.1/bellwether", "needs a user"),
        ("zk://", "like zk://HOST:2181/prefix"),
        ("kubernetes://", "kubernetes://NAMESPACE"),
    ] {
        assert_refused(&[&manage[..], &[store]].concat(), words);
        assert_refused(&["observe", store], words);
    }
    assert_refused(&[&manage[..], &["sqlite:///nowhere/lock.db"]].concat(), "/nowhere");
}

#[test]
fn a_secret_is_never_shown() {
    let manage = &["manage", "--replication", "--advertise", "10.0.0.1:4000"];
    for more in [
        &["etcd://root:sesame@10.0.0.1:2379"][..],
        &["memory:", "etcd://root:sesame@10.0.0.1:2379"],
        &["consul://10.0.0.1?token=sesame"],
        &["memory:", "--store-opt", "password=sesame"],
        &["memory:", "--store-opt", "token=sesame"],
    ] {
        let ended = Ended::with([&manage[..], more].concat());
        assert_eq!(ended.status, Some(2), "{ended:?}");
        assert!(!ended.err.contains("sesame"), "{}", ended.err);
    }
    let help = Ended::of(bellwether(["manage", "--help"]).env("BELLWETHER_STORE", "etcd://root:sesame@10.0.0.1:2379"));
    assert!(help.status == Some(0) && !help.out.contains("sesame"), "{}", help.out);
}

#[test]
fn what_comes_later_is_named_as_such() {
    for flag in ["--health-path", "--priority", "--no-campaign", "--on-promote"] {
        assert_refused(&["manage", flag], &format!("{flag} is not in this version"));
        assert_refused(&["manage", &format!("{flag}=x")], &format!("{flag} is not in this version"));
    }
    for command in ["run", "list", "join", "why", "history", "handover", "pause", "drill", "man"] {
        assert_refused(&[command], &format!("the command `{command}` is not in this version"));
    }
    assert_refused(&["manage", "memory:", "--", "sleep", "1"], "does not run a command of yours yet");
    assert_refused(&["manage", "--", "sleep", "1"], "does not run a command of yours yet");
}

#[test]
fn a_wrong_configuration_file_is_named_with_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bellwether.toml");
    let path = file.to_str().unwrap();
    for (content, line, words) in [
        ("service = \"a\"\nreplicaton = true\n", 2, "unknown field `replicaton`"),
        ("config = \"other.toml\"\n", 1, "unknown field `config`"),
        ("\n\nreplication-ttl = \"soon\"\n", 3, "like 500ms, 10s or 1m"),
        ("advertise = \"::1:4000\"\n", 1, "like [::1]:4000"),
        ("trusted-proxies = [\n  \"10.0.0.0/8\",\n  \"everybody\"]\n", 1, "10.0.0.0/8 or fd00::/8"),
        ("host = 4000\n", 1, "a string or a list of strings"),
        ("replication = \"yes\"\n", 1, "boolean"),
        ("service = \n", 1, ""),
        ("service = \"a\"\nservice = \"b\"\n", 2, "duplicate key"),
    ] {
        fs::write(&file, content).unwrap();
        assert_refused(&["manage", "--config", path], &format!("config file {path}, line {line}: "));
        assert_refused(&["manage", "--config", path], words);
    }
}

#[test]
fn a_command_line_without_a_command_is_no_success() {
    let nothing = Ended::with(["--"; 0]);
    assert_eq!(nothing.status, Some(2));
    assert!(nothing.sentence().starts_with("error: say which command"), "{}", nothing.err);
    assert_refused(&["mange"], "unrecognized subcommand 'mange'");
    assert_refused(&["observe"], "<STORE> is missing");
    assert_refused(&["completions", "tcsh"], "tcsh");
    assert_refused(&["info", "-H", "somewhere"], "write host:port");
    assert_refused(&["info", "--output", "xml"], "xml");
    assert_refused(&["resign", "--token-file", "/nowhere/token"], "/nowhere/token");
}

#[test]
fn an_address_that_is_taken_is_a_failure_with_its_name() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ended = Ended::with(["manage", "-H", &address]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.err.lines().last().unwrap().starts_with("error: ") && ended.err.contains(&address), "{}", ended.err);
}

#[test]
fn a_node_that_cannot_be_reached_is_one_line() {
    // Bound, so that nobody else is given it, and not listening.
    let vacant = tokio::net::TcpSocket::new_v4().unwrap();
    vacant.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = vacant.local_addr().unwrap().to_string();
    for command in ["info", "resign"] {
        let ended = Ended::with([command, "-H", &free]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        assert!(ended.err.starts_with(&format!("error: cannot connect to {free}")), "{}", ended.err);
    }
}
