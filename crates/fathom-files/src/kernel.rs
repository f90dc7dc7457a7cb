//! Attributes of the kernel: files of sysfs, procfs, cgroups and tracefs, whose content is not data of anybody's.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// File systems that hold attributes and nothing else (linux/magic.h).
const ATTRIBUTES: [i64; 8] = [
    0x6265_6572, // sysfs
    0x9fa0,      // proc
    0x6367_7270, // cgroup2
    0x0027_e0eb, // cgroup
    0x7472_6163, // tracefs
    0x6462_6720, // debugfs
    0x6265_6570, // configfs
    0xcafe_4a11, // bpf
];

/// Writes a value in one call, as attributes want it.
///
/// # Errors
/// As `open(2)` and `write(2)`; [`io::ErrorKind::InvalidInput`] where the path leads to a file that is none of the kernel's.
pub fn write(path: &Path, value: &str) -> io::Result<()> {
    open(path)?.write_all(value.as_bytes())
}

/// The same for an attribute that holds a list: what it held before is dropped.
///
/// # Errors
/// As [`write`].
pub fn replace(path: &Path, value: &str) -> io::Result<()> {
    let held = open(path)?;
    let mut again = crate::open::again_for(&held, libc::O_WRONLY, libc::O_TRUNC)?;
    again.write_all(value.as_bytes())
}

/// Opens an attribute for writing.
///
/// # Errors
/// As [`write`].
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open(path)?;
    // The type of f_type differs between architectures.
    #[allow(clippy::unnecessary_cast)]
    let kind = rustix::fs::fstatfs(&file)?.f_type as i64;
    if ATTRIBUTES.contains(&kind) {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} is not an attribute of the kernel's", path.display()),
        ))
    }
}
