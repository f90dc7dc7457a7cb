//! Space kept back on a disk that may run full, for what must be written at the end.
//!
//! A file without a name holds it, so nothing of it is left however the process ends. Where a file system
//! has no such files, or cannot reserve, nothing is held: what can be given up makes room there.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};

/// See the module.
#[derive(Debug)]
pub struct Reserve {
    dir: PathBuf,
    held: Option<(File, u64)>,
}

impl Reserve {
    /// Holds so many bytes on the disk of a directory.
    ///
    /// # Errors
    /// Where the disk has no such room. That it cannot be reserved is no error.
    pub fn hold(dir: &Path, bytes: u64) -> io::Result<Self> {
        let mut reserve = Self {
            dir: dir.to_owned(),
            held: None,
        };
        reserve.at_least(bytes)?;
        Ok(reserve)
    }

    /// Holds more where it holds less.
    ///
    /// # Errors
    /// As [`Self::hold`].
    pub fn at_least(&mut self, bytes: u64) -> io::Result<()> {
        let (file, has) = match self.held.take() {
            Some(held) => held,
            None => match fathom_files::create::unnamed(&self.dir) {
                Ok(file) => (file, 0),
                Err(e) if is_full(&e) => return Err(e),
                Err(_) => return Ok(()),
            },
        };
        if has >= bytes {
            self.held = Some((file, has));
            return Ok(());
        }
        match fallocate(&file, FallocateFlags::empty(), 0, bytes).map_err(io::Error::from) {
            Ok(()) => self.held = Some((file, bytes)),
            Err(e) if is_full(&e) => {
                self.held = (has > 0).then_some((file, has));
                return Err(e);
            }
            Err(_) => {}
        }
        Ok(())
    }

    /// Gives all of it back to the disk; whether there was any.
    pub fn release(&mut self) -> bool {
        self.held.take().is_some()
    }
}

/// Whether an error says that there is no room: on the disk, in a quota, or under a limit of file sizes.
pub fn is_full(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
