//! A file system in a directory of its own, mounted by a lab and unmounted on every exit, also where fathom is killed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::LabError;
use crate::keeper::{Keeper, Undo};
use crate::outside;

/// Beginning of such a directory's name; the process id and a number follow.
pub(crate) const PREFIX: &str = "fathom-mount-";

/// A mount. Dropping it unmounts it and removes its directory.
#[derive(Debug)]
pub(crate) struct Mount {
    dir: PathBuf,
    mounted: bool,
    keeper: Option<Keeper>,
}

/// A directory for a mount that nobody has.
pub(crate) fn place() -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let n = NUMBER.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("{PREFIX}{}-{n}", std::process::id()))
}

impl Mount {
    /// Mounts a device. `stay` are devices of it that stay when this run ends: a keeper erases their superblocks.
    ///
    /// # Errors
    /// What the program said; nothing is left then.
    pub(crate) fn make(
        kind: &str,
        options: &str,
        device: &Path,
        stay: &[&Path],
    ) -> Result<Self, String> {
        let dir = place();
        let mut undo = vec![Undo::mount(&dir)];
        undo.extend(stay.iter().map(|d| Undo::blank(d)));
        let keeper = Keeper::watch(&undo).map_err(|e| e.to_string())?;
        let mut mount = Self {
            dir,
            mounted: false,
            keeper: Some(keeper),
        };
        fs::create_dir_all(&mount.dir).map_err(|e| e.to_string())?;
        let mut command = outside::command("mount");
        command.args(["-t", kind, "-o", options]);
        outside::run(command.arg(device).arg(&mount.dir))?;
        mount.mounted = true;
        Ok(mount)
    }

    /// Where it is.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts it; one that is still busy is tried again for a while.
    pub(crate) fn leave(&mut self) -> Result<(), LabError> {
        if self.mounted {
            unmount(&self.dir)?;
            self.mounted = false;
        }
        // It was made for this mount; where it is not there the mount never was.
        let _ = fs::remove_dir(&self.dir);
        self.keeper = None;
        Ok(())
    }
}

/// Unmounts a directory, for which it waits while somebody has files open there.
pub(crate) fn unmount(dir: &Path) -> Result<(), LabError> {
    let mut last = Ok(());
    for _ in 0..50 {
        last = rustix::mount::unmount(dir, rustix::mount::UnmountFlags::empty());
        if last.is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    last.map_err(|e| {
        LabError::Failed(format!(
            "{} could not be unmounted: {e}; umount {}",
            dir.display(),
            dir.display()
        ))
    })
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            eprintln!("fathom: {e}");
        }
    }
}
