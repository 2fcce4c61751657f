//! Who may know whom: the rooms of the library see each other in one direction, and each foreign crate has its place.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// What each room may import of the others. Whatever is not listed puts the rooms together and sees everything.
const ROOMS: &[(&str, &[&str])] = &[
    ("backoff", &[]),
    ("clock", &[]),
    ("duration", &[]),
    ("node", &[]),
    ("machine", &[]),
    ("telemetry", &[]),
    ("shutdown", &[]),
    ("wall", &[]),
    ("store", &["node", "clock", "backoff", "duration"]),
    ("replication", &["store", "node", "clock", "backoff", "duration"]),
    ("check", &["replication", "store", "node", "duration"]),
    ("cluster", &["node"]),
    ("tls", &[]),
    ("api", &["replication", "cluster", "store", "node", "clock", "backoff", "tls", "wall"]),
];

/// What the api room may take from the store room: what a role is made of.
const PLAIN_STORE_TYPES: &[&str] = &["Epoch", "Leader"];

/// Where a crate may be named.
const PLACES: &[(&str, &[&str])] = &[
    ("clap", &["cli/"]),
    ("clap_complete", &["cli/"]),
    ("hyper", &["api/", "demo/", "store/http/"]),
    ("hyper_util", &["api/", "demo/", "store/http/"]),
    ("tower", &["api/"]),
    ("tokio_rustls", &["api/io/", "api/tests/", "tls/", "store/tls.rs"]),
    ("prometheus_client", &["api/"]),
    ("anyhow", &["app.rs", "cli/", "config/", "demo/"]),
    ("etcd_client", &["store/etcd/"]),
    ("sqlx", &["store/mysql/", "store/postgres/", "store/server/", "store/sql/", "store/sqlite/"]),
];

#[test]
fn every_room_keeps_to_what_it_may_see() {
    let broken = sources().iter().flat_map(|(path, text)| breaches(path, text)).collect::<Vec<_>>();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_breach_is_found() {
    for (path, text, words) in [
        ("store/etcd/mod.rs", "use crate::replication::Timing;", "may not see `replication`"),
        ("cluster/mod.rs", "fn f() { crate::api::bind() }", "may not see `api`"),
        ("api/mod.rs", "use crate::store::{Epoch, Lock};", "may not see `store::Lock`"),
        ("api/mod.rs", "use clap::Parser;", "may not name `clap`"),
        ("replication/mod.rs", "let x: hyper::Error;", "may not name `hyper`"),
        ("store/etcd/mod.rs", "#[cfg(feature = \"etcd\")]", "features"),
    ] {
        let found = breaches(path, text);
        assert!(found.len() == 1 && found[0].contains(words), "{path}: {text}: {found:?}");
    }
    assert_eq!(breaches("api/mod.rs", "// clap::Parser\nuse crate::store::{Epoch, Leader};\nuse my_clap::x;"), Vec::<String>::new());
    assert_eq!(breaches("store/x.rs", "#[cfg(test)]\nmod tests {\nuse crate::replication::Timing;\n}"), Vec::<String>::new());
}

fn breaches(path: &str, text: &str) -> Vec<String> {
    let room = path.split(['/', '.']).next().unwrap_or(path);
    let rule = ROOMS.iter().find(|(name, _)| *name == room).map(|(_, seen)| *seen);
    let code = code(text);
    let mut found = Vec::new();
    for (other, item) in imports(&code) {
        match rule {
            Some(seen) if other != room && !seen.contains(&other.as_str()) => found.push(format!("{path}: {room} may not see `{other}`")),
            Some(_) if room == "api" && other == "store" && !PLAIN_STORE_TYPES.contains(&item.as_str()) => {
                found.push(format!("{path}: {room} may not see `store::{item}`"));
            }
            _ => {}
        }
    }
    for (foreign, places) in PLACES {
        if names(&code, &format!("{foreign}::")) && !places.iter().any(|place| path.starts_with(place)) {
            found.push(format!("{path}: may not name `{foreign}`, only {places:?} may"));
        }
    }
    if code.contains("cfg(feature") && !["store/mod.rs", "main.rs"].contains(&path) {
        found.push(format!("{path}: stores are chosen in store/mod.rs, the allocator in main.rs, and features nowhere else"));
    }
    found
}

/// What is compiled into the library: no comments, no tests.
fn code(text: &str) -> String {
    let before_tests = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    before_tests.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Every `crate::room::item` that the code names, one for each item of a braced list.
fn imports(code: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let path = &code[at + "crate::".len()..];
        let word = |text: &str| text.chars().take_while(|letter| letter.is_alphanumeric() || *letter == '_').collect::<String>();
        let room = word(path);
        let rest = path[room.len()..].strip_prefix("::").unwrap_or("");
        match rest.strip_prefix('{') {
            Some(list) => {
                let list = list.split('}').next().unwrap_or(list);
                found.extend(list.split(',').map(str::trim).filter(|item| !item.is_empty()).map(|item| (room.clone(), word(item))));
            }
            None => drop(found.insert((room, word(rest)))),
        }
    }
    found
}

/// Whether `path` stands in the code and is no tail of a longer name.
fn names(code: &str, path: &str) -> bool {
    code.match_indices(path).any(|(at, _)| {
        let before = code[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || letter == '_' || letter == ':')
    })
}

/// Path below `src/` and text of every source file that is no test.
fn sources() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut files) = (vec![root.clone()], Vec::<PathBuf>::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src can be listed") {
            let path = entry.expect("src can be listed").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    assert!(files.len() > 20, "the sources are not where they are looked for");
    let sources = files.iter().filter(|path| !path.ends_with("tests.rs")).map(|path| {
        let below = path.strip_prefix(&root).expect("found below src").to_string_lossy().into_owned();
        (below, fs::read_to_string(path).expect("a source file is text"))
    });
    sources.collect()
}
