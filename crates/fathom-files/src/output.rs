//! An output: written beside its place, and put there when it is whole, so that nothing is lost before something
//! better exists.
//!
//! Until then it has no name where the file system can do without, so a killed run leaves nothing. The directory is
//! held: a link put in its place changes nothing. What is replaced is exchanged first and judged once more, so not even
//! a file that got the name a moment ago is lost.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::partial;
use crate::replace::{self, Existing};
use crate::sink;

/// So often somebody else may give the name to something or take it away before that is an error.
const ATTEMPTS: u32 = 16;

/// A file that appears at its place with [`Output::commit`]. Dropped before, it leaves nothing.
#[derive(Debug)]
pub struct Output {
    out: BufWriter<File>,
    path: PathBuf,
    /// `None` where it is written as it comes: to a terminal, a stream, or nowhere.
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    dir: OwnedFd,
    name: PathBuf,
    /// Its name beside the place, where it has one.
    partial: Option<PathBuf>,
    existing: Existing,
    adds: bool,
    there: bool,
}

impl Output {
    /// Begins one. Besides regular files only `/dev/stdout`, `/dev/stderr`, terminals, `/dev/null` and the like are
    /// written, as it comes.
    ///
    /// # Errors
    /// Where `existing` does not allow to replace what is there ([`io::ErrorKind::AlreadyExists`]), where the place is a
    /// device, a pipe, a link or a directory ([`io::ErrorKind::InvalidInput`]), and where its directory cannot be
    /// written. The place is named by the caller.
    pub fn create(path: &Path, existing: Existing) -> io::Result<Self> {
        Self::begin(path, existing, false)
    }

    /// Begins one that is added to the end of a file of this kind, where there is one.
    ///
    /// # Errors
    /// As [`Output::create`].
    pub fn add_to(path: &Path, existing: Existing) -> io::Result<Self> {
        Self::begin(path, existing, true)
    }

    fn begin(path: &Path, existing: Existing, adds: bool) -> io::Result<Self> {
        if let Some(sink) = sink::open(path)? {
            return Ok(Self {
                out: BufWriter::new(sink),
                path: path.to_owned(),
                place: None,
            });
        }
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "it names no file",
            ));
        };
        let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(parent.unwrap_or(Path::new(".")), flags, Mode::empty())
            .map_err(misplaced)?;
        replace::judge(dir.as_fd(), Path::new(name), existing, None)?;
        let (file, partial) = beside(&dir)?;
        Ok(Self {
            out: BufWriter::with_capacity(64 << 10, file),
            path: path.to_owned(),
            place: Some(Place {
                dir,
                name: name.into(),
                partial,
                existing,
                adds,
                there: false,
            }),
        })
    }

    /// As the caller named it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another descriptor of the same file, for who writes it in its own way.
    ///
    /// # Errors
    /// As `dup(2)`.
    pub fn handle(&self) -> io::Result<File> {
        self.out.get_ref().try_clone()
    }

    /// Puts what was written so far in its place. What is written from now on is added there.
    ///
    /// # Errors
    /// As `write(2)` and `rename(2)`, and as [`Output::create`]; what was in its place is still there then.
    pub fn publish(&mut self) -> io::Result<()> {
        self.out.flush()?;
        let Some(place) = &mut self.place else {
            return Ok(());
        };
        let file = self.out.get_ref();
        if place.adds {
            return place.add(file);
        }
        replace::set_own(file);
        if !place.there {
            place.take(file)?;
            place.there = true;
        }
        Ok(())
    }

    /// Puts the whole file in its place.
    ///
    /// # Errors
    /// As [`Output::publish`].
    pub fn commit(mut self) -> io::Result<()> {
        self.publish()
    }

    /// The same at the end of what is there by now, however it was begun.
    ///
    /// # Errors
    /// As [`Output::commit`].
    pub fn commit_behind(mut self) -> io::Result<()> {
        if let Some(place) = &mut self.place {
            place.adds = true;
        }
        self.publish()
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Writes a whole output.
///
/// # Errors
/// As [`Output::create`] and [`Output::commit`].
pub fn write(path: &Path, existing: Existing, content: &[u8]) -> io::Result<()> {
    let mut out = Output::create(path, existing)?;
    out.write_all(content)?;
    out.commit()
}

/// Whether an output could be begun now; nothing is made or changed.
///
/// # Errors
/// As [`Output::create`].
pub fn check(path: &Path, existing: Existing) -> io::Result<()> {
    Output::create(path, existing).map(drop)
}

/// Why there can be no output in a directory.
fn misplaced(e: Errno) -> io::Error {
    let what = match e {
        Errno::NOENT => "its directory does not exist: make it, or name another place",
        Errno::NOTDIR => "it lies in something that is no directory: name another place",
        e => return e.into(),
    };
    io::Error::new(io::Error::from(e).kind(), what)
}

/// A file in the directory, without a name where that is possible.
fn beside(dir: &OwnedFd) -> io::Result<(File, Option<PathBuf>)> {
    let mode = Mode::from_raw_mode(0o666);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    // Without /proc it could never get a name.
    if Path::new("/proc/self/fd").exists() {
        match rustix::fs::openat(dir, ".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok((file.into(), None)),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
    with_name(dir).map(|(file, name)| (file, Some(name)))
}

/// The same with a name, where there can be none without.
fn with_name(dir: &OwnedFd) -> io::Result<(File, PathBuf)> {
    let mode = Mode::from_raw_mode(0o666);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    for _ in 0..ATTEMPTS {
        let name = partial::name();
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        match rustix::fs::openat(dir, &name, flags, mode) {
            Ok(file) => {
                let file = File::from(file);
                partial::begin(&file);
                return Ok((file, name));
            }
            Err(Errno::EXIST) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Err(Errno::EXIST.into())
}

fn cannot(e: Errno) -> bool {
    matches!(e, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

impl Place {
    /// Gives the file its place.
    fn take(&mut self, file: &File) -> io::Result<()> {
        for _ in 0..ATTEMPTS {
            let new = Some(file);
            let done = match replace::judge(self.dir.as_fd(), &self.name, self.existing, new)? {
                None => self.claim(file)?,
                Some(old) => self.exchange(file, &old)?,
            };
            if done {
                return Ok(());
            }
        }
        Err(replace::foreign("somebody else keeps making files there"))
    }

    /// Takes a free name; `false` where it is not free any more.
    fn claim(&mut self, file: &File) -> io::Result<bool> {
        let Some(partial) = &self.partial else {
            let name = self.name.clone();
            return self.name_it(file, &name);
        };
        let (dir, name) = (&self.dir, &self.name);
        let flag = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(dir, partial, dir, name, flag) {
            Ok(()) => {}
            Err(Errno::EXIST) => return Ok(false),
            Err(e) if cannot(e) => rustix::fs::renameat(dir, partial, dir, name)?,
            Err(e) => return Err(e.into()),
        }
        self.partial = None;
        Ok(true)
    }

    /// Gives a file without a name this one; `false` where it is taken.
    fn name_it(&self, file: &File, name: &Path) -> io::Result<bool> {
        let unnamed = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = AtFlags::SYMLINK_FOLLOW;
        match rustix::fs::linkat(CWD, unnamed, &self.dir, name, flags) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Changes places with what is there, and removes that if it may go; `false` where nothing is there any more.
    fn exchange(&mut self, file: &File, old: &Stat) -> io::Result<bool> {
        replace::resemble(file, old);
        while self.partial.is_none() {
            let name = partial::name();
            if self.name_it(file, &name)? {
                self.partial = Some(name);
            }
        }
        let Some(partial) = self.partial.clone() else {
            return Ok(false);
        };
        let (dir, name) = (&self.dir, &self.name);
        let swap = || rustix::fs::renameat_with(dir, &partial, dir, name, RenameFlags::EXCHANGE);
        match swap() {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            Err(e) if cannot(e) => {
                rustix::fs::renameat(dir, &partial, dir, name)?;
                self.partial = None;
                return Ok(true);
            }
            Err(e) => return Err(e.into()),
        }
        // From here on what lies beside is somebody's until it was judged.
        self.partial = None;
        match replace::judge(dir.as_fd(), &partial, self.existing, Some(file)) {
            Ok(_) => {
                rustix::fs::unlinkat(dir, &partial, AtFlags::empty())?;
                Ok(true)
            }
            Err(e) => {
                swap().map_err(|back| {
                    io::Error::other(format!(
                        "{e}; it is now named {} beside the place, because it cannot be put back: {back}",
                        partial.display()
                    ))
                })?;
                if is_this(file, dir, &partial) {
                    self.partial = Some(partial);
                }
                Err(e)
            }
        }
    }

    /// Adds what the file holds to what is there; nothing that was there before is touched.
    fn add(&mut self, file: &File) -> io::Result<()> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        for _ in 0..ATTEMPTS {
            if replace::judge(self.dir.as_fd(), &self.name, self.existing, Some(file))?.is_none() {
                replace::set_own(file);
                if self.claim(file)? {
                    return Ok(());
                }
                continue;
            }
            let flags = flags | OFlags::NOCTTY | OFlags::CLOEXEC;
            let there = match rustix::fs::openat(&self.dir, &self.name, flags, Mode::empty()) {
                Ok(there) => File::from(there),
                Err(Errno::NOENT) => continue,
                Err(e) => return Err(e.into()),
            };
            if !there.metadata()?.is_file() {
                continue;
            }
            replace::may_go(&there, self.existing, Some(file))?;
            return append(file, &there);
        }
        Err(replace::foreign("somebody else keeps making files there"))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = rustix::fs::unlinkat(&self.dir, partial, AtFlags::empty());
        }
    }
}

/// Writes the whole of `new` to the end of `there`, or nothing of it.
fn append(new: &File, there: &File) -> io::Result<()> {
    // Jobs of one run may share a log.
    static ONE_BY_ONE: Mutex<()> = Mutex::new(());
    let _turn = ONE_BY_ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = there.metadata()?.len();
    let own = before == 0 || replace::is_own(there);
    let mut from = new.try_clone()?;
    from.seek(SeekFrom::Start(0))?;
    let mut chunk = vec![0; 64 << 10];
    let mut done = 0;
    let copied = loop {
        match from.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(n) => {
                if let Err(e) = (&*there).write_all(&chunk[..n]) {
                    break Err(e);
                }
                done += n as u64;
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => break Err(e),
        }
    };
    if copied.is_err() {
        // Cut what is ours: nobody else has added anything if it is no longer than that.
        let now = there.metadata()?.len();
        if (before..=before + done + chunk.len() as u64).contains(&now) {
            there.set_len(before)?;
        }
    } else if own {
        replace::set_own(there);
    }
    copied
}

/// Whether this is the file of that name.
fn is_this(file: &File, dir: &OwnedFd, name: &Path) -> bool {
    let named = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let held = rustix::fs::fstat(file);
    matches!((named, held), (Ok(a), Ok(b)) if (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino))
}

#[cfg(test)]
mod tests;
