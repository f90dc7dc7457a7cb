//! Outputs that have a name before they are whole, because their file system cannot do without: how they are called while they
//! are written, and how those of killed processes are known.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::FlockOperation;

use crate::{open, replace};

const PREFIX: &str = ".fathom-";
const SUFFIX: &str = ".partial";

/// Short: the place's own name may be as long as names can be.
pub(crate) fn name() -> PathBuf {
    static N: AtomicU64 = AtomicU64::new(0);
    let n = N.fetch_add(1, Ordering::Relaxed);
    format!("{PREFIX}{}-{n}{SUFFIX}", std::process::id()).into()
}

/// Locks and marks one that this process has just made: where it is killed, the mark and a lock that is free say what the
/// file is. Where the file system has neither, it is not found.
pub(crate) fn begin(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    replace::set_begun(file);
}

/// Whether [`name`] gives such a name.
fn is_name(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    name.strip_prefix(PREFIX)
        .and_then(|n| n.strip_suffix(SUFFIX))
        .and_then(|n| n.split_once('-'))
        .is_some_and(|(pid, n)| number(pid) && number(n))
}

/// The file with its lock, where a killed process of this user's began it.
fn open_abandoned(path: &Path) -> io::Result<Option<File>> {
    let name = path.file_name().and_then(|n| n.to_str());
    if !name.is_some_and(is_name) {
        return Ok(None);
    }
    let file = open::for_reading(path, libc::O_NOFOLLOW)?;
    let meta = file.metadata()?;
    let ours = meta.is_file()
        && meta.uid() == rustix::process::geteuid().as_raw()
        && replace::is_begun(&file);
    let free = || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok((ours && free()).then_some(file))
}

/// Outputs in a directory that killed processes began.
///
/// # Errors
/// Where the directory cannot be read.
pub fn abandoned(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if matches!(open_abandoned(&path), Ok(Some(_))) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Removes one that [`abandoned`] found, after checking once more.
///
/// # Errors
/// Where it is in use, somebody else's, or may not be removed.
pub fn remove_abandoned(path: &Path) -> io::Result<()> {
    match open_abandoned(path) {
        Ok(Some(_locked)) => fs::remove_file(path),
        Ok(None) => Err(io::Error::other(format!(
            "{}: in use, or not fathom's; wait for its end",
            path.display()
        ))),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_output_of_a_killed_process_is_found_by_mark_and_lock() {
        let dir = tempfile::tempdir().unwrap();
        let partial = dir.path().join(name());
        let file = crate::create::file(&partial).unwrap();
        begin(&file);
        if !replace::is_begun(&file) {
            return println!(
                "SKIP an_output_of_a_killed_process: no attributes on this file system"
            );
        }
        assert!(abandoned(dir.path()).unwrap().is_empty(), "being written");
        assert!(remove_abandoned(&partial).is_err());
        // What a kill leaves: the file without its lock; and what looks like it.
        drop(file);
        let alike = dir.path().join(".fathom-7-0.partial");
        fs::write(&alike, "kept").unwrap();
        let pipe = dir.path().join(".fathom-7-1.partial");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(
            abandoned(dir.path()).unwrap(),
            *std::slice::from_ref(&partial)
        );
        remove_abandoned(&partial).unwrap();
        assert!(remove_abandoned(&alike).is_err() && remove_abandoned(&pipe).is_err());
        assert!(!partial.exists() && alike.exists() && pipe.exists());
    }
}
