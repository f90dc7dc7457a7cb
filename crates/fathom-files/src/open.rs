//! What is there already, opened for writing: never created, never emptied, never through a link at the end of its path.
//! And how it is looked at before.
//!
//! Who calls has judged it first (`fathom-host`'s guard) or made it; nothing here decides that it may be written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Opens for reading and writing, with further flags for `open(2)`, such as `O_EXCL`.
///
/// # Errors
/// As `open(2)`.
pub fn for_writing(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

/// Opens what is held once more, with other flags: no change of names can lead to something else.
///
/// # Errors
/// As `open(2)`.
pub fn again(held: &File, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(flags | libc::O_CLOEXEC)
        .open(named(held))
}

/// Holds what a path names, whatever it is, without opening it: nothing happens to a device, nobody waits for a pipe. A
/// link is held itself.
///
/// # Errors
/// As `open(2)`.
pub fn held(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
}

/// Opens for reading, without waiting for a medium or for who writes to a pipe; with further flags for `open(2)`.
///
/// # Errors
/// As `open(2)`.
pub fn to_read(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(flags | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

/// Opens what is held for reading: no change of names can lead to something else.
///
/// # Errors
/// As `open(2)`.
pub fn again_to_read(held: &File) -> io::Result<File> {
    to_read(&named(held), 0)
}

fn named(held: &File) -> PathBuf {
    format!("/proc/self/fd/{}", held.as_raw_fd()).into()
}
