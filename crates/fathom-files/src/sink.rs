//! Places that hold nothing: the process' own streams, terminals and the kernel's sinks. They are written as it comes;
//! what stores bytes is never one of them.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens one; `None` where the path leads to none.
pub(crate) fn open(path: &Path) -> io::Result<Option<File>> {
    if let Some(n) = descriptor(path) {
        return of_descriptor(path, n);
    }
    let Ok(meta) = std::fs::symlink_metadata(path) else {
        return Ok(None);
    };
    // Others may act on being opened, as tapes do.
    if !meta.file_type().is_char_device() || !holds_nothing(meta.rdev()) {
        return Ok(None);
    }
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NOCTTY | libc::O_CLOEXEC)
        .open(path)?;
    let opened = file.metadata()?;
    let same = opened.file_type().is_char_device() && opened.rdev() == meta.rdev();
    Ok(same.then_some(file))
}

/// The number in `/dev/stdout`, `/dev/fd/N` and the like.
fn descriptor(path: &Path) -> Option<u32> {
    let text = path.to_str()?;
    match text {
        "/dev/stdout" => Some(1),
        "/dev/stderr" => Some(2),
        _ => text
            .strip_prefix("/dev/fd/")
            .or_else(|| text.strip_prefix("/proc/self/fd/"))?
            .parse()
            .ok(),
    }
}

/// Standard output and error as the shell made them; of others only pipes, such as bash's `>(program)`.
fn of_descriptor(path: &Path, n: u32) -> io::Result<Option<File>> {
    let own = match n {
        1 => rustix::stdio::stdout().try_clone_to_owned()?,
        2 => rustix::stdio::stderr().try_clone_to_owned()?,
        _ => {
            let Ok(meta) = std::fs::metadata(path) else {
                return Ok(None);
            };
            if !meta.file_type().is_fifo() {
                return Ok(None);
            }
            let pipe = OpenOptions::new()
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
                .open(path)?;
            rustix::fs::fcntl_setfl(&pipe, rustix::fs::OFlags::empty())?;
            return Ok(pipe.metadata()?.file_type().is_fifo().then_some(pipe));
        }
    };
    let file = File::from(own);
    Ok((!file.metadata()?.file_type().is_block_device()).then_some(file))
}

/// `null`, `zero` and `full` of the memory devices, and terminals.
fn holds_nothing(rdev: u64) -> bool {
    match (libc::major(rdev), libc::minor(rdev)) {
        (1, minor) => matches!(minor, 3 | 5 | 7),
        (major, _) => matches!(major, 4 | 5 | 136..=143),
    }
}
