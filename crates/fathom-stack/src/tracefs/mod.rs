//! The kernel's trace file system: where it is, a private instance of it, its formats and pages.
//!
//! Everything here is plain file access. It must not know what the events are for.

pub mod format;
pub mod instance;
pub mod page;
pub(crate) mod source;

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

use crate::error::TraceError;

/// Where tracefs usually is.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// An accessible tracefs.
#[derive(Debug)]
pub struct TraceFs {
    root: PathBuf,
    /// Of a mount that nobody else sees; it goes with the descriptor, also when the process is killed.
    detached: Option<OwnedFd>,
}

impl TraceFs {
    /// Finds the mounted one; where there is none, mounts one that only this process sees.
    ///
    /// # Errors
    /// [`TraceError::Denied`] or [`TraceError::NotMounted`], with the remedy.
    pub fn find() -> Result<Self, TraceError> {
        let mut denied = None;
        for place in PLACES {
            let instances = Path::new(place).join("instances");
            match std::fs::read_dir(&instances) {
                Ok(_) => {
                    return Ok(Self {
                        root: place.into(),
                        detached: None,
                    });
                }
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    denied.get_or_insert(instances);
                }
                Err(_) => {}
            }
        }
        if let Some(path) = denied {
            return Err(TraceError::Denied { path });
        }
        let fd = detached().map_err(|_| TraceError::NotMounted)?;
        let root = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        if !root.join("instances").is_dir() {
            return Err(TraceError::NotMounted);
        }
        Ok(Self {
            root,
            detached: Some(fd),
        })
    }

    /// Finds one whose formats can be read, though it may not be written; where none is mounted, mounts one
    /// that only this process sees.
    ///
    /// # Errors
    /// [`TraceError::NotMounted`], where none can be read.
    pub fn readable() -> Result<Self, TraceError> {
        PLACES
            .iter()
            .map(Path::new)
            .find(|p| std::fs::read(p.join("events/block/block_bio_queue/format")).is_ok())
            .map(|p| Self {
                root: p.into(),
                detached: None,
            })
            .map_or_else(Self::find, Ok)
    }

    /// The layout of `system/event`; `None` where this kernel lacks it.
    pub fn format(&self, event: &str) -> Option<format::Format> {
        let path = self.root.join("events").join(event).join("format");
        format::Format::parse(&read(&path).ok()?)
    }

    /// Its root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Whether it is a mount of this process alone.
    pub fn is_detached(&self) -> bool {
        self.detached.is_some()
    }
}

/// A mount without a place in the tree (fsopen, fsmount: Linux 5.2).
fn detached() -> rustix::io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    rustix::mount::fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )
}

pub(crate) fn read(path: &Path) -> Result<String, TraceError> {
    let whole = || -> io::Result<String> {
        let mut file = std::fs::File::open(path)?;
        // Some of these files answer one read only: small first reads would cut them off.
        let mut bytes = vec![0; 64 << 10];
        let mut at = 0;
        loop {
            match io::Read::read(&mut file, &mut bytes[at..])? {
                0 => break,
                n => at += n,
            }
        }
        Ok(String::from_utf8_lossy(&bytes[..at]).into_owned())
    };
    whole().map_err(|e| TraceError::file(path, e))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), TraceError> {
    // In tests plain files stand for the kernel's.
    #[cfg(test)]
    if path.starts_with(std::env::temp_dir()) {
        return fathom_files::open::for_writing(path, 0)
            .and_then(|mut f| {
                f.set_len(0)?;
                io::Write::write_all(&mut f, text.as_bytes())
            })
            .map_err(|e| TraceError::file(path, e));
    }
    fathom_files::kernel::replace(path, text).map_err(|e| TraceError::file(path, e))
}
