//! The safety gate: the only way in which fathom obtains a block device or an existing file
//! to write to.
//!
//! A [`Permit`] can only be made here. It holds the device open with `O_EXCL`, so that for
//! as long as it lives the kernel refuses to mount, swap to or assemble the device.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::devices;
use crate::devices::graph::{Graph, Node};
use crate::devices::occupancy::Occupancy;
use crate::error::HostError;
use crate::judge;
use crate::mark::{self, Provenance};
use crate::refusal::{IdentityKind, Refusal};
use crate::root::{DeviceNumber, HostRoot};
use crate::signature;

/// Permission to overwrite one block device, and the device itself.
#[derive(Debug)]
pub struct Permit {
    file: File,
    path: PathBuf,
    number: DeviceNumber,
    size_bytes: u64,
    logical_block_bytes: u32,
}

impl Permit {
    /// The device, open for reading and writing, claimed exclusively.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its node, links resolved.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor number.
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Smallest unit of I/O in bytes, to which direct I/O must be aligned.
    pub fn logical_block_bytes(&self) -> u32 {
        self.logical_block_bytes
    }

    /// Opens the same device once more, with further `open` flags such as `O_DIRECT`.
    ///
    /// Goes through the descriptor that is held, so no change under `/dev` can lead to
    /// another device.
    pub fn reopen(&self, flags: i32) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(flags | libc::O_CLOEXEC)
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))
    }
}

impl AsFd for Permit {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens a block device for destructive writing.
///
/// `destroy` is what the user typed after `--destroy`: the serial number of the disk, or
/// its full path without links where it has none. Refuses where anything is mounted,
/// swapped to, held or recognised on the device or a relative of it; nothing is written
/// and, before every check has passed, the device is not even opened for writing.
pub fn open_for_write(path: &Path, destroy: Option<&str>) -> Result<Permit, Refusal> {
    let root = HostRoot::real();
    let (device, number) = resolve(path)?;
    let node = check(&root, &device, number, destroy)?;
    let file = claim(&device)?;
    // The name may have come to mean another device meanwhile.
    if block_number(&file, &device)? != number {
        return Err(Refusal::Changed { device });
    }
    // And a user may have come meanwhile; from here on the claim keeps others out.
    check(&root, &device, number, destroy)?;
    let size_bytes =
        signature::size_of(&file).map_err(|e| Refusal::from_io("measure", &device, &e))?;
    if size_bytes != node.size_bytes {
        return Err(Refusal::Changed { device });
    }
    let logical_block_bytes = rustix::fs::ioctl_blksszget(&file)
        .map_err(|e| Refusal::from_io("ask the block size of", &device, &e.into()))?;
    Ok(Permit {
        file,
        path: device,
        number,
        size_bytes,
        logical_block_bytes,
    })
}

/// Everything that can be judged without opening the device for writing.
fn check(
    root: &HostRoot,
    device: &Path,
    number: DeviceNumber,
    destroy: Option<&str>,
) -> Result<Node, Refusal> {
    let unproven = |why: String| Refusal::Unproven {
        path: device.to_path_buf(),
        why,
    };
    let graph = Graph::read(root).map_err(|e| unproven(e.to_string()))?;
    let occupancy =
        Occupancy::gather(root, &graph).map_err(|e: HostError| unproven(e.to_string()))?;
    let node = graph
        .by_number(number)
        .ok_or_else(|| unproven(format!("device {number} is not in /sys")))?;
    judge::unused(root, &graph, &occupancy, node, device)?;
    judge::writable(&graph, node, device)?;
    confirmed(root, &graph, node, device, destroy)?;
    judge::blank(root, &graph, node, device)?;
    Ok(node.clone())
}

/// What was typed names the device.
fn confirmed(
    root: &HostRoot,
    graph: &Graph,
    node: &Node,
    device: &Path,
    destroy: Option<&str>,
) -> Result<(), Refusal> {
    let (expected, kind) = match devices::serial(root, graph, node) {
        Some(serial) => (serial, IdentityKind::SerialNumber),
        None => (device.display().to_string(), IdentityKind::FullPath),
    };
    let device = device.to_path_buf();
    match destroy {
        Some(typed) if typed == expected => Ok(()),
        Some(typed) => Err(Refusal::WrongConfirmation {
            device,
            typed: typed.to_string(),
            expected,
            kind,
        }),
        None => Err(Refusal::Unconfirmed {
            device,
            expected,
            kind,
        }),
    }
}

/// The node without links, and the number of the device that it stands for.
fn resolve(path: &Path) -> Result<(PathBuf, DeviceNumber), Refusal> {
    let device = fs::canonicalize(path).map_err(|e| Refusal::from_io("find", path, &e))?;
    let meta = fs::metadata(&device).map_err(|e| Refusal::from_io("examine", path, &e))?;
    if !meta.file_type().is_block_device() {
        return Err(Refusal::NotBlockDevice {
            path: path.to_path_buf(),
            found: kind_of(&meta).to_string(),
        });
    }
    Ok((device, DeviceNumber::from_raw(meta.rdev())))
}

/// Opens exclusively: fails where the kernel, or another benchmark, has claimed the device,
/// a partition of it or the disk around it.
fn claim(device: &Path) -> Result<File, Refusal> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_EXCL | libc::O_CLOEXEC | libc::O_NOFOLLOW)
        .open(device)
        .map_err(|e| Refusal::from_io("open", device, &e))
}

fn block_number(file: &File, device: &Path) -> Result<DeviceNumber, Refusal> {
    let meta = file
        .metadata()
        .map_err(|e| Refusal::from_io("examine", device, &e))?;
    if !meta.file_type().is_block_device() {
        return Err(Refusal::Changed {
            device: device.to_path_buf(),
        });
    }
    Ok(DeviceNumber::from_raw(meta.rdev()))
}

/// What a path is, in words.
pub(crate) fn kind_of(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_file() {
        "a regular file"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else if kind.is_block_device() {
        "a block device"
    } else {
        "a special file"
    }
}

/// Permission to overwrite one regular file, and the file itself.
#[derive(Debug)]
pub struct FilePermit {
    /// The file, open for reading and writing.
    pub file: File,
    /// Its path, links resolved.
    pub path: PathBuf,
    /// Whether the file carries fathom's mark. Where it cannot (no user xattrs on this file
    /// system) a later run could not know it as fathom's: remove it after use.
    pub marked: bool,
}

/// Opens a file that fathom made earlier, for overwriting.
///
/// Refuses files of others, and files of fathom's that have been put to use since: as swap,
/// behind a loop device, or with a file system or the like inside.
pub fn open_file_for_write(path: &Path) -> Result<FilePermit, Refusal> {
    let root = HostRoot::real();
    let real = fs::canonicalize(path).map_err(|e| Refusal::from_io("find", path, &e))?;
    let meta = fs::metadata(&real).map_err(|e| Refusal::from_io("examine", path, &e))?;
    if !meta.is_file() {
        return Err(Refusal::NotRegularFile {
            path: path.to_path_buf(),
            found: kind_of(&meta).to_string(),
        });
    }
    let look = File::open(&real).map_err(|e| Refusal::from_io("open", &real, &e))?;
    check_file(&root, &real, &look)?;
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(&real)
        .map_err(|e| Refusal::from_io("open", &real, &e))?;
    let opened = file
        .metadata()
        .map_err(|e| Refusal::from_io("examine", &real, &e))?;
    if (opened.dev(), opened.ino()) != (meta.dev(), meta.ino()) {
        return Err(Refusal::Changed { device: real });
    }
    Ok(FilePermit {
        file,
        path: real,
        marked: true,
    })
}

/// Makes a new, empty, marked file. It stays when fathom ends; see [`crate::scratch`] for
/// files that do not.
pub fn create_file(path: &Path) -> Result<FilePermit, Refusal> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(|e| Refusal::from_io("create", path, &e))?;
    let finish =
        || -> io::Result<(bool, PathBuf)> { Ok((mark::set(&file)?, fs::canonicalize(path)?)) };
    match finish() {
        Ok((marked, path)) => Ok(FilePermit { file, path, marked }),
        Err(e) => {
            // Made a moment ago by this process with O_EXCL: nothing of others is removed.
            let _ = fs::remove_file(path);
            Err(Refusal::from_io("mark", path, &e))
        }
    }
}

fn check_file(root: &HostRoot, path: &Path, file: &File) -> Result<(), Refusal> {
    let meta = file
        .metadata()
        .map_err(|e| Refusal::from_io("examine", path, &e))?;
    match mark::provenance(file).map_err(|e| Refusal::from_io("examine", path, &e))? {
        Provenance::Fathom(_) => {}
        Provenance::Foreign | Provenance::Unmarkable => {
            return Err(Refusal::ForeignFile {
                path: path.to_path_buf(),
            });
        }
    }
    let unproven = |e: HostError| Refusal::Unproven {
        path: path.to_path_buf(),
        why: e.to_string(),
    };
    let identity = (DeviceNumber::from_raw(meta.dev()), meta.ino());
    let graph = Graph::read(root).map_err(unproven)?;
    let occupancy = Occupancy::gather(root, &graph).map_err(unproven)?;
    let in_use = |used: String| Refusal::FileInUse {
        path: path.to_path_buf(),
        used,
    };
    if occupancy.swap_file(identity.0, identity.1).is_some() {
        return Err(in_use("swap".to_string()));
    }
    let behind_loop = graph.nodes.values().find(|n| {
        n.loop_backing
            .is_some_and(|b| b.block.is_none() && (b.device, b.inode) == identity)
    });
    if let Some(node) = behind_loop {
        return Err(in_use(format!("the loop device {}", node.name)));
    }
    let found = signature::scan(file, meta.len())
        .map_err(|e| Refusal::from_io("read", path, &e))?
        .into_iter()
        .next();
    match found {
        Some(s) => Err(in_use(format!("an image that holds a {s}"))),
        None => Ok(()),
    }
}
