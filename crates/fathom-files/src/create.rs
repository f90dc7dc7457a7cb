//! What was not there before: files and directories that no other can have made.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{AtFlags, CWD};

/// Makes an empty file, open for reading and writing, that only its owner may read.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] where there is anything of this name, a link that leads nowhere included.
pub fn file(path: &Path) -> io::Result<File> {
    file_for(path, 0o600, 0)
}

/// The same with an access mode and further flags for `open(2)`, such as `O_DIRECT`.
///
/// # Errors
/// As [`file`].
pub fn file_for(path: &Path, mode: u32, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(mode)
        .custom_flags(flags | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

/// Makes a file without a name, open for reading and writing, in a directory's file system: it goes with its descriptor,
/// unless [`name`] puts it somewhere.
///
/// # Errors
/// `EOPNOTSUPP`, `EISDIR`, `EINVAL` or `ENOENT` where the file system or the kernel has no such files.
pub fn unnamed(dir: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(0o600)
        .custom_flags(libc::O_TMPFILE | libc::O_CLOEXEC)
        .open(dir)
}

/// Whether the reason is that the file system has no files without a name (NFS, FUSE, old overlays).
pub fn never_unnamed(e: &io::Error) -> bool {
    matches!(
        e.raw_os_error(),
        Some(libc::EOPNOTSUPP | libc::EISDIR | libc::EINVAL | libc::ENOENT)
    )
}

/// Gives an unnamed file its name.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] where there is anything of this name.
pub fn name(unnamed: &File, path: &Path) -> io::Result<()> {
    let held = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
    rustix::fs::linkat(CWD, held, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
}

/// Makes a file with this content, and returns it. It has no name before it is whole, where the file system can do without:
/// a kill in between leaves nothing.
///
/// # Errors
/// As [`file`], and as `write(2)`; nothing is left then.
pub fn whole(path: &Path, mode: u32, content: &[u8]) -> io::Result<File> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    match unnamed(parent.unwrap_or(Path::new("."))) {
        Ok(mut file) => {
            file.set_permissions(Permissions::from_mode(mode))?;
            file.write_all(content)?;
            name(&file, path)?;
            Ok(file)
        }
        Err(e) if never_unnamed(&e) => {
            let mut file = file_for(path, mode, 0)?;
            file.write_all(content).inspect_err(|_| {
                let _ = std::fs::remove_file(path);
            })?;
            Ok(file)
        }
        Err(e) => Err(e),
    }
}

/// Opens a file as it is, and makes it where it is missing: what is there is neither changed nor emptied.
///
/// # Errors
/// As `open(2)`, also where there is a link of this name.
pub fn or_open(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

/// Opens a file of fathom's own directories for adding to its end, and makes it where it is missing.
///
/// # Errors
/// As `open(2)`, also where there is a link of this name.
pub fn or_append(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

/// Makes a directory that only its owner may enter.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] where there is anything of this name: somebody else's may be a trap.
pub fn private_dir(path: &Path) -> io::Result<()> {
    dir_for(path, 0o700)
}

/// The same with an access mode.
///
/// # Errors
/// As [`private_dir`].
pub fn dir_for(path: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(path)
}

/// Makes a private directory among temporary files: its name begins with `prefix`, the process id and a number follow.
///
/// # Errors
/// Where none can be made there.
pub fn temporary_dir(prefix: &str) -> io::Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let base = std::env::temp_dir();
    loop {
        let n = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("{prefix}{}-{n}", std::process::id()));
        match private_dir(&dir) {
            // Of a killed run whose number this process has now, or somebody's trap: theirs to keep.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| dir),
        }
    }
}

/// Makes a directory that a user named, and what is missing above it. One that is there stays as it is.
///
/// # Errors
/// Where something else has the name, or this user may not make it.
pub fn dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}
