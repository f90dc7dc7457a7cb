//! A memory control group of fathom's own: so much memory, and so much page cache, and no more.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use fathom_files::{create, kernel, remove};
use fathom_telemetry::say;
use rustix::fs::FlockOperation;

use crate::SystemError;
use crate::cleanup::{Cleanup, Undo};

/// Beginning of every such group's name; what it is for and the process id follow.
const PREFIX: &str = "fathom-";
/// What there are groups for.
const PURPOSES: [&str; 5] = ["swap", "paths", "postgresql", "sqlite", "test"];

/// A memory control group of the lab's own.
pub struct Group {
    dir: PathBuf,
    /// The directory, locked: whose lock is free is used by nobody, whatever number the process has elsewhere.
    _lock: File,
    limit: &'static str,
    mount: PathBuf,
    /// Beside the group, so that it can remove it where this process is killed.
    cleanup: Option<Cleanup>,
}

impl Group {
    /// `name` tells what it is for.
    pub fn create(name: &str) -> Result<Self, SystemError> {
        let missing = |what: String| SystemError::Missing {
            what,
            remedy: "run as root on the machine itself, with the memory controller on".into(),
        };
        let has_memory = |m: &PathBuf| {
            fs::read_to_string(m.join("cgroup.subtree_control"))
                .is_ok_and(|c| c.split_whitespace().any(|w| w == "memory"))
        };
        let (base, limit) = if let Some(m) = mounts("cgroup2", "").into_iter().find(has_memory) {
            (m, "memory.max")
        } else if let Some(m) = mounts("cgroup", "memory").into_iter().next() {
            (m, "memory.limit_in_bytes")
        } else {
            return Err(missing("there is no memory controller".into()));
        };
        let dir = base.join(format!("{PREFIX}{name}-{}", std::process::id()));
        let failed = |e: io::Error| missing(format!("{}: cannot be made: {e}", dir.display()));
        let cleanup = Cleanup::watch(&[Undo::group(&dir)]).map_err(failed)?;
        create::dir_for(&dir, 0o755).map_err(failed)?;
        let lock = remove::open_dir(&dir).and_then(|lock| {
            rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
            Ok(lock)
        });
        let lock = lock.map_err(|e| {
            let _ = fs::remove_dir(&dir);
            failed(e)
        })?;
        Ok(Self {
            _lock: lock,
            limit,
            mount: base,
            cleanup: Some(cleanup),
            dir,
        })
    }

    /// Its processes, and the page cache that they fill, get so much.
    pub fn limit(&self, bytes: u64) -> io::Result<()> {
        kernel::write(&self.dir.join(self.limit), &bytes.to_string())
    }

    /// Who needs more than there is waits until some of it has been swapped out, instead of being killed: swapping is as slow as
    /// its device. [`Group::relieve`] is needed as long as somebody may wait. Where the kernel cannot do that it kills, as always.
    pub fn wait_at_limit(&self, bytes: u64) -> io::Result<()> {
        match self.limit {
            // Above this it is slowed down, more the further it is.
            "memory.max" => {
                kernel::write(&self.dir.join("memory.high"), &bytes.to_string())?;
                self.limit(bytes + bytes / 8)
            }
            _ => {
                let _ = kernel::write(&self.dir.join("memory.oom_control"), "1");
                self.limit(bytes)
            }
        }
    }

    /// Lets those go on who wait at the limit: in the first generation of control groups nobody makes room once all of them
    /// sleep.
    pub fn relieve(&self, bytes: u64) {
        if self.limit == "memory.max" {
            return;
        }
        let waits = fs::read_to_string(self.dir.join("memory.oom_control"))
            .is_ok_and(|c| c.contains("under_oom 1"));
        if waits {
            // The kernel makes room for a smaller limit, and wakes who waits when it grows again.
            let _ = self.limit(bytes - bytes / 64);
            let _ = self.limit(bytes);
        }
    }

    /// Its processes get so much page cache, on top of what they have for themselves now and share with each other: the kernel
    /// counts shared memory as page cache, but can free none of it. It refuses where it cannot free so much at once.
    pub fn limit_cache(&self, bytes: u64) -> io::Result<()> {
        let (usage, cache) = match self.limit {
            "memory.max" => ("memory.current", "file"),
            _ => ("memory.usage_in_bytes", "cache"),
        };
        let bad = || io::Error::from(io::ErrorKind::InvalidData);
        let read = |name: &str| fs::read_to_string(self.dir.join(name));
        let all: u64 = read(usage)?.trim().parse().map_err(|_| bad())?;
        let stat = read("memory.stat")?;
        let counted = |name: &str| -> Option<u64> {
            let mut rows = stat.lines().filter_map(|l| l.split_once(' '));
            rows.find(|row| row.0 == name)?.1.parse().ok()
        };
        let cached = counted(cache).ok_or_else(bad)?;
        let pages = cached.saturating_sub(counted("shmem").unwrap_or(0));
        self.limit(all.saturating_sub(pages) + bytes)
    }

    /// Where a process is written that shall belong to it.
    pub fn members(&self) -> io::Result<File> {
        kernel::open(&self.dir.join("cgroup.procs"))
    }

    /// Moves this process into the group until what is returned is dropped. Memory that it has keeps its place: what is
    /// new, and what it reads into the page cache, belongs to the group.
    ///
    /// # Errors
    /// Where the process may not be moved; it stays where it was then.
    pub fn enter(&self) -> io::Result<Inside> {
        let controller = if self.limit == "memory.max" {
            ""
        } else {
            "memory"
        };
        Inside::enter(&self.mount, controller, &self.dir)
    }
}

/// A group by the name that its user gave it; this process is in it until this is dropped.
pub struct Membership {
    /// Left before the group is removed.
    inside: Option<Inside>,
    dir: PathBuf,
    /// Removed again: it was made here, and is not to stay.
    cleanup: Option<Cleanup>,
}

impl Membership {
    /// Makes the group where it is missing, and moves this process there: in the hierarchy of block devices, or in the
    /// unified one, whichever is mounted first. `keep` leaves it there afterwards; `weight` is blkio.weight.
    ///
    /// # Errors
    /// Where there is no such hierarchy, the name leads out of it, the user may not, or there is no such weight.
    pub fn enter(name: &str, weight: Option<u64>, keep: bool) -> io::Result<Self> {
        let inner = Path::new(name.trim_start_matches('/'));
        let plain = |c: std::path::Component<'_>| matches!(c, std::path::Component::Normal(_));
        if inner.as_os_str().is_empty() || !inner.components().all(plain) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("'{name}' is no name of a control group: expected one such as bench/a"),
            ));
        }
        let (mount, controller) =
            of_devices().ok_or_else(|| io::Error::other("no control groups are mounted"))?;
        if weight.is_some() && controller.is_empty() {
            return Err(io::Error::other(
                "the unified control groups have no cgroup_weight, as fio says too",
            ));
        }
        let dir = mount.join(inner);
        let made = match create::dir_for(&dir, 0o755) {
            Ok(()) => true,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => false,
            Err(e) => return Err(e),
        };
        let cleanup = (made && !keep)
            .then(|| Cleanup::watch(&[Undo::group(&dir)]))
            .transpose()?;
        let mut group = Self {
            inside: None,
            dir,
            cleanup,
        };
        if let Some(weight) = weight {
            kernel::write(&group.dir.join("blkio.weight"), &weight.to_string())?;
        }
        group.inside = Some(Inside::enter(&mount, controller, &group.dir)?);
        Ok(group)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.inside = None;
        if let Some(cleanup) = self.cleanup.take()
            && crate::retry::patiently(1, |_| true, || fs::remove_dir(&self.dir)).is_err()
        {
            Cleanup::try_again(Some(cleanup));
        }
    }
}

/// This process is in a group.
pub struct Inside {
    home: File,
}

impl Inside {
    /// Moves this process from the group of `controller` that it is in to that of `dir`.
    fn enter(mount: &Path, controller: &str, dir: &Path) -> io::Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let path = own
            .lines()
            .filter_map(|l| {
                let mut fields = l.splitn(3, ':').skip(1);
                Some((fields.next()?, fields.next()?))
            })
            .find(|(c, _)| c.split(',').any(|c| c == controller))
            .map(|(_, path)| path.trim_start_matches('/').to_owned())
            .ok_or_else(|| io::Error::other("/proc/self/cgroup does not say where it is"))?;
        let home = mount.join(path).join("cgroup.procs");
        let home = kernel::open(&home)?;
        kernel::open(&dir.join("cgroup.procs"))?
            .write_all(std::process::id().to_string().as_bytes())?;
        Ok(Self { home })
    }
}

/// Where groups of block devices are, and the name of their controller: nothing for the unified hierarchy.
fn of_devices() -> Option<(PathBuf, &'static str)> {
    let all = fs::read_to_string("/proc/mounts").ok()?;
    all.lines().find_map(|l| {
        let f: Vec<&str> = l.split(' ').collect();
        let blkio = f.get(3)?.split(',').any(|o| o == "blkio");
        match *f.get(2)? {
            "cgroup" if blkio => Some((PathBuf::from(f[1]), "blkio")),
            "cgroup2" => Some((PathBuf::from(f[1]), "")),
            _ => None,
        }
    })
}

/// Where control groups of a kind are mounted, with an option if one is named.
fn mounts(kind: &str, option: &str) -> Vec<PathBuf> {
    let all = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let fits = |l: &str| {
        let f: Vec<&str> = l.split(' ').collect();
        let fits = f.len() > 3
            && f[2] == kind
            && (option.is_empty() || f[3].split(',').any(|o| o == option));
        fits.then(|| PathBuf::from(f[1]))
    };
    all.lines().filter_map(fits).collect()
}

/// The process of a group, by its name.
fn process_of(name: &str) -> Option<u32> {
    let (purpose, pid) = name.strip_prefix(PREFIX)?.split_once('-')?;
    PURPOSES
        .contains(&purpose)
        .then(|| pid.parse().ok())
        .flatten()
}

/// Groups of killed runs.
pub fn abandoned() -> Vec<PathBuf> {
    let mut found: Vec<(u64, PathBuf)> = Vec::new();
    let bases = [mounts("cgroup2", ""), mounts("cgroup", "memory")];
    for entry in bases.iter().flatten().filter_map(|b| fs::read_dir(b).ok()) {
        for entry in entry.flatten() {
            let pid = entry.file_name().to_str().and_then(process_of);
            let path = entry.path();
            // A hierarchy may be mounted more than once.
            let inode = entry.metadata().map_or(0, |m| m.ino());
            let new = !found
                .iter()
                .any(|(i, p)| *i == inode && p.file_name() == path.file_name());
            if new && pid.is_some_and(crate::process::is_gone) && unused(&path).is_ok() {
                found.push((inode, path));
            }
        }
    }
    found.into_iter().map(|(_, path)| path).collect()
}

/// The directory with its lock, which nobody else has.
fn unused(dir: &Path) -> io::Result<File> {
    let lock = remove::open_dir(dir)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

/// Removes one that [`abandoned`] found; the kernel refuses while processes are in it.
pub fn remove_abandoned(dir: &Path) -> io::Result<()> {
    let pid = dir
        .file_name()
        .and_then(|n| n.to_str())
        .and_then(process_of);
    if !pid.is_some_and(crate::process::is_gone) {
        return Err(io::ErrorKind::ResourceBusy.into());
    }
    match unused(dir) {
        Ok(_lock) => fs::remove_dir(dir),
        // Its cleanup was faster.
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its last process may be on its way out.
        if crate::retry::patiently(1, |_| true, || fs::remove_dir(&self.dir)).is_err() {
            Cleanup::try_again(self.cleanup.take());
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Err(e) = self
            .home
            .write_all(std::process::id().to_string().as_bytes())
        {
            say!("fathom: this process keeps the limits of its control group: {e}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::os::unix::process::CommandExt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// Groups are named by their process: one test at a time has one.
    fn alone() -> MutexGuard<'static, ()> {
        static ONE: Mutex<()> = Mutex::new(());
        ONE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn what_is_read_beyond_the_limit_pushes_out_what_was_read_before() {
        let _alone = alone();
        let group = match Group::create("test") {
            Ok(g) => g,
            Err(e) => {
                println!("SKIP what_is_read_beyond_the_limit: {e}");
                return;
            }
        };
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("data");
        fs::write(&path, vec![1u8; 48 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let cached = || -> u64 {
            let stat = fs::read_to_string(group.dir.join("memory.stat")).unwrap();
            let name = if group.limit == "memory.max" {
                "file "
            } else {
                "cache "
            };
            let line = stat.lines().find_map(|l| l.strip_prefix(name));
            line.unwrap().parse().unwrap()
        };
        group.limit_cache(16 << 20).unwrap();
        // It alone: what the other tests of this process need is more than the limit.
        let mut command = std::process::Command::new("cat");
        let members = group.members().unwrap();
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(move || (&members).write_all(b"0"));
        }
        let out = command.arg(&path).stdout(std::process::Stdio::null());
        assert!(out.status().unwrap().success());
        let kept = cached();
        assert!((4 << 20..20 << 20).contains(&kept), "{kept}");
    }

    #[test]
    fn shared_memory_is_no_page_cache_that_could_be_freed() {
        let _alone = alone();
        let group = match Group::create("test") {
            Ok(g) => g,
            Err(e) => {
                println!("SKIP shared_memory_is_no_page_cache: {e}");
                return;
            }
        };
        let Ok(shared) = tempfile::NamedTempFile::new_in("/dev/shm") else {
            println!("SKIP shared_memory_is_no_page_cache: no /dev/shm");
            return;
        };
        let mut command = std::process::Command::new("head");
        let members = group.members().unwrap();
        // SAFETY: between fork and exec only a system call is made.
        unsafe {
            command.pre_exec(move || (&members).write_all(b"0"));
        }
        let out = command.args(["-c", "24m", "/dev/zero"]);
        let out = out.stdout(shared.reopen().unwrap());
        assert!(out.status().unwrap().success());
        group.limit_cache(8 << 20).unwrap();
        let limit = fs::read_to_string(group.dir.join(group.limit)).unwrap();
        let limit: u64 = limit.trim().parse().unwrap();
        assert!((30 << 20..44 << 20).contains(&limit), "{limit}");
    }

    #[test]
    fn this_process_comes_back_to_where_it_was() {
        let before = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let _alone = alone();
        let group = match Group::create("test") {
            Ok(g) => g,
            Err(e) => {
                println!("SKIP this_process_comes_back: {e}");
                return;
            }
        };
        let dir = group.dir.clone();
        // Nothing in the test needs a gigabyte.
        group.limit(1 << 30).unwrap();
        match group.enter() {
            Ok(inside) => {
                let within = fs::read_to_string("/proc/self/cgroup").unwrap();
                assert!(within.contains("fathom-test-"), "{within}");
                drop(inside);
            }
            Err(e) => println!("SKIP this_process_comes_back: it cannot be moved: {e}"),
        }
        assert_eq!(fs::read_to_string("/proc/self/cgroup").unwrap(), before);
        drop(group);
        assert!(!dir.exists());
    }
}
