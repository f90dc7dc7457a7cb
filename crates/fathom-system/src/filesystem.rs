//! File systems that labs make, each mounted in a directory of its own and unmounted on every exit, also where fathom is
//! killed.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use fathom_files::{create, remove};
use fathom_telemetry::{Bytes, say};
use rustix::fs::FlockOperation;
use rustix::mount::UnmountFlags;

use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};
use crate::erase::LABEL;
use crate::packages;
use crate::programs;

/// A file system that labs make on devices of their own.
#[derive(Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// Its name, as mount and the kernel know it.
    pub name: &'static str,
    /// Devices of fewer bytes are refused by its mkfs, or have no room for a file.
    pub least: Bytes,
    /// Arguments of its mkfs, which is called `mkfs.<name>`. None lets it discard the device: what was never written answers
    /// sooner than what a store has.
    options: &'static [&'static str],
    /// Debian's package of it.
    pub package: &'static str,
}

/// All that there are.
pub const FILE_SYSTEMS: [FileSystem; 3] = [
    FileSystem {
        name: "ext4",
        least: Bytes::mib(64),
        // Nothing is left for the kernel to do later, while something is measured.
        options: &[
            "-q",
            "-F",
            "-E",
            "nodiscard,lazy_itable_init=0,lazy_journal_init=0",
            "-L",
            LABEL,
        ],
        package: "e2fsprogs",
    },
    FileSystem {
        name: "xfs",
        // mkfs.xfs(8) since 5.19.
        least: Bytes::mib(300),
        options: &["-q", "-f", "-K", "-L", LABEL],
        package: "xfsprogs",
    },
    FileSystem {
        name: "btrfs",
        least: Bytes::mib(192),
        options: &["-q", "-f", "-K", "-L", LABEL],
        package: "btrfs-progs",
    },
];

/// Names of the file systems that labs make.
pub fn file_systems() -> Vec<&'static str> {
    FILE_SYSTEMS.iter().map(|f| f.name).collect()
}

impl FileSystem {
    /// By its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        FILE_SYSTEMS.iter().find(|f| f.name == name)
    }

    /// Whether it can be made and mounted here; asks for the kernel's module where it may.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn available(&self) -> Result<(), SystemError> {
        let Self { name, package, .. } = self;
        if programs::find(&format!("mkfs.{name}")).is_none() {
            return Err(SystemError::Missing {
                what: format!("mkfs.{name} is not installed"),
                remedy: packages::install(package),
            });
        }
        let known = || {
            let all = fs::read_to_string("/proc/filesystems").unwrap_or_default();
            all.lines()
                .any(|l| l.split_whitespace().last() == Some(*name))
        };
        if !known() {
            programs::load_module(name);
        }
        if known() {
            return Ok(());
        }
        Err(SystemError::Missing {
            what: format!("this kernel has no {name}"),
            remedy: format!("load it: modprobe {name}"),
        })
    }

    /// Makes it on a device that holds nothing any more.
    ///
    /// # Errors
    /// Where its mkfs refuses, with what that said.
    pub fn make(&self, device: &Path) -> Result<(), SystemError> {
        let mkfs = format!("mkfs.{}", self.name);
        programs::run(programs::command(&mkfs).args(self.options).arg(device))
            .map_err(|e| SystemError::Failed(format!("{mkfs} {}: {e}", device.display())))
    }
}

/// Beginning of such a directory's name; the process id and a number follow.
pub const PREFIX: &str = "fathom-mount-";

/// A directory for a mount, made by this process just now, and no link. What is opened below the mount is locked as long
/// as it is held: who sees the directory without the mount, in another container, sees that somebody has it.
///
/// # Errors
/// Where none can be made among temporary files.
fn directory() -> io::Result<(PathBuf, File)> {
    let dir = create::temporary_dir(PREFIX)?;
    let lock = remove::open_dir(&dir)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok((dir, lock))
}

/// A mount. Dropping it unmounts it and removes its directory.
#[derive(Debug)]
pub struct Mount {
    dir: PathBuf,
    _lock: File,
    mounted: bool,
    cleanup: Option<Cleanup>,
}

impl Mount {
    /// Makes the directory, and watches over it from now on. `stay` are devices that stay when this run ends: where
    /// fathom is killed, what says that they belong to a file system is erased.
    ///
    /// # Errors
    /// Where there can be no directory, or no cleanup; nothing is left then.
    pub fn prepare(stay: &[&Path]) -> io::Result<Self> {
        Self::prepare_after(&[], stay)
    }

    /// The same, where something else has to be undone before.
    ///
    /// # Errors
    /// As [`Mount::prepare`].
    pub fn prepare_after(first: &[Undo], stay: &[&Path]) -> io::Result<Self> {
        let (dir, lock) = directory()?;
        let mut undo = first.to_vec();
        undo.push(Undo::mount(&dir));
        undo.extend(stay.iter().map(|d| Undo::blank(d)));
        let mut mount = Self {
            dir,
            _lock: lock,
            mounted: false,
            cleanup: None,
        };
        mount.cleanup = Some(Cleanup::watch(&undo)?);
        Ok(mount)
    }

    /// Mounts a device there.
    ///
    /// # Errors
    /// What the program said.
    pub fn on(&mut self, device: &Path, kind: &str, options: &str) -> Result<(), String> {
        let mut command = programs::command("mount");
        command.args(["-t", kind, "-o", options]);
        programs::run(command.arg(device).arg(&self.dir))?;
        self.mounted = true;
        Ok(())
    }

    /// Where it is.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Unmounts it; one that is still busy is tried again for a while. The directory stays, and is watched over.
    ///
    /// # Errors
    /// Where somebody keeps it busy.
    pub fn unmount(&mut self) -> Result<(), SystemError> {
        if self.mounted {
            unmount(&self.dir)?;
            self.mounted = false;
        }
        Ok(())
    }

    /// Unmounts it and removes its directory; doing it twice does nothing.
    ///
    /// # Errors
    /// Where somebody keeps it busy: it is there as before then.
    pub fn leave(&mut self) -> Result<(), SystemError> {
        self.unmount()?;
        match fs::remove_dir(&self.dir) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(SystemError::Failed(format!(
                    "{0} could not be removed: {e}; umount {0} && rmdir {0}",
                    self.dir.display()
                )));
            }
            _ => {}
        }
        self.cleanup = None;
        Ok(())
    }

    /// What could not be undone is left to the cleanup process, which tries again when this process has ended.
    pub fn give_up(&mut self) {
        Cleanup::try_again(self.cleanup.take());
    }
}

/// Unmounts a directory, for which it waits while somebody has files open there.
fn unmount(dir: &Path) -> Result<(), SystemError> {
    let unmount = || rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW);
    crate::retry::patiently(3, |_| true, unmount).map_err(|e| {
        SystemError::Failed(format!(
            "{0} could not be unmounted: {e}; umount {0}",
            dir.display()
        ))
    })
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(e) = self.leave() {
            say!("fathom: {e}");
            self.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_with_its_package() {
        let none = FileSystem {
            name: "fathom-no-such",
            least: Bytes(0),
            options: &[],
            package: "no-such-progs",
        };
        let said = none.available().unwrap_err();
        assert!(said.is_refusal(), "{said}");
        assert!(
            said.to_string().contains("apt-get install no-such-progs"),
            "{said}"
        );
        assert!(none.make(Path::new("/dev/null")).is_err());
        let all = file_systems();
        assert!(all.iter().all(|n| FileSystem::named(n).is_some()));
        assert_eq!(FileSystem::named("fat"), None);
    }

    #[test]
    fn a_mount_has_a_directory_of_its_own_that_goes_with_it() {
        let (one, mut other) = (directory().unwrap().0, Mount::prepare(&[]).unwrap());
        assert_ne!(one, other.dir());
        fs::remove_dir(&one).unwrap();
        let dir = other.dir().to_owned();
        assert!(dir.is_dir());
        assert!(other.on(Path::new("/dev/null"), "ext4", "ro").is_err());
        other.leave().unwrap();
        assert!(!dir.exists());
        other.leave().unwrap();
    }
}
