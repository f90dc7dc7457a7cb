//! A real target, opened under the safety rules: directory, file, block device or `null:`.
//!
//! Opening decides everything that may be refused, so that a run which starts can
//! finish. Dropping a target removes what fathom made for this run only.

mod counting;
mod holds;
pub mod purge;
mod wanted;
mod zoned;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fathom_host::{Below, CounterSource, Passthrough, Refusal, ZoneLimits, extents, probe_target};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::{self, DeviceDelta};

use crate::driver::Destination;
use crate::job::{JobError, Limits};
use crate::port::polled;

use holds::{Holder, Holds, alignment, unfit};

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
        let holds = Holds {
            kind: "file",
            size,
            align: alignment(&path),
            description: format!("shared scratch file of {}", Bytes(size)),
            path,
            fresh: false,
            holder: Holder::Joined(file),
        };
        Self::file(name, holds)
    }

    fn open_as(name: &str, wanted: &Wanted, sparse: bool) -> Result<Self, TargetError> {
        if name == "null:" || name == "null" {
            return Ok(Self::null(name, wanted));
        }
        let unfit = unfit(name);
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
        let mut target = Self::file(name, Holds::of(name, kind, wanted, sparse)?)?;
        target.opened_as(wanted)?;
        target.commands_only = namespace.is_some();
        target.atomic_as(wanted).map_err(&unfit)?;
        if wanted.commands != Share::No {
            target.open_for_commands(wanted).map_err(&unfit)?;
        }
        Ok(target)
    }

    fn null(name: &str, wanted: &Wanted) -> Self {
        Self {
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
        }
    }

    /// Whether it could be opened in the ways that are wanted.
    fn opened_as(&self, wanted: &Wanted) -> Result<(), TargetError> {
        let Destination::File {
            direct, buffered, ..
        } = &self.destination
        else {
            return Ok(());
        };
        let unfit = unfit(&self.name);
        let [no_direct, no_buffered] = &self.unopened;
        if wanted.direct && direct.is_none() {
            return Err(match no_direct {
                Some(e) if !has_no_direct_io(e) => {
                    unfit(format!("cannot be opened for direct I/O: {}", unopened(e)))
                }
                _ => TargetError::NoDirect {
                    target: self.name.clone(),
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
            && let Some(why) = self.cannot_poll(file)
        {
            return Err(unfit(format!(
                "completions cannot be polled for ({why}): drop --iopoll, or give the device poll queues (for NVMe the kernel parameter nvme.poll_queues=N)"
            )));
        }
        Ok(())
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

    fn file(name: &str, holds: Holds) -> Result<Self, TargetError> {
        let Holds {
            kind,
            path,
            size,
            align,
            description,
            fresh,
            holder,
        } = holds;
        // Reading shall not make the file system write access times; only owners may ask for that.
        let reopen = |flags: i32| {
            let open = |flags| holder.reopen(flags);
            open(flags | libc::O_NOATIME).or_else(|_| open(flags))
        };
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
