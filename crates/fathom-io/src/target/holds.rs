//! What a target's name stands for, held open and guarded as it must be, and what cleans up after it.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fathom_files::open;
use fathom_host::{FilePermit, Permit, Refusal, Scratch, TargetKind, probe_target};
use fathom_telemetry::Bytes;

use super::{NULL_SIZE, SCRATCH_DEFAULT, TargetError, Wanted};

/// What keeps the target open and cleans up after it.
pub(super) enum Holder {
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
pub(super) struct NewFile {
    pub(super) permit: FilePermit,
    pub(super) keep: bool,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.keep {
            let _ = self.permit.remove();
        }
    }
}

impl Holder {
    /// Opens it once more.
    pub(super) fn reopen(&self, flags: i32) -> std::io::Result<File> {
        match self {
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
    }
}

/// What a name stands for, held open and guarded as it must be.
pub(super) struct Holds {
    pub(super) kind: &'static str,
    pub(super) path: PathBuf,
    pub(super) size: u64,
    pub(super) align: u32,
    pub(super) description: String,
    /// Whether it was made just now.
    pub(super) fresh: bool,
    pub(super) holder: Holder,
}

/// An error about a target, from a sentence.
pub(super) fn unfit(name: &str) -> impl Fn(String) -> TargetError + use<> {
    let target = name.to_owned();
    move |message| TargetError::Unfit {
        target: target.clone(),
        message,
    }
}

impl Holds {
    pub(super) fn of(
        name: &str,
        kind: TargetKind,
        wanted: &Wanted,
        sparse: bool,
    ) -> Result<Self, TargetError> {
        let unfit = unfit(name);
        match kind {
            TargetKind::Directory {
                path,
                direct,
                file_system,
            } => {
                let fs = file_system.map(|f| f.fs_type).unwrap_or_default();
                Self::scratch(&path, direct.offset_align_bytes, &fs, wanted)
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
                Self::new_file(&path, size, sparse, &unfit)
            }
            TargetKind::Missing { parent: None, .. } => Err(unfit(
                "there is no such file, and no directory to make it in: check the path".into(),
            )),
            TargetKind::File {
                path,
                size_bytes,
                direct,
                ..
            } => Ok(Self {
                holder: held_file(&path, size_bytes, wanted, &unfit)?,
                kind: "file",
                path,
                size: size_bytes,
                align: direct.offset_align_bytes,
                description: format!("file of {}", Bytes(size_bytes)),
                fresh: false,
            }),
            TargetKind::BlockDevice {
                path,
                size_bytes,
                direct,
                ..
            } => Ok(Self {
                holder: held_device(&path, size_bytes, wanted, &unfit)?,
                kind: "block-device",
                path,
                size: size_bytes,
                align: direct.offset_align_bytes,
                description: format!("block device of {}", Bytes(size_bytes)),
                fresh: false,
            }),
            TargetKind::Other { path, .. } if sink_or_source(&path, wanted.modifies) => {
                Self::hollow(path, wanted, &unfit)
            }
            TargetKind::Other { found, .. } => Err(unfit(format!(
                "it is {found}: expected a directory, a file, a block device, null: or sim:MODEL"
            ))),
        }
    }

    /// A device of the kernel's that takes everything, or gives zeroes.
    fn hollow(
        path: PathBuf,
        wanted: &Wanted,
        unfit: &dyn Fn(String) -> TargetError,
    ) -> Result<Self, TargetError> {
        let file = match wanted.modifies {
            true => open::control(&path),
            false => File::open(&path),
        };
        Ok(Self {
            kind: "character-device",
            path,
            size: wanted.size.map_or(NULL_SIZE, |s| s.0),
            align: 1,
            description: "a device of the kernel's that holds nothing".into(),
            fresh: false,
            holder: Holder::Hollow(file.map_err(|e| unfit(format!("cannot be opened: {e}")))?),
        })
    }

    /// A scratch file in a directory.
    fn scratch(
        directory: &Path,
        align: u32,
        fs: &str,
        wanted: &Wanted,
    ) -> Result<Self, TargetError> {
        let size = wanted.size.unwrap_or(SCRATCH_DEFAULT);
        let scratch = Scratch::create(directory, size.0)?;
        Ok(Self {
            kind: "directory",
            path: scratch.path().to_owned(),
            size: size.0,
            align,
            description: format!("scratch file of {size} in {} ({fs})", directory.display()),
            fresh: true,
            holder: Holder::Scratch(scratch),
        })
    }

    fn new_file(
        path: &Path,
        size: Bytes,
        sparse: bool,
        unfit: &dyn Fn(String) -> TargetError,
    ) -> Result<Self, TargetError> {
        let mut new = NewFile {
            permit: fathom_host::create_file(path)?,
            keep: false,
        };
        new.permit.sized(size.0);
        reserve(&new.permit, size, sparse).map_err(|e| {
            unfit(format!(
                "cannot make a file of {size}: {e}; choose a smaller --size or another place"
            ))
        })?;
        let path = new.permit.path.clone();
        Ok(Self {
            kind: "file",
            size: size.0,
            align: alignment(&path),
            description: format!("new file of {size}"),
            path,
            fresh: true,
            holder: Holder::New(new),
        })
    }
}

/// A file that is there: to be written only where fathom made it.
fn held_file(
    path: &Path,
    size: u64,
    wanted: &Wanted,
    unfit: &dyn Fn(String) -> TargetError,
) -> Result<Holder, TargetError> {
    if size == 0 {
        return Err(unfit(
            "the file is empty: name one with data, or a directory".into(),
        ));
    }
    if wanted.modifies {
        return Ok(Holder::Made(fathom_host::open_file_for_write(path)?));
    }
    let file = File::open(path);
    let file = file.map_err(|e| unfit(format!("cannot be opened for reading: {e}")))?;
    Ok(Holder::Borrowed(file))
}

/// A block device: to be written only as [`fathom_host::open_for_write`] allows.
fn held_device(
    path: &Path,
    size: u64,
    wanted: &Wanted,
    unfit: &dyn Fn(String) -> TargetError,
) -> Result<Holder, TargetError> {
    if size == 0 {
        return Err(unfit(
            "the device is empty (0 bytes): insert a medium, attach a file, or name another".into(),
        ));
    }
    if wanted.modifies {
        let permit = fathom_host::open_for_write(path, wanted.destroy.as_deref())?;
        return match permit.zones().filter(|_| !wanted.in_order) {
            Some(model) => Err(permit.zoned(model).into()),
            None => Ok(Holder::Device(permit)),
        };
    }
    let file = File::open(path).map_err(|e| {
        unfit(format!(
            "cannot be opened for reading: {e}; run as root, or join the group disk"
        ))
    })?;
    Ok(Holder::Borrowed(file))
}

pub(super) fn alignment(path: &Path) -> u32 {
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

fn reopen_file(file: &File, flags: i32, write: bool) -> std::io::Result<File> {
    let access = if write { libc::O_RDWR } else { libc::O_RDONLY };
    open::again_for(file, access, flags)
}
