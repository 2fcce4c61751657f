//! The help: every flag is there, with the variable that stands in for it, and examples.

use crate::node::Ended;

const FLAGS: [&str; 33] = [
    "--host",
    "--replication",
    "--advertise",
    "--replication-ttl",
    "--service",
    "--upstream",
    "--hold-timeout",
    "--hold-requests",
    "--hold-bytes",
    "--drain-timeout",
    "--local-routes",
    "--admin",
    "--admin-token-file",
    "--trusted-proxies",
    "--forwarded",
    "--http2",
    "--config",
    "--workers",
    "--forward",
    "--access-log",
    "--max-connections",
    "--max-header-size",
    "--max-header-lines",
    "--header-timeout",
    "--body-idle-timeout",
    "--upstream-timeout",
    "--log-format",
    "--log-level",
    "--store-opt",
    "--tls",
    "--tlsverify",
    "--tlscacert",
    "--tlscert",
    "--tlskey",
    "--tls-server-name",
];

#[test]
fn every_setting_is_a_flag_and_a_variable() {
    let help = Ended::with(["manage", "--help"]);
    assert_eq!((help.status, help.err.as_str()), (Some(0), ""));
    for flag in FLAGS {
        let variable = format!("BELLWETHER_{}", flag.trim_start_matches('-').replace('-', "_").to_uppercase());
        assert!(help.out.contains(&format!("{flag} ")) || help.out.contains(&format!("{flag}[")), "{flag}");
        assert!(help.out.contains(&format!("[env: {variable}")), "{variable}");
    }
    assert!(help.out.contains("[env: BELLWETHER_STORE]"));
    for default in ["127.0.0.1:4000", "10s", "2 × TTL + 5s", "10000", "64MiB", "/_ping,/info", "text", "info"] {
        assert!(help.out.contains(&format!("[default: {default}]")) || help.out.contains(&format!("{default}]")), "{default}");
    }
}

#[test]
fn every_command_shows_how_it_is_used() {
    for command in ["manage", "info", "observe", "plan", "resign", "store", "demo", "completions"] {
        for form in [&["help", command], &[command, "--help"]] {
            let help = Ended::with(form);
            assert_eq!(help.status, Some(0), "{form:?}");
            assert!(help.out.contains("Examples:") && help.out.contains(&format!("bellwether {command}")), "{}", help.out);
        }
        assert!(Ended::with(["--help"]).out.contains(&format!("  {command} ")), "{command}");
    }
}

#[test]
fn the_version_is_the_packages() {
    assert_eq!(Ended::with(["--version"]).out, format!("bellwether {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_know_the_commands_and_their_flags() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = Ended::with(["completions", shell]);
        assert_eq!((script.status, script.err.as_str()), (Some(0), ""), "{shell}");
        for word in ["manage", "observe", "replication-ttl", "token-file"] {
            assert!(script.out.contains(word), "{shell}: {word}");
        }
    }
}
