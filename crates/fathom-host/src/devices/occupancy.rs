//! Who uses which block device right now: mounts of every mount namespace, swap areas,
//! loop devices, the members that file systems list in `/sys/fs`, exports, and programs that write.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::graph::{Graph, Node};
use super::uses::Use;
use super::{exports, openers};
use crate::error::HostError;
use crate::mounts::{Mount, MountTable, read_swaps};
use crate::root::{DeviceNumber, HostRoot, names, text};

/// The live users of all block devices.
#[derive(Debug, Clone, Default)]
pub(crate) struct Occupancy {
    users: Vec<(DeviceNumber, Use)>,
    /// Swap files by file system and inode.
    swap_files: Vec<(DeviceNumber, u64, PathBuf)>,
    /// Exported files by file system and inode, and by what.
    exported_files: Vec<(DeviceNumber, u64, String)>,
}

impl Occupancy {
    /// Collects them; an error where the kernel's tables cannot be read.
    pub(crate) fn gather(root: &HostRoot, graph: &Graph) -> Result<Self, HostError> {
        let mut all = Self::default();
        all.add_mounts(root, &MountTable::read(root)?, None);
        all.add_other_namespaces(root);
        all.add_swaps(root)?;
        all.add_members(root, graph);
        all.add_loops(graph);
        all.add_exports(root)?;
        Ok(all)
    }

    /// With the programs that have a device open for writing: every descriptor of every process is looked at.
    pub(crate) fn with_openers(mut self, root: &HostRoot) -> Self {
        let openers = openers::openers(root).into_iter();
        self.users.extend(openers.map(|o| {
            let (process, program) = (o.process, o.program);
            (o.number, Use::OpenForWriting { process, program })
        }));
        self
    }

    /// Live uses of one device itself, its holders included.
    pub(crate) fn of(&self, root: &HostRoot, node: &Node) -> Vec<Use> {
        let mut uses: Vec<Use> = Vec::new();
        for (number, used) in &self.users {
            if *number == node.number && !uses.contains(used) {
                uses.push(used.clone());
            }
        }
        // A mount that this namespace sees says it all; what others see adds nothing.
        if uses.iter().any(|u| matches!(u, Use::Mounted { .. })) {
            uses.retain(|u| {
                !matches!(
                    u,
                    Use::MountedElsewhere { .. } | Use::ActiveFileSystem { .. }
                )
            });
        }
        uses.extend(node.holders.iter().map(|name| Use::Holder {
            name: name.clone(),
            kind: holder_kind(root, name),
        }));
        uses
    }

    /// The swap file that has this identity.
    pub(crate) fn swap_file(&self, device: DeviceNumber, inode: u64) -> Option<&Path> {
        self.swap_files
            .iter()
            .find(|(d, i, _)| *d == device && *i == inode)
            .map(|(_, _, path)| path.as_path())
    }

    /// By what the file with this identity is exported.
    pub(crate) fn exported_file(&self, device: DeviceNumber, inode: u64) -> Option<&str> {
        self.exported_files
            .iter()
            .find(|(d, i, _)| *d == device && *i == inode)
            .map(|(_, _, by)| by.as_str())
    }

    fn add_exports(&mut self, root: &HostRoot) -> Result<(), HostError> {
        for export in exports::exports(root)? {
            let (by, remedy) = (export.by, export.remedy);
            if let Some(number) = root.number_of_node(&export.path) {
                self.users.push((number, Use::Exported { by, remedy }));
            } else if let Ok(meta) = fs::metadata(&export.path) {
                let device = DeviceNumber::from_raw(meta.dev());
                self.exported_files.push((device, meta.ino(), by));
            }
        }
        Ok(())
    }

    fn add_mounts(&mut self, root: &HostRoot, table: &MountTable, process: Option<u32>) {
        for mount in &table.mounts {
            for number in devices_of(root, mount) {
                let at = mount.at.clone();
                let fs_type = mount.fs_type.clone();
                let used = match process {
                    None => Use::Mounted { at, fs_type },
                    Some(process) => Use::MountedElsewhere {
                        at,
                        fs_type,
                        process,
                    },
                };
                self.users.push((number, used));
            }
        }
    }

    /// Containers mount what this namespace does not show. Best effort: without privilege
    /// only processes of the same user can be asked; `O_EXCL` is the last line of defence.
    fn add_other_namespaces(&mut self, root: &HostRoot) {
        let namespace = |dir: &Path| fs::read_link(dir.join("ns/mnt")).ok();
        let mut seen: BTreeSet<PathBuf> = namespace(&root.proc.join("self")).into_iter().collect();
        for process in names(&root.proc)
            .iter()
            .filter_map(|n| n.parse::<u32>().ok())
        {
            let dir = root.proc.join(process.to_string());
            let Some(id) = namespace(&dir) else { continue };
            if seen.insert(id)
                && let Ok(table) = MountTable::read_from(&dir.join("mountinfo"))
            {
                self.add_mounts(root, &table, Some(process));
            }
        }
    }

    fn add_swaps(&mut self, root: &HostRoot) -> Result<(), HostError> {
        for swap in read_swaps(root)? {
            if let Some(number) = root.number_of_node(&swap.path) {
                self.users.push((number, Use::Swap));
            } else if let Ok(meta) = fs::metadata(&swap.path) {
                let device = DeviceNumber::from_raw(meta.dev());
                self.swap_files.push((device, meta.ino(), swap.path));
            }
        }
        Ok(())
    }

    /// File systems list their devices in `/sys/fs`, also those that the mount table does
    /// not name: the other members of a btrfs or bcachefs, mounts of other namespaces.
    fn add_members(&mut self, root: &HostRoot, graph: &Graph) {
        let base = root.sys.join("fs");
        for fs_type in names(&base) {
            for id in names(&base.join(&fs_type)) {
                let dir = base.join(&fs_type).join(&id);
                let mut members = names(&dir.join("devices"));
                members.extend(
                    names(&dir)
                        .iter()
                        .filter(|n| n.starts_with("dev-"))
                        .filter_map(|n| {
                            let real = fs::canonicalize(dir.join(n).join("block")).ok()?;
                            Some(real.file_name()?.to_str()?.to_string())
                        }),
                );
                // ext4, xfs, f2fs, erofs: the directory is named after the device.
                members.push(id.clone());
                for node in members.iter().filter_map(|m| graph.get(m)) {
                    let used = Use::ActiveFileSystem {
                        fs_type: fs_type.clone(),
                        id: id.clone(),
                    };
                    self.users.push((node.number, used));
                }
            }
        }
    }

    fn add_loops(&mut self, graph: &Graph) {
        for node in graph.nodes.values() {
            if let Some(number) = node.loop_backing.and_then(|b| b.block) {
                let name = node.name.clone();
                self.users.push((number, Use::LoopDevice { name }));
            }
        }
    }
}

/// Every block device that a mount names: by its number, as its source, or as a further
/// device in its options (xfs log and real-time devices, btrfs `device=`).
fn devices_of(root: &HostRoot, mount: &Mount) -> BTreeSet<DeviceNumber> {
    let mut numbers = BTreeSet::new();
    if !mount.device.is_anonymous() {
        numbers.insert(mount.device);
    }
    let source = mount.source.to_string_lossy();
    let further = ["logdev", "rtdev", "device", "journal_path"]
        .iter()
        .filter_map(|name| mount.super_option(name));
    for path in source.split(':').chain(further) {
        // Only paths: `tmpfs` or `pool/data` name no node.
        if path.starts_with('/') {
            numbers.extend(root.number_of_node(Path::new(path)));
        }
    }
    numbers
}

/// What a holder is, in the words of its own tools.
fn holder_kind(root: &HostRoot, name: &str) -> String {
    let dir = root.sys.join("class/block").join(name);
    if let Some(dm) = text(&dir.join("dm/name")) {
        let uuid = text(&dir.join("dm/uuid")).unwrap_or_default();
        let kind = match uuid.split('-').next() {
            Some("LVM") => "LVM volume",
            Some("CRYPT") => "encrypted volume",
            Some("mpath") => "multipath device",
            _ => "device-mapper device",
        };
        return format!("{kind} {dm}");
    }
    if let Some(level) = text(&dir.join("md/level")) {
        return format!("software RAID {level}");
    }
    let kind = name.trim_end_matches(|c: char| c.is_ascii_digit());
    format!("{kind} device")
}
