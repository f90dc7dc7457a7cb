//! What runs that were killed together with what watches over them left in the kernel: programs, swap files, control
//! groups, trace instances, arrays, mappings, mounts, pools and labels, in the order in which they let go of each other.
//!
//! The cleanup process undoes them where fathom alone is killed. What is left is known by its name, which holds the number of the
//! process that made it; where a living run can, it holds a lock besides; and what could be destroyed with data of
//! somebody's has fathom's mark, too ([`labels::TAG`]): nothing is touched that has another name, whose process lives,
//! that is somebody else's, or that somebody uses. All of that is asked once more at the moment of removal. In a
//! container nothing is found: processes elsewhere seem dead there.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use fathom_stack::tracefs::{TraceFs, instance};
use fathom_telemetry::say;
use rustix::mount::UnmountFlags;

use crate::SystemError;
use crate::array::{dm, labels, lvm, md, zfs};
use crate::cgroup;
use crate::erase;
use crate::filesystem;
use crate::mapper;
use crate::orphans::{self, Orphan};
use crate::process;
use crate::programs;
use crate::swap_file;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leftover {
    /// A program that a lab started.
    Process(Orphan),
    /// A swap file that is on.
    Swap(PathBuf),
    /// A control group, by its directory.
    Group(PathBuf),
    /// A trace instance, by its name.
    Trace(String),
    /// An md array, by its node.
    Array(PathBuf),
    /// A device of the device mapper, by its name.
    Mapping(String),
    /// A mount, by its directory.
    Mount(PathBuf),
    /// A pool of ZFS, by its name.
    Pool(String),
    /// The label of a group of LVM or of a destroyed pool of ZFS: its name, and the device that has it.
    Label(String, PathBuf),
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(survivor) => survivor.fmt(f),
            Self::Swap(path) => write!(f, "swap {}", path.display()),
            Self::Group(dir) => write!(f, "control group {}", dir.display()),
            Self::Trace(name) => write!(f, "trace instance {name}"),
            Self::Array(node) => write!(f, "array {}", node.display()),
            Self::Mapping(name) => write!(f, "mapping {name}"),
            Self::Mount(dir) => write!(f, "mount {}", dir.display()),
            Self::Pool(name) => write!(f, "pool {name}"),
            Self::Label(name, device) => write!(f, "label of {name} on {}", device.display()),
        }
    }
}

/// Whether `name` is `prefix`, the number of a process that is gone, and a tail that fathom gives.
fn abandoned(name: &str, prefix: &str, tail: fn(&str) -> bool) -> bool {
    let Some(rest) = name.strip_prefix(prefix) else {
        return false;
    };
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    tail(&rest[end..]) && rest[..end].parse().is_ok_and(process::is_dead)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() < 10 && text.bytes().all(|b| b.is_ascii_digit())
}

/// Tail of a directory's name: `-3`.
fn of_mount(tail: &str) -> bool {
    tail.strip_prefix('-').is_some_and(is_number)
}

/// Tail of an md array's name: none, or a letter.
fn of_array(tail: &str) -> bool {
    tail.is_empty() || (tail.len() == 1 && tail.as_bytes()[0].is_ascii_lowercase())
}

/// Tail of a device-mapper array's name, or of a piece of its members'.
fn of_mapping(tail: &str) -> bool {
    let piece = |p: &&str| tail.strip_prefix(*p).is_some_and(is_number);
    tail.is_empty() || dm::PIECES.iter().any(piece)
}

/// Tail of the name of a group's volume, or of what that is made of: a group alone is no device.
fn of_group(tail: &str) -> bool {
    let Some(rest) = tail
        .strip_prefix('-')
        .and_then(|t| t.strip_prefix(lvm::VOLUME))
    else {
        return false;
    };
    let piece = |p: &&str| rest.strip_prefix(*p).is_some_and(is_number);
    rest.is_empty() || lvm::PIECES.iter().any(piece)
}

/// Whether a directory was made for a mount by a process that is gone, and is locked by none of another container.
fn is_abandoned_mount(path: &Path) -> bool {
    let name = path
        .file_name()
        .and_then(|n| n.to_str())
        .unwrap_or_default();
    abandoned(name, filesystem::PREFIX, of_mount)
        && is_own_directory(path)
        && fathom_files::remove::open_dir(path).is_ok_and(|dir| {
            let lock = rustix::fs::FlockOperation::NonBlockingLockExclusive;
            rustix::fs::flock(dir, lock) != Err(rustix::io::Errno::AGAIN)
        })
}

/// A directory of this user's, and no link to one.
fn is_own_directory(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(path).is_ok_and(|m| m.is_dir() && m.uid() == own)
}

/// What was found, and what could not be looked at.
#[derive(Debug, Default)]
pub struct Search {
    /// In the order in which they can be removed.
    pub found: Vec<Leftover>,
    /// What was not looked at, and what to do.
    pub unseen: Vec<String>,
}

/// Finds them; nothing in a container, where it cannot be known whose process is gone.
pub fn find() -> Search {
    if !process::sees_all_processes() {
        return Search {
            found: Vec::new(),
            unseen: vec![
                "what runs left in the kernel (this is a container: run fathom clean on the machine itself)"
                    .into(),
            ],
        };
    }
    let mut unseen = Vec::new();
    let survivors = orphans::find().into_iter().map(Leftover::Process);
    let mut found: Vec<Leftover> = survivors.collect();
    let (swaps, unknown) = swap_file::abandoned();
    found.extend(swaps.into_iter().map(Leftover::Swap));
    unseen.extend(
        unknown
            .into_iter()
            .map(|(path, why)| format!("swap {} ({why})", path.display())),
    );
    found.extend(cgroup::abandoned().into_iter().map(Leftover::Group));
    // A kernel without it has no instances; who may not see them is told below.
    if let Ok(tracefs) = TraceFs::find() {
        let names = instance::leftovers(&tracefs).into_iter();
        found.extend(names.map(Leftover::Trace));
    }
    if !programs::is_root() {
        unseen.push(
            "what runs of other users left, also in the kernel (run fathom clean as root)".into(),
        );
    }
    found.extend(machine());
    Search { found, unseen }
}

/// Pools, mounts, arrays, mappings and labels.
fn machine() -> Vec<Leftover> {
    let names = |dir: &Path| -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let mut all: Vec<String> = entries
            .filter_map(|e| e.file_name().into_string().ok())
            .collect();
        all.sort();
        all
    };
    let of_dead = |n: &String| abandoned(n, labels::PREFIX, str::is_empty);
    // Before its mount, which goes with it.
    let pools = zfs::pools().into_iter().filter(of_dead);
    let mut found: Vec<Leftover> = pools.map(Leftover::Pool).collect();
    let temporary = std::env::temp_dir();
    for name in names(&temporary) {
        let path = temporary.join(&name);
        if is_abandoned_mount(&path) {
            found.push(Leftover::Mount(path));
        }
    }
    let block = names(Path::new("/sys/block"));
    for name in block.iter().filter(|n| abandoned(n, md::PREFIX, of_array)) {
        found.push(Leftover::Array(Path::new("/dev").join(name)));
    }
    let ours =
        |n: &String| abandoned(n, dm::PREFIX, of_mapping) || abandoned(n, labels::PREFIX, of_group);
    let mut mappings: Vec<String> = block
        .iter()
        .filter_map(|n| fs::read_to_string(format!("/sys/block/{n}/dm/name")).ok())
        .map(|n| n.trim().to_owned())
        .filter(ours)
        .collect();
    // What lies on others has a shorter name, and goes first.
    mappings.sort();
    found.extend(mappings.into_iter().map(Leftover::Mapping));
    // What lies on them holds them in use until then.
    found.extend(labels());
    found
}

/// Devices with labels of what killed runs made, of groups and of pools alike.
fn labels() -> Vec<Leftover> {
    let all = fs::read_dir("/sys/class/block").into_iter().flatten();
    let mut found: Vec<Leftover> = all
        .flatten()
        .filter(|entry| may_be_labelled(&entry.path()))
        .filter_map(|entry| {
            let node = Path::new("/dev").join(entry.file_name());
            let name = labels::owner_of(&node)?;
            abandoned(&name, labels::PREFIX, str::is_empty).then_some(Leftover::Label(name, node))
        })
        .collect();
    found.sort_by_key(ToString::to_string);
    found
}

/// Whether a device, by its directory in sysfs, has bytes and stays: a loop device that goes with its last user takes its
/// label with it. Drives whose medium can be taken out are not asked for one.
fn may_be_labelled(device: &Path) -> bool {
    let is = |what: &str, value: &str| {
        fs::read_to_string(device.join(what)).is_ok_and(|text| text.trim() == value)
    };
    let name = device.file_name().unwrap_or_default().to_string_lossy();
    let removable = name.starts_with("sr") || name.starts_with("fd");
    !is("size", "0") && !is("loop/autoclear", "1") && !removable
}

impl Leftover {
    /// Stops it, removes it or unmounts it; what is busy is tried again for a second: the kernel ends the I/O of a process
    /// that was killed a moment later.
    ///
    /// # Errors
    /// Where somebody uses it, or this user may not.
    pub fn remove(&self) -> Result<(), SystemError> {
        crate::retry::patiently(1, is_busy, || self.try_to_remove()).map_err(|e| {
            let remedy = if is_busy(&e) {
                "end who uses it and run fathom clean again"
            } else if e.raw_os_error() == Some(libc::ENOMEM) {
                "make room in memory for what is swapped out and run fathom clean again"
            } else {
                "run fathom clean as root"
            };
            SystemError::Refused(format!(
                "{self} of a run that was killed stays ({e}): {remedy}"
            ))
        })
    }

    fn try_to_remove(&self) -> io::Result<()> {
        match self {
            Self::Process(survivor) => survivor.kill(),
            Self::Swap(path) => swap_file::remove_abandoned(path),
            Self::Group(dir) => cgroup::remove_abandoned(dir),
            Self::Trace(name) => {
                let tracefs = TraceFs::find().map_err(io::Error::other)?;
                instance::remove_leftover(&tracefs, name)
            }
            Self::Array(node) => md::stop(node),
            Self::Mapping(name) => mapper::remove(name),
            Self::Mount(dir) => {
                if dir.exists() && !is_abandoned_mount(dir) {
                    return Err(io::ErrorKind::ResourceBusy.into());
                }
                match rustix::mount::unmount(dir, UnmountFlags::NOFOLLOW) {
                    // Only the directory is left.
                    Ok(()) | Err(rustix::io::Errno::INVAL) => {}
                    // It went with its pool.
                    Err(rustix::io::Errno::NOENT) => return Ok(()),
                    Err(e) => return Err(e.into()),
                }
                fs::remove_dir(dir)
            }
            Self::Pool(name) => {
                let busy = |said| io::Error::new(io::ErrorKind::ResourceBusy, said);
                zfs::destroy(name).map_err(busy)?;
                // Its labels say only now that it is over.
                let ours = |r: &Leftover| matches!(r, Self::Label(n, _) if n == name);
                let mut labels = labels().into_iter().filter(ours);
                labels.try_for_each(|label| label.try_to_remove())
            }
            Self::Label(name, device) => {
                let device = erase::claim(device)?;
                // Looked at again, now that nobody else can have it.
                match labels::owner(&device) {
                    Some(owner) if owner == *name => erase::erase_claimed(device),
                    _ => Ok(()),
                }
            }
        }
    }
}

fn is_busy(e: &io::Error) -> bool {
    // A directory in which something is mounted is not empty.
    crate::retry::is_busy(e) || e.raw_os_error() == Some(libc::ENOTEMPTY)
}

/// Removes what it can, and says so: a run that makes arrays begins with this.
pub fn clear() {
    if !programs::is_root() || !process::sees_all_processes() {
        return;
    }
    for remain in machine() {
        match remain.remove() {
            Ok(()) => say!("fathom: removed {remain}, which a killed run had left"),
            Err(e) => say!("fathom: {e}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Numbers of processes end at 4194304 (proc(5)).
    const DEAD: &str = "4194999";

    #[test]
    fn only_names_that_fathom_gives_with_the_number_of_a_dead_process_are_ours() {
        let of = |prefix, tail, tails: &[&str]| -> Vec<bool> {
            let name = |t: &&str| format!("{prefix}{DEAD}{t}");
            let all = tails.iter().map(name);
            all.map(|n| abandoned(&n, prefix, tail)).collect()
        };
        let [yes, no] = [vec![true; 4], vec![false; 4]];
        assert_eq!(of("md_f", of_array, &["", "b", "z", "a"]), yes);
        assert_eq!(of("md_f", of_array, &["B", "bb", "-0", "_"]), no);
        let mounts = ["-3", "-0", "-10", "-999"];
        assert_eq!(of(filesystem::PREFIX, of_mount, &mounts), yes);
        assert_eq!(
            of(filesystem::PREFIX, of_mount, &["", "-", "-3x", "3-"]),
            no
        );
        let mappings = ["", "-meta-0", "-data-12", "-data-0"];
        assert_eq!(of(dm::PREFIX, of_mapping, &mappings), yes);
        let others = ["-root", "-meta-", "-data-0x", "p1"];
        assert_eq!(of(dm::PREFIX, of_mapping, &others), no);
        let volumes = [
            "-array",
            "-array_rimage_0",
            "-array_rmeta_7",
            "-array_rmeta_12",
        ];
        assert_eq!(of(labels::PREFIX, of_group, &volumes), yes);
        let others = ["", "-root", "-array2", "-array_rimage_"];
        assert_eq!(of(labels::PREFIX, of_group, &others), no);
        let groups = ["", "-array", "_", "x"];
        let alone = [true, false, false, false];
        assert_eq!(of(labels::PREFIX, str::is_empty, &groups), alone);
    }

    #[test]
    fn who_lives_keeps_what_has_its_name() {
        let own = format!("md_f{}", std::process::id());
        assert!(!abandoned(&own, md::PREFIX, of_array));
        assert!(!abandoned("md_f1", md::PREFIX, of_array), "init lives");
        for other in ["md0", "md_f", "md_fx", "md_f0", "md_f99999999999999999999"] {
            assert!(!abandoned(other, md::PREFIX, of_array), "{other}");
        }
    }

    #[test]
    fn the_directory_of_a_mount_that_never_was_goes_and_a_link_stays() {
        let at = |n: u32| std::env::temp_dir().join(format!("{}{DEAD}-{n}", filesystem::PREFIX));
        let (dir, link) = (at(900_001), at(900_002));
        fs::create_dir_all(&dir).unwrap();
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&dir, &link).unwrap();
        let mine = Leftover::Mount(dir.clone());
        let found = find().found;
        fs::remove_file(&link).unwrap();
        if !process::sees_all_processes() {
            fs::remove_dir(&dir).unwrap();
            assert_eq!(found, []);
            return println!("SKIP the_directory_of_a_mount_that_never_was: this is a container");
        }
        assert!(found.contains(&mine) && !found.contains(&Leftover::Mount(link)));
        let removed = mine.remove();
        if programs::is_root() {
            removed.unwrap();
        } else {
            let said = removed.unwrap_err().to_string();
            assert!(said.contains("run fathom clean as root"), "{said}");
            fs::remove_dir(&dir).unwrap();
        }
        assert!(!dir.exists());
    }
}
