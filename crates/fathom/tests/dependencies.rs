//! What fathom is built of: every crate's licence, name and source, held to deny.toml without a network.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Whether a licence leaves a choice that is allowed: `A OR B`, `A/B`, `(A OR B) AND C`.
fn allowed(licence: &str, list: &BTreeSet<String>) -> bool {
    licence.replace('/', " OR ").split(" AND ").all(|part| {
        part.split(" OR ")
            .any(|l| list.contains(l.trim_matches(['(', ')', ' '])))
    })
}

/// What cargo says of the workspace. Offline: what was built is there.
fn cargo(args: &[&str]) -> String {
    let said = Command::new(env!("CARGO"))
        .args(args)
        .args(["--offline", "--locked"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    assert!(said.status.success(), "{}", text(said.stderr));
    text(said.stdout)
}

/// The rooms that simulate a million I/Os for a test share generic functions with what they are built on: one crate there
/// without optimisation, and all of them run unoptimised code of the standard library's.
#[test]
fn nothing_below_the_simulator_and_the_trees_is_built_without_optimisation() {
    let manifest = include_str!("../../../Cargo.toml");
    let manifest: toml::Table = manifest.parse().unwrap();
    let levels = manifest["profile"]["dev"]["package"].as_table().unwrap();
    let rooms = ["fathom-sim", "fathom-kv"].map(|room| {
        let args = ["tree", "-p", room, "-e", "normal", "--prefix", "none"];
        cargo(&args)
    });
    let below = || rooms.iter().flat_map(|r| r.lines());
    assert!(below().any(|line| line.starts_with("fathom-io ")));
    let names = below().filter_map(|line| line.split(' ').next());
    let level = |name: &str| {
        levels
            .get(name)
            .and_then(|l| l.get("opt-level")?.as_integer())
    };
    let slow: BTreeSet<&str> = names.filter(|name| level(name) == Some(0)).collect();
    assert!(slow.is_empty(), "Cargo.toml: level 0 for {slow:?}");
}

#[test]
fn every_crate_is_of_an_allowed_licence_name_and_source() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let deny = std::fs::read_to_string(root.join("deny.toml")).unwrap();
    let deny: toml::Table = deny.parse().unwrap();
    let words = |list: &toml::Value, key: &str| -> BTreeSet<String> {
        let one = |v: &toml::Value| v.get(key).unwrap_or(v).as_str().unwrap().to_owned();
        list.as_array().unwrap().iter().map(one).collect()
    };
    let licences = words(&deny["licenses"]["allow"], "");
    let banned = words(&deny["bans"]["deny"], "crate");
    let sources = words(&deny["sources"]["allow-registry"], "");
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let metadata = cargo(&[
        "metadata",
        "--format-version=1",
        "--filter-platform",
        &target,
    ]);
    let metadata: Value = serde_json::from_str(&metadata).unwrap();
    let nodes = metadata["resolve"]["nodes"].as_array().unwrap();
    let used: BTreeSet<&str> = nodes.iter().filter_map(|n| n["id"].as_str()).collect();
    let mut wrong = Vec::new();
    let mut seen = 0;
    for package in metadata["packages"].as_array().unwrap() {
        if !used.contains(package["id"].as_str().unwrap()) {
            continue;
        }
        seen += 1;
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or("none");
        if !allowed(licence, &licences) {
            wrong.push(format!("{name}: its licence is {licence}"));
        }
        if banned.contains(name) {
            wrong.push(format!("{name} is banned"));
        }
        // The workspace's own have none.
        if let Some(source) = package["source"].as_str() {
            let known = source.strip_prefix("registry+");
            if !known.is_some_and(|s| sources.contains(s)) {
                wrong.push(format!("{name} comes from {source}"));
            }
        }
    }
    assert!(seen > 100, "only {seen} crates were looked at");
    assert!(wrong.is_empty(), "deny.toml:\n{}", wrong.join("\n"));
}

#[test]
fn a_choice_of_licences_is_understood() {
    let list = ["MIT", "Unicode-3.0"].map(str::to_owned).into();
    for (licence, good) in [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("MIT AND GPL-2.0-only", false),
        ("GPL-2.0-only OR Apache-2.0", false),
        ("none", false),
    ] {
        assert_eq!(allowed(licence, &list), good, "{licence}");
    }
}
