//! What can go wrong while looking at the machine.

use std::io;
use std::path::{Path, PathBuf};

/// A description of the machine could not be read or understood.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file could not be read.
    #[error("cannot read {}: {source}; {}", path.display(), remedy(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The kernel said something that is not understood.
    #[error(
        "the {what} holds a line that fathom does not understand ({line:?}); please report it as a bug"
    )]
    Malformed {
        /// Which table.
        what: &'static str,
        /// The line.
        line: String,
    },
}

impl HostError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read {
            path: path.to_path_buf(),
            source,
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "check the path, and that /proc and /sys are mounted",
        io::ErrorKind::PermissionDenied => "run fathom as a user who may read it",
        _ => "check the kernel log for the cause",
    }
}
