//! Scratch files: made, used and removed by one run, and found again after a run that was
//! killed.
//!
//! A scratch file is born without a name, gets its mark, its lock and its space, and only
//! then appears in the directory; a failure or a kill before that leaves nothing. While it
//! is in use its lock is held, which the kernel drops with the process: a named scratch
//! file without a lock is a leftover.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fathom_files::{create, open};
use rustix::fs::{FallocateFlags, FlockOperation};
use rustix::io::Errno;

use crate::mark::{self, Provenance};
use crate::refusal::Refusal;
use crate::space;

/// Beginning of every scratch file's name; the process id and a nonce follow.
pub const PREFIX: &str = ".fathom-scratch-";

/// A scratch file in use. Dropping it removes the file.
#[derive(Debug)]
pub struct Scratch {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    marked: bool,
    reserved: bool,
    removed: bool,
}

impl Scratch {
    /// Makes a scratch file of `size` bytes in a directory.
    ///
    /// Its space is reserved where the file system can; the bytes are unwritten and must be
    /// filled before a read says anything about the device. Refuses, and leaves nothing,
    /// when the disk would become more than 95 % full, is read-only, or may not be written.
    pub fn create(dir: &Path, size: u64) -> Result<Self, Refusal> {
        let meta = fs::metadata(dir).map_err(|e| Refusal::from_io("find", dir, &e))?;
        if !meta.is_dir() {
            return Err(Refusal::NotDirectory {
                path: dir.to_path_buf(),
            });
        }
        let dir = fs::canonicalize(dir).map_err(|e| Refusal::from_io("find", dir, &e))?;
        if size == 0 {
            return Err(Refusal::Empty { path: dir });
        }
        space::check_fits(&dir, size)?;
        let mut attempt = 0;
        loop {
            match Self::make(&dir, &name(attempt), size) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && attempt < 8 => attempt += 1,
                Ok(scratch) => return Ok(scratch),
                Err(e) if is_full(&e) => return Err(space::no_space(&dir, size)),
                Err(e) => return Err(Refusal::from_io("make a scratch file in", &dir, &e)),
            }
        }
    }

    fn make(dir: &Path, name: &str, size: u64) -> io::Result<Self> {
        let path = dir.join(name);
        match create::unnamed(dir) {
            Ok(file) => {
                let (marked, reserved) = furnish(&file, size)?;
                create::name(&file, &path)?;
                Ok(Self::new(file, path, size, marked, reserved))
            }
            // Name it first.
            Err(e) if create::never_unnamed(&e) => {
                // From here on dropping it removes it.
                let mut scratch = Self::new(create::file(&path)?, path, size, false, false);
                (scratch.marked, scratch.reserved) = furnish(&scratch.file, size)?;
                Ok(scratch)
            }
            Err(e) => Err(e),
        }
    }

    fn new(file: File, path: PathBuf, size_bytes: u64, marked: bool, reserved: bool) -> Self {
        Self {
            file,
            path,
            size_bytes,
            marked,
            reserved,
            removed: false,
        }
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Its path, absolute and without links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether it carries fathom's mark; `false` where the file system has no user xattrs.
    pub fn is_marked(&self) -> bool {
        self.marked
    }

    /// Whether its space is reserved, so that filling it cannot fail for lack of space.
    pub fn is_reserved(&self) -> bool {
        self.reserved
    }

    /// Opens the same file once more, with further `open` flags such as `O_DIRECT`.
    pub fn reopen(&self, flags: i32) -> io::Result<File> {
        open::again(&self.file, flags)
    }

    /// Removes the file and says so where that fails; dropping does the same silently.
    pub fn remove(mut self) -> io::Result<()> {
        self.unlink()
    }

    fn unlink(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.removed, true) {
            return Ok(());
        }
        remove_if_same(&self.path, &self.file)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.unlink();
    }
}

/// Lock, mark and space. Returns whether it is marked and whether its space is reserved.
fn furnish(file: &File, size: u64) -> io::Result<(bool, bool)> {
    lock(file)?;
    let marked = mark::begin_scratch(file, size)?;
    let reserved = match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size) {
        Ok(()) => true,
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            file.set_len(size)?;
            false
        }
        Err(e) => return Err(e.into()),
    };
    Ok((marked, reserved))
}

/// Takes the lock that says "in use" without waiting for it.
fn lock(file: &File) -> io::Result<()> {
    rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive).map_err(io::Error::from)
}

fn is_full(e: &io::Error) -> bool {
    // (EFBIG is the limit of the process or of the file system, and says so itself.)
    matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// `.fathom-scratch-<pid>-<nonce>`. The nonce need only differ from names that exist.
fn name(attempt: u32) -> String {
    let nanos = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64);
    let nonce = nanos
        .wrapping_add(u64::from(attempt))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    format!("{PREFIX}{}-{:08x}", std::process::id(), nonce >> 32)
}

/// The process id in a scratch file's name; `None` where the name is not one.
fn parse_name(name: &str) -> Option<u32> {
    let (pid, nonce) = name.strip_prefix(PREFIX)?.split_once('-')?;
    let is_nonce = nonce.len() == 8 && nonce.bytes().all(|b| b.is_ascii_hexdigit());
    is_nonce.then(|| pid.parse().ok()).flatten()
}

/// A scratch file of a run that did not end properly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leftover {
    /// The file.
    pub path: PathBuf,
    /// Process that made it.
    pub pid: u32,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Time since it was last written.
    pub age: Duration,
}

/// Scratch files in a directory that no run uses any more.
///
/// Only regular files of fathom's name and, where the file system has user xattrs, with
/// fathom's mark and the size that it speaks of are considered. Files that may not be opened
/// are left out.
pub fn leftovers(dir: &Path) -> io::Result<Vec<Leftover>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(parse_name) else {
            continue;
        };
        let path = entry.path();
        if let Ok(Some(file)) = open_abandoned(&path) {
            let meta = file.0.metadata()?;
            found.push(Leftover {
                pid,
                size_bytes: meta.len(),
                age: meta
                    .modified()
                    .ok()
                    .and_then(|t| t.elapsed().ok())
                    .unwrap_or_default(),
                path,
            });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Targets that `--create` made in a directory and that are as their last run left them, with their sizes in bytes.
pub fn kept(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let scratch = entry.file_name().to_str().and_then(parse_name).is_some();
        let meta = entry.metadata()?;
        if !scratch && meta.is_file() && mark::may_overwrite(&entry.path()) {
            found.push((entry.path(), meta.len()));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a leftover after checking once more that it is one.
pub fn remove_leftover(leftover: &Leftover) -> Result<(), Refusal> {
    let path = &leftover.path;
    let is_ours = path
        .file_name()
        .and_then(|n| n.to_str())
        .and_then(parse_name)
        .is_some();
    if !is_ours {
        return Err(Refusal::ForeignFile { path: path.clone() });
    }
    match open_abandoned(path) {
        Ok(Some(file)) => {
            remove_if_same(path, &file.0).map_err(|e| Refusal::from_io("remove", path, &e))
        }
        Ok(None) => Err(Refusal::FileInUse {
            path: path.clone(),
            used: "the scratch file of a run that is still going on, or is not fathom's"
                .to_string(),
        }),
        Err(e) => Err(Refusal::from_io("open", path, &e)),
    }
}

/// A file with its lock taken, until it is dropped.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // A child that is just being started has a copy of the descriptor: closing this one would not end the lock.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the lock unless somebody who lives holds it. The kernel keeps a killed process's files until its I/O has ended, a
/// while after the process is gone.
fn lock_abandoned(file: &File) -> bool {
    /// Looks, 20 ms apart: ten seconds.
    const LOOKS: u32 = 500;
    /// Half a second, for a loop device that is being let go.
    const OF_LOOP: u32 = 25;
    for look in 0..LOOKS {
        if lock(file).is_ok() {
            return true;
        }
        let changed = matches!(mark::provenance(file), Ok(Provenance::Changed(_)));
        if !changed || (look >= OF_LOOP && is_behind_loop(file)) {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

/// Whether a loop device is over the file: it keeps the lock of the process that set it up, whether that lives or not.
fn is_behind_loop(file: &File) -> bool {
    let Ok(meta) = file.metadata() else {
        return false;
    };
    // A file that got its name later is known to the kernel by its number (d_mark_tmpfile, fs/dcache.c).
    let unnamed = format!("#{} (deleted)", meta.ino());
    let is_it = |path: &Path| match path.file_name() {
        Some(name) if name == &*unnamed => {
            let dir = path.parent().and_then(|d| fs::metadata(d).ok());
            dir.is_some_and(|d| d.dev() == meta.dev())
        }
        _ => fs::metadata(path).is_ok_and(|m| (m.dev(), m.ino()) == (meta.dev(), meta.ino())),
    };
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks
        .filter_map(|b| fs::read_to_string(b.path().join("loop/backing_file")).ok())
        .any(|path| is_it(Path::new(path.trim_end_matches('\n'))))
}

/// The file with its lock taken, if it is fathom's and nobody else holds the lock.
fn open_abandoned(path: &Path) -> io::Result<Option<Locked>> {
    let file = open::for_reading(path, libc::O_NOFOLLOW)?;
    let meta = file.metadata()?;
    if !meta.is_file() || !lock_abandoned(&file) {
        return Ok(None);
    }
    let file = Locked(file);
    Ok(match mark::provenance(&file.0)? {
        // The run that was killed has changed it since the mark was set, so its time says nothing. Of another size it is
        // what somebody has put there; one that is empty holds nothing of anybody's.
        Provenance::Fathom(_) | Provenance::Changed(_) => mark::of_scratch(&file.0)?
            .is_some_and(|m| {
                let as_made = meta.len() == m.bytes || meta.len() == 0;
                as_made && (!m.elsewhere || is_old(&meta))
            })
            .then_some(file),
        // Where marks are impossible the name must do. A run that has just named its file
        // may not have locked it yet.
        Provenance::Unmarkable => {
            let age = meta.modified()?.elapsed().unwrap_or_default();
            (age > Duration::from_secs(2)).then_some(file)
        }
        Provenance::Foreign => None,
    })
}

/// Locks may be local to each host of a shared file system: another host's file counts as in use for a day after it was
/// written last.
const ELSEWHERE: Duration = Duration::from_secs(24 * 3600);

fn is_old(meta: &fs::Metadata) -> bool {
    let age = meta.modified().ok().and_then(|t| t.elapsed().ok());
    age.is_some_and(|age| age > ELSEWHERE)
}

/// Opens the scratch file that another host of the same run has made: one that carries exactly `mark`. Returns it,
/// for reading and writing, and its size.
///
/// # Errors
/// Where there is none, or another.
pub fn join(path: &Path, mark: &str) -> Result<(File, u64), Refusal> {
    let found = |e: io::Error| Refusal::from_io("open", path, &e);
    let file = open::for_reading(path, libc::O_NOFOLLOW).map_err(found)?;
    let meta = file.metadata().map_err(found)?;
    let ours = mark::of_scratch(&file).map_err(found)?.is_some();
    if !meta.is_file() || !ours || mark::text(path).as_deref() != Some(mark) {
        return Err(Refusal::ForeignFile {
            path: path.to_path_buf(),
        });
    }
    let file = open::again_for(&file, libc::O_RDWR, 0).map_err(found)?;
    Ok((file, meta.len()))
}

/// Unlinks `path` if it still names `file`.
pub(crate) fn remove_if_same(path: &Path, file: &File) -> io::Result<()> {
    let named = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    let held = file.metadata()?;
    if (named.dev(), named.ino()) == (held.dev(), held.ino()) {
        fs::remove_file(path)?;
    }
    Ok(())
}
