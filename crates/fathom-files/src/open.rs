//! What is there already, opened for writing: never created, never emptied, never through a link at the end of its path.
//! And how it is looked at before.
//!
//! Who calls has judged it first (`fathom-host`'s guard) or made it; nothing here decides that it may be written.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
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
    again_for(held, libc::O_RDWR, flags)
}

/// The same for one of `O_RDONLY`, `O_WRONLY` and `O_RDWR`.
///
/// # Errors
/// As `open(2)`.
pub fn again_for(held: &File, access: i32, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
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
pub fn for_reading(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(flags | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)
}

fn named(held: &File) -> PathBuf {
    format!("/proc/self/fd/{}", held.as_raw_fd()).into()
}

/// Opens a node through which a driver is asked for things, such as `/dev/loop-control`: a character device. There
/// may be a link in its place, as in containers.
///
/// # Errors
/// As `open(2)`; [`io::ErrorKind::InvalidInput`] where it is something else.
pub fn control(path: &Path) -> io::Result<File> {
    let node = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    if !node.metadata()?.file_type().is_char_device() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a character device",
        ));
    }
    // Asked for only so that a pipe in its place cannot hold anybody up.
    rustix::fs::fcntl_setfl(&node, rustix::fs::OFlags::empty())?;
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_node_is_a_character_device_and_nothing_else() {
        assert!(control(Path::new("/dev/null")).is_ok());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "users").unwrap();
        let e = control(&file).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
        assert!(for_writing(&dir.path().join("missing"), 0).is_err());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(for_writing(&link, 0).is_err(), "through a link");
        assert_eq!(std::fs::read(&file).unwrap(), b"users");
    }
}
