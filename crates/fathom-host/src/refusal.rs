//! Why fathom will not write somewhere. Each reason is one sentence that ends in the remedy.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// The device that stands in the way: the one that was asked for, or a relative of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Place {
    /// Device that fathom was to write to.
    pub device: PathBuf,
    /// Relative that is in use: `its partition /dev/sda1`; `None` for the device itself.
    pub relative: Option<String>,
}

impl Place {
    /// The device itself.
    pub fn itself(device: &Path) -> Self {
        Self {
            device: device.to_path_buf(),
            relative: None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.relative {
            None => write!(f, "{}", self.device.display()),
            Some(relative) => write!(f, "{}: {relative}", self.device.display()),
        }
    }
}

/// A reason not to write, with what to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Refusal {
    /// Nothing there.
    #[error("{} does not exist; `fathom devices` lists what is there", path.display())]
    Missing {
        /// As typed.
        path: PathBuf,
    },
    /// Not a block device.
    #[error("{} is {found}, not a block device; name a device node such as /dev/sdb, or a directory in which fathom makes its own scratch file", path.display())]
    NotBlockDevice {
        /// As typed.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Not a regular file.
    #[error("{} is {found}, not a regular file; name a file that does not exist yet, or a directory", path.display())]
    NotRegularFile {
        /// As typed.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Zero bytes: no medium, nothing attached.
    #[error("{} has no bytes to test (0 in size); insert a medium, attach the device, or give the file a size", path.display())]
    Empty {
        /// The device or file.
        path: PathBuf,
    },
    /// Mounted here.
    #[error("{place} is mounted at {}; {}", at.display(), unmount(at))]
    Mounted {
        /// What is mounted.
        place: Place,
        /// Where.
        at: PathBuf,
    },
    /// Mounted in another mount namespace.
    #[error("{place} is mounted at {} in the mount namespace of process {process}; unmount it there first: nsenter -t {process} -m umount {}", at.display(), at.display())]
    MountedElsewhere {
        /// What is mounted.
        place: Place,
        /// Where, in that namespace.
        at: PathBuf,
        /// A process of that namespace.
        process: u32,
    },
    /// Swap area in use.
    #[error("{place} is in use as swap; turn that off first: swapoff {}", swap.display())]
    Swap {
        /// What is swapped to.
        place: Place,
        /// What to name to swapoff.
        swap: PathBuf,
    },
    /// Another device is made of it.
    #[error("{place} is part of {holder} ({kind}); dissolve that first: {remedy}")]
    Held {
        /// What is held.
        place: Place,
        /// Kernel name of the holder.
        holder: String,
        /// What the holder is.
        kind: String,
        /// Command that dissolves it.
        remedy: String,
    },
    /// Member of a file system in use that the mount table names by another device.
    #[error(
        "{place} belongs to a {fs_type} file system in use ({id}); unmount that file system first"
    )]
    ActiveFileSystem {
        /// The member.
        place: Place,
        /// File system.
        fs_type: String,
        /// Which one.
        id: String,
    },
    /// Writes are switched off.
    #[error("{} is read-only; choose another target, or allow writes first (blockdev --setrw for a device, mount -o remount,rw for a file system)", path.display())]
    ReadOnly {
        /// The device, file or directory.
        path: PathBuf,
    },
    /// `--destroy` was not given.
    #[error("writing to {} destroys what is on it; confirm with its {kind}: --destroy {}", device.display(), shell_word(expected))]
    Unconfirmed {
        /// The device.
        device: PathBuf,
        /// What must be typed.
        expected: String,
        /// Which kind of identity that is.
        kind: IdentityKind,
    },
    /// `--destroy` named something else.
    #[error("--destroy {} does not name {}: its {kind} is {}; check that this is the device you mean", shell_word(typed), device.display(), shell_word(expected))]
    WrongConfirmation {
        /// The device.
        device: PathBuf,
        /// What was typed.
        typed: String,
        /// What must be typed.
        expected: String,
        /// Which kind of identity that is.
        kind: IdentityKind,
    },
    /// `--destroy` named several devices of this machine.
    #[error("--destroy {} names not only {} but also {}; name this one by its {kind}: --destroy {}", shell_word(typed), device.display(), also.join(", "), shell_word(expected))]
    Ambiguous {
        /// The device.
        device: PathBuf,
        /// What was typed.
        typed: String,
        /// Kernel names of the others.
        also: Vec<String>,
        /// What must be typed.
        expected: String,
        /// Which kind of identity that is.
        kind: IdentityKind,
    },
    /// The kernel gives it to others.
    #[error("{place} is exported by {by}; {remedy}")]
    Exported {
        /// What is exported.
        place: Place,
        /// By what.
        by: String,
        /// How to end that.
        remedy: String,
    },
    /// A program writes to it, or may.
    #[error("{place} is open for writing by process {process} ({program}); end that first")]
    OpenForWriting {
        /// What is open.
        place: Place,
        /// The process.
        process: u32,
        /// Its name.
        program: String,
    },
    /// Its namespace is attached to controllers that this machine does not have.
    #[error("{} is a namespace that is attached to controller {}, too, which this machine does not have: another one may use it; detach it there first (nvme detach-ns)", device.display(), controllers.iter().map(u16::to_string).collect::<Vec<_>>().join(", "))]
    AttachedElsewhere {
        /// The device.
        device: PathBuf,
        /// Numbers of the controllers.
        controllers: Vec<u16>,
    },
    /// Writes must go to the write pointers of its zones.
    #[error("{} is a zoned device ({model}): it takes writes only at the write pointer of each zone, and fails others; write in order past the page cache (--rw write), name a device without zones, or read only", device.display())]
    Zoned {
        /// The device.
        device: PathBuf,
        /// `host-managed`.
        model: String,
    },
    /// A way to purge that the device does not have, or that reaches what may not be emptied.
    #[error("{} cannot be purged by {method}: {why}; see fathom devices, or choose another way (--purge)", device.display())]
    NotPurged {
        /// The device.
        device: PathBuf,
        /// The way.
        method: String,
        /// What speaks against it.
        why: String,
    },
    /// The drive empties itself, or could not, and takes no I/O.
    #[error("{} takes no I/O: {why}", device.display())]
    Emptying {
        /// The device.
        device: PathBuf,
        /// How it stands, and what to do.
        why: String,
    },
    /// `--destroy` for what is no block device.
    #[error("{} is {found}, and --destroy names block devices only; name the node of a device, or leave --destroy out", path.display())]
    NothingToDestroy {
        /// As typed.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// A name below `/dev` that no device has.
    #[error("{} is {found}: under /dev only devices can be measured, a file there lives in memory; `fathom devices` lists what is there", path.display())]
    NoDevice {
        /// As typed.
        path: PathBuf,
        /// What it is.
        found: String,
    },
    /// Something is stored there.
    #[error("{place} is not blank: {what} at byte {offset}; if nothing on it is needed any more, erase its signatures first: wipefs --all {}", wipe.display())]
    Signature {
        /// Where it is.
        place: Place,
        /// What it is.
        what: String,
        /// Byte offset of what gave it away.
        offset: u64,
        /// What to name to wipefs.
        wipe: PathBuf,
    },
    /// The kernel says that somebody has claimed it.
    #[error("{} is claimed by another part of the system that fathom cannot name (the exclusive open failed); find it with lsblk and lsof {}, and stop it", device.display(), device.display())]
    Busy {
        /// The device.
        device: PathBuf,
    },
    /// Not allowed.
    #[error("no permission to open {}; {}", path.display(), permission())]
    Permission {
        /// The device or file.
        path: PathBuf,
    },
    /// It could not be shown that nobody uses it.
    #[error("cannot prove that {} is unused ({why}); repair that or choose another target", path.display())]
    Unproven {
        /// The device or file.
        path: PathBuf,
        /// What went wrong.
        why: String,
    },
    /// Another device appeared under the name while it was checked.
    #[error("{} changed while fathom checked it; run the command again when the device is settled", device.display())]
    Changed {
        /// The device.
        device: PathBuf,
    },
    /// A file that somebody else made.
    #[error("{} was not made by fathom, so it is not overwritten; name a file that does not exist yet, or a directory", path.display())]
    ForeignFile {
        /// The file.
        path: PathBuf,
    },
    /// A file that fathom made and that is not, or may not be, as fathom left it.
    #[error("{} {why}, so it may hold data of yours; remove it, or, if none of it is needed, give it to fathom as it is: setfattr -n user.fathom.made -v '{mark}' {}", path.display(), path.display())]
    ChangedFile {
        /// The file.
        path: PathBuf,
        /// What speaks against it.
        why: String,
        /// The mark that makes it fathom's as it is now.
        mark: String,
    },
    /// A file that fathom made and somebody has put to use.
    #[error("{} is in use as {used}; end that first, or name another file", path.display())]
    FileInUse {
        /// The file.
        path: PathBuf,
        /// What it is used for.
        used: String,
    },
    /// The file is there and a new one was asked for.
    #[error("{} exists already; name a file that does not exist yet", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The disk would become too full.
    #[error("{} has room for {} without getting more than 95 % full, not for {}; ask for at most that, free some space, or choose another directory", path.display(), room(*fits_bytes), room(*asked_bytes))]
    NoSpace {
        /// Directory or file.
        path: PathBuf,
        /// Bytes that were asked for.
        asked_bytes: u64,
        /// Bytes that fit.
        fits_bytes: u64,
        /// Bytes available to this user.
        free_bytes: u64,
        /// Bytes of the file system.
        total_bytes: u64,
    },
    /// The directory is something else.
    #[error("{} is not a directory; name an existing directory for the scratch file", path.display())]
    NotDirectory {
        /// As typed.
        path: PathBuf,
    },
    /// Any other failure.
    #[error("cannot {action} {}: {why}; check the kernel log, or choose another target", path.display())]
    Io {
        /// What was attempted.
        action: String,
        /// On what.
        path: PathBuf,
        /// The system's words.
        why: String,
    },
}

/// A word as a shell takes it.
pub fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=+@%,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// How to get rid of a mount; of the root file system nobody can.
fn unmount(at: &Path) -> String {
    if at == Path::new("/") {
        "it holds the running system, so choose another device".to_string()
    } else {
        format!("unmount it first: umount {}", at.display())
    }
}

/// Bytes in a unit that loses nothing of importance, rounded down.
fn room(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = UNITS.iter().find(|(shift, _)| bytes >> shift >= 10);
    match unit {
        Some((shift, name)) => format!("{} {name}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// What identifies a device to the person who types `--destroy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdentityKind {
    /// Serial number of the disk.
    SerialNumber,
    /// Serial number of the drive, and which of its namespaces, units or areas.
    SerialAndPart,
    /// NGUID, EUI-64, UUID or NAA name.
    WorldWideName,
    /// Name of a device-mapper map.
    MapName,
    /// Full path without links: nothing else names the device.
    FullPath,
}

impl fmt::Display for IdentityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SerialNumber => "serial number",
            Self::SerialAndPart => "serial number and part",
            Self::WorldWideName => "world-wide name",
            Self::MapName => "name of the map",
            Self::FullPath => "full path",
        })
    }
}

/// What to do where something may not be opened: root is not told to become root.
fn permission() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "even root may not here: in a container start it with --device and the right to use it, in a guest or jail ask its host"
    } else {
        "run as root or as a member of the group that owns it"
    }
}

impl Refusal {
    /// The reason for a failed system call on a path.
    pub(crate) fn from_io(action: &str, path: &Path, error: &std::io::Error) -> Self {
        let path = path.to_path_buf();
        match error.raw_os_error() {
            Some(libc::ENOENT) => Self::Missing { path },
            Some(libc::EACCES | libc::EPERM) => Self::Permission { path },
            Some(libc::EROFS) => Self::ReadOnly { path },
            Some(libc::EBUSY) => Self::Busy { device: path },
            Some(libc::ETXTBSY) => Self::FileInUse {
                path,
                used: "swap or a running program".to_string(),
            },
            Some(libc::ENOMEDIUM | libc::ENXIO) => Self::Empty { path },
            Some(libc::ENOTDIR) => Self::NotDirectory { path },
            Some(libc::EEXIST) => Self::Exists { path },
            _ => Self::Io {
                action: action.to_string(),
                path,
                why: error.to_string(),
            },
        }
    }
}
