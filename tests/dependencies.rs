//! The dependency policy: licences we may ship, one version of each crate, and a reason on record for each that we chose.
//! The same as `deny.toml` says, for machines without `cargo deny`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Licences that ask no more than to be named.
const LICENCES: &[&str] =
    &["0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0", "Unlicense", "Zlib"];

/// Crates of which the tree has two versions because their dependants disagree.
const TWICE: &[&str] =
    &["block-buffer", "cpufeatures", "crypto-common", "digest", "foldhash", "getrandom", "hashbrown", "prettyplease", "sha2", "syn"];

fn metadata() -> Value {
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(version.stdout).expect("rustc prints text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked", "--all-features", "--filter-platform", host])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo prints JSON")
}

/// The packages that are really in the tree: `packages` also lists what other platforms need.
fn packages(metadata: &Value) -> Vec<&Value> {
    let used = metadata["resolve"]["nodes"].as_array().expect("nodes").iter().map(|node| &node["id"]).collect::<Vec<_>>();
    let packages = metadata["packages"].as_array().expect("packages").iter().filter(|package| used.contains(&&package["id"]));
    packages.collect()
}

#[test]
fn every_licence_is_one_that_we_may_ship() {
    let metadata = metadata();
    let packages = packages(&metadata);
    assert!(packages.len() > 50, "the tree is not what it is taken for");
    let bad = packages.iter().filter(|package| !package["license"].as_str().is_some_and(allowed));
    let bad = bad.map(|package| format!("{} {}: {}", package["name"], package["version"], package["license"])).collect::<Vec<_>>();
    assert!(bad.is_empty(), "licences that are not on the list:\n{}", bad.join("\n"));
}

#[test]
fn an_expression_is_allowed_when_one_reading_of_it_is() {
    for (expression, expected) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0 OR MIT", true),
        ("GPL-3.0 AND MIT", false),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", true),
        ("(GPL-3.0 OR LGPL-3.0) AND MIT", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
        ("", false),
    ] {
        assert_eq!(allowed(expression), expected, "{expression}");
    }
}

/// Whether an SPDX expression can be met with the licences on the list. `AND` binds tighter than `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    return any(&mut words) && words.next().is_none();

    fn any<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut met = all(words);
        while words.next_if_eq(&"OR").is_some() {
            met |= all(words);
        }
        met
    }

    fn all<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        let mut met = one(words);
        while words.next_if_eq(&"AND").is_some() {
            met &= one(words);
        }
        met
    }

    fn one<'a>(words: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> bool {
        if words.next_if_eq(&"(").is_some() {
            let met = any(words);
            return words.next() == Some(")") && met;
        }
        let met = words.next().is_some_and(|licence| LICENCES.contains(&licence));
        // An exception only gives more than the licence does.
        if words.next_if_eq(&"WITH").is_some() {
            words.next();
        }
        met
    }
}

#[test]
fn no_crate_is_there_twice_but_for_those_that_we_know_of() {
    let metadata = metadata();
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for package in packages(&metadata) {
        versions.entry(package["name"].as_str().unwrap()).or_default().insert(package["version"].as_str().unwrap());
    }
    let twice = versions.iter().filter(|(_, versions)| versions.len() > 1).map(|(name, _)| *name).collect::<BTreeSet<_>>();
    let known = TWICE.iter().copied().collect::<BTreeSet<_>>();
    let details = twice.iter().map(|name| format!("{name}: {:?}", versions[name])).collect::<Vec<_>>().join("\n");
    assert_eq!(twice, known, "the list of crates with several versions is out of date:\n{details}");
}

#[test]
fn every_direct_dependency_has_its_reason_on_record() {
    let metadata = metadata();
    let root = metadata["packages"].as_array().unwrap().iter().find(|package| package["name"] == "bellwether").expect("ours");
    let record = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/decisions/0001-dependencies.md")).unwrap();
    let ours = root["dependencies"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect::<BTreeSet<_>>();
    let recorded = record.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect::<BTreeSet<_>>();
    assert_eq!(recorded, ours, "docs/decisions/0001-dependencies.md and Cargo.toml name different crates");
}
