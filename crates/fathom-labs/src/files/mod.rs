//! What an agent does with files: in a directory that it makes, or that another host has made, for nothing else
//! ([`Place`]); phases of metadata operations ([`phase`]), and steps that look at what other hosts did ([`steps`]).

mod held;
mod phase;
mod steps;

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fathom_system::lab_dir::{self, LabDir};
use fathom_telemetry::Bytes;

use crate::LabError;

/// Room that must be there for what is made.
const ROOM: Bytes = Bytes::mib(64);

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

impl Drop for Place {
    fn drop(&mut self) {
        for path in self.made_by_steps.get_mut().iter() {
            // Whoever made the directory removes what stays, and says so.
            let _ = std::fs::remove_file(path);
        }
    }
}
