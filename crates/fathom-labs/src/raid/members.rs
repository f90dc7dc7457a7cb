//! What arrays are made of: real devices whose serials were named, or files through loop devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fathom_host::{Scratch, open_for_write};
use fathom_telemetry::Bytes;

use crate::LabError;
use crate::loops::Loop;

/// Smaller members say more of the array's own bookkeeping than of its throughput.
pub const MEMBER_MIN: Bytes = Bytes::mib(16);

/// One member.
#[derive(Debug)]
pub struct Member {
    path: PathBuf,
    destroy: Option<String>,
    /// Dropped in this order: the device, then its file.
    _loop: Option<Loop>,
    _file: Option<Scratch>,
}

impl Member {
    /// Its device node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What has to be typed for it after `--destroy`.
    pub fn destroy(&self) -> Option<&str> {
        self.destroy.as_deref()
    }

    /// Major and minor number.
    ///
    /// # Errors
    /// Where the node is gone.
    pub fn number(&self) -> Result<(u32, u32), LabError> {
        let meta = fs::metadata(&self.path)
            .map_err(|e| LabError::Failed(format!("{}: {e}", self.path.display())))?;
        Ok((
            rustix::fs::major(meta.rdev()) as u32,
            rustix::fs::minor(meta.rdev()) as u32,
        ))
    }

    /// Bytes read and written so far, from its counters.
    pub fn moved(&self) -> [u64; 2] {
        moved(&self.path)
    }
}

/// Bytes that a block device has read and written so far; 0 where it has no counters.
pub(super) fn moved(device: &Path) -> [u64; 2] {
    let name = device.file_name().unwrap_or_default();
    let path = Path::new("/sys/class/block").join(name).join("stat");
    let text = fs::read_to_string(path).unwrap_or_default();
    let mut fields = text
        .split_whitespace()
        .map(|f| f.parse::<u64>().unwrap_or(0));
    let read = fields.nth(2).unwrap_or(0);
    let written = fields.nth(3).unwrap_or(0);
    [read * 512, written * 512]
}

/// All of them.
#[derive(Debug)]
pub struct Members {
    all: Vec<Member>,
    size: u64,
    about: String,
}

impl Members {
    /// `count` scratch files in a directory, each behind a loop device.
    ///
    /// # Errors
    /// Where they do not fit, or loop devices are not to be had; nothing is left then.
    pub fn files(dir: &Path, count: u32, size: Bytes) -> Result<Self, LabError> {
        large_enough(size.0)?;
        let mut all = Vec::new();
        for _ in 0..count {
            let file = Scratch::create(dir, size.0)
                .map_err(|e| LabError::Bench(fathom_io::TargetError::from(e).into()))?;
            let device = Loop::over(file.file()).map_err(|e| LabError::Missing {
                what: format!("loop devices cannot be used: {e}"),
                remedy: "run as root on a kernel with loop devices (modprobe loop), or name block devices".into(),
            })?;
            all.push(Member {
                path: device.path().to_owned(),
                destroy: Some(device.path().display().to_string()),
                _loop: Some(device),
                _file: Some(file),
            });
        }
        Ok(Self {
            about: format!(
                "{count} files of {size} in {} through loop devices",
                dir.display()
            ),
            all,
            size: size.0,
        })
    }

    /// Block devices, each with its serial (or path, where it has none) in `destroy`. `size` uses only so much of
    /// each.
    ///
    /// # Errors
    /// Where one is in use, was not named for destruction, is too small, or they differ in size and `size` is not
    /// given. Nothing is written.
    pub fn devices(
        paths: &[String],
        destroy: &[String],
        size: Option<Bytes>,
    ) -> Result<Self, LabError> {
        let mut all = Vec::new();
        let mut sizes = Vec::new();
        for path in paths {
            let (permit, named) = permitted(Path::new(path), destroy)?;
            let twice = all.iter().any(|m: &Member| m.path == permit.path());
            if twice {
                return Err(LabError::Refused(format!(
                    "{path} is named twice: expected different members"
                )));
            }
            sizes.push(permit.size_bytes());
            all.push(Member {
                path: permit.path().to_owned(),
                destroy: named,
                _loop: None,
                _file: None,
            });
        }
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        let (Some(least), Some(most)) = (least.copied(), most.copied()) else {
            return Err(LabError::Refused("no member was named".into()));
        };
        let used = match size {
            Some(s) if s.0 <= least => s.0,
            Some(s) => {
                return Err(LabError::Refused(format!(
                    "--size {s}: the smallest member has {}",
                    Bytes(least)
                )));
            }
            None if least != most => {
                return Err(LabError::Refused(format!(
                    "members differ in size, {} to {}: name alike ones, or use so much of each with --size {least}",
                    Bytes(least),
                    Bytes(most)
                )));
            }
            None => least,
        };
        large_enough(used)?;
        Ok(Self {
            about: format!("{} devices, {} of each", all.len(), Bytes(used)),
            all,
            size: used,
        })
    }

    /// They, in order.
    pub fn all(&self) -> &[Member] {
        &self.all
    }

    /// Bytes of each that are used.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// In words.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Asks the safety rules again, just before a member is given to an array.
    ///
    /// # Errors
    /// Where somebody has begun to use it.
    pub fn check(&self, member: &Member) -> Result<(), LabError> {
        open_for_write(&member.path, member.destroy())
            .map(|_| ())
            .map_err(refused)
    }
}

fn refused(e: fathom_host::Refusal) -> LabError {
    LabError::Bench(fathom_io::TargetError::from(e).into())
}

/// A device's permit and what permits it; without a word that fits, the refusal says which one would.
fn permitted(
    path: &Path,
    destroy: &[String],
) -> Result<(fathom_host::Permit, Option<String>), LabError> {
    for word in destroy {
        if let Ok(permit) = open_for_write(path, Some(word)) {
            return Ok((permit, Some(word.clone())));
        }
    }
    // The words that were typed are for other members, or something else is wrong: the rules say which.
    match open_for_write(
        path,
        destroy
            .first()
            .filter(|_| destroy.len() == 1)
            .map(String::as_str),
    ) {
        Ok(permit) => Ok((permit, None)),
        Err(e) => Err(refused(e)),
    }
}

fn large_enough(size: u64) -> Result<(), LabError> {
    if size >= MEMBER_MIN.0 {
        return Ok(());
    }
    Err(LabError::Refused(format!(
        "a member of {} is too small: expected {MEMBER_MIN} or more (--size)",
        Bytes(size)
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_too_small_or_too_many_for_the_disk_are_refused_and_nothing_is_left() {
        let dir = tempfile::tempdir().unwrap();
        let small = Members::files(dir.path(), 2, Bytes::mib(1))
            .unwrap_err()
            .to_string();
        assert!(
            small.contains("too small") && small.contains("--size"),
            "{small}"
        );
        let huge = Members::files(dir.path(), 2, Bytes(1 << 60)).unwrap_err();
        assert!(huge.is_refusal(), "{huge}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn files_become_devices_and_go_with_them() {
        let dir = tempfile::tempdir().unwrap();
        let members = match Members::files(dir.path(), 2, MEMBER_MIN) {
            Ok(m) => m,
            Err(e @ LabError::Missing { .. }) => return println!("SKIP files_become_devices: {e}"),
            Err(e) => panic!("{e}"),
        };
        let paths: Vec<PathBuf> = members.all().iter().map(|m| m.path().to_owned()).collect();
        assert_ne!(paths[0], paths[1]);
        for m in members.all() {
            assert_eq!(m.number().unwrap().0, 7, "loop devices have major number 7");
            members.check(m).unwrap();
        }
        drop(members);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            0,
            "files are removed"
        );
        for p in paths {
            let name = p.file_name().unwrap().to_string_lossy().into_owned();
            let backing = format!("/sys/block/{name}/loop/backing_file");
            let free = (0..100).any(|_| {
                std::thread::sleep(std::time::Duration::from_millis(10));
                !fs::read_to_string(&backing)
                    .is_ok_and(|b| b.contains(&*dir.path().to_string_lossy()))
            });
            assert!(free, "{backing}");
        }
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let e = Members::devices(&["/etc/hostname".into()], &[], None).unwrap_err();
        assert!(e.is_refusal(), "{e}");
        assert!(Members::devices(&[], &[], None).is_err());
    }
}
