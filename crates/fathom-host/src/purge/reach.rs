//! What else a drive's command reaches: all other namespaces of the drive, each of which must be unused and blank.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use super::method::Method;
use crate::devices::attached;
use crate::devices::graph::{Graph, Node};
use crate::devices::nvme::Nvme;
use crate::devices::occupancy::Occupancy;
use crate::judge;
use crate::root::{HostRoot, number};

/// The other namespaces of the drive, as far as they are block devices of this machine.
///
/// # Errors
/// In a sentence that names it, where one of them is used, carries something, or is not to be seen from here.
pub(super) fn others(
    root: &HostRoot,
    graph: &Graph,
    occupancy: &Occupancy,
    node: &Node,
    drive: &Nvme,
    method: Method,
) -> Result<Vec<Node>, String> {
    let own = drive_of(root, node);
    let nsid = |n: &Node| number::<u32>(&n.dir.join("nsid"));
    let of_drive = graph
        .nodes
        .values()
        .filter(|n| n.name.starts_with("nvme") && n.parent.is_none() && drive_of(root, n) == own);
    let of_drive: Vec<&Node> = of_drive.collect();
    let seen: BTreeSet<u32> = of_drive.iter().filter_map(|n| nsid(n)).collect();
    if drive.namespaces.is_empty() {
        return Err(
            "it reaches all namespaces of the drive, which does not say which it has (run as root)"
                .into(),
        );
    }
    if let Some(unseen) = drive.all_namespaces().find(|n| !seen.contains(n)) {
        return Err(format!(
            "it reaches all namespaces of the drive, and namespace {unseen} is not attached to this machine, so nobody here knows what is on it"
        ));
    }
    let mut found = Vec::new();
    for other in of_drive.into_iter().filter(|n| n.number != node.number) {
        let path = other.path(root);
        judge::judge(root, graph, occupancy, other, &path).map_err(|refusal| {
            format!("{method} reaches all namespaces of the drive, and {refusal}")
        })?;
        found.push(other.clone());
    }
    Ok(found)
}

/// Whether a way is one of all namespaces of the drive.
pub(super) fn is_of_all(method: Method, drive: &Nvme) -> bool {
    match method {
        Method::Format | Method::FormatCrypto => {
            drive.format_reaches_drive || drive.erase_reaches_drive
        }
        _ => method.is_sanitize(),
    }
}

/// What two namespaces of one drive have in common: its subsystem, or its only controller.
fn drive_of(root: &HostRoot, node: &Node) -> Option<PathBuf> {
    attached::subsystem(root, node).or_else(|| fs::canonicalize(node.dir.join("device")).ok())
}
