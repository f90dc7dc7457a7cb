//! A lab's own directory on the target: made, marked and locked by one run, removed on its exit, and found again
//! after a run that was killed.
//!
//! Databases want a directory, not a scratch file. Its lock is held as long as the run lives: a directory of this
//! name, with the mark inside and without a lock, is a leftover.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fathom_files::{create, open};
use fathom_telemetry::say;
use rustix::fs::FlockOperation;

use crate::LabError;
use crate::outside;

/// Beginning of every such directory's name; the process id and a nonce follow.
pub const PREFIX: &str = ".fathom-lab-";
const MARK: &str = "made-by-fathom";

/// A directory in use. Dropping it removes it with all that it holds.
#[derive(Debug)]
pub struct Workplace {
    path: PathBuf,
    _lock: File,
}

impl Workplace {
    /// Makes one in `dir`, where `bytes` must fit.
    ///
    /// # Errors
    /// Where there is no room, or the directory cannot be written.
    pub fn create(dir: &Path, bytes: u64) -> Result<Self, LabError> {
        let refused = |what: &str, e: &io::Error| {
            LabError::Refused(format!(
                "{}: {what}: {e}; name a directory that can be written",
                dir.display()
            ))
        };
        let dir = fs::canonicalize(dir).map_err(|e| refused("cannot be found", &e))?;
        if let Ok(space) = fathom_host::space(&dir)
            && space.fits_bytes < bytes
        {
            return Err(LabError::Refused(format!(
                "{}: {} of room are left for a lab that needs {}: use a smaller --size, or another directory",
                dir.display(),
                fathom_telemetry::Bytes(space.fits_bytes),
                fathom_telemetry::Bytes(bytes)
            )));
        }
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
        let nonce = nanos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let path = dir.join(format!("{PREFIX}{}-{nonce:08x}", std::process::id()));
        // Servers that must not run as root go through it, but nobody lists it.
        create::dir_for(&path, 0o711)
            .map_err(|e| refused("a directory for the lab cannot be made", &e))?;
        let lock = mark(&path).map_err(|e| {
            let _ = fs::remove_dir_all(&path);
            refused("a directory for the lab cannot be marked", &e)
        })?;
        Ok(Self { path, _lock: lock })
    }

    /// Absolute, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn mark(path: &Path) -> io::Result<File> {
    let file = create::file_for(&path.join(MARK), 0o644, 0)?;
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    io::Write::write_all(
        &mut &file,
        concat!("fathom ", env!("CARGO_PKG_VERSION"), "\n").as_bytes(),
    )?;
    Ok(file)
}

impl Drop for Workplace {
    fn drop(&mut self) {
        // A server that is ending may still make a file.
        let there = |e: &io::Error| e.kind() != io::ErrorKind::NotFound;
        let removed = outside::patiently(1, there, || fs::remove_dir_all(&self.path));
        if removed.is_err_and(|e| there(&e)) {
            say!(
                "fathom: {} could not be removed; fathom clean will",
                self.path.display()
            );
        }
    }
}

/// Directories of killed runs in a directory: marked, and used by nobody.
///
/// # Errors
/// Where the directory cannot be read.
pub fn abandoned(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let ours = entry
            .file_name()
            .to_str()
            .and_then(|n| n.strip_prefix(PREFIX)?.split_once('-'))
            .is_some_and(|(pid, nonce)| pid.parse::<u32>().is_ok() && nonce.len() == 8);
        if ours && entry.file_type()?.is_dir() && unlocked(&entry.path()).is_some() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

fn unlocked(path: &Path) -> Option<File> {
    let file = open::for_reading(&path.join(MARK), libc::O_NOFOLLOW).ok()?;
    let text = io::read_to_string(&file).ok()?;
    // Its maker may have named it a moment ago and not locked it yet.
    let ours = text.starts_with("fathom ");
    rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    ours.then_some(file)
}

/// Removes one that [`abandoned`] found, after checking once more.
///
/// # Errors
/// Where it is in use again, or cannot be removed.
pub fn remove_abandoned(path: &Path) -> Result<(), LabError> {
    let Some(_lock) = unlocked(path) else {
        return Err(LabError::Refused(format!(
            "{}: in use by a run that is still going on, or not fathom's; wait for its end",
            path.display()
        )));
    };
    // A server that was killed with its run may have left more than files.
    crate::db::cluster::release_memory(&path.join("postgresql"));
    fs::remove_dir_all(path)
        .map_err(|e| LabError::Failed(format!("{}: cannot be removed: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_goes_with_its_run_and_is_found_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let place = Workplace::create(dir.path(), 1).unwrap();
        fs::write(place.path().join("data"), "x").unwrap();
        assert!(abandoned(dir.path()).unwrap().is_empty(), "in use");
        let path = place.path().to_owned();
        assert!(remove_abandoned(&path).is_err());
        drop(place);
        assert!(!path.exists());
        // What a killed run leaves: the directory without the lock.
        fs::create_dir(&path).unwrap();
        assert!(abandoned(dir.path()).unwrap().is_empty(), "not marked");
        fs::write(path.join(MARK), "fathom 0\n").unwrap();
        assert_eq!(
            abandoned(dir.path()).unwrap().as_slice(),
            std::slice::from_ref(&path)
        );
        remove_abandoned(&path).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn no_room_is_said_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let e = Workplace::create(dir.path(), u64::MAX).unwrap_err();
        assert!(e.to_string().contains("of room are left"), "{e}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
