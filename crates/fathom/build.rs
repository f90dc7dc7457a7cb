//! What `fathom --version` says beside the number: the commit where there is one, how it was built, for what.

use std::process::Command;

fn main() {
    // Every commit adds a line to it; in a tree without history nothing needs to be looked at again.
    let history = "../../.git/logs/HEAD";
    if std::path::Path::new(history).exists() {
        println!("cargo:rerun-if-changed={history}");
    }
    println!("cargo:rerun-if-env-changed=FATHOM_COMMIT");
    // A package is built from a tree without history: whoever builds it says the commit.
    let commit = std::env::var("FATHOM_COMMIT").ok().or_else(|| {
        let git = Command::new("git")
            .args(["rev-parse", "--short=12", "HEAD"])
            .output()
            .ok()?;
        let text = String::from_utf8(git.stdout).ok()?;
        git.status.success().then(|| text.trim().to_owned())
    });
    let of = |name: &str| std::env::var(name).unwrap_or_default();
    println!(
        "cargo:rustc-env=FATHOM_BUILD={} ({}, {} build)",
        commit.as_deref().unwrap_or("commit unknown"),
        of("TARGET"),
        of("PROFILE")
    );
}
