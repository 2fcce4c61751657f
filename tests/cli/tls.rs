//! The TLS flags: which go together, which files are refused, and how the commands ask a node that speaks TLS.

use std::path::Path;

use rustix::process::Signal;

use crate::certificates::{Authority, Credentials, LONG, Wanted};
use crate::node::{Ended, Node, bellwether};

const BOTH: &str = "serverAuth,clientAuth";

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// The flags that name all three files.
fn files(files: &Credentials) -> [&str; 6] {
    ["--tlscacert", text(&files.ca), "--tlscert", text(&files.cert), "--tlskey", text(&files.key)]
}

fn assert_refused(arguments: &[&str], words: &str) {
    let ended = Ended::with(arguments);
    assert_eq!(ended.status, Some(2), "{arguments:?}: {ended:?}");
    assert!(ended.sentence().starts_with("error: ") && ended.sentence().contains(words), "{arguments:?}: {}", ended.sentence());
}

#[test]
fn flags_that_do_not_go_together_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let node = Authority::new(folder.path(), "ca").issue(Wanted { name: "node", hosts: "DNS:a.example", usage: BOTH, life: LONG });
    let [ca, cert, key] = [&node.ca, &node.cert, &node.key].map(|path| text(path));
    for flag in ["--tlscacert", "--tlscert", "--tlskey"] {
        for command in ["manage", "info", "resign"] {
            assert_refused(&[command, flag, ca], &format!("{flag} (BELLWETHER_{}): is given without --tls", flag[2..].to_uppercase()));
            assert_refused(&[command, flag, ca, "--tls=false"], "is given without --tls or --tlsverify");
        }
    }
    for command in ["manage", "info", "resign"] {
        assert_refused(
            &[command, "--tls-server-name", "a.example"],
            "--tls-server-name (BELLWETHER_TLS_SERVER_NAME): is given without --tls",
        );
        assert_refused(&[command, "--tls", "--tls-server-name", "a b"], "`a b` is no name that a certificate can be for");
    }
    assert_refused(&["manage", "--tls"], "--tlscert (BELLWETHER_TLSCERT): is required with --tls");
    assert_refused(&["manage", "--tls", "--tlscert", cert], "--tlskey (BELLWETHER_TLSKEY): is required with --tls");
    assert_refused(&["manage", "--tlsverify", "--tlscert", cert, "--tlskey", key], "--tlscacert (BELLWETHER_TLSCACERT): is required");
    assert_refused(&["info", "--tls", "--tlscert", cert], "--tlscert (BELLWETHER_TLSCERT): is given without --tlskey");
    assert_refused(&["resign", "--tls", "--tlskey", key], "--tlskey (BELLWETHER_TLSKEY): is given without --tlscert");
}

#[test]
fn files_that_cannot_be_used_are_refused_before_anything_is_bound() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let wanted = Wanted { name: "node", hosts: "DNS:a.example", usage: BOTH, life: LONG };
    let good = authority.issue(wanted);
    let old = authority.issue(Wanted { name: "old", life: ("20200101000000Z", "20210101000000Z"), ..wanted });
    let other = authority.issue(Wanted { name: "other", ..wanted });
    let socket = folder.path().join("node.sock");
    let host = format!("unix://{}", socket.display());
    let manage = ["manage", "-H", &host, "--tlsverify"];
    for (bad, words) in [
        (
            Credentials { cert: "/nowhere/cert.pem".into(), ..good.clone() },
            "--tlscert (BELLWETHER_TLSCERT): /nowhere/cert.pem: cannot be read",
        ),
        (Credentials { ca: "/dev/null".into(), ..good.clone() }, "--tlscacert (BELLWETHER_TLSCACERT): /dev/null:"),
        (Credentials { key: other.key, ..good.clone() }, "does not belong to the certificate in"),
        (old, "ran out on 2021-01-01T00:00:00Z: renew it"),
    ] {
        assert_refused(&[&manage[..], &files(&bad)].concat(), words);
    }
    let election = ["--replication", "--advertise", "b.example:4000", "memory:"];
    assert_refused(&[&manage[..], &files(&good), &election].concat(), "is for a.example and not for b.example");
    let by_name = ["--tls-server-name", "c.example"];
    assert_refused(&[&manage[..], &files(&good), &by_name, &election].concat(), "is for a.example and not for c.example");
    assert!(!socket.exists(), "something was bound before all was checked");
}

#[test]
fn commands_ask_a_node_over_tls_with_the_same_flags_and_variables() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new(folder.path(), "ca");
    let wanted = Wanted { name: "node", hosts: "IP:127.0.0.1", usage: BOTH, life: LONG };
    let node_files = authority.issue(wanted);
    let user = authority.issue(Wanted { name: "user", hosts: "", usage: "clientAuth", ..wanted });
    let elsewhere = Authority::new(folder.path(), "elsewhere").issue(Wanted { name: "x", ..wanted });
    let election = ["--replication", "--advertise", "127.0.0.1:4000", "--replication-ttl", "60s", "memory:", "--tlsverify"];
    let control = format!("unix://{}", folder.path().join("node.sock").display());
    let mut node = Node::start(&[&election[..], &files(&node_files), &["-H", "127.0.0.1:0", "-H", &control]].concat());
    let line = node.process.line("addr=127.0.0.1:");
    let at = line.split("addr=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address").to_owned();
    node.process.line("TLS is spoken on TCP addresses");

    let done = |arguments: &[&str]| Ended::with(arguments);
    let info = done(&[&["info", "-H", &at, "--tls"], &files(&user)[..]].concat());
    assert!(info.status == Some(0) && info.out.contains("Role:"), "{info:?}");
    let with_variables = Ended::of(bellwether(["info", "-H", &at]).envs([
        ("BELLWETHER_TLSVERIFY", "1"),
        ("BELLWETHER_TLSCACERT", text(&user.ca)),
        ("BELLWETHER_TLSCERT", text(&user.cert)),
        ("BELLWETHER_TLSKEY", text(&user.key)),
    ]));
    assert_eq!(with_variables.status, Some(0), "{with_variables:?}");
    for (arguments, words) in [
        (vec!["info", "-H", &at], "speaks TLS"),
        (vec!["info", "-H", &at, "--tls", "--tlscacert", text(&elsewhere.ca)], "was issued by no CA"),
        (vec!["info", "-H", &at, "--tls", "--tlscacert", text(&user.ca)], "did not answer as a node does"),
        (vec!["resign", "-H", &at, "--tls", "--tlscacert", text(&user.ca)], "did not answer as a node does"),
    ] {
        let refused = done(&arguments);
        assert!(refused.status == Some(1) && refused.sentence().contains(words), "{arguments:?}: {refused:?}");
    }
    let named = at.replace("127.0.0.1", "localhost");
    let by_name = |more: &[&str]| done(&[&["info", "-H", &named, "--tls"], &files(&user)[..], more].concat());
    assert!(by_name(&[]).sentence().contains("is for 127.0.0.1 and not for localhost"), "{:?}", by_name(&[]));
    assert_eq!(by_name(&["--tls-server-name", "127.0.0.1"]).status, Some(0));
    // A unix socket speaks none, whatever the variables say.
    let plain = done(&[&["info", "-H", &control, "--tls"], &files(&user)[..]].concat());
    assert_eq!(plain.status, Some(0), "{plain:?}");
    let resigned = done(&[&["resign", "-H", &at, "--tlsverify"], &files(&user)[..]].concat());
    assert!(resigned.status == Some(0) && resigned.out.contains("resigned"), "{resigned:?}");

    node.process.signal(Signal::HUP);
    node.process.line("The TLS files are the ones in use");
    std::fs::write(&node_files.key, "").unwrap();
    node.process.signal(Signal::HUP);
    let warning = node.process.line("those read before stay in use");
    assert!(warning.contains("--tlskey") && warning.contains("has no private key in it"), "{warning}");
    assert_eq!(done(&[&["info", "-H", &at, "--tls"], &files(&user)[..]].concat()).status, Some(0));
}
