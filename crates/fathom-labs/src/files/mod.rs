//! What an agent does with files: in a directory that it makes, or that another host has made, for nothing else
//! ([`Place`]); phases of metadata operations ([`phase`]), and steps that look at what other hosts did ([`steps`]).

mod held;
mod phase;
mod steps;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fathom_io::files::Phase;
use fathom_system::lab_dir::{self, LabDir};
use fathom_telemetry::Bytes;

use crate::LabError;

/// Room that must be there for the directory; what a phase makes is asked for when it begins.
const ROOM: Bytes = Bytes::mib(64);
/// What a file system needs for each file beside its bytes, about.
const INODE: u64 = 4096;

/// The directory, and what was made in it. Whoever made it removes it when this is dropped.
pub(crate) struct Place {
    path: PathBuf,
    own: Option<LabDir>,
    /// Files that the last phase that made some has made, and how many of them have their second name.
    made: u64,
    renamed: u64,
    /// Files that steps made here and that are there still: other hosts may not see all of them.
    made_by_steps: RefCell<BTreeSet<PathBuf>>,
}

impl Place {
    /// Makes one in `dir`, or joins the one that is there, by its name and mark.
    ///
    /// # Errors
    /// Where it cannot be made, or is not there.
    pub(crate) fn new(dir: &Path, joins: Option<&(String, String)>) -> Result<Self, LabError> {
        let (path, own) = match joins {
            Some((name, mark)) => (lab_dir::join(dir, (name, mark))?, None),
            None => {
                let own = LabDir::create(dir, ROOM.0)?;
                (own.path().to_owned(), Some(own))
            }
        };
        Ok(Self {
            path,
            own,
            made: 0,
            renamed: 0,
            made_by_steps: RefCell::default(),
        })
    }

    /// Refuses a phase whose files the file system has no room for.
    ///
    /// # Errors
    /// With how many of them fit.
    fn check_room(&self, phase: &Phase) -> Result<(), LabError> {
        let each = INODE + u64::from(phase.bytes).next_multiple_of(INODE);
        let fits = files_that_fit(&self.path, each) / phase.hosts.max(1);
        if phase.files <= fits {
            return Ok(());
        }
        Err(LabError::Refused(format!(
            "{}: {} files of {} on each of {} are too many: room and inodes are left for {fits} each, so use --files {fits} at most, or another directory",
            self.path.display(),
            phase.files,
            Bytes(phase.bytes.into()),
            match phase.hosts {
                0 | 1 => "one host".to_owned(),
                n => format!("{n} hosts"),
            },
        )))
    }

    /// Removes it, where it was made here.
    ///
    /// # Errors
    /// Where something of it stays.
    pub(crate) fn close(self) -> Result<(), LabError> {
        let (path, own) = (self.path.clone(), self.own.is_some());
        drop(self);
        match own && path.symlink_metadata().is_ok() {
            true => Err(LabError::Failed(format!("{} is left", path.display()))),
            false => Ok(()),
        }
    }

    /// What others join it by: name and mark.
    ///
    /// # Errors
    /// Where the mark cannot be read.
    pub(crate) fn invitation(&self) -> Result<(String, String), LabError> {
        let invitation = self.own.as_ref().map(LabDir::invitation);
        let words = invitation.unwrap_or_else(|| Ok(Default::default()));
        words.map_err(|e| LabError::Failed(format!("{}: {e}", self.path.display())))
    }
}

/// Files that take `each` bytes, by room and by inodes. Of what a file system does not tell, as many as anybody asks for.
fn files_that_fit(path: &Path, each: u64) -> u64 {
    let told = |s: &fathom_host::Space| s.total_bytes > 0;
    let room = fathom_host::space(path).ok().filter(told);
    let room = room.map_or(u64::MAX, |s| s.fits_bytes / each.max(1));
    // File systems that make inodes as they need them say that they have none.
    let inodes = rustix::fs::statvfs(path).ok().filter(|v| v.f_files > 0);
    // One is the directory's.
    let inodes = inodes.map_or(u64::MAX, |v| v.f_favail.saturating_sub(1));
    room.min(inodes)
}

impl Drop for Place {
    fn drop(&mut self) {
        for path in self.made_by_steps.get_mut().iter() {
            // Whoever made the directory removes what stays, and says so.
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::files::Operation;

    #[test]
    fn more_files_than_fit_are_refused_with_how_many_do() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), None).unwrap();
        let phase = |files| Phase {
            operation: Operation::Create,
            shared: true,
            bytes: 16 << 20,
            files,
            hosts: 2,
            of: 0,
        };
        place.check_room(&phase(1)).unwrap();
        let refused = place.check_room(&phase(u64::MAX - 1)).unwrap_err();
        assert!(matches!(refused, LabError::Refused(_)), "{refused}");
        assert!(refused.to_string().contains("use --files "), "{refused}");
    }
}
