//! A file system on a device whose data may be destroyed, for what works in a directory: made, mounted, unmounted and erased
//! by one run, also where fathom is killed.

use std::path::{Path, PathBuf};

use fathom_telemetry::{Bytes, say};

use crate::SystemError;
use crate::array::members::permitted;
use crate::erase;
use crate::filesystem::{FileSystem, Mount};
use crate::programs;

/// A mounted file system. Dropping it unmounts it, and erases what says that it was there.
#[derive(Debug)]
pub struct OnDevice {
    device: PathBuf,
    mount: Mount,
    /// Whether the device may carry superblocks of it.
    made: bool,
}

impl OnDevice {
    /// Makes and mounts it on a device that one of the words after `--destroy` permits.
    ///
    /// # Errors
    /// Where the device is refused or too small, or the file system cannot be had here; nothing was written then. Later ones
    /// leave a blank device.
    pub fn make(
        fs: &'static FileSystem,
        device: &Path,
        destroy: &[String],
    ) -> Result<Self, SystemError> {
        if !programs::is_root() {
            return Err(SystemError::Missing {
                what: "file systems are mounted by root alone".into(),
                remedy: "run it with sudo".into(),
            });
        }
        fs.available()?;
        let (permit, _) = permitted(device, destroy)?;
        if permit.size_bytes() < fs.least.0 {
            return Err(SystemError::Refused(format!(
                "{}: {} are too little for {}: expected {} or more",
                device.display(),
                Bytes(permit.size_bytes()),
                fs.name,
                fs.least
            )));
        }
        let device = permit.path().to_owned();
        // It holds the device, which mkfs wants for itself.
        drop(permit);
        let failed = |what: &str, why: String| {
            SystemError::Failed(format!(
                "{} on {}: {what}: {why}",
                fs.name,
                device.display()
            ))
        };
        // Somebody else's claim ends it before a byte is written.
        drop(erase::claim(&device).map_err(|e| failed("claim", e.to_string()))?);
        let mount = Mount::prepare(&[&device]).map_err(|e| failed("mount", e.to_string()))?;
        // From here on dropping it takes apart what there is.
        let mut me = Self {
            device: device.clone(),
            mount,
            made: true,
        };
        fs.make(&device)?;
        let mounted = me.mount.on(&device, fs.name, "noatime");
        mounted.map_err(|e| failed("mount", e))?;
        Ok(me)
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.mount.dir()
    }

    /// Unmounts it and erases it.
    ///
    /// # Errors
    /// Where somebody keeps it busy, or the device cannot be written.
    pub fn close(mut self) -> Result<(), SystemError> {
        self.leave()
    }

    /// The same; doing it twice does nothing.
    fn leave(&mut self) -> Result<(), SystemError> {
        self.mount.unmount()?;
        if self.made {
            let erased = erase::erase(&self.device);
            erased.map_err(|e| {
                SystemError::Failed(format!(
                    "{0} cannot be erased: {e}; wipefs --all {0}",
                    self.device.display()
                ))
            })?;
            self.made = false;
        }
        // Only now: until then somebody watched over the device.
        self.mount.leave()
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            say!("fathom: {e}");
            self.mount.give_up();
        }
    }
}
