//! Whether a namespace is attached to controllers that this machine does not have: then another one may have mounted what
//! no table here shows.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use fathom_files::open;

use super::graph::Node;
use crate::root::{HostRoot, names, number};
use crate::sys;

/// Controllers that an NVMe namespace is attached to and that are not this machine's. Empty where the drive does not say.
pub(crate) fn elsewhere(root: &HostRoot, disk: &Node) -> Vec<u16> {
    let Some(nsid) = number::<u32>(&disk.dir.join("nsid")) else {
        return Vec::new();
    };
    let Ok(node) = open::for_reading(&disk.path(root), 0) else {
        return Vec::new();
    };
    let mut list = [0u8; 4096];
    if sys::nvme_identify(&node, sys::CONTROLLERS_OF_NAMESPACE, nsid, &mut list).is_err() {
        return Vec::new();
    }
    let u16_at = |i: usize| u16::from_le_bytes([list[2 * i], list[2 * i + 1]]);
    let count = usize::from(u16_at(0)).min(2047);
    let own = own_controllers(root, disk);
    if own.is_empty() {
        return Vec::new();
    }
    (1..=count)
        .map(u16_at)
        .filter(|c| !own.contains(c))
        .collect()
}

/// Numbers of the controllers through which this machine reaches the disk's subsystem.
fn own_controllers(root: &HostRoot, disk: &Node) -> BTreeSet<u16> {
    let id = |dir: &Path| number(&dir.join("cntlid"));
    match subsystem(root, disk) {
        Some(dir) => controllers_of(&dir).iter().filter_map(|c| id(c)).collect(),
        None => fs::canonicalize(disk.dir.join("device"))
            .ok()
            .and_then(|d| id(&d))
            .into_iter()
            .collect(),
    }
}

/// The directory of the NVMe subsystem (the drive) that a disk is a namespace of.
pub(crate) fn subsystem(root: &HostRoot, disk: &Node) -> Option<PathBuf> {
    let device = fs::canonicalize(disk.dir.join("device")).ok()?;
    let class = root.sys.join("class/nvme-subsystem");
    let all = names(&class).into_iter().map(|n| class.join(n));
    all.filter_map(|s| fs::canonicalize(s).ok()).find(|dir| {
        let is_own = |c: &PathBuf| fs::canonicalize(c).is_ok_and(|c| c == device);
        *dir == device || controllers_of(dir).iter().any(is_own)
    })
}

fn controllers_of(subsystem: &Path) -> Vec<PathBuf> {
    let all = names(subsystem).into_iter().map(|n| subsystem.join(n));
    all.filter(|c| c.join("cntlid").is_file()).collect()
}
