//! Whose names do not belong into what is shared.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names of who runs this, and of who owns the run.
pub(super) fn names(dir: Option<&Path>) -> Vec<String> {
    let typed = ["USER", "LOGNAME", "SUDO_USER"].map(|v| std::env::var(v).ok());
    let mut all: Vec<String> = typed.into_iter().flatten().collect();
    let owner = dir.and_then(|d| d.metadata().ok()).map(|m| m.uid());
    let me = rustix::process::getuid().as_raw();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    for line in users.lines() {
        let mut fields = line.split(':');
        let (Some(name), Some(id)) = (fields.next(), fields.nth(1)) else {
            continue;
        };
        if [Some(me), owner].contains(&id.parse().ok()) {
            all.push(name.to_owned());
        }
    }
    all.retain(|n| !n.is_empty());
    all
}
