//! What the device itself has counted: reads, writes, discards, flushes, busy time.
//!
//! The only witness that is independent of fathom: it tells whether the page cache answered
//! instead of the device, and whether others used the device meanwhile. Field names are
//! those of the run's `device` record.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde::Serialize;

mod below;

pub use below::Below;

use crate::devices::graph::{Graph, Node};
use crate::mounts::{Mount, MountTable};
use crate::root::{DeviceNumber, HostRoot, flag, names};

/// Why nothing counts the I/O of a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum NoCounters {
    /// tmpfs and the like.
    #[error("{fs_type} lives in memory, so no device counts its I/O")]
    Memory {
        /// File system.
        fs_type: String,
    },
    /// NFS, SMB, Ceph, FUSE, …
    #[error("{fs_type} is served by another machine or process, so no device here counts its I/O")]
    Remote {
        /// File system.
        fs_type: String,
    },
    /// The file system does not say on which device it lies (overlay of an unseen layer, ZFS).
    #[error("{fs_type} does not tell on which device {} lies", path.display())]
    Hidden {
        /// File system.
        fs_type: String,
        /// The path.
        path: PathBuf,
    },
    /// Counting is switched off.
    #[error(
        "{device} does not count its I/O; switch that on: echo 1 > /sys/block/{device}/queue/iostats"
    )]
    SwitchedOff {
        /// Kernel name.
        device: String,
    },
    /// The path or the kernel's tables could not be read.
    #[error("cannot find the device behind {}: {why}", path.display())]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
}

/// The devices behind a path, ready to be read again and again.
#[derive(Debug)]
pub struct CounterSource {
    name: String,
    disk: String,
    stats: Vec<File>,
    below: Below,
}

/// Kernel names of the whole disks behind a file, a directory or a device node, whether they count or
/// not; none for memory and networks.
pub fn disks_behind(path: &Path) -> Vec<String> {
    let root = HostRoot::real();
    let Ok(graph) = Graph::read(&root) else {
        return Vec::new();
    };
    let nodes = devices_behind(&root, &graph, path, 0).unwrap_or_default();
    let mut disks: Vec<String> = nodes
        .iter()
        .map(|n| graph.disk_of(n).name.clone())
        .collect();
    disks.dedup();
    disks
}

impl CounterSource {
    /// Finds the device behind a file, a directory or a device node.
    ///
    /// A partition has its own counters. Of a file system on several devices (btrfs) the
    /// sum is told.
    pub fn locate(path: &Path) -> Result<Self, NoCounters> {
        Self::locate_in(&HostRoot::real(), path)
    }

    /// The same on a machine described by other trees.
    ///
    /// # Errors
    /// Where nothing counts its I/O.
    pub fn locate_in(root: &HostRoot, path: &Path) -> Result<Self, NoCounters> {
        let unreadable = |why: String| NoCounters::Unreadable {
            path: path.to_path_buf(),
            why,
        };
        let graph = Graph::read(root).map_err(|e| unreadable(e.to_string()))?;
        let nodes = devices_behind(root, &graph, path, 0)?;
        for node in &nodes {
            counting(graph.disk_of(node))?;
        }
        let mut disks: Vec<&str> = nodes
            .iter()
            .map(|n| graph.disk_of(n).name.as_str())
            .collect();
        disks.dedup();
        Ok(Self {
            name: joined(&nodes),
            disk: disks.join("+"),
            stats: open_stats(&graph, &nodes).map_err(|e| unreadable(e.to_string()))?,
            below: Below::find(root, &graph, &nodes),
        })
    }

    /// Kernel name of the device whose counters these are: `sda1`, or `sda1+sdb1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Kernel name of the whole disk: `sda`.
    pub fn disk(&self) -> &str {
        &self.disk
    }

    /// The counters now. Costs a few microseconds, so it may be read per window.
    pub fn read(&self) -> io::Result<Counters> {
        sum(&self.name, &self.stats)
    }

    /// What the device is made of.
    pub fn below(&self) -> &Below {
        &self.below
    }

    /// The counters of what it is made of, one for each step down; empty where it is made of nothing else.
    ///
    /// # Errors
    /// Where they cannot be read any more.
    pub fn read_below(&self) -> io::Result<Vec<Counters>> {
        self.below.read()
    }
}

/// `sda1`, or `sda1+sdb1`.
fn joined(nodes: &[&Node]) -> String {
    let names: Vec<&str> = nodes.iter().map(|n| n.name.as_str()).collect();
    names.join("+")
}

/// An error where the disk does not count.
fn counting(disk: &Node) -> Result<(), NoCounters> {
    match counted_at(disk, disk)
        .iter()
        .find(|dir| flag(&dir.join("queue/iostats")) == Some(false))
    {
        Some(dir) => Err(NoCounters::SwitchedOff {
            device: dir
                .file_name()
                .map_or_else(|| disk.name.clone(), |n| n.to_string_lossy().into_owned()),
        }),
        None => Ok(()),
    }
}

/// Where a device's I/O is counted: at itself, but below NVMe's native multipath at the paths, as a whole. The head counts
/// nothing up to Linux 6.8 or so, and its partitions never do.
fn counted_at<'a>(node: &'a Node, disk: &'a Node) -> Vec<&'a Path> {
    if disk.paths.is_empty() {
        vec![&node.dir]
    } else {
        disk.paths.iter().map(PathBuf::as_path).collect()
    }
}

fn open_stats(graph: &Graph, nodes: &[&Node]) -> io::Result<Vec<File>> {
    nodes
        .iter()
        .flat_map(|n| counted_at(n, graph.disk_of(n)))
        .map(|dir| File::open(dir.join("stat")))
        .collect()
}

/// What several devices have counted together.
fn sum(name: &str, stats: &[File]) -> io::Result<Counters> {
    let mut sum = Counters {
        name: name.to_owned(),
        ..Counters::default()
    };
    for stat in stats {
        let mut buffer = [0u8; 512];
        let n = stat.read_at(&mut buffer, 0)?;
        let text = String::from_utf8_lossy(&buffer[..n]);
        let one = Counters::parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("the statistics of {name} are not understood: {text:?}"),
            )
        })?;
        sum.add(&one);
    }
    Ok(sum)
}

/// Totals since the device appeared (Documentation/block/stat.rst).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Kernel name.
    pub name: String,
    /// Reads completed.
    pub read_ios: u64,
    /// Reads merged.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// ms of all reads.
    pub read_ticks_ms: u64,
    /// Writes completed.
    pub write_ios: u64,
    /// Writes merged.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// ms of all writes.
    pub write_ticks_ms: u64,
    /// Discards completed.
    pub discard_ios: u64,
    /// Discards merged.
    pub discard_merges: u64,
    /// Bytes discarded.
    pub discard_bytes: u64,
    /// ms of all discards.
    pub discard_ticks_ms: u64,
    /// Flushes completed (whole disks only).
    pub flush_ios: u64,
    /// ms of all flushes.
    pub flush_ticks_ms: u64,
    /// ms with at least one request in flight (summed over devices).
    pub busy_ms: u64,
}

impl Counters {
    /// The counters of the device behind a path.
    pub fn read(path: &Path) -> Result<Self, NoCounters> {
        CounterSource::locate(path)?
            .read()
            .map_err(|e| NoCounters::Unreadable {
                path: path.to_path_buf(),
                why: e.to_string(),
            })
    }

    /// Parses a `stat` file: 11 numbers, 15 since Linux 4.18, 17 since 5.5.
    pub fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()
            .ok()?;
        if fields.len() < 11 {
            return None;
        }
        // The newer fields are absent, thus nothing was counted in them, on old kernels.
        let n = |i: usize| fields.get(i).copied().unwrap_or(0);
        let sectors = |i: usize| n(i).saturating_mul(512);
        Some(Self {
            name: String::new(),
            read_ios: n(0),
            read_merges: n(1),
            read_bytes: sectors(2),
            read_ticks_ms: n(3),
            write_ios: n(4),
            write_merges: n(5),
            write_bytes: sectors(6),
            write_ticks_ms: n(7),
            busy_ms: n(9),
            discard_ios: n(11),
            discard_merges: n(12),
            discard_bytes: sectors(13),
            discard_ticks_ms: n(14),
            flush_ios: n(15),
            flush_ticks_ms: n(16),
        })
    }

    /// What was counted between `earlier` and `self`. The kernel's counters only grow; a
    /// smaller one (device replaced) yields 0.
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, u64::saturating_sub)
    }

    fn add(&mut self, other: &Self) {
        *self = self.combine(other, u64::saturating_add);
    }

    fn combine(&self, other: &Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            name: self.name.clone(),
            read_ios: f(self.read_ios, other.read_ios),
            read_merges: f(self.read_merges, other.read_merges),
            read_bytes: f(self.read_bytes, other.read_bytes),
            read_ticks_ms: f(self.read_ticks_ms, other.read_ticks_ms),
            write_ios: f(self.write_ios, other.write_ios),
            write_merges: f(self.write_merges, other.write_merges),
            write_bytes: f(self.write_bytes, other.write_bytes),
            write_ticks_ms: f(self.write_ticks_ms, other.write_ticks_ms),
            discard_ios: f(self.discard_ios, other.discard_ios),
            discard_merges: f(self.discard_merges, other.discard_merges),
            discard_bytes: f(self.discard_bytes, other.discard_bytes),
            discard_ticks_ms: f(self.discard_ticks_ms, other.discard_ticks_ms),
            flush_ios: f(self.flush_ios, other.flush_ios),
            flush_ticks_ms: f(self.flush_ticks_ms, other.flush_ticks_ms),
            busy_ms: f(self.busy_ms, other.busy_ms),
        }
    }
}

/// The device (of btrfs: devices) on which a path lies. `depth` bounds overlays on overlays.
pub(crate) fn devices_behind<'a>(
    root: &HostRoot,
    graph: &'a Graph,
    path: &Path,
    depth: u32,
) -> Result<Vec<&'a Node>, NoCounters> {
    let unreadable = |why: String| NoCounters::Unreadable {
        path: path.to_path_buf(),
        why,
    };
    let meta = fs::metadata(path).map_err(|e| unreadable(e.to_string()))?;
    let number = if meta.file_type().is_block_device() {
        DeviceNumber::from_raw(meta.rdev())
    } else {
        DeviceNumber::from_raw(meta.dev())
    };
    if let Some(node) = graph.by_number(number) {
        return Ok(vec![node]);
    }
    let table = MountTable::read(root).map_err(|e| unreadable(e.to_string()))?;
    let mount = table
        .containing(path)
        .ok_or_else(|| unreadable("no mount holds it".to_string()))?;
    if let Some(node) = graph.by_number(mount.device) {
        return Ok(vec![node]);
    }
    let fs_type = mount.fs_type.clone();
    match fs_type.as_str() {
        "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" | "proc" | "sysfs" => {
            Err(NoCounters::Memory { fs_type })
        }
        "overlay" if depth < 4 => match mount.super_option("upperdir") {
            // Inside a container the upper layer's path usually leads nowhere.
            Some(upper) if Path::new(upper).is_dir() => {
                devices_behind(root, graph, Path::new(upper), depth + 1)
            }
            _ => Err(hidden(fs_type, path)),
        },
        t if is_remote(t) => Err(NoCounters::Remote { fs_type }),
        _ => match members(root, graph, mount) {
            nodes if nodes.is_empty() => Err(hidden(fs_type, path)),
            nodes => Ok(nodes),
        },
    }
}

fn hidden(fs_type: String, path: &Path) -> NoCounters {
    NoCounters::Hidden {
        fs_type,
        path: path.to_path_buf(),
    }
}

fn is_remote(fs_type: &str) -> bool {
    const REMOTE: &[&str] = &[
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "ceph",
        "9p",
        "virtiofs",
        "afs",
        "glusterfs",
        "lustre",
    ];
    REMOTE.contains(&fs_type) || fs_type == "fuse" || fs_type.starts_with("fuse.")
}

/// Devices of a file system with an anonymous number: those named as its source, and, for
/// btrfs, all that the kernel lists beside that one.
fn members<'a>(root: &HostRoot, graph: &'a Graph, mount: &Mount) -> Vec<&'a Node> {
    let named: Vec<&Node> = mount
        .source
        .to_string_lossy()
        .split(':')
        .filter(|p| p.starts_with('/'))
        .filter_map(|p| graph.by_number(root.number_of_node(Path::new(p))?))
        .collect();
    let base = root.sys.join("fs").join(&mount.fs_type);
    for id in names(&base) {
        let listed: Vec<&Node> = names(&base.join(&id).join("devices"))
            .iter()
            .filter_map(|n| graph.get(n))
            .collect();
        if named
            .iter()
            .any(|n| listed.iter().any(|l| l.name == n.name))
        {
            return listed;
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "  100 2 8000 30  50 4 16000 60 1 70 90 5 6 4096 7 11 12\n";

    #[test]
    fn all_seventeen_fields_land_where_they_belong() {
        let c = Counters::parse(LINE).unwrap();
        assert_eq!((c.read_ios, c.read_merges, c.read_ticks_ms), (100, 2, 30));
        assert_eq!((c.read_bytes, c.write_bytes), (8000 * 512, 16000 * 512));
        assert_eq!((c.write_ios, c.write_merges, c.write_ticks_ms), (50, 4, 60));
        assert_eq!((c.discard_ios, c.discard_bytes), (5, 4096 * 512));
        assert_eq!((c.flush_ios, c.flush_ticks_ms, c.busy_ms), (11, 12, 70));
    }

    #[test]
    fn old_kernels_with_eleven_fields_are_understood_and_less_is_not() {
        assert_eq!(
            Counters::parse("1 2 3 4 5 6 7 8 9 10 11")
                .unwrap()
                .flush_ios,
            0
        );
        assert_eq!(Counters::parse("1 2 3"), None);
        assert_eq!(Counters::parse("a b c d e f g h i j k"), None);
    }

    #[test]
    fn a_difference_is_taken_field_by_field_and_never_below_zero() {
        let earlier = Counters::parse(LINE).unwrap();
        let mut later = earlier.clone();
        later.read_ios += 7;
        later.write_bytes += 4096;
        later.busy_ms = 0;
        let delta = later.since(&earlier);
        assert_eq!((delta.read_ios, delta.write_bytes), (7, 4096));
        assert_eq!((delta.write_ios, delta.busy_ms), (0, 0));
    }

    #[test]
    fn memory_file_systems_have_no_counters_and_say_so() {
        assert_eq!(
            Counters::read(Path::new("/proc/version")),
            Err(NoCounters::Memory {
                fs_type: "proc".into()
            })
        );
        assert!(matches!(
            Counters::read(Path::new("/no/such/path")),
            Err(NoCounters::Unreadable { .. })
        ));
    }
}
