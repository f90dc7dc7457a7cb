//! How much of a file system may be used without getting in its way.

use std::path::Path;

use crate::mounts::MountTable;
use crate::refusal::Refusal;
use crate::root::HostRoot;

/// Share of a file system that fathom leaves free: beyond 95 % full, file systems change
/// their allocation and others run out of space.
const RESERVE: u64 = 20;

/// Room on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Space {
    /// Size in bytes.
    pub total_bytes: u64,
    /// Bytes that this user may still write.
    pub free_bytes: u64,
    /// Bytes that fathom would take at most.
    pub fits_bytes: u64,
    /// Unit of allocation in bytes.
    pub block_bytes: u64,
}

/// Room on the file system that holds `path`.
pub fn space(path: &Path) -> std::io::Result<Space> {
    let vfs = rustix::fs::statvfs(path)?;
    let unit = if vfs.f_frsize == 0 {
        vfs.f_bsize
    } else {
        vfs.f_frsize
    };
    let total_bytes = vfs.f_blocks.saturating_mul(unit);
    let free_bytes = vfs.f_bavail.saturating_mul(unit);
    // As `df` counts: what is used and what may be used. Blocks that nobody but root or nobody at all may have (ext4's
    // reserve, a thin disk with less behind it than its size) are in neither.
    let used_bytes = vfs
        .f_blocks
        .saturating_sub(vfs.f_bfree)
        .saturating_mul(unit);
    let usable_bytes = used_bytes.saturating_add(free_bytes);
    let mut fits_bytes = free_bytes.saturating_sub(usable_bytes / RESERVE);
    // A file in memory takes the memory that everybody needs.
    if is_memory(path)
        && let Some(available) = memory_available()
    {
        fits_bytes = fits_bytes.min(available / 2);
    }
    Ok(Space {
        total_bytes,
        free_bytes,
        fits_bytes,
        block_bytes: unit,
    })
}

/// Refuses where `size` more bytes would fill the file system too far.
pub(crate) fn check_fits(dir: &Path, size: u64) -> Result<(), Refusal> {
    let room = space(dir).map_err(|e| Refusal::from_io("measure", dir, &e))?;
    if size > room.fits_bytes {
        return Err(no_space(dir, size));
    }
    Ok(())
}

/// The refusal for lack of space, with what would fit.
pub(crate) fn no_space(dir: &Path, size: u64) -> Refusal {
    let room = space(dir).ok();
    Refusal::NoSpace {
        path: dir.to_path_buf(),
        asked_bytes: size,
        fits_bytes: room.map_or(0, |r| r.fits_bytes.min(size.saturating_sub(1))),
        free_bytes: room.map_or(0, |r| r.free_bytes),
        total_bytes: room.map_or(0, |r| r.total_bytes),
    }
}

fn is_memory(path: &Path) -> bool {
    MountTable::read(&HostRoot::real())
        .ok()
        .and_then(|t| t.containing(path).map(|m| m.fs_type.clone()))
        .is_some_and(|t| t == "tmpfs" || t == "ramfs" || t == "hugetlbfs")
}

fn memory_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    crate::meminfo::meminfo(&text, "MemAvailable")
}
