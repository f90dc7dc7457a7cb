//! What a path is, seen as a target: sizes, alignment, room.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use fathom_files::open;
use rustix::fs::{AtFlags, StatxFlags};
use serde::Serialize;

use crate::counters;
use crate::devices::graph::Graph;
use crate::devices::words;
use crate::mark::{self, Provenance};
use crate::mounts::MountTable;
use crate::refusal::Refusal;
use crate::root::{DeviceNumber, HostRoot, number};
use crate::signature;
use crate::space::{Space, space};

/// The file system that holds a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// `ext4`, `xfs`, `tmpfs`, …
    pub fs_type: String,
    /// Where it is mounted.
    pub mounted_at: PathBuf,
    /// What is mounted.
    pub source: PathBuf,
    /// Options of the mount.
    pub mount_options: Vec<String>,
    /// Options of the file system.
    pub super_options: Vec<String>,
    /// Whether writes fail.
    pub read_only: bool,
    /// Room.
    pub space: Space,
}

impl FileSystem {
    /// The file system that holds an existing path; `None` where the tables do not tell.
    pub fn holding(path: &Path) -> Option<Self> {
        let table = MountTable::read(&HostRoot::real()).ok()?;
        let mount = table.containing(path)?;
        Some(Self {
            fs_type: mount.fs_type.clone(),
            mounted_at: mount.at.clone(),
            source: mount.source.clone(),
            mount_options: mount.options.clone(),
            super_options: mount.super_options.clone(),
            read_only: mount.is_read_only(),
            space: space(path).ok()?,
        })
    }
}

/// What direct I/O asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct DirectIo {
    /// Alignment of buffers in memory, bytes.
    pub memory_align_bytes: u32,
    /// Alignment of offsets and lengths, bytes; 0 where direct I/O is not possible.
    pub offset_align_bytes: u32,
    /// Who said so.
    pub source: DirectIoSource,
}

impl DirectIo {
    /// Whether direct I/O is possible as far as known.
    pub fn is_supported(self) -> bool {
        self.offset_align_bytes != 0
    }
}

/// Where the alignment of direct I/O is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectIoSource {
    /// The kernel told it for this very file (statx, Linux 6.1).
    Statx,
    /// The logical block size of the device behind it.
    LogicalBlock,
    /// Nobody told: 4096, which satisfies all usual devices. Whether it works is unknown.
    Assumed,
}

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum TargetKind {
    /// A directory, for a scratch file.
    Directory {
        /// Without links.
        path: PathBuf,
        /// What holds it.
        file_system: Option<FileSystem>,
        /// Alignment to expect for files in it.
        direct: DirectIo,
    },
    /// A regular file.
    File {
        /// Without links.
        path: PathBuf,
        /// Its size in bytes.
        size_bytes: u64,
        /// Who made it.
        provenance: Provenance,
        /// What holds it.
        file_system: Option<FileSystem>,
        /// Its alignment.
        direct: DirectIo,
    },
    /// A block device.
    BlockDevice {
        /// Its node without links.
        path: PathBuf,
        /// Major and minor number.
        number: DeviceNumber,
        /// Its size in bytes.
        size_bytes: u64,
        /// Whether the kernel refuses writes.
        read_only: bool,
        /// Its alignment.
        direct: DirectIo,
    },
    /// Nothing there; a file could be made.
    Missing {
        /// As given.
        path: PathBuf,
        /// The directory that would hold it, where that exists.
        parent: Option<PathBuf>,
        /// What holds that directory.
        file_system: Option<FileSystem>,
    },
    /// Neither directory, file nor block device.
    Other {
        /// As given.
        path: PathBuf,
        /// `a character device`, …
        found: String,
    },
}

impl TargetKind {
    /// What it is, in words, where it is no block device.
    pub fn no_device(&self) -> Option<String> {
        match self {
            Self::BlockDevice { .. } => None,
            Self::Directory { .. } => Some("a directory".to_string()),
            Self::File { .. } => Some("a regular file".to_string()),
            Self::Missing { .. } => Some("not there".to_string()),
            Self::Other { found, .. } => Some(found.clone()),
        }
    }

    /// Whether it is, or would be, a file among the nodes of devices: one in memory, made by a typing error.
    fn lies_among_devices(&self) -> bool {
        let (at, file_system) = match self {
            Self::Missing {
                parent: Some(at),
                file_system,
                ..
            } => (at, file_system),
            Self::Directory {
                path: at,
                file_system,
                ..
            }
            | Self::File {
                path: at,
                file_system,
                ..
            } => (at, file_system),
            _ => return false,
        };
        let dev = Path::new("/dev");
        // What is mounted below (/dev/shm, /dev/hugepages) is somewhere else.
        let mounted = file_system.as_ref().map_or(dev, |f| &f.mounted_at);
        at.starts_with(dev)
            && !at.starts_with("/dev/shm")
            && (mounted == dev || !mounted.starts_with(dev))
    }
}

/// Looks at a path. An error where the system does not let fathom look, and for a name under `/dev` that no device has.
pub fn probe_target(path: &Path) -> Result<TargetKind, Refusal> {
    let kind = look_at(path)?;
    if kind.lies_among_devices() {
        return Err(Refusal::NoDevice {
            path: path.to_path_buf(),
            found: kind.no_device().unwrap_or_default(),
        });
    }
    Ok(kind)
}

fn look_at(path: &Path) -> Result<TargetKind, Refusal> {
    let meta = match fs::metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return match words::node_of_map(&HostRoot::real(), path) {
                Some(node) => look_at(&node),
                None => Ok(missing(path)),
            };
        }
        Err(e) => return Err(Refusal::from_io("look at", path, &e)),
    };
    let real = fs::canonicalize(path).map_err(|e| Refusal::from_io("look at", path, &e))?;
    let kind = meta.file_type();
    if kind.is_dir() {
        Ok(TargetKind::Directory {
            file_system: FileSystem::holding(&real),
            direct: direct_io(&real),
            path: real,
        })
    } else if kind.is_file() {
        let file = open::for_reading(&real, 0).map_err(|e| Refusal::from_io("open", path, &e))?;
        let provenance =
            mark::provenance(&file).map_err(|e| Refusal::from_io("look at", path, &e))?;
        Ok(TargetKind::File {
            size_bytes: meta.len(),
            provenance,
            file_system: FileSystem::holding(&real),
            direct: direct_io(&real),
            path: real,
        })
    } else if kind.is_block_device() {
        block_device(path, real, &meta)
    } else {
        Ok(TargetKind::Other {
            path: path.to_path_buf(),
            found: crate::guard::kind_of(&meta).to_string(),
        })
    }
}

fn missing(path: &Path) -> TargetKind {
    let parent = match path.parent() {
        Some(p) if p.as_os_str().is_empty() => Some(Path::new(".")),
        other => other,
    };
    let parent = parent
        .filter(|p| p.is_dir())
        .and_then(|p| fs::canonicalize(p).ok());
    TargetKind::Missing {
        path: path.to_path_buf(),
        file_system: parent.as_deref().and_then(FileSystem::holding),
        parent,
    }
}

fn block_device(path: &Path, real: PathBuf, meta: &fs::Metadata) -> Result<TargetKind, Refusal> {
    let file = open::for_reading(&real, 0).map_err(|e| Refusal::from_io("open", path, &e))?;
    let size_bytes =
        signature::size_of(&file).map_err(|e| Refusal::from_io("measure", path, &e))?;
    let number = DeviceNumber::from_raw(meta.rdev());
    let read_only = Graph::read(&HostRoot::real())
        .ok()
        .and_then(|g| {
            g.by_number(number)
                .map(|n| n.read_only || g.disk_of(n).read_only)
        })
        .unwrap_or(false);
    let logical = rustix::fs::ioctl_blksszget(&file).ok();
    Ok(TargetKind::BlockDevice {
        path: real,
        number,
        size_bytes,
        read_only,
        direct: aligned_to(logical),
    })
}

/// Alignment of direct I/O on a file or in a directory.
fn direct_io(path: &Path) -> DirectIo {
    let told = rustix::fs::statx(
        rustix::fs::CWD,
        path,
        AtFlags::empty(),
        StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN,
    )
    .ok()
    .filter(|s| s.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    // Directories answer with nothing; files say 0 where direct I/O is impossible.
    if let Some(s) = told
        && path.is_file()
    {
        return DirectIo {
            memory_align_bytes: s.stx_dio_mem_align,
            offset_align_bytes: s.stx_dio_offset_align,
            source: DirectIoSource::Statx,
        };
    }
    let root = HostRoot::real();
    let logical = Graph::read(&root).ok().and_then(|graph| {
        let nodes = counters::devices_behind(&root, &graph, path, 0).ok()?;
        nodes
            .iter()
            .filter_map(|n| number(&graph.disk_of(n).dir.join("queue/logical_block_size")))
            .max()
    });
    aligned_to(logical)
}

fn aligned_to(logical: Option<u32>) -> DirectIo {
    match logical {
        Some(bytes) => DirectIo {
            memory_align_bytes: bytes,
            offset_align_bytes: bytes,
            source: DirectIoSource::LogicalBlock,
        },
        None => DirectIo {
            memory_align_bytes: 4096,
            offset_align_bytes: 4096,
            source: DirectIoSource::Assumed,
        },
    }
}
