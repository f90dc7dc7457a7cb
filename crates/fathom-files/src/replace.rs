//! What may be in the place of an output: judged by what is there, never by its name alone.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, XattrFlags};
use rustix::io::Errno;

use crate::mark::{self, Provenance};

/// Name of the attribute of outputs. It is not the mark of files that may be measured on: an output must never become
/// a target.
const ATTRIBUTE: &str = "user.fathom.output";
/// So much of a file shows its kind.
const HEAD: usize = 4096;

/// Whether a file that begins so is an output of the kind that is about to be written.
pub type Kind = fn(&[u8]) -> bool;

/// Which regular file an output may replace.
#[derive(Debug, Clone, Copy)]
pub enum Existing {
    /// None: the name must be free.
    None,
    /// An empty one, one that fathom wrote and nobody changed since, and one that is of this kind.
    OfKind(Kind),
    /// The same; it is of the kind where its first line is that of the new one.
    Alike,
    /// Whatever is in it, because its owner said so.
    Any,
}

impl Existing {
    /// Only what is empty, or what fathom wrote and nobody changed since.
    pub const OWN: Self = Self::OfKind(|_| false);
}

/// What is at `name` in a directory, where it may be replaced; `None` where nothing is. `new` is the output, once it is
/// whole.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for everything that is no regular file, [`io::ErrorKind::AlreadyExists`] for a file
/// that may not be replaced.
pub(crate) fn judge(
    dir: BorrowedFd<'_>,
    name: &Path,
    existing: Existing,
    new: Option<&File>,
) -> io::Result<Option<Stat>> {
    let stat = match rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    regular(&stat)?;
    match existing {
        Existing::Any => return Ok(Some(stat)),
        Existing::None => return Err(foreign("there is a file of this name already")),
        // Its beginning is not known yet.
        Existing::Alike if new.is_none() => return Ok(Some(stat)),
        Existing::OfKind(_) | Existing::Alike => {}
    }
    if stat.st_size == 0 {
        return Ok(Some(stat));
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = match rustix::fs::openat(dir, name, flags | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(e) => return Err(e.into()),
    };
    // It may be another one by now.
    let stat = rustix::fs::fstat(&file)?;
    regular(&stat)?;
    may_go(&file, existing, new)?;
    Ok(Some(stat))
}

/// Whether an open regular file may be replaced by an output, or added to.
pub(crate) fn may_go(file: &File, existing: Existing, new: Option<&File>) -> io::Result<()> {
    let meta = file.metadata()?;
    let alike = || -> io::Result<bool> {
        let head = head(file)?;
        Ok(match (existing, new) {
            (Existing::OfKind(kind), _) => kind(&head),
            (Existing::Alike, Some(new)) => same_first_line(&head, &self::head(new)?),
            _ => false,
        })
    };
    let made = || matches!(mark::provenance(file), Ok(Provenance::Fathom(_)));
    let any = matches!(existing, Existing::Any);
    if any || meta.len() == 0 || is_own(file) || made() || alike()? {
        Ok(())
    } else {
        Err(foreign(
            "it is a file that fathom did not write, or that was changed since",
        ))
    }
}

/// Makes it known as an output of fathom's, as it is now. Where the file system has no attributes, or no room for one,
/// its kind must do.
pub(crate) fn set_own(file: &File) {
    if let Some(text) = state(file) {
        let _ = rustix::fs::fsetxattr(file, ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
    }
}

/// What the attribute says until then.
const BEGUN: &[u8] = b"begun";

/// Makes it known as an output that is being written; `false` where the file system has no attributes.
pub(crate) fn set_begun(file: &File) -> bool {
    rustix::fs::fsetxattr(file, ATTRIBUTE, BEGUN, XattrFlags::empty()).is_ok()
}

/// Whether it was begun and never came to its end.
pub(crate) fn is_begun(file: &File) -> bool {
    let mut buffer = [0u8; 128];
    rustix::fs::fgetxattr(file, ATTRIBUTE, &mut buffer[..])
        .is_ok_and(|n| buffer.get(..n) == Some(BEGUN))
}

/// Whether fathom wrote it, and nobody has changed it since.
pub(crate) fn is_own(file: &File) -> bool {
    let mut buffer = [0u8; 128];
    let Ok(n) = rustix::fs::fgetxattr(file, ATTRIBUTE, &mut buffer[..]) else {
        return false;
    };
    state(file).is_some_and(|now| buffer.get(..n) == Some(now.as_bytes()))
}

/// Size and time of the last change.
fn state(file: &File) -> Option<String> {
    let m = file.metadata().ok()?;
    Some(format!("{} {}.{:09}", m.size(), m.mtime(), m.mtime_nsec()))
}

fn head(file: &File) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let mut have = 0;
    while have < HEAD {
        match file.read_at(&mut head[have..], have as u64) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    head.truncate(have);
    Ok(head)
}

fn same_first_line(a: &[u8], b: &[u8]) -> bool {
    fn first(head: &[u8]) -> &[u8] {
        head.split(|c| *c == b'\n').next().unwrap_or_default()
    }
    !first(a).is_empty() && first(a) == first(b)
}

fn regular(stat: &Stat) -> io::Result<()> {
    let what = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => return Ok(()),
        FileType::Symlink => "a link, and links are not followed",
        FileType::Directory => "a directory",
        FileType::BlockDevice => "a block device",
        FileType::CharacterDevice => "a device",
        FileType::Fifo => "a pipe",
        _ => "a special file",
    };
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("it is {what}: outputs go to regular files; name another"),
    ))
}

pub(crate) fn foreign(what: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::AlreadyExists,
        format!("{what}: move it away, or name another"),
    )
}

/// The new file gets owner and access mode of the one that it replaces, as far as this user may give them.
pub(crate) fn resemble(new: &File, old: &Stat) {
    if let Ok(now) = rustix::fs::fstat(new.as_fd())
        && (now.st_uid, now.st_gid) != (old.st_uid, old.st_gid)
    {
        let owner = rustix::fs::Uid::from_raw(old.st_uid);
        let group = rustix::fs::Gid::from_raw(old.st_gid);
        let _ = rustix::fs::fchown(new, Some(owner), Some(group));
    }
    let _ = rustix::fs::fchmod(new, Mode::from_raw_mode(old.st_mode & 0o777));
}
