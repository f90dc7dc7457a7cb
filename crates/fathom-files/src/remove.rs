//! The one way to remove a directory with all that it holds: never through a link, never into another mount, and what
//! says that the directory is fathom's last of all.
//!
//! A whole look comes before the first removal: what may not be removed keeps everything else.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::create;

/// Directories below each other, at most: nothing of fathom's is deeper, and each holds a descriptor meanwhile.
const DEPTH_MAX: u32 = 64;

/// Opens a directory, and no link to one, for a look at what is in it.
///
/// # Errors
/// As `open(2)`.
pub fn open_dir(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Opens a file of an open directory for reading: no link, and nothing that would be waited for.
///
/// # Errors
/// As `open(2)`; [`io::ErrorKind::InvalidData`] where it is not a regular file.
pub fn open_regular(dir: &File, name: &str) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(dir, name, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{name} is not a regular file"),
        ))
    }
}

/// Removes a directory of that path as long as it is the one that is held, `last` after everything else in it.
///
/// # Errors
/// The first thing that stays, with its path. What is another mount, or deeper than anything of fathom's, is found before
/// anything is removed; `last` is there as long as the directory is.
pub fn tree(path: &Path, held: &File, last: &str) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let parent = if parent.as_os_str().is_empty() {
        Path::new(".")
    } else {
        parent
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let parent = rustix::fs::open(parent, flags, Mode::empty())?;
    let name = c_string(name)?;
    let top = enter(parent.as_fd(), &name).map_err(|e| within(path, e))?;
    let (there, ours) = (File::from(top), held.metadata()?);
    let is = there.metadata()?;
    if (is.dev(), is.ino()) != (ours.dev(), ours.ino()) {
        return Err(io::Error::other(format!(
            "{} is another directory by now",
            path.display()
        )));
    }
    let last = CString::new(last)?;
    walk(there.as_fd(), path, 0, None)?;
    walk(there.as_fd(), path, 0, Some(&last))?;
    let mark = Mark::of(&there, &last)?;
    unlink(there.as_fd(), &last, path, AtFlags::empty())?;
    rustix::fs::unlinkat(&parent, &*name, AtFlags::REMOVEDIR).map_err(|e| {
        // Somebody made something meanwhile: it is found again only by what said whose it is.
        mark.put_back(path);
        within(path, e.into())
    })
}

/// What is removed last.
struct Mark {
    name: PathBuf,
    content: Option<Vec<u8>>,
}

impl Mark {
    fn of(dir: &File, name: &CStr) -> io::Result<Self> {
        let name = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
        let content = match open_regular(dir, &name.to_string_lossy()) {
            Ok(file) => {
                let mut content = Vec::new();
                file.take(1 << 16).read_to_end(&mut content)?;
                Some(content)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        Ok(Self { name, content })
    }

    fn put_back(&self, dir: &Path) {
        if let Some(content) = &self.content
            && let Ok(mut file) = create::file(&dir.join(&self.name))
        {
            let _ = file.write_all(content);
        }
    }
}

fn c_string(name: &OsStr) -> io::Result<CString> {
    Ok(CString::new(name.as_bytes())?)
}

fn within(path: &Path, e: io::Error) -> io::Error {
    let said = match e.raw_os_error() {
        Some(libc::EXDEV) => format!("something is mounted at {0}: umount {0}", path.display()),
        _ => format!("{}: {e}", path.display()),
    };
    io::Error::new(e.kind(), said)
}

/// Opens one entry of a directory, which is no link and lies in the same mount.
fn open_here(dir: BorrowedFd<'_>, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let within = ResolveFlags::NO_XDEV | ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    // What is renamed elsewhere at the same moment makes the kernel ask for another try.
    let opened =
        (0..8).find_map(
            |_| match rustix::fs::openat2(dir, name, flags, Mode::empty(), within) {
                Err(Errno::AGAIN) => None,
                other => Some(other),
            },
        );
    match opened.unwrap_or(Err(Errno::AGAIN)) {
        // Before Linux 5.6, or where a container's profile forbids what it does not know.
        Err(Errno::NOSYS | Errno::PERM) => {
            let there = rustix::fs::openat(dir, name, flags, Mode::empty())?;
            if mount_of(there.as_fd())? == mount_of(dir)? {
                Ok(there)
            } else {
                Err(Errno::XDEV.into())
            }
        }
        other => Ok(other?),
    }
}

fn enter(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<OwnedFd> {
    open_here(dir, name, OFlags::RDONLY | OFlags::DIRECTORY)
}

/// Number of the mount that something open lies in (proc_pid_fdinfo(5)).
fn mount_of(fd: BorrowedFd<'_>) -> io::Result<u64> {
    use std::os::fd::AsRawFd;
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let number = text.lines().find_map(|l| l.strip_prefix("mnt_id:"));
    number
        .and_then(|n| n.trim().parse().ok())
        .ok_or_else(|| io::Error::other("/proc does not say which mount it lies in"))
}

/// Looks at everything in a directory; with `last`, removes it all but that.
fn walk(dir: BorrowedFd<'_>, path: &Path, depth: u32, last: Option<&CStr>) -> io::Result<()> {
    if depth > DEPTH_MAX {
        return Err(io::Error::other(format!(
            "{} is deeper than anything of fathom's",
            path.display()
        )));
    }
    // Collected first: removing while reading may leave some out.
    let mut names = Vec::new();
    for entry in Dir::read_from(dir).map_err(|e| within(path, e.into()))? {
        let entry = entry.map_err(|e| within(path, e.into()))?;
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            names.push(entry.file_name().to_owned());
        }
    }
    for name in names {
        let at = path.join(OsStr::from_bytes(name.to_bytes()));
        let kind = match rustix::fs::statat(dir, &*name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => FileType::from_raw_mode(stat.st_mode),
            Err(Errno::NOENT) => continue,
            Err(e) => return Err(within(&at, e.into())),
        };
        if kind == FileType::Directory {
            let below = enter(dir, &name).map_err(|e| within(&at, e))?;
            // Only in the directory itself has it its meaning.
            walk(below.as_fd(), &at, depth + 1, last.map(|_| c""))?;
            if last.is_some() {
                unlink(dir, &name, &at, AtFlags::REMOVEDIR)?;
            }
        } else if last.is_none() {
            // A file may be a mount, too; a link is none, and is not opened.
            if kind != FileType::Symlink {
                open_here(dir, &name, OFlags::PATH).map_err(|e| within(&at, e))?;
            }
        } else if last != Some(&*name) {
            unlink(dir, &name, &at, AtFlags::empty())?;
        }
    }
    Ok(())
}

fn unlink(dir: BorrowedFd<'_>, name: &CStr, path: &Path, flags: AtFlags) -> io::Result<()> {
    match rustix::fs::unlinkat(dir, name, flags) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(within(path, e.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn made() -> (tempfile::TempDir, PathBuf) {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("ours");
        fs::create_dir_all(dir.join("a/b")).unwrap();
        fs::write(dir.join("a/b/file"), "x").unwrap();
        fs::write(dir.join("mark"), "m").unwrap();
        (base, dir)
    }

    #[test]
    fn everything_goes_but_what_a_link_leads_to() {
        let (base, dir) = made();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("theirs"), "kept").unwrap();
        std::os::unix::fs::symlink(&outside, dir.join("a/link")).unwrap();
        std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, dir.join("fifo"), Mode::RUSR).unwrap();
        tree(&dir, &open_dir(&dir).unwrap(), "mark").unwrap();
        assert!(!dir.exists());
        assert_eq!(fs::read(outside.join("theirs")).unwrap(), b"kept");
    }

    #[test]
    fn a_directory_that_took_the_name_meanwhile_stays() {
        let (base, dir) = made();
        let held = open_dir(&dir).unwrap();
        fs::rename(&dir, base.path().join("moved")).unwrap();
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("theirs"), "kept").unwrap();
        let said = tree(&dir, &held, "mark").unwrap_err().to_string();
        assert!(said.contains("another directory by now"), "{said}");
        assert!(dir.join("theirs").exists());
        // A link of that name is not followed either.
        fs::remove_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink(base.path().join("moved"), &dir).unwrap();
        assert!(tree(&dir, &held, "mark").is_err());
        assert!(base.path().join("moved/a/b/file").exists());
    }

    #[test]
    fn what_is_too_deep_keeps_everything() {
        let (_base, dir) = made();
        let mut deep = dir.join("d");
        for _ in 0..DEPTH_MAX + 2 {
            fs::create_dir(&deep).unwrap();
            deep.push("d");
        }
        let said = tree(&dir, &open_dir(&dir).unwrap(), "mark").unwrap_err();
        assert!(said.to_string().contains("deeper than"), "{said}");
        assert!(dir.join("a/b/file").exists() && dir.join("mark").exists());
    }

    #[test]
    fn mounts_within_it_keep_everything() {
        let (base, dir) = made();
        let outside = base.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("theirs"), "kept").unwrap();
        fs::create_dir(dir.join("a/at")).unwrap();
        // A bind mount has the same device number; a file can be one, too.
        for (from, at) in [
            (outside.clone(), dir.join("a/at")),
            (outside.join("theirs"), dir.join("a/b/file")),
        ] {
            if let Err(e) = rustix::mount::mount_bind(&from, &at) {
                return println!("SKIP mounts_within_it_keep_everything: no mount here: {e}");
            }
            let result = tree(&dir, &open_dir(&dir).unwrap(), "mark");
            rustix::mount::unmount(&at, rustix::mount::UnmountFlags::DETACH).unwrap();
            let said = result.unwrap_err().to_string();
            assert!(
                said.contains(&format!("mounted at {}", at.display())),
                "{said}"
            );
            assert_eq!(fs::read(outside.join("theirs")).unwrap(), b"kept");
            assert!(dir.join("a/b/file").exists() && dir.join("mark").exists());
        }
        tree(&dir, &open_dir(&dir).unwrap(), "mark").unwrap();
        assert!(!dir.exists());
    }
}
