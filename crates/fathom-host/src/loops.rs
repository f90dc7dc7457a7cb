//! Loop devices over files: each goes with its last user, so a killed process leaves none behind.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use fathom_files::open;

use crate::sys;

/// A loop device in use.
#[derive(Debug)]
pub struct Loop {
    /// Held open: the device lives as long as this.
    _device: File,
    path: PathBuf,
}

impl Loop {
    /// Over a whole file, with direct I/O below where the file system can.
    ///
    /// # Errors
    /// Where the kernel has no loop devices, or this user may not make them.
    pub fn over(file: &File) -> io::Result<Self> {
        Self::over_part(file, 0, 0)
    }

    /// The same over `size` bytes from `offset` on of a file or block device; 0 is all that follows.
    ///
    /// # Errors
    /// As [`Loop::over`].
    pub fn over_part(file: &File, offset: u64, size: u64) -> io::Result<Self> {
        let control = open::control(Path::new("/dev/loop-control"))?;
        // Others look for a free device at the same time.
        for _ in 0..64 {
            let n = sys::loop_free(&control)?;
            let path = PathBuf::from(format!("/dev/loop{n}"));
            let device = open::for_writing(&path, 0)?;
            let configure = |direct| sys::loop_configure(&device, file, (offset, size), direct);
            match configure(true) {
                Err(e) if e.raw_os_error() == Some(libc::EBUSY) => continue,
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => configure(false)?,
                other => other?,
            }
            return Ok(Self {
                _device: device,
                path,
            });
        }
        Err(io::Error::other("no loop device stayed free"))
    }

    /// Its node.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
