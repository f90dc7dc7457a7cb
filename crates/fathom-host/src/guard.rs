//! The safety gate: the only way in which fathom obtains a block device or an existing file
//! to write to.
//!
//! A [`Permit`] can only be made here. It holds the device open with `O_EXCL`, so that for
//! as long as it lives the kernel refuses to mount, swap to or assemble the device.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fathom_files::{create, open};
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::devices::graph::{Graph, Node};
use crate::devices::occupancy::Occupancy;
use crate::devices::words::{self, Word};
use crate::error::HostError;
use crate::judge;
use crate::mark::{self, Provenance};
use crate::refusal::Refusal;
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
    zones: Option<String>,
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

    /// What the kernel calls its zones, where it takes writes only at their write pointers: `host-managed`.
    pub fn zones(&self) -> Option<&str> {
        self.zones.as_deref()
    }

    /// Why nothing else may be written.
    pub fn zoned(&self, model: &str) -> Refusal {
        Refusal::Zoned {
            device: self.path.clone(),
            model: model.to_owned(),
        }
    }

    /// Opens the same device once more, with further `open` flags such as `O_DIRECT`.
    ///
    /// Goes through the descriptor that is held, so no change under `/dev` can lead to
    /// another device.
    pub fn reopen(&self, flags: i32) -> io::Result<File> {
        open::again(&self.file, flags)
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
        zones: node.zones(),
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
    let occupancy = Occupancy::gather(root, &graph)
        .map_err(|e: HostError| unproven(e.to_string()))?
        .with_openers(root);
    let node = graph
        .by_number(number)
        .ok_or_else(|| unproven(format!("device {number} is not in /sys")))?;
    judge::unused(root, &graph, &occupancy, node, device)?;
    judge::writable(&graph, node, device)?;
    judge::not_shared(root, &graph, node, device)?;
    confirmed(root, &graph, node, device, destroy)?;
    judge::blank(root, &graph, node, device)?;
    Ok(node.clone())
}

/// What was typed names the device, and no other.
fn confirmed(
    root: &HostRoot,
    graph: &Graph,
    node: &Node,
    device: &Path,
    destroy: Option<&str>,
) -> Result<(), Refusal> {
    let words = words::words(root, graph, node);
    let Word { word, kind } = words[0].clone();
    let (device, expected) = (device.to_path_buf(), word);
    let Some(typed) = destroy else {
        return Err(Refusal::Unconfirmed {
            device,
            expected,
            kind,
        });
    };
    if words.iter().any(|w| w.is(typed)) {
        return Ok(());
    }
    let also = words::namesakes(root, graph, node, typed);
    let typed = typed.to_string();
    Err(if also.is_empty() {
        Refusal::WrongConfirmation {
            device,
            typed,
            expected,
            kind,
        }
    } else {
        Refusal::Ambiguous {
            device,
            typed,
            also,
            expected,
            kind,
        }
    })
}

/// The node without links, and the number of the device that it stands for.
fn resolve(path: &Path) -> Result<(PathBuf, DeviceNumber), Refusal> {
    let device = match fs::canonicalize(path) {
        Err(e) => words::node_of_map(&HostRoot::real(), path)
            .ok_or_else(|| Refusal::from_io("find", path, &e))?,
        Ok(device) => device,
    };
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
    open::for_writing(device, libc::O_EXCL).map_err(|e| Refusal::from_io("open", device, &e))
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

/// Permission to overwrite one regular file, and the file itself. When it is dropped, which
/// must be after the last write, the mark says how the file was left.
#[derive(Debug)]
pub struct FilePermit {
    /// The file, open for reading and writing.
    pub file: File,
    /// Its path, links resolved.
    pub path: PathBuf,
    /// Whether the file carries fathom's mark. Where it cannot (no user xattrs on this file
    /// system) a later run could not know it as fathom's: remove it after use.
    pub marked: bool,
    bytes: Option<u64>,
}

impl FilePermit {
    /// Says what size the file has until it is given back. One of another size has been
    /// written by somebody else meanwhile, and is theirs.
    pub fn sized(&mut self, bytes: u64) {
        self.bytes = Some(bytes);
    }

    /// Removes the file, unless its name has come to mean another one.
    ///
    /// # Errors
    /// What the system says.
    pub fn remove(&self) -> io::Result<()> {
        crate::scratch::remove_if_same(&self.path, &self.file)
    }
}

impl Drop for FilePermit {
    fn drop(&mut self) {
        let len = || self.file.metadata().map(|m| m.len()).ok();
        let other_size = self.bytes.filter(|bytes| len() != Some(*bytes));
        // Another run that writes to it says at its end how it left the file. Without a word from either, it is taken
        // for the user's.
        if self.marked && lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            let _ = match other_size {
                None => mark::set(&self.file),
                Some(bytes) => mark::disown(&self.file, bytes),
            };
        }
        // A child that is just being started has a copy of the descriptor: closing this one would not end the lock.
        lock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes a lock; `false` only where somebody else's stands against it.
fn lock(file: &File, how: FlockOperation) -> bool {
    rustix::fs::flock(file, how) != Err(Errno::WOULDBLOCK)
}

/// Opens a file that fathom made earlier, for overwriting.
///
/// Refuses files of others, files of fathom's that changed since, and those that have been put
/// to use: as swap, behind a loop device, or with a file system or the like inside. What is
/// judged is what is written, whatever becomes of the name meanwhile.
pub fn open_file_for_write(path: &Path) -> Result<FilePermit, Refusal> {
    let root = HostRoot::real();
    let real = fs::canonicalize(path).map_err(|e| Refusal::from_io("find", path, &e))?;
    let failed = |action: &'static str| {
        let real = real.clone();
        move |e: io::Error| Refusal::from_io(action, &real, &e)
    };
    let held = open::held(&real).map_err(failed("find"))?;
    let meta = held.metadata().map_err(failed("examine"))?;
    if !meta.is_file() {
        return Err(Refusal::NotRegularFile {
            path: path.to_path_buf(),
            found: kind_of(&meta).to_string(),
        });
    }
    // Whoever watches a file of others for writers sees none.
    let look = open::again_for(&held, libc::O_RDONLY, libc::O_NONBLOCK).map_err(failed("open"))?;
    check_mark(&real, &look)?;
    let file = open::again(&held, 0).map_err(|e| match check_file(&root, &real, &look) {
        // Of a swap file the kernel only says that it is busy.
        Err(refusal) => refusal,
        Ok(_) => Refusal::from_io("open", &real, &e),
    })?;
    // Another run that is just ending has it for itself for a moment.
    let mut tries = 20;
    while !lock(&file, FlockOperation::NonBlockingLockShared) {
        if tries > 0 {
            tries -= 1;
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        return Err(Refusal::FileInUse {
            path: real,
            used: "the file of a program that has locked it".to_string(),
        });
    }
    let bytes = check_file(&root, &real, &file)?;
    let marked = mark::begin(&file).map_err(failed("mark"))?;
    Ok(FilePermit {
        file,
        path: real,
        marked,
        bytes: Some(bytes),
    })
}

/// Makes a new, empty, marked file. It stays when fathom ends; see [`crate::scratch`] for
/// files that do not.
pub fn create_file(path: &Path) -> Result<FilePermit, Refusal> {
    let file =
        create::file_for(path, 0o644, 0).map_err(|e| Refusal::from_io("create", path, &e))?;
    lock(&file, FlockOperation::NonBlockingLockShared);
    let finish =
        || -> io::Result<(bool, PathBuf)> { Ok((mark::begin(&file)?, fs::canonicalize(path)?)) };
    match finish() {
        Ok((marked, path)) => Ok(FilePermit {
            file,
            path,
            marked,
            bytes: None,
        }),
        Err(e) => {
            // Made a moment ago by this process with O_EXCL: nothing of others is removed.
            let _ = fs::remove_file(path);
            Err(Refusal::from_io("mark", path, &e))
        }
    }
}

/// Whether fathom made the file and left it as it is.
fn check_mark(path: &Path, file: &File) -> Result<(), Refusal> {
    let failed = |e: io::Error| Refusal::from_io("examine", path, &e);
    let path = path.to_path_buf();
    match mark::provenance(file).map_err(failed)? {
        Provenance::Fathom(_) => Ok(()),
        Provenance::Changed(why) => Err(Refusal::ChangedFile {
            path,
            why,
            mark: mark::as_it_is(file).map_err(failed)?,
        }),
        Provenance::Foreign | Provenance::Unmarkable => Err(Refusal::ForeignFile { path }),
    }
}

/// The same, and that nobody uses it; its size in bytes.
fn check_file(root: &HostRoot, path: &Path, file: &File) -> Result<u64, Refusal> {
    check_mark(path, file)?;
    let meta = file
        .metadata()
        .map_err(|e| Refusal::from_io("examine", path, &e))?;
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
    if let Some(by) = occupancy.exported_file(identity.0, identity.1) {
        return Err(in_use(format!("what {by} exports")));
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
        None => Ok(meta.len()),
    }
}
