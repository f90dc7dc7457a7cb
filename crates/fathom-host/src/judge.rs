//! The verdict on a block device: is there anything, on it or on a relative of it, that a
//! write would destroy?
//!
//! Relatives are found by sysfs and compared by device number, never by path strings: disk
//! and partitions, holders, what the device is made of, other paths to the same device, and
//! loop devices of the same file.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use crate::devices::graph::{Graph, Node};
use crate::devices::occupancy::Occupancy;
use crate::devices::{Use, open_to_look};
use crate::refusal::{Place, Refusal};
use crate::root::{DeviceNumber, HostRoot};
use crate::signature::{self, Signature, SignatureClass};

/// How a device is related to the one that is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Relation {
    Itself,
    Partition,
    Disk,
    /// A device that it is made of. That the device itself (and, with LVM, its siblings)
    /// hold that one is no obstacle.
    MadeOf,
    /// What a loop device is made of. Unlike [`Relation::MadeOf`] it has no other holder by
    /// right.
    LoopedDevice,
    /// Another path to the same bytes.
    Twin,
}

/// `Ok` where nothing stands in the way of writing except the confirmation.
///
/// `device` is the name to use in sentences.
pub(crate) fn judge(
    root: &HostRoot,
    graph: &Graph,
    occupancy: &Occupancy,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    unused(root, graph, occupancy, node, device)?;
    writable(graph, node, device)?;
    blank(root, graph, node, device)
}

/// Nobody uses the device or a relative at this moment.
pub(crate) fn unused(
    root: &HostRoot,
    graph: &Graph,
    occupancy: &Occupancy,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    for (relative, relation) in relatives(graph, node) {
        let place = || place(root, relative, relation, device);
        let path = relative.path(root);
        for used in occupancy.of(root, relative) {
            if let Some(refusal) = refuse(used, relation, node, &path, place) {
                return Err(refusal);
            }
        }
        // A swap file inside the file that a loop device is made of cannot be seen, but the
        // file itself may be one.
        if let Some(backing) = relative.loop_backing
            && let Some(file) = occupancy.swap_file(backing.device, backing.inode)
        {
            return Err(Refusal::Swap {
                place: place(),
                swap: file.to_path_buf(),
            });
        }
    }
    Ok(())
}

/// The device takes writes at all.
pub(crate) fn writable(graph: &Graph, node: &Node, device: &Path) -> Result<(), Refusal> {
    let path = device.to_path_buf();
    if node.size_bytes == 0 {
        return Err(Refusal::Empty { path });
    }
    if node.read_only || graph.disk_of(node).read_only {
        return Err(Refusal::ReadOnly { path });
    }
    Ok(())
}

/// Nothing is recognised on the device, its partitions or, for a partition, its disk.
pub(crate) fn blank(
    root: &HostRoot,
    graph: &Graph,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    for (relative, relation) in relatives(graph, node) {
        // The disk of a partition has a partition table by right, but may not be, for
        // instance, a member of a RAID that is not assembled at the moment.
        let allowed = match relation {
            Relation::Itself | Relation::Partition => None,
            Relation::Disk => Some(SignatureClass::PartitionTable),
            // The same bytes under other names, and members of what is to be written.
            Relation::MadeOf | Relation::LoopedDevice | Relation::Twin => continue,
        };
        let path = relative.path(root);
        let found = look(root, graph, relative).map_err(|e| match e.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Refusal::Permission { path: path.clone() },
            _ => Refusal::Unproven {
                path: device.to_path_buf(),
                why: format!("cannot read {}: {e}", path.display()),
            },
        })?;
        if let Some(s) = found.iter().find(|s| Some(s.class) != allowed) {
            return Err(Refusal::Signature {
                place: place(root, relative, relation, device),
                what: s.to_string(),
                offset: s.offset,
                wipe: path,
            });
        }
    }
    Ok(())
}

/// Signatures of a device; of a partition without a node (in containers) through its disk.
fn look(root: &HostRoot, graph: &Graph, node: &Node) -> std::io::Result<Vec<Signature>> {
    match open_node(root, node) {
        Ok(file) => signature::scan(&file, node.size_bytes),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && node.parent.is_some() => {
            let disk = open_node(root, graph.disk_of(node))?;
            let window = Window {
                disk: &disk,
                start: node.start_bytes,
            };
            signature::scan(&window, node.size_bytes)
        }
        Err(e) => Err(e),
    }
}

/// Opens a device's node under `/dev`, and makes sure that it leads to that device.
fn open_node(root: &HostRoot, node: &Node) -> std::io::Result<File> {
    let file = open_to_look(&node.path(root))?;
    let meta = file.metadata()?;
    // In a described machine nodes are plain files; on this one they never may be.
    let leads_there = if meta.file_type().is_block_device() {
        DeviceNumber::from_raw(meta.rdev()) == node.number
    } else {
        *root != HostRoot::real() && meta.is_file()
    };
    if leads_there {
        Ok(file)
    } else {
        Err(std::io::Error::other("the node leads to something else"))
    }
}

/// A partition seen through its disk.
struct Window<'a> {
    disk: &'a File,
    start: u64,
}

impl signature::ReadAt for Window<'_> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        signature::ReadAt::read_at(self.disk, buffer, self.start.saturating_add(offset))
    }
}

/// The device and everything whose use forbids writing to it, each once.
fn relatives<'a>(graph: &'a Graph, node: &'a Node) -> Vec<(&'a Node, Relation)> {
    let mut found = vec![(node, Relation::Itself)];
    let get = |name: &String| graph.get(name);
    found.extend(
        node.partitions
            .iter()
            .filter_map(get)
            .map(|n| (n, Relation::Partition)),
    );
    below(graph, node, &mut found);
    let twins: Vec<&Node> = found
        .iter()
        .flat_map(|(relative, _)| {
            graph
                .nodes
                .values()
                .filter(|other| same_bytes(relative, other))
        })
        .collect();
    for twin in twins {
        found.push((twin, Relation::Twin));
        found.extend(
            twin.partitions
                .iter()
                .filter_map(get)
                .map(|n| (n, Relation::Twin)),
        );
    }
    let mut seen = BTreeSet::new();
    found.retain(|(n, _)| seen.insert(n.name.clone()));
    found
}

/// What a device is made of, down to the disks.
fn below<'a>(graph: &'a Graph, node: &'a Node, found: &mut Vec<(&'a Node, Relation)>) {
    let mut open = vec![node];
    let mut seen = BTreeSet::from([node.name.clone()]);
    while let Some(upper) = open.pop() {
        let slaves = upper
            .slaves
            .iter()
            .map(|name| (graph.get(name), Relation::MadeOf));
        let looped = upper
            .loop_backing
            .and_then(|b| b.block)
            .map(|number| (graph.by_number(number), Relation::LoopedDevice));
        let disk = upper.parent.iter().map(|name| {
            let relation = if upper.name == node.name {
                Relation::Disk
            } else {
                Relation::MadeOf
            };
            (graph.get(name), relation)
        });
        for (lower, relation) in slaves.chain(looped).chain(disk) {
            let Some(lower) = lower else { continue };
            if seen.insert(lower.name.clone()) {
                found.push((lower, relation));
                // A disk looped as a whole brings its partitions into play.
                if relation == Relation::LoopedDevice {
                    let parts = lower.partitions.iter().filter_map(|n| graph.get(n));
                    found.extend(parts.map(|n| (n, Relation::LoopedDevice)));
                }
                open.push(lower);
            }
        }
    }
}

/// Whether two nodes are ways to the same bytes: two paths to one disk (same world-wide
/// name and size), or two loop devices of one file.
fn same_bytes(a: &Node, b: &Node) -> bool {
    if a.name == b.name {
        return false;
    }
    let same_disk = a.wwid.is_some() && a.wwid == b.wwid && a.size_bytes == b.size_bytes;
    let same_file = match (a.loop_backing, b.loop_backing) {
        (Some(x), Some(y)) => match (x.block, y.block) {
            (Some(p), Some(q)) => p == q,
            (None, None) => x.inode != 0 && (x.device, x.inode) == (y.device, y.inode),
            _ => false,
        },
        _ => a.loop_file.is_some() && a.loop_file == b.loop_file,
    };
    same_disk || same_file
}

fn refuse(
    used: Use,
    relation: Relation,
    target: &Node,
    path: &Path,
    place: impl Fn() -> Place,
) -> Option<Refusal> {
    match used {
        Use::Mounted { at, .. } => Some(Refusal::Mounted { place: place(), at }),
        Use::MountedElsewhere { at, process, .. } => Some(Refusal::MountedElsewhere {
            place: place(),
            at,
            process,
        }),
        Use::Swap => Some(Refusal::Swap {
            place: place(),
            swap: path.to_path_buf(),
        }),
        Use::ActiveFileSystem { fs_type, id } => Some(Refusal::ActiveFileSystem {
            place: place(),
            fs_type,
            id,
        }),
        Use::Holder { .. } if relation == Relation::MadeOf => None,
        Use::Holder { name, .. } if name == target.name => None,
        Use::Holder { name, kind } => Some(Refusal::Held {
            place: place(),
            remedy: dissolve(&name, &kind),
            holder: name,
            kind,
        }),
        // The target may itself be that loop device; loops of one file were looked at as twins.
        Use::LoopDevice { .. }
            if matches!(
                relation,
                Relation::MadeOf | Relation::LoopedDevice | Relation::Twin
            ) =>
        {
            None
        }
        Use::LoopDevice { name } => Some(Refusal::Held {
            place: place(),
            remedy: format!("losetup -d /dev/{name}"),
            kind: "loop device".to_string(),
            holder: name,
        }),
        _ => None,
    }
}

/// The command that dissolves a holder.
fn dissolve(name: &str, kind: &str) -> String {
    let last = kind.rsplit(' ').next().unwrap_or(name);
    if kind.starts_with("LVM volume") {
        let group = last.split('-').next().unwrap_or(last);
        format!("vgchange -an {group}")
    } else if kind.starts_with("encrypted volume") {
        format!("cryptsetup close {last}")
    } else if kind.starts_with("multipath device") {
        format!("test /dev/mapper/{last} instead, or multipath -f {last}")
    } else if kind.starts_with("device-mapper") {
        format!("dmsetup remove {last}")
    } else if kind.starts_with("software RAID") {
        format!("mdadm --stop /dev/{name}")
    } else {
        format!("stop /dev/{name}")
    }
}

fn place(root: &HostRoot, relative: &Node, relation: Relation, device: &Path) -> Place {
    let path = relative.path(root);
    let path = path.display();
    let relative = match relation {
        Relation::Itself => None,
        Relation::Partition => Some(format!("its partition {path}")),
        Relation::Disk => Some(format!("its disk {path}")),
        Relation::MadeOf => Some(format!("its member {path}")),
        Relation::LoopedDevice => Some(format!("the device behind it, {path},")),
        Relation::Twin => Some(format!("another name for the same bytes, {path},")),
    };
    Place {
        device: device.to_path_buf(),
        relative,
    }
}
