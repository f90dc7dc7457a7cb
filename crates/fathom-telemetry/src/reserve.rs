//! Space kept back on a disk that may run full, for what must be written at the end.
//!
//! A file without a name holds it, so nothing of it is left however the process ends. Where a file system
//! has no such files, or cannot reserve, nothing is held: what can be given up makes room there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

/// Bytes kept for the end of a run.
#[derive(Debug)]
pub struct Reserve {
    dir: PathBuf,
    held: Option<(File, u64)>,
}

impl Reserve {
    /// Holds `wanted` bytes on the disk of a directory, or less of them where there is less room, at least `least`.
    ///
    /// # Errors
    /// Where the disk has no such room. That it cannot be reserved is no error.
    pub fn hold(dir: &Path, least: u64, wanted: u64) -> io::Result<Self> {
        let mut reserve = Self {
            dir: dir.to_owned(),
            held: None,
        };
        reserve.extend(least, wanted)?;
        Ok(reserve)
    }

    /// Holds more where it holds less than `wanted`.
    ///
    /// # Errors
    /// As [`Self::hold`]; what it held before it holds still.
    pub fn extend(&mut self, least: u64, wanted: u64) -> io::Result<()> {
        let had = self.held.as_ref().map_or(0, |held| held.1);
        if had >= wanted {
            return Ok(());
        }
        let file = match self.held.take() {
            Some((file, _)) => file,
            None => match fathom_files::create::unnamed(&self.dir) {
                Ok(file) => file,
                Err(e) if is_full(&e) => return Err(e),
                Err(_) => return Ok(()),
            },
        };
        let mut bytes = wanted;
        let reserved = loop {
            match fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from) {
                Ok(()) => break Ok(bytes),
                Err(e) if is_full(&e) && bytes / 2 < least => break Err(e),
                Err(e) if is_full(&e) => bytes /= 2,
                // Nothing can be reserved here.
                Err(_) => break Ok(0),
            }
        };
        let mut holds = had.max(*reserved.as_ref().unwrap_or(&0));
        // Others need room, too: as much is left as is held. It is asked for once, and the half that stays is never let
        // go, because others may be filling the disk at this moment.
        let half = holds / 2;
        let scarce = half >= least.max(had) && free(&file).is_some_and(|left| left < holds);
        if scarce && file.set_len(half).is_ok() {
            holds = half;
        }
        self.held = (holds > 0).then_some((file, holds));
        reserved.map(|_| ())
    }

    /// Gives all of it back to the disk; whether there was any.
    pub fn release(&mut self) -> bool {
        self.held.take().is_some()
    }
}

/// Bytes that its disk has free.
fn free(file: &File) -> Option<u64> {
    let disk = fstatvfs(file).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Whether an error says that there is no room: on the disk, in a quota, or under a limit of file sizes.
pub fn is_full(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_has_no_name_and_is_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let mut reserve = Reserve::hold(dir.path(), 4096, 1 << 16).unwrap();
        reserve.extend(4096, 1 << 17).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let had = reserve.held.as_ref().map(|held| held.1);
        // No file may be that long.
        let most = i64::MAX as u64;
        assert_eq!(reserve.extend(most, most).is_err(), had.is_some());
        assert_eq!(reserve.held.as_ref().map(|held| held.1), had);
        // Some file systems have no such files.
        if reserve.release() {
            assert!(!reserve.release(), "once");
        }
        assert!(
            Reserve::hold(Path::new("/proc"), 1, 1).is_ok(),
            "no reserve is no error"
        );
    }
}
