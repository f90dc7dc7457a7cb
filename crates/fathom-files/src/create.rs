//! What was not there before: files and directories that no other can have made.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

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

/// Gives an unnamed file its name.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`] where there is anything of this name.
pub fn name(unnamed: &File, path: &Path) -> io::Result<()> {
    let held = format!("/proc/self/fd/{}", unnamed.as_raw_fd());
    rustix::fs::linkat(CWD, held, CWD, path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from)
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

/// Makes a directory that a user named, and what is missing above it. One that is there stays as it is.
///
/// # Errors
/// Where something else has the name, or this user may not make it.
pub fn dirs(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}
