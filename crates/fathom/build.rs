//! What `fathom --version` says beside the number: the commit where there is one, how it was built, for what.

use std::path::Path;
use std::process::Command;

fn main() {
    // A package is built from a tree without history: whoever builds it says the commit, or `git archive` did.
    println!("cargo:rerun-if-env-changed=FATHOM_COMMIT");
    println!("cargo:rerun-if-changed={ARCHIVED}");
    let commit = (std::env::var("FATHOM_COMMIT").ok())
        .filter(|c| !c.is_empty())
        .or_else(of_history)
        .or_else(of_archive);
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    println!(
        "cargo:rustc-env=FATHOM_BUILD={} ({}, {} build)",
        commit.as_deref().unwrap_or("commit unknown"),
        of("TARGET"),
        of("PROFILE")
    );
    // Tests start it thousands of times, and loading 200,000 addresses anew is half of a start.
    // (A static one has another way to be linked.)
    let fixed = of("CARGO_CFG_TARGET_ENV") == "gnu"
        && !of("CARGO_CFG_TARGET_FEATURE").contains("crt-static");
    if of("PROFILE") == "debug" && fixed {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}

/// The commit of this tree's own history: another project's, which this tree was unpacked into, says nothing.
fn of_history() -> Option<String> {
    if !Path::new("../../.git").exists() {
        return None;
    }
    // Every commit adds a line to it.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo:rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let said = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(said.stdout).ok()?;
    said.status.success().then(|| text.trim().to_owned())
}

/// Holds `$Format:%H$` in a repository; an archive made by git has the commit in its place.
const ARCHIVED: &str = "commit";

fn of_archive() -> Option<String> {
    let text = std::fs::read_to_string(ARCHIVED).ok()?;
    let commit = text.trim();
    let whole = commit.len() >= 12 && commit.bytes().all(|b| b.is_ascii_hexdigit());
    whole.then(|| commit[..12].to_owned())
}
