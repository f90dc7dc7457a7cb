//! What arrays are made of: real devices whose serials were named, or files through loop devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fathom_host::{Loop, Scratch, open_for_write};
use fathom_io::{Target, TargetError, Wanted};
use fathom_sim::raid::Level;
use fathom_telemetry::{Bytes, Nanos};

use super::{Array, Shape, Traffic};
use crate::SystemError;
use crate::erase::erase;

/// Smaller members say more of the array's own bookkeeping than of its throughput.
pub const MEMBER_MIN: Bytes = Bytes::mib(16);

/// One member.
#[derive(Debug)]
pub struct Member {
    path: PathBuf,
    bytes: u64,
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

    /// All that it holds.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What an array keeps of it.
    ///
    /// # Errors
    /// Where the node is gone.
    pub(crate) fn part(&self) -> Result<Part, SystemError> {
        let meta = fs::metadata(&self.path)
            .map_err(|e| SystemError::Failed(format!("{}: {e}", self.path.display())))?;
        Ok(Part {
            path: self.path.clone(),
            number: (
                rustix::fs::major(meta.rdev()) as u32,
                rustix::fs::minor(meta.rdev()) as u32,
            ),
            bytes: self.bytes,
            stays: self._file.is_none(),
        })
    }
}

/// What an array keeps of a member.
#[derive(Debug, Clone)]
pub(crate) struct Part {
    pub(crate) path: PathBuf,
    /// Major and minor number of the device.
    pub(crate) number: (u32, u32),
    /// All that it holds.
    pub(crate) bytes: u64,
    /// Whether it is there when this run has ended: a device, not a file behind a loop device.
    pub(crate) stays: bool,
}

/// Bytes that an array and its members have moved so far.
pub(crate) fn traffic<'a>(array: &Path, parts: impl IntoIterator<Item = &'a Part>) -> Traffic {
    let members = parts.into_iter().map(|p| moved(&p.path));
    Traffic {
        asked: moved(array),
        members: members.fold([0; 2], |a, m| [a[0] + m[0], a[1] + m[1]]),
    }
}

/// Bytes that a block device has read and written so far; 0 where it has no counters.
fn moved(device: &Path) -> [u64; 2] {
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

/// A whole device, or a scratch file of `size` bytes in a directory, under the safety rules.
///
/// # Errors
/// Where they refuse it, or it cannot be opened.
pub(crate) fn open(
    path: &Path,
    destroy: Option<&str>,
    size: Option<Bytes>,
) -> Result<Target, SystemError> {
    let wanted = Wanted {
        modifies: true,
        direct: true,
        buffered: true,
        size,
        destroy: destroy.map(str::to_owned),
        ..Wanted::default()
    };
    let name = path.display().to_string();
    Ok(Target::open(&name, &wanted)?)
}

/// The device of an array, which fathom has made just now: it has no serial, so its own path permits it.
pub(crate) fn open_array(node: &Path) -> Result<Target, SystemError> {
    open(node, Some(&node.display().to_string()), None)
}

/// The same of every part; the error says what is left on which.
pub(crate) fn erase_all<'a>(parts: impl IntoIterator<Item = &'a Part>) -> Result<(), SystemError> {
    for part in parts {
        erase(&part.path).map_err(|e| {
            SystemError::Failed(format!(
                "{0} keeps what says that it belongs to an array ({e}): wipefs --all {0}",
                part.path.display()
            ))
        })?;
    }
    Ok(())
}

/// One member alone, as it is.
struct Single {
    path: PathBuf,
    destroy: Option<String>,
}

impl Array for Single {
    fn open(&self) -> Result<Target, SystemError> {
        open(&self.path, self.destroy.as_deref(), None)
    }
    fn threads(&self) -> Vec<(String, Nanos)> {
        Vec::new()
    }
    fn settings(&self) -> Vec<(String, String)> {
        Vec::new()
    }
    fn close(self: Box<Self>) -> Result<(), SystemError> {
        Ok(())
    }
}

/// The first disk that two members lie on: partitions of one, or volumes over it.
fn shared(all: &[Member]) -> Option<String> {
    let disks: Vec<Vec<String>> = all
        .iter()
        .map(|m| fathom_host::disks_behind(&m.path))
        .collect();
    let twice = |d: &&String| disks.iter().filter(|other| other.contains(d)).count() > 1;
    disks.iter().flatten().find(twice).cloned()
}

/// All of them.
#[derive(Debug)]
pub struct Members {
    all: Vec<Member>,
    journal: Option<Member>,
    size: u64,
    about: String,
    shared: Option<String>,
}

impl Members {
    /// `count` scratch files in a directory, each behind a loop device.
    ///
    /// # Errors
    /// Where they do not fit, or loop devices are not to be had; nothing is left then.
    pub fn files(dir: &Path, count: u32, size: Bytes) -> Result<Self, SystemError> {
        large_enough(size.0, MEMBER_MIN, "")?;
        let mut all = Vec::new();
        for _ in 0..count {
            let file = Scratch::create(dir, size.0).map_err(TargetError::from)?;
            let device = Loop::over(file.file()).map_err(|e| SystemError::Missing {
                what: format!("loop devices cannot be used: {e}"),
                remedy: "run as root on a kernel with loop devices (modprobe loop), or name block devices".into(),
            })?;
            all.push(Member {
                path: device.path().to_owned(),
                bytes: size.0,
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
            journal: None,
            size: size.0,
            shared: (count > 1).then(|| match &fathom_host::disks_behind(dir)[..] {
                [] => format!("the file system of {}", dir.display()),
                disks => disks.join("+"),
            }),
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
    ) -> Result<Self, SystemError> {
        let mut all = Vec::new();
        let mut sizes = Vec::new();
        for path in paths {
            let (permit, named) = permitted(Path::new(path), destroy)?;
            let twice = all.iter().any(|m: &Member| m.path == permit.path());
            if twice {
                return Err(SystemError::Refused(format!(
                    "{path} is named twice: expected different members"
                )));
            }
            sizes.push(permit.size_bytes());
            all.push(Member {
                path: permit.path().to_owned(),
                bytes: permit.size_bytes(),
                destroy: named,
                _loop: None,
                _file: None,
            });
        }
        let (least, most) = (sizes.iter().min(), sizes.iter().max());
        let (Some(least), Some(most)) = (least.copied(), most.copied()) else {
            return Err(SystemError::Refused("no member was named".into()));
        };
        let used = match size {
            Some(s) if s.0 <= least => s.0,
            Some(s) => {
                return Err(SystemError::Refused(format!(
                    "--size {s}: the smallest member has {}",
                    Bytes(least)
                )));
            }
            None if least != most => {
                return Err(SystemError::Refused(format!(
                    "members differ in size, {} to {}: name alike ones, or use so much of each with --size {least}",
                    Bytes(least),
                    Bytes(most)
                )));
            }
            None => least,
        };
        large_enough(used, MEMBER_MIN, "")?;
        Ok(Self {
            about: format!("{} devices, {} of each", all.len(), Bytes(used)),
            shared: shared(&all),
            all,
            journal: None,
            size: used,
        })
    }

    /// They, in order.
    pub fn all(&self) -> &[Member] {
        &self.all
    }

    /// Why they are not enough for an array; `None` where they are.
    pub fn lack(&self, shape: &Shape) -> Option<String> {
        let there = self.all.len();
        (shape.members as usize > there)
            .then(|| format!("it needs {} members, {there} are there", shape.members))
    }

    /// Refuses members that are too small for what arrays are made with.
    ///
    /// # Errors
    /// Where they are, with what to do.
    pub fn at_least(&self, least: Bytes, who: &str) -> Result<(), SystemError> {
        large_enough(self.size, least, &format!(" for {who}"))
    }

    /// The first of them alone.
    ///
    /// # Errors
    /// Where the safety rules refuse it.
    pub fn first(&self) -> Result<Box<dyn Array>, SystemError> {
        let [first, ..] = &self.all[..] else {
            return Err(SystemError::Refused("no member was named".into()));
        };
        Ok(Box::new(Single {
            path: first.path.clone(),
            destroy: first.destroy.clone(),
        }))
    }

    /// The first `count` of them, after the safety rules were asked once more: they are given to an array now.
    ///
    /// # Errors
    /// Where there are not so many, or somebody has begun to use one.
    pub(crate) fn given(&self, count: u32) -> Result<Vec<Part>, SystemError> {
        let there = self.all.len();
        let used = self.all.get(..count as usize).ok_or_else(|| {
            SystemError::Refused(format!("it needs {count} members, {there} are there"))
        })?;
        used.iter().map(given).collect()
    }

    /// The same of the journal, for levels that have parity.
    ///
    /// # Errors
    /// Where somebody has begun to use it.
    pub(crate) fn given_journal(&self, level: Level) -> Result<Option<Part>, SystemError> {
        let journal = self.journal.as_ref().filter(|_| level.has_parity());
        journal.map(given).transpose()
    }

    /// The last of these files becomes the journal of parity arrays.
    pub fn last_as_journal(mut self) -> Self {
        self.journal = self.all.pop();
        self
    }

    /// A device becomes the journal of parity arrays, under the same rules as members.
    ///
    /// # Errors
    /// Where it is a member too, in use, not named for destruction, or too small.
    pub fn with_journal(mut self, path: &str, destroy: &[String]) -> Result<Self, SystemError> {
        let (permit, named) = permitted(Path::new(path), destroy)?;
        large_enough(permit.size_bytes(), MEMBER_MIN, "")?;
        if self.all.iter().any(|m| m.path == permit.path()) {
            return Err(SystemError::Refused(format!(
                "--write-journal={path}: it is a member: expected another device"
            )));
        }
        self.journal = Some(Member {
            path: permit.path().to_owned(),
            bytes: permit.size_bytes(),
            destroy: named,
            _loop: None,
            _file: None,
        });
        Ok(self)
    }

    /// Where parity arrays keep their journal.
    pub fn journal(&self) -> Option<&Member> {
        self.journal.as_ref()
    }

    /// Bytes of each that are used.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The disk that several of them lie on.
    pub(super) fn shared(&self) -> Option<&str> {
        self.shared.as_deref()
    }

    /// In words.
    pub fn about(&self) -> &str {
        &self.about
    }
}

fn given(member: &Member) -> Result<Part, SystemError> {
    open_for_write(&member.path, member.destroy.as_deref()).map_err(refused)?;
    member.part()
}

fn refused(e: fathom_host::Refusal) -> SystemError {
    TargetError::from(e).into()
}

/// A device's permit and what permits it; without a word that fits, the refusal says which one would.
pub(crate) fn permitted(
    path: &Path,
    destroy: &[String],
) -> Result<(fathom_host::Permit, Option<String>), SystemError> {
    for word in destroy {
        match open_for_write(path, Some(word)) {
            Ok(permit) => return Ok((permit, Some(word.clone()))),
            // It may be another member's.
            Err(fathom_host::Refusal::WrongConfirmation { .. }) => {}
            Err(e) => return Err(refused(e)),
        }
    }
    // The words that were typed are for other members: the rules say which is its own.
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

/// Refuses a member of `size` bytes where `least` are needed `who` (` for btrfs`).
///
/// # Errors
/// Where it is too small, with what to do.
pub fn large_enough(size: u64, least: Bytes, who: &str) -> Result<(), SystemError> {
    if size >= least.0 {
        return Ok(());
    }
    Err(SystemError::Refused(format!(
        "a member of {} is too small{who}: expected {least} or more (--size)",
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
            Err(e @ SystemError::Missing { .. }) => {
                return println!("SKIP files_become_devices: {e}");
            }
            Err(e) => panic!("{e}"),
        };
        let paths: Vec<PathBuf> = members.all().iter().map(|m| m.path().to_owned()).collect();
        assert_ne!(paths[0], paths[1]);
        for part in members.given(2).unwrap() {
            assert_eq!(part.number.0, 7, "loop devices have major number 7");
            assert!(!part.stays);
        }
        let three = members.given(3).unwrap_err().to_string();
        assert!(three.contains("it needs 3 members, 2 are there"), "{three}");
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
    fn devices_of_different_sizes_are_used_alike_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut made = Vec::new();
        for mib in [16, 24] {
            let file = Scratch::create(dir.path(), mib << 20).unwrap();
            match Loop::over(file.file()) {
                Ok(device) => made.push((device, file)),
                Err(e) => return println!("SKIP devices_of_different_sizes: {e}"),
            }
        }
        let names: Vec<String> = made
            .iter()
            .map(|(d, _)| d.path().display().to_string())
            .collect();
        let said = |r: Result<Members, SystemError>| r.unwrap_err().to_string();
        let mixed = said(Members::devices(&names, &names, None));
        assert!(
            mixed.contains("differ in size") && mixed.contains("--size"),
            "{mixed}"
        );
        let alike = Members::devices(&names, &names, Some(MEMBER_MIN)).unwrap();
        assert_eq!(alike.size(), MEMBER_MIN.0);
        let small = said(Members::devices(&names, &names, Some(Bytes::mib(20))));
        assert!(small.contains("the smallest member has"), "{small}");
        let unnamed = Members::devices(&names, &names[..1], Some(MEMBER_MIN)).unwrap_err();
        assert!(unnamed.is_refusal(), "{unnamed}");
        let again = said(alike.with_journal(&names[1], &names));
        assert!(again.contains("it is a member"), "{again}");
    }

    #[test]
    fn what_is_no_device_is_refused() {
        let e = Members::devices(&["/etc/hostname".into()], &[], None).unwrap_err();
        assert!(e.is_refusal(), "{e}");
        assert!(Members::devices(&[], &[], None).is_err());
    }
}
