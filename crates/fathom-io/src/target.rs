//! A real target, opened under the safety rules: directory, file, block device or `null:`.
//!
//! Opening decides everything that may be refused, so that a run which starts can
//! finish. Dropping a target removes what fathom made for this run only.

mod counting;
pub mod purge;
mod wanted;
mod zoned;

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_files::open;
use fathom_host::{
    Below, CounterSource, FilePermit, Passthrough, Permit, Refusal, Scratch, TargetKind,
    ZoneLimits, extents, probe_target,
};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{self, DeviceDelta};

use crate::driver::Destination;
use crate::job::{JobError, Limits};
use crate::port::polled;

pub use counting::{count, counted};
pub use wanted::{Share, Wanted};

/// Size of a scratch file where nobody said: 1 GiB.
pub const SCRATCH_DEFAULT: Bytes = Bytes::gib(1);
const NULL_SIZE: u64 = 1 << 40; // what `null:` pretends to hold

/// Why a target cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// The safety rules, or the system, say no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A job does not fit the target.
    #[error(transparent)]
    Job(#[from] JobError),
    /// It can be read through the page cache only.
    #[error("{target}: the file system cannot do direct I/O: use --buffered, or another place")]
    NoDirect {
        /// The target.
        target: String,
    },
    /// Nothing has this name, and nobody allowed to make a file.
    #[error("{}: there is no such file: check the path; with --create one of --size is made there, and stays", path.display())]
    Missing {
        /// As given.
        path: PathBuf,
    },
    /// The target cannot serve what was asked.
    #[error("{target}: {message}")]
    Unfit {
        /// The target.
        target: String,
        /// What is wrong, what was expected, what to do.
        message: String,
    },
}

/// What keeps the target open and cleans up after it.
enum Holder {
    Null,
    Scratch(Scratch),
    /// A file of the user's, read only.
    Borrowed(File),
    /// /dev/null or /dev/zero.
    Hollow(File),
    /// A file that an earlier run made.
    Made(FilePermit),
    /// A file that this run made.
    New(NewFile),
    /// A scratch file of another host of the same run.
    Joined(File),
    Device(Permit),
}

/// A file made by this run. It stays only if the run got far enough to close its target: a refusal
/// after it was made leaves nothing behind.
struct NewFile {
    permit: FilePermit,
    keep: bool,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.keep {
            let _ = self.permit.remove();
        }
    }
}

/// An open target.
pub struct Target {
    name: String,
    path: Option<PathBuf>,
    kind: &'static str,
    size: u64,
    align: u32,
    description: String,
    destination: Destination,
    counters: Option<CounterSource>,
    no_counters: Option<String>,
    fresh: bool,
    commands_only: bool,
    /// Of a device with zones, their limits.
    zones: Option<ZoneLimits>,
    /// Why it could not be opened for direct and for buffered I/O.
    unopened: [Option<std::io::Error>; 2],
    holder: Holder,
}

impl Target {
    /// Opens `name` as far as `wanted` allows. Nothing is created where this fails.
    pub fn open(name: &str, wanted: &Wanted) -> Result<Self, TargetError> {
        Self::open_as(name, wanted, false)
    }

    /// The same, where a new file gets its size without its space: blocks are allocated as they are written.
    ///
    /// # Errors
    /// As [`Target::open`].
    pub fn open_sparse(name: &str, wanted: &Wanted) -> Result<Self, TargetError> {
        Self::open_as(name, wanted, true)
    }

    /// Opens the scratch file that another host of the same run has made and that all of them use: it must carry
    /// exactly `mark`. Who made it removes it.
    ///
    /// # Errors
    /// Where there is no such file.
    pub fn join(name: &str, mark: &str) -> Result<Self, TargetError> {
        let path = PathBuf::from(name);
        let (file, size) = fathom_host::join_scratch(&path, mark)?;
        let align = alignment(&path);
        let description = format!("shared scratch file of {}", Bytes(size));
        let holder = Holder::Joined(file);
        Self::file(name, "file", path, size, align, description, false, holder)
    }

    fn open_as(name: &str, wanted: &Wanted, sparse: bool) -> Result<Self, TargetError> {
        if name == "null:" || name == "null" {
            return Ok(Self {
                name: name.to_owned(),
                path: None,
                kind: "null",
                size: wanted.size.map_or(NULL_SIZE, |s| s.0),
                align: 1,
                description: "no I/O: the generator itself".into(),
                destination: Destination::Null,
                counters: None,
                no_counters: None,
                fresh: false,
                commands_only: false,
                zones: None,
                unopened: [None, None],
                holder: Holder::Null,
            });
        }
        let unfit = |message: String| TargetError::Unfit {
            target: name.to_owned(),
            message,
        };
        // Guarded, measured and named as the block device that it is.
        let namespace = fathom_host::block_device_of(Path::new(name));
        if let (Some(block), false) = (&namespace, wanted.commands == Share::All) {
            return Err(unfit(format!(
                "it takes NVMe commands only: add --engine uring-cmd, or name {}",
                block.display()
            )));
        }
        let path = namespace.as_deref().unwrap_or(Path::new(name));
        if let Some(scheme) = name
            .strip_suffix(':')
            .or_else(|| name.split_once(':').map(|x| x.0))
            && !path.exists()
            && !scheme.contains('/')
        {
            return Err(unfit("unknown kind of target: expected a directory, a file, a block device, null: or sim:MODEL".into()));
        }
        // What is held open is opened once more through its name there.
        if !Path::new("/proc/self/fd").exists() {
            return Err(unfit(
                "nothing can be measured without /proc: mount -t proc proc /proc".into(),
            ));
        }
        let kind = probe_target(path)?;
        if let (Some(_), Some(found)) = (&wanted.destroy, kind.no_device()) {
            let path = path.to_path_buf();
            return Err(Refusal::NothingToDestroy { path, found }.into());
        }
        let mut target = match kind {
            TargetKind::Directory {
                path,
                direct,
                file_system,
            } => {
                let size = wanted.size.unwrap_or(SCRATCH_DEFAULT);
                let scratch = Scratch::create(&path, size.0)?;
                let fs = file_system.map(|f| f.fs_type).unwrap_or_default();
                let description = format!("scratch file of {size} in {} ({fs})", path.display());
                let align = direct.offset_align_bytes;
                Self::file(
                    name,
                    "directory",
                    scratch.path().to_owned(),
                    size.0,
                    align,
                    description,
                    true,
                    Holder::Scratch(scratch),
                )?
            }
            TargetKind::Missing {
                path,
                parent: Some(parent),
                ..
            } => {
                if !wanted.create {
                    return Err(TargetError::Missing { path });
                }
                let Some(size) = wanted.size else {
                    return Err(unfit("there is no such file: give --size to make one, or name a directory for a scratch file".into()));
                };
                if !sparse {
                    fits(&parent, size)?;
                }
                let mut new = NewFile {
                    permit: fathom_host::create_file(&path)?,
                    keep: false,
                };
                new.permit.sized(size.0);
                if let Err(e) = reserve(&new.permit, size, sparse) {
                    return Err(unfit(format!(
                        "cannot make a file of {size}: {e}; choose a smaller --size or another place"
                    )));
                }
                let description = format!("new file of {size}");
                let path = new.permit.path.clone();
                let align = alignment(&path);
                Self::file(
                    name,
                    "file",
                    path,
                    size.0,
                    align,
                    description,
                    true,
                    Holder::New(new),
                )?
            }
            TargetKind::Missing { parent: None, .. } => {
                return Err(unfit(
                    "there is no such file, and no directory to make it in: check the path".into(),
                ));
            }
            TargetKind::File {
                path,
                size_bytes,
                direct,
                ..
            } => {
                if size_bytes == 0 {
                    return Err(unfit(
                        "the file is empty: name one with data, or a directory".into(),
                    ));
                }
                let description = format!("file of {}", Bytes(size_bytes));
                let holder = if wanted.modifies {
                    Holder::Made(fathom_host::open_file_for_write(&path)?)
                } else {
                    Holder::Borrowed(
                        File::open(&path)
                            .map_err(|e| unfit(format!("cannot be opened for reading: {e}")))?,
                    )
                };
                Self::file(
                    name,
                    "file",
                    path,
                    size_bytes,
                    direct.offset_align_bytes,
                    description,
                    false,
                    holder,
                )?
            }
            TargetKind::BlockDevice {
                path,
                size_bytes,
                direct,
                ..
            } => {
                if size_bytes == 0 {
                    return Err(unfit("the device is empty (0 bytes): insert a medium, attach a file, or name another".into()));
                }
                let description = format!("block device of {}", Bytes(size_bytes));
                let holder = if wanted.modifies {
                    let permit = fathom_host::open_for_write(&path, wanted.destroy.as_deref())?;
                    if let Some(model) = permit.zones().filter(|_| !wanted.in_order) {
                        return Err(permit.zoned(model).into());
                    }
                    Holder::Device(permit)
                } else {
                    Holder::Borrowed(File::open(&path).map_err(|e| {
                        unfit(format!(
                            "cannot be opened for reading: {e}; run as root, or join the group disk"
                        ))
                    })?)
                };
                Self::file(
                    name,
                    "block-device",
                    path,
                    size_bytes,
                    direct.offset_align_bytes,
                    description,
                    false,
                    holder,
                )?
            }
            TargetKind::Other { path, .. } if sink_or_source(&path, wanted.modifies) => {
                let file = match wanted.modifies {
                    true => open::control(&path),
                    false => File::open(&path),
                }
                .map_err(|e| unfit(format!("cannot be opened: {e}")))?;
                let size = wanted.size.map_or(NULL_SIZE, |s| s.0);
                let description = "a device of the kernel's that holds nothing".to_owned();
                let holder = Holder::Hollow(file);
                Self::file(
                    name,
                    "character-device",
                    path,
                    size,
                    1,
                    description,
                    false,
                    holder,
                )?
            }
            TargetKind::Other { found, .. } => {
                return Err(unfit(format!(
                    "it is {found}: expected a directory, a file, a block device, null: or sim:MODEL"
                )));
            }
        };
        if let Destination::File {
            direct, buffered, ..
        } = &target.destination
        {
            let [no_direct, no_buffered] = &target.unopened;
            if wanted.direct && direct.is_none() {
                return Err(match no_direct {
                    Some(e) if !has_no_direct_io(e) => {
                        unfit(format!("cannot be opened for direct I/O: {}", unopened(e)))
                    }
                    _ => TargetError::NoDirect {
                        target: name.to_owned(),
                    },
                });
            }
            if wanted.buffered && buffered.is_none() {
                return Err(unfit(match no_buffered {
                    Some(e) => format!("cannot be opened for buffered I/O: {}", unopened(e)),
                    None => "it cannot be opened for buffered I/O: use --direct".into(),
                }));
            }
            if let (true, Some(file)) = (wanted.polled, direct)
                && let Some(why) = target.cannot_poll(file)
            {
                return Err(unfit(format!(
                    "completions cannot be polled for ({why}): drop --iopoll, or give the device poll queues (for NVMe the kernel parameter nvme.poll_queues=N)"
                )));
            }
        }
        target.commands_only = namespace.is_some();
        target.atomic_as(wanted).map_err(unfit)?;
        if wanted.commands != Share::No {
            target.open_for_commands(wanted).map_err(unfit)?;
        }
        Ok(target)
    }

    /// Opens an NVMe namespace for commands, too; for writes only where it was opened for them (then it is guarded).
    ///
    /// # Errors
    /// Why it takes none, in a sentence.
    pub fn open_for_commands(&mut self, wanted: &Wanted) -> Result<(), String> {
        let guarded = matches!(self.holder, Holder::Device(_));
        let Destination::File { path, commands, .. } = &mut self.destination else {
            return Err("it is no NVMe namespace: use --engine uring".into());
        };
        let device = Passthrough::of(path, wanted.modifies && guarded)?;
        wanted.offered_by(&device)?;
        *commands = Some(Arc::new(device));
        Ok(())
    }

    /// Whether it is named as the character device of a namespace, which takes nothing but commands.
    pub fn takes_commands_only(&self) -> bool {
        self.commands_only
    }

    /// Why completions of `file` cannot be polled for; `None` where they can.
    fn cannot_poll(&self, file: &File) -> Option<String> {
        if let Some(disk) = self.counters.as_ref().map(CounterSource::disk) {
            // A hole is read without the device, so the switch of its queue is asked as well.
            let switch = std::fs::read_to_string(format!("/sys/block/{disk}/queue/io_poll"));
            if switch.is_ok_and(|s| s.trim() == "0") {
                return Some(format!("/sys/block/{disk}/queue/io_poll is 0"));
            }
        }
        polled::try_read(file, 0, self.align.max(512))
            .err()
            .map(|e| e.to_string())
    }

    #[allow(clippy::too_many_arguments)]
    fn file(
        name: &str,
        kind: &'static str,
        path: PathBuf,
        size: u64,
        align: u32,
        description: String,
        fresh: bool,
        holder: Holder,
    ) -> Result<Self, TargetError> {
        let open = |flags: i32| -> std::io::Result<File> {
            match &holder {
                Holder::Scratch(s) => s.reopen(flags),
                Holder::Device(p) => p.reopen(flags),
                Holder::Made(permit) => reopen_file(&permit.file, flags, true),
                Holder::New(new) => reopen_file(&new.permit.file, flags, true),
                Holder::Joined(f) => reopen_file(f, flags, true),
                Holder::Borrowed(f) => reopen_file(f, flags, false),
                Holder::Hollow(f) if flags & libc::O_DIRECT == 0 => f.try_clone(),
                Holder::Hollow(_) => Err(std::io::ErrorKind::Unsupported.into()),
                Holder::Null => Err(std::io::ErrorKind::Unsupported.into()),
            }
        };
        // Reading shall not make the file system write access times; only owners may ask for that.
        let reopen = |flags: i32| open(flags | libc::O_NOATIME).or_else(|_| open(flags));
        let (direct, no_direct) = either(reopen(libc::O_DIRECT));
        let (buffered, no_buffered) = either(reopen(0));
        let (counters, no_counters) = match CounterSource::locate(&path) {
            Ok(c) => (Some(c), None),
            Err(e) => (None, Some(e.to_string())),
        };
        let zones = match kind {
            "block-device" => fathom_host::zones::limits(&path),
            _ => None,
        };
        Ok(Self {
            name: name.to_owned(),
            destination: Destination::File {
                path: path.clone(),
                direct,
                buffered,
                commands: None,
            },
            path: Some(path),
            kind,
            size,
            align,
            description,
            counters,
            no_counters,
            fresh,
            commands_only: false,
            zones,
            unopened: [no_direct, no_buffered],
            holder,
        })
    }

    /// What jobs may do with it.
    pub fn limits(&self) -> Limits {
        Limits {
            size: self.size,
            direct_align: self.align,
            hosts: 1,
        }
    }

    /// Where the driver sends I/O.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Whether fathom made the file in this run, so that it must be filled before reads say anything.
    pub fn needs_fill(&self) -> bool {
        self.fresh
    }

    /// Whether it is the null target.
    pub fn is_null(&self) -> bool {
        matches!(self.destination, Destination::Null)
    }

    /// File or device that receives the I/O.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Why the device's counters cannot be compared, where they cannot.
    pub fn no_counters(&self) -> Option<&str> {
        self.no_counters.as_deref()
    }

    /// Cumulative counters of the device behind the target.
    pub fn counters(&self) -> Option<DeviceDelta> {
        count(self.counters.as_ref()?)
    }

    /// What the device is made of, where its I/O is counted.
    pub fn below(&self) -> Option<&Below> {
        self.counters.as_ref().map(CounterSource::below)
    }

    /// Bytes of a range that hold no data (holes and unwritten extents), where the file system or what a device is made of tells.
    pub fn unwritten(&self, start: u64, end: u64) -> Option<u64> {
        if let Some(unwritten) = self.unwritten_in_zones(start, end) {
            return Some(unwritten);
        }
        if self.kind == "block-device" {
            return extents::unwritten_of_device(self.path.as_deref()?, start..end);
        }
        let Destination::File {
            buffered: Some(f), ..
        } = &self.destination
        else {
            return None;
        };
        extents::coverage(f, start..end)
            .ok()
            .map(|c| c.unwritten_bytes + c.hole_bytes)
    }

    /// Whether a path lies on the same disk as the target.
    pub fn shares_disk_with(&self, path: &Path) -> bool {
        match (&self.counters, CounterSource::locate(path)) {
            (Some(a), Ok(b)) => a.disk() == b.disk(),
            _ => false,
        }
    }

    /// For the run's record.
    pub fn describe(&self) -> schema::Target {
        schema::Target {
            name: self.name.clone(),
            kind: self.kind.to_owned(),
            path: self.path.as_ref().map(|p| p.display().to_string()),
            size_bytes: self.size,
            device: self.counters.as_ref().map(|c| c.disk().to_owned()),
            description: self.description.clone(),
        }
    }

    /// Removes what was made for this run only, and says so where that fails. A new file with fathom's
    /// mark stays for later runs; a target that is dropped instead leaves nothing.
    pub fn close(self) -> Result<(), TargetError> {
        let name = self.name;
        let failed = |e: std::io::Error| TargetError::Unfit {
            target: name.clone(),
            message: format!("the scratch file could not be removed: {e}; remove it by hand"),
        };
        drop(self.destination);
        match self.holder {
            Holder::Scratch(s) => s.remove().map_err(failed),
            // A later run could not know a file without a mark as fathom's.
            Holder::New(mut new) => {
                new.keep = true;
                if new.permit.marked {
                    return Ok(());
                }
                new.permit.remove().map_err(failed)
            }
            _ => Ok(()),
        }
    }
}

fn alignment(path: &Path) -> u32 {
    match probe_target(path) {
        Ok(TargetKind::File { direct, .. }) => direct.offset_align_bytes,
        _ => 4096,
    }
}

/// A new file may not fill the file system any more than a scratch file may.
fn fits(dir: &Path, size: Bytes) -> Result<(), Refusal> {
    match fathom_host::space(dir) {
        Ok(room) if size.0 > room.fits_bytes => Err(Refusal::NoSpace {
            path: dir.to_owned(),
            asked_bytes: size.0,
            fits_bytes: room.fits_bytes,
            free_bytes: room.free_bytes,
            total_bytes: room.total_bytes,
        }),
        _ => Ok(()),
    }
}

/// Whether it is /dev/null for writes, or /dev/zero or /dev/full for reads: nothing can be destroyed there.
fn sink_or_source(path: &Path, writes: bool) -> bool {
    let Ok(meta) = std::fs::metadata(path) else {
        return false;
    };
    let (major, minor) = (libc::major(meta.rdev()), libc::minor(meta.rdev()));
    std::os::unix::fs::FileTypeExt::is_char_device(&meta.file_type())
        && major == 1
        && if writes {
            minor == 3 || minor == 5
        } else {
            minor == 5 || minor == 7
        }
}

/// Sets the size and reserves the space, so that ENOSPC shows before the run.
fn reserve(permit: &FilePermit, size: Bytes, sparse: bool) -> std::io::Result<()> {
    use std::os::fd::AsRawFd;
    if sparse {
        return permit.file.set_len(size.0);
    }
    let len = libc::off_t::try_from(size.0).map_err(std::io::Error::other)?;
    // SAFETY: the descriptor is open for writing.
    let r = unsafe { libc::fallocate(permit.file.as_raw_fd(), 0, 0, len) };
    if r != 0 {
        let e = std::io::Error::last_os_error();
        if e.raw_os_error() != Some(libc::EOPNOTSUPP) {
            return Err(e);
        }
        permit.file.set_len(size.0)?;
    }
    Ok(())
}

fn either(opened: std::io::Result<File>) -> (Option<Arc<File>>, Option<std::io::Error>) {
    match opened {
        Ok(file) => (Some(Arc::new(file)), None),
        Err(e) => (None, Some(e)),
    }
}

/// Whether `open` said that the file system has no direct I/O, rather than that it failed.
fn has_no_direct_io(e: &std::io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
    ) || e.kind() == std::io::ErrorKind::Unsupported
}

/// Why a file that is held open could not be opened once more, and what to do.
fn unopened(e: &std::io::Error) -> String {
    let what = match e.raw_os_error() {
        Some(libc::EMFILE) => "raise the limit of open files (ulimit -n)",
        Some(libc::ENFILE) => "the whole system has no descriptor left: raise fs.file-max",
        Some(libc::EACCES | libc::EPERM) => "run as root, or give this user access",
        _ => "look at the kernel log",
    };
    format!("{e}; {what}")
}

fn reopen_file(file: &File, flags: i32, write: bool) -> std::io::Result<File> {
    let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
    open::again_for(file, access, flags)
}
