//! A lab's own directory on the target: made, marked and locked by one run, removed on its exit, and found again
//! after a run that was killed.
//!
//! Databases want a directory, not a scratch file. The mark inside says which directory it was written for, by which
//! process: a copy of it, or of the directory, is somebody else's. Its lock is held as long as the run lives: a
//! directory of this name, with its own mark and without a lock, is a leftover.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fathom_files::{create, remove};
use fathom_telemetry::say;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use crate::SystemError;

/// Beginning of every such directory's name; the process id and a nonce follow.
pub const PREFIX: &str = ".fathom-lab-";
/// Name of the mark. It is removed last.
const MARK: &str = "made-by-fathom";
/// A mark is longer than none and shorter than this.
const MARK_MAX: u64 = 4096;

/// A directory in use. Dropping it removes it with all that it holds.
#[derive(Debug)]
pub struct LabDir {
    path: PathBuf,
    held: File,
    lock: Option<File>,
}

impl LabDir {
    /// Makes one in `dir`, where `bytes` must fit.
    ///
    /// # Errors
    /// Where there is no room, or the directory cannot be written.
    pub fn create(dir: &Path, bytes: u64) -> Result<Self, SystemError> {
        let refused = |what: &str, e: &io::Error| {
            SystemError::Refused(format!(
                "{}: {what}: {e}; name a directory that can be written",
                dir.display()
            ))
        };
        let dir = fs::canonicalize(dir).map_err(|e| refused("cannot be found", &e))?;
        if let Ok(space) = fathom_host::space(&dir)
            && space.fits_bytes < bytes
        {
            return Err(SystemError::Refused(format!(
                "{}: {} of room are left for a lab that needs {}: use a smaller --size, or another directory",
                dir.display(),
                fathom_telemetry::Bytes(space.fits_bytes),
                fathom_telemetry::Bytes(bytes)
            )));
        }
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos() as u64);
        let nonce = nanos.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let path = dir.join(format!("{PREFIX}{}-{nonce:08x}", std::process::id()));
        // Servers that must not run as root go through it, but nobody lists it.
        create::dir_for(&path, 0o711)
            .map_err(|e| refused("a directory for the lab cannot be made", &e))?;
        let marked = remove::open_dir(&path).and_then(|held| {
            let lock = mark(&path, &held)?;
            Ok((held, lock))
        });
        let (held, lock) = marked.map_err(|e| {
            let _ = fs::remove_file(path.join(MARK));
            let _ = fs::remove_dir(&path);
            refused("a directory for the lab cannot be marked", &e)
        })?;
        Ok(Self {
            path,
            held,
            lock: Some(lock),
        })
    }

    /// Absolute, without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What other hosts join it by: its name, and what its mark says.
    ///
    /// # Errors
    /// Where the mark cannot be read any more.
    pub fn invitation(&self) -> io::Result<(String, String)> {
        let name = self.path.file_name().unwrap_or_default();
        Ok((name.to_string_lossy().into_owned(), marked(&self.held)?))
    }

    /// The same by a short name without spaces, quotes or foreign letters: scripts of servers stumble over those, and a
    /// socket's path has 107 bytes. It is good as long as this lives, for programs of the same account.
    pub fn plain(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.held.as_raw_fd()).into()
    }
}

/// The directory in `dir` that another host's process has made and uses, by its name and its mark.
///
/// # Errors
/// Where there is none of that name, or not with that mark.
pub fn join(dir: &Path, (name, mark): (&str, &str)) -> Result<PathBuf, SystemError> {
    let path = dir.join(name);
    let there = process_of(name).is_some()
        && remove::open_dir(&path).is_ok_and(|held| marked(&held).is_ok_and(|m| m == mark));
    match there {
        true => Ok(path),
        false => Err(SystemError::Refused(format!(
            "{}: the directory that another host made is not there: mount the same file system on all hosts",
            path.display()
        ))),
    }
}

/// What the mark in a directory says.
fn marked(dir: &File) -> io::Result<String> {
    let mut text = String::new();
    let mark = remove::open_regular(dir, MARK)?;
    mark.take(MARK_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// Which directory a mark is for, as its second line has it; `None` for the device where numbers of devices may have
/// changed since, and for the time of birth where the file system keeps none.
#[derive(Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    born: Option<u128>,
}

impl Identity {
    fn of(dir: &File) -> io::Result<Self> {
        let meta = dir.metadata()?;
        let born = meta.created().ok();
        Ok(Self {
            device: meta.dev(),
            inode: meta.ino(),
            born: born.and_then(|t| Some(t.duration_since(UNIX_EPOCH).ok()?.as_nanos())),
        })
    }

    /// Whether it is the same directory; device numbers are of one boot, the rest is of the file system.
    fn is(&self, other: &Self, same_boot: bool) -> bool {
        self.inode == other.inode
            && self.born == other.born
            && if self.born.is_some() && !same_boot {
                true
            } else {
                self.device == other.device
            }
    }
}

/// What a mark says.
#[derive(Debug)]
struct Words {
    identity: Identity,
    pid: u32,
    boot: String,
    host: String,
}

impl Words {
    fn now(dir: &File) -> io::Result<Self> {
        let here = rustix::system::uname();
        Ok(Self {
            identity: Identity::of(dir)?,
            pid: std::process::id(),
            boot: boot(),
            // Hosts of one image are called alike.
            host: format!(
                "{} {}",
                here.nodename().to_string_lossy(),
                fathom_files::mark::this_host()
            ),
        })
    }

    fn text(&self) -> String {
        let Identity {
            device,
            inode,
            born,
        } = self.identity;
        let born = born.map_or("-".to_owned(), |b| b.to_string());
        format!(
            "fathom {}\ndirectory {device} {inode} {born}\nprocess {}\nboot {}\nhost {}\n",
            env!("CARGO_PKG_VERSION"),
            self.pid,
            self.boot,
            self.host
        )
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next()?.strip_prefix("fathom ")?;
        let mut words = lines.next()?.strip_prefix("directory ")?.split(' ');
        let mut word = || words.next();
        let identity = Identity {
            device: word()?.parse().ok()?,
            inode: word()?.parse().ok()?,
            born: match word()? {
                "-" => None,
                number => Some(number.parse().ok()?),
            },
        };
        Some(Self {
            identity,
            pid: lines.next()?.strip_prefix("process ")?.parse().ok()?,
            boot: lines.next()?.strip_prefix("boot ")?.to_owned(),
            host: lines.next()?.strip_prefix("host ")?.to_owned(),
        })
    }
}

/// By identity; marks before there was one have the name only.
fn same_host(a: &str, b: &str) -> bool {
    match (a.split_once(' '), b.split_once(' ')) {
        (Some((_, a)), Some((_, b))) => a == b,
        _ => a.split(' ').next() == b.split(' ').next(),
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Writes and locks the mark before it has a name: a run that is killed in between leaves an empty directory.
fn mark(path: &Path, held: &File) -> io::Result<File> {
    let text = Words::now(held)?.text();
    let furnish = |mut file: &File| {
        rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)?;
        // Whoever may search the directory may know whose it is, whatever this process' mask says.
        file.set_permissions(fs::Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())
    };
    match create::unnamed(path) {
        Ok(file) => {
            furnish(&file)?;
            create::name(&file, &path.join(MARK))?;
            Ok(file)
        }
        // No unnamed files here (NFS, FUSE).
        Err(e) if create::never_unnamed(&e) => {
            let file = create::file(&path.join(MARK))?;
            furnish(&file)?;
            Ok(file)
        }
        Err(e) => Err(e),
    }
}

impl Drop for LabDir {
    fn drop(&mut self) {
        // A server that is ending may still make a file.
        let there = |e: &io::Error| e.kind() != io::ErrorKind::NotFound;
        let tree = || remove::tree(&self.path, &self.held, MARK);
        let mut removed = crate::retry::patiently(1, there, tree);
        if removed.as_ref().is_err_and(there) {
            // File systems in user space keep a removed file under another name as long as it is open.
            self.lock = None;
            removed = tree();
        }
        if let Err(e) = removed.or_else(|e| if there(&e) { Err(e) } else { Ok(()) }) {
            say!(
                "fathom: {} could not be removed ({e}); fathom clean will, once that is over",
                self.path.display()
            );
        }
    }
}

/// What a directory of such a name is.
#[derive(Debug)]
pub enum Verdict {
    /// Of a run that was killed; its lock is held as long as this.
    Abandoned(Abandoned),
    /// Of a run that is still going on.
    InUse,
    /// Somebody else's, and why.
    Foreign(String),
    /// It cannot be known, and why.
    Unknown(String),
}

/// A directory of a killed run, held and locked.
#[derive(Debug)]
pub struct Abandoned {
    /// The directory.
    pub dir: File,
    /// `None` where the run was killed before it wrote one: the directory is empty then.
    lock: Option<File>,
}

/// The process in a directory's name; `None` where it is no name of fathom's.
pub fn process_of(name: &str) -> Option<u32> {
    let (pid, nonce) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_nonce = nonce.len() == 8 && nonce.bytes().all(|b| b.is_ascii_hexdigit());
    is_nonce.then(|| pid.parse().ok()).flatten()
}

/// Judges a directory by its own mark, not by its name.
pub fn judge(path: &Path) -> Verdict {
    let name = path.file_name().and_then(|n| n.to_str());
    let Some(pid) = name.and_then(process_of) else {
        return Verdict::Foreign("its name is none of fathom's".into());
    };
    weigh(path, pid).unwrap_or_else(|e| Verdict::Unknown(e.to_string()))
}

fn weigh(path: &Path, pid: u32) -> io::Result<Verdict> {
    let foreign = |why: &str| Ok(Verdict::Foreign(why.into()));
    let dir = remove::open_dir(path)?;
    let (owner, me) = (dir.metadata()?.uid(), rustix::process::geteuid().as_raw());
    if owner != me && me != 0 {
        return Ok(Verdict::Unknown(format!("it belongs to user {owner}")));
    }
    let file = match remove::open_regular(&dir, MARK) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // A run that was killed as it began: nothing is lost with an empty directory.
            let empty = fs::read_dir(path)?.next().is_none();
            return Ok(if !empty {
                Verdict::Foreign("it has no mark of fathom's".into())
            } else if crate::process::is_gone(pid) {
                Verdict::Abandoned(Abandoned { dir, lock: None })
            } else {
                Verdict::InUse
            });
        }
        Err(e) if e.kind() == io::ErrorKind::InvalidData => return foreign(&e.to_string()),
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => return foreign("its mark is a link"),
        Err(e) => return Err(e),
    };
    let meta = file.metadata()?;
    if meta.uid() != owner {
        return foreign("its mark is of another user");
    }
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::AGAIN) => return Ok(Verdict::InUse),
        Err(e) => return Err(e.into()),
    }
    let mut text = String::new();
    if (&file).take(MARK_MAX).read_to_string(&mut text).is_err() {
        return foreign("its mark is not of fathom's making");
    }
    let Some(words) = Words::parse(&text) else {
        return foreign("its mark does not say which directory it is of");
    };
    let here = Words::now(&dir)?;
    let same_boot = words.boot == here.boot;
    if words.pid != pid || !words.identity.is(&here.identity, same_boot) {
        return foreign("its mark is of another directory: it is a copy");
    }
    if !same_boot && !same_host(&words.host, &here.host) {
        return Ok(Verdict::Unknown(format!(
            "it was made on {}: run fathom clean there",
            words.host.split(' ').next().unwrap_or_default()
        )));
    }
    let lock = Some(file);
    Ok(Verdict::Abandoned(Abandoned { dir, lock }))
}

/// What directories of such names there are in a directory.
#[derive(Debug, Default)]
pub struct Found {
    /// Of killed runs.
    pub abandoned: Vec<PathBuf>,
    /// That look alike and are not fathom's, and why not.
    pub alike: Vec<(PathBuf, String)>,
    /// Of which it cannot be known, and why.
    pub unknown: Vec<(PathBuf, String)>,
}

/// Looks for them.
///
/// # Errors
/// Where the directory cannot be read.
pub fn search(dir: &Path) -> io::Result<Found> {
    let mut found = Found::default();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let ours = entry.file_name().to_str().and_then(process_of).is_some();
        if !ours || !entry.file_type()?.is_dir() {
            continue;
        }
        let path = entry.path();
        match judge(&path) {
            Verdict::Abandoned(_) => found.abandoned.push(path),
            Verdict::InUse => {}
            Verdict::Foreign(why) => found.alike.push((path, why)),
            Verdict::Unknown(why) => found.unknown.push((path, why)),
        }
    }
    found.abandoned.sort();
    found.alike.sort();
    found.unknown.sort();
    Ok(found)
}

/// Removes one that [`search`] found, after checking once more; its mark goes last.
///
/// # Errors
/// Where it is in use again, is not fathom's, or something in it stays.
pub fn remove_abandoned(path: &Path) -> Result<(), SystemError> {
    let refused = |why: &str| SystemError::Refused(format!("{}: {why}", path.display()));
    let Abandoned { dir, lock } = match judge(path) {
        Verdict::Abandoned(abandoned) => abandoned,
        Verdict::InUse => {
            return Err(refused(
                "in use by a run that is still going on; wait for its end",
            ));
        }
        Verdict::Foreign(why) | Verdict::Unknown(why) => {
            return Err(refused(&format!(
                "{why}; look at it, and remove it by hand"
            )));
        }
    };
    let stays =
        |e: io::Error| SystemError::Failed(format!("{}: cannot be removed: {e}", path.display()));
    if lock.is_none() {
        return fs::remove_dir(path).map_err(stays);
    }
    // A server that was killed with its run may have left more than files.
    crate::shared_memory::release(&path.join("postgresql"));
    remove::tree(path, &dir, MARK).map_err(stays)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a killed run leaves: all but the lock.
    fn killed(dir: &Path) -> PathBuf {
        let place = LabDir::create(dir, 1).unwrap();
        let path = place.path().to_owned();
        fs::write(path.join("data"), "x").unwrap();
        assert!(search(dir).unwrap().abandoned.is_empty(), "in use");
        assert!(remove_abandoned(&path).is_err());
        // As the kernel does it: without what `drop` does.
        let lock = place.lock.as_ref().unwrap().try_clone().unwrap();
        std::mem::forget(place);
        rustix::fs::flock(&lock, FlockOperation::Unlock).unwrap();
        path
    }

    #[test]
    fn a_place_goes_with_its_run_and_is_found_after_a_kill() {
        let dir = tempfile::tempdir().unwrap();
        let place = LabDir::create(dir.path(), 1).unwrap();
        fs::write(place.path().join("data"), "x").unwrap();
        let path = place.path().to_owned();
        drop(place);
        assert!(!path.exists());
        let path = killed(dir.path());
        assert_eq!(
            search(dir.path()).unwrap().abandoned,
            *std::slice::from_ref(&path)
        );
        remove_abandoned(&path).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_only_looks_like_a_place_is_somebodys() {
        let dir = tempfile::tempdir().unwrap();
        let ours = killed(dir.path());
        // A copy of everything, as cp -a makes it.
        let copy = dir.path().join(format!("{PREFIX}4194999-deadbeef"));
        fs::create_dir(&copy).unwrap();
        for name in [MARK, "data"] {
            fs::copy(ours.join(name), copy.join(name)).unwrap();
        }
        // A mark as somebody types it, a link to ours, a pipe that nobody writes to.
        let kinds = [(5, "typed"), (6, "link"), (7, "pipe"), (8, "none")];
        let others = kinds.map(|(n, what)| {
            let at = dir.path().join(format!("{PREFIX}419499{n}-0000beef"));
            fs::create_dir(&at).unwrap();
            fs::write(at.join("data"), "kept").unwrap();
            let mark = at.join(MARK);
            match what {
                "typed" => fs::write(mark, "fathom 0.1.0\n").unwrap(),
                "link" => std::os::unix::fs::symlink(ours.join(MARK), mark).unwrap(),
                "pipe" => {
                    rustix::fs::mkfifoat(rustix::fs::CWD, &mark, rustix::fs::Mode::RUSR).unwrap()
                }
                _ => {}
            }
            at
        });
        let found = search(dir.path()).unwrap();
        assert_eq!(found.abandoned, *std::slice::from_ref(&ours));
        for path in others.iter().chain([&copy]) {
            assert!(found.alike.iter().any(|(p, _)| p == path), "{path:?}");
            let said = remove_abandoned(path).unwrap_err().to_string();
            assert!(said.contains("remove it by hand"), "{said}");
            assert!(path.join("data").exists());
        }
        remove_abandoned(&ours).unwrap();
        assert!(!ours.exists());
    }

    #[test]
    fn a_run_that_was_killed_before_it_wrote_its_mark_leaves_an_empty_directory() {
        let dir = tempfile::tempdir().unwrap();
        let dead = dir.path().join(format!("{PREFIX}4194999-deadbeef"));
        let living = format!("{PREFIX}{}-deadbeef", std::process::id());
        fs::create_dir(&dead).unwrap();
        fs::create_dir(dir.path().join(living)).unwrap();
        if !crate::process::sees_all_processes() {
            return println!("SKIP a_run_that_was_killed_before_it_wrote: this is a container");
        }
        assert_eq!(
            search(dir.path()).unwrap().abandoned,
            *std::slice::from_ref(&dead)
        );
        remove_abandoned(&dead).unwrap();
        assert!(!dead.exists());
    }

    #[test]
    fn a_mark_of_another_machine_is_left_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = killed(dir.path());
        let held = remove::open_dir(&path).unwrap();
        let write = |change: fn(&mut Words)| {
            let mut words = Words::now(&held).unwrap();
            change(&mut words);
            fs::write(path.join(MARK), words.text()).unwrap();
        };
        write(|w| (w.boot, w.host) = ("another".into(), "elsewhere".into()));
        let found = search(dir.path()).unwrap();
        assert!(found.unknown[0].1.contains("made on elsewhere"));
        assert!(remove_abandoned(&path).is_err() && path.join("data").exists());
        // After a power cut device numbers may be others.
        write(|w| (w.boot, w.identity.device) = ("another".into(), 7));
        if Identity::of(&held).unwrap().born.is_some() {
            assert_eq!(
                search(dir.path()).unwrap().abandoned,
                *std::slice::from_ref(&path)
            );
        }
        write(|w| w.identity.inode += 1);
        assert!(search(dir.path()).unwrap().abandoned.is_empty());
        write(|_| {});
        remove_abandoned(&path).unwrap();
    }

    #[test]
    fn no_room_is_said_before_anything_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let e = LabDir::create(dir.path(), u64::MAX).unwrap_err();
        assert!(e.to_string().contains("of room are left"), "{e}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
