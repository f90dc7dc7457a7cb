//! The verdict on a block device: is there anything, on it or on a relative of it, that a
//! write would destroy?
//!
//! Relatives are found by sysfs and compared by device number, never by path strings: disk
//! and partitions, holders, what the device is made of, other paths to the same device, and
//! loop devices of the same file. What a loop device does not show of its file or device is
//! looked at too: a write inside destroys what lies around.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use fathom_files::open;

use crate::devices::Use;
use crate::devices::attached;
use crate::devices::graph::{Graph, Node};
use crate::devices::occupancy::Occupancy;
use crate::purge::state;
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

/// What a relative may carry by right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Content {
    Nothing,
    /// The disk of a partition has a partition table, but may not be, for instance, a member of
    /// a RAID that is not assembled at the moment.
    Table,
    /// A member says to whom it belongs; other paths to a disk show the same bytes once more.
    Anything,
}

impl Content {
    fn allows(self, class: SignatureClass) -> bool {
        match self {
            Self::Nothing => false,
            Self::Table => class == SignatureClass::PartitionTable,
            Self::Anything => true,
        }
    }

    /// What may be on the partitions of a relative that may carry this itself. Those beside a
    /// partition that is to be written have its content as their own affair.
    fn of_partitions(self) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::Table | Self::Anything => Self::Anything,
        }
    }
}

/// A relative, how it is one, and what it may carry.
type Relative<'a> = (&'a Node, Relation, Content);

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
    not_shared(root, graph, node, device)?;
    blank(root, graph, node, device)
}

/// No other machine can reach a namespace through a controller that this one does not have.
pub(crate) fn not_shared(
    root: &HostRoot,
    graph: &Graph,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    let controllers = attached::elsewhere(root, graph.disk_of(node));
    if controllers.is_empty() {
        return Ok(());
    }
    let device = device.to_path_buf();
    Err(Refusal::AttachedElsewhere {
        device,
        controllers,
    })
}

/// Nobody uses the device or a relative at this moment.
pub(crate) fn unused(
    root: &HostRoot,
    graph: &Graph,
    occupancy: &Occupancy,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    for (relative, relation, _) in relatives(graph, node) {
        let place = || place(root, relative, relation, device);
        let path = relative.path(root);
        for used in occupancy.of(root, relative) {
            if let Some(refusal) = refuse(used, relation, node, &path, place) {
                return Err(refusal);
            }
        }
        if let Some(backing) = relative.loop_backing
            && let Some(by) = occupancy.exported_file(backing.device, backing.inode)
        {
            return Err(Refusal::Exported {
                place: place(),
                by: by.to_string(),
                remedy: "end that first".to_string(),
            });
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

/// Nothing is recognised on the device, its partitions, its disk, or what a loop device is made of.
pub(crate) fn blank(
    root: &HostRoot,
    graph: &Graph,
    node: &Node,
    device: &Path,
) -> Result<(), Refusal> {
    for (relative, relation, may_hold) in relatives(graph, node) {
        if may_hold == Content::Anything {
            continue;
        }
        let path = relative.path(root);
        let unreadable = |path: &Path, e: &std::io::Error| match e.raw_os_error() {
            _ if let Some(why) = state::why_silent(path) => Refusal::Emptying {
                device: path.into(),
                why,
            },
            Some(libc::EACCES | libc::EPERM) => Refusal::Permission { path: path.into() },
            _ => Refusal::Unproven {
                path: device.to_path_buf(),
                why: format!("cannot read {}: {e}", path.display()),
            },
        };
        let refuse = |s: &Signature, place, wipe: &Path| Refusal::Signature {
            place,
            what: s.to_string(),
            offset: s.offset,
            wipe: wipe.into(),
        };
        let on_it = look(root, graph, relative).map_err(|e| unreadable(&path, &e))?;
        if let Some(s) = on_it.iter().find(|s| !may_hold.allows(s.class)) {
            let place = place(root, relative, relation, device);
            return Err(refuse(s, place, &path));
        }
        let Some(file) = &relative.loop_file else {
            continue;
        };
        let around = look_behind(root, relative, file).map_err(|e| unreadable(file, &e))?;
        if let Some(s) = around.iter().find(|s| !may_hold.allows(s.class)) {
            let place = Place {
                device: device.to_path_buf(),
                relative: Some(format!(
                    "the file behind {}, {},",
                    path.display(),
                    file.display()
                )),
            };
            return Err(refuse(s, place, file));
        }
    }
    Ok(())
}

/// Signatures of the file that a loop device is made of, where it shows only a part of it.
fn look_behind(root: &HostRoot, node: &Node, path: &Path) -> std::io::Result<Vec<Signature>> {
    let backing = node.loop_backing;
    if backing.is_some_and(|b| b.block.is_some()) || root.number_of_node(path).is_some() {
        return Ok(Vec::new());
    }
    let opened = open::for_reading(path, 0).and_then(|file| {
        let meta = file.metadata()?;
        let identity = (DeviceNumber::from_raw(meta.dev()), meta.ino());
        match backing {
            Some(b) if meta.is_file() && (b.device, b.inode) == identity => Ok((file, meta.len())),
            _ => Err(std::io::Error::other("the path leads to something else")),
        }
    });
    let (file, size) = match opened {
        Ok(opened) => opened,
        // Removed, or seen from another mount namespace: it shows all that there was when it was made.
        Err(_) if node.loop_part == (0, 0) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    if node.loop_part.0 == 0 && size / 512 * 512 <= node.size_bytes {
        return Ok(Vec::new());
    }
    signature::scan(&file, size)
}

/// Signatures of a device; of a partition without a node (in containers) through its disk.
fn look(root: &HostRoot, graph: &Graph, node: &Node) -> std::io::Result<Vec<Signature>> {
    match open_node(root, node) {
        Ok(file) => signature::on_medium(&file, node.size_bytes),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && node.parent.is_some() => {
            let disk = open_node(root, graph.disk_of(node))?;
            signature::of_part(&disk, node.start_bytes, node.size_bytes)
        }
        Err(e) => Err(e),
    }
}

/// Opens a device's node under `/dev`, and makes sure that it leads to that device.
fn open_node(root: &HostRoot, node: &Node) -> std::io::Result<File> {
    let file = open::for_reading(&node.path(root), 0)?;
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

/// The device and everything whose use or content forbids writing to it, each once.
fn relatives<'a>(graph: &'a Graph, node: &'a Node) -> Vec<Relative<'a>> {
    let mut found = vec![(node, Relation::Itself, Content::Nothing)];
    let partitions = |of: &'a Node| of.partitions.iter().filter_map(|name| graph.get(name));
    found.extend(partitions(node).map(|n| (n, Relation::Partition, Content::Nothing)));
    below(graph, node, &mut found);
    let mut twins = Vec::new();
    for (relative, _, may_hold) in &found {
        for twin in graph.nodes.values() {
            // Loop devices show different parts; paths to one disk show the same bytes.
            let may_hold = match (same_disk(relative, twin), same_file(relative, twin)) {
                (false, false) => continue,
                (true, _) => Content::Anything,
                (false, true) => *may_hold,
            };
            twins.push((twin, Relation::Twin, may_hold));
            let inside = may_hold.of_partitions();
            twins.extend(partitions(twin).map(|n| (n, Relation::Twin, inside)));
        }
    }
    found.extend(twins);
    let mut seen = BTreeSet::new();
    found.retain(|(n, ..)| seen.insert(n.name.clone()));
    found
}

/// What a device is made of, down to the disks.
fn below<'a>(graph: &'a Graph, node: &'a Node, found: &mut Vec<Relative<'a>>) {
    let mut open = vec![(node, Relation::Itself, Content::Nothing)];
    let mut seen = BTreeSet::from([node.name.clone()]);
    while let Some((upper, above, may_hold)) = open.pop() {
        let slaves = upper
            .slaves
            .iter()
            .map(|name| (graph.get(name), Relation::MadeOf, Content::Anything));
        let looped = upper
            .loop_backing
            .and_then(|b| b.block)
            .map(|number| (graph.by_number(number), Relation::LoopedDevice, may_hold));
        let disk = upper.parent.iter().map(|name| {
            let (relation, may_hold) = match above {
                Relation::MadeOf => (Relation::MadeOf, Content::Anything),
                _ if may_hold == Content::Anything => (Relation::Disk, Content::Anything),
                _ => (Relation::Disk, Content::Table),
            };
            (graph.get(name), relation, may_hold)
        });
        for (lower, relation, may_hold) in slaves.chain(looped).chain(disk) {
            let Some(lower) = lower else { continue };
            if seen.insert(lower.name.clone()) {
                found.push((lower, relation, may_hold));
                // A disk looped as a whole brings its partitions into play.
                if relation == Relation::LoopedDevice {
                    let parts = lower.partitions.iter().filter_map(|n| graph.get(n));
                    found.extend(parts.map(|n| (n, relation, may_hold.of_partitions())));
                }
                open.push((lower, relation, may_hold));
            }
        }
    }
}

/// Whether two nodes are two paths to one disk: the same world-wide name and size.
fn same_disk(a: &Node, b: &Node) -> bool {
    a.name != b.name && a.wwid.is_some() && a.wwid == b.wwid && a.size_bytes == b.size_bytes
}

/// Whether two nodes are loop devices of one file or device.
fn same_file(a: &Node, b: &Node) -> bool {
    a.name != b.name
        && match (a.loop_backing, b.loop_backing) {
            (Some(x), Some(y)) => match (x.block, y.block) {
                (Some(p), Some(q)) => p == q,
                (None, None) => x.inode != 0 && (x.device, x.inode) == (y.device, y.inode),
                _ => false,
            },
            _ => a.loop_file.is_some() && a.loop_file == b.loop_file,
        }
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
        Use::Exported { by, remedy } => Some(Refusal::Exported {
            place: place(),
            by,
            remedy,
        }),
        // Whoever writes to the disk of a partition may write to the partition.
        Use::OpenForWriting { process, program } => Some(Refusal::OpenForWriting {
            place: place(),
            process,
            program,
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
