//! Mount options of file systems that are fathom's own: on a loop device over a file that fathom made.
//!
//! Everybody else's are never mounted anew, whatever is asked.

use std::path::{Path, PathBuf};

use fathom_host::root::DeviceNumber;
use rustix::mount::MountFlags;

use crate::error::TraceError;

/// Options that a remount may change, each with its bit.
const OPTIONS: [(&str, MountFlags); 10] = [
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("lazytime", MountFlags::LAZYTIME),
];

fn failed(at: &Path, what: impl Into<String>) -> TraceError {
    TraceError::Setting {
        name: at.display().to_string(),
        what: what.into(),
    }
}

fn mount_at(at: &Path) -> Option<fathom_host::mounts::Mount> {
    let table = fathom_host::mounts::MountTable::read(&fathom_host::HostRoot::real()).ok()?;
    // A later mount hides an earlier one at the same place.
    table.mounts.into_iter().rev().find(|m| m.at == at)
}

/// The options in force at a mount point that can be changed here, in a fixed order: `rw,sync,relatime`.
///
/// # Errors
/// Nothing is mounted there.
pub fn options(at: &Path) -> Result<String, TraceError> {
    let mount = mount_at(at).ok_or_else(|| failed(at, "nothing is mounted there"))?;
    let set = |name: &str| {
        let has = |all: &[String]| all.iter().any(|o| o == name);
        has(&mount.options) || has(&mount.super_options)
    };
    let mut words: Vec<&str> = OPTIONS.iter().map(|o| o.0).filter(|o| set(o)).collect();
    if !words.contains(&"ro") {
        words.insert(0, "rw");
    }
    Ok(words.join(","))
}

/// Mounts anew with exactly these options, where it is fathom's; the file system's own options stay.
pub(super) fn remount(at: &Path, options: &str) -> Result<(), TraceError> {
    check(at)?;
    let words: Vec<&str> = options.split(',').filter(|w| *w != "rw").collect();
    let mut flags = MountFlags::empty();
    for word in &words {
        let (_, bit) = OPTIONS
            .iter()
            .find(|o| o.0 == *word)
            .ok_or_else(|| failed(at, format!("{word} is no option that a remount changes")))?;
        flags |= *bit;
    }
    // Neither of the two means every access is noted; the kernel would take relatime otherwise.
    if !words.contains(&"noatime") && !words.contains(&"relatime") {
        flags |= MountFlags::STRICTATIME;
    }
    rustix::mount::mount_remount(at, flags, c"")
        .map_err(|e| failed(at, format!("cannot be mounted with {options}: {e}")))
}

/// Refuses what is somebody else's.
pub(super) fn check(at: &Path) -> Result<(), TraceError> {
    is_fathoms(at).then_some(()).ok_or_else(|| {
        failed(
            at,
            "only file systems on loop devices over a file that fathom made are mounted anew",
        )
    })
}

/// Whether what is mounted at `at` lies on a loop device over a file that fathom made.
pub fn is_fathoms(at: &Path) -> bool {
    backing_file(at).is_some_and(|file| fathom_host::is_made(&file))
}

/// The file behind the loop device that is mounted at `at`; `None` for everything that is no whole loop device.
pub fn backing_file(at: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(device_dir(at)?.join("loop/backing_file")).ok()?;
    Some(PathBuf::from(text.trim_end_matches('\n')))
}

/// Node of the block device that is mounted at `at`; `None` where the file system has none of its own.
pub fn node(at: &Path) -> Option<PathBuf> {
    let dir = std::fs::canonicalize(device_dir(at)?).ok()?;
    Some(Path::new("/dev").join(dir.file_name()?))
}

/// In sysfs, by the number that the file system's files show (`st_dev`). What was typed as its source says nothing: a
/// link of any name mounts whatever it leads to.
fn device_dir(at: &Path) -> Option<PathBuf> {
    use std::os::unix::fs::MetadataExt;
    let number = mount_at(at)?.device;
    // What is mounted there now, not what a table said a moment ago.
    let shown = std::fs::metadata(at).ok()?.dev();
    (DeviceNumber::from_raw(shown) == number)
        .then(|| PathBuf::from(format!("/sys/dev/block/{number}")))
}

/// The mount point that a path lies below.
pub fn point_of(path: &Path) -> Option<PathBuf> {
    let table = fathom_host::mounts::MountTable::read(&fathom_host::HostRoot::real()).ok()?;
    table.containing(path).map(|m| m.at.clone())
}
