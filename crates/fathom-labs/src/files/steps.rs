//! Steps with files, one after another, each timed. A look that says no is repeated, at first every 100 µs, later less often
//! the longer it takes, so that a look is no load.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use fathom_files::{create, open};
use fathom_io::Control;
use fathom_io::buffer::Buffers;
use fathom_io::clock::monotonic;
use fathom_io::files::{Access, BLOCK, Look, RECORD, Seen, Step};
use fathom_telemetry::Nanos;

use super::Place;
use super::held::{Holder, lock};

/// Between two looks, at least and at most.
const EVERY: (Nanos, Nanos) = (Nanos(100_000), Nanos::from_millis(10));

/// What is open while steps are done.
pub(crate) struct Doing<'a> {
    place: &'a Place,
    control: &'a Control,
    open: Option<(File, Access)>,
    map: Option<Map>,
    holder: Option<Holder>,
    buffers: Buffers,
}

/// The first block of a file, mapped.
struct Map(*mut libc::c_void);

impl Map {
    fn of(file: &File) -> io::Result<Self> {
        // SAFETY: a new mapping at no place of ours, of an open file that has a block.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BLOCK,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        match at == libc::MAP_FAILED {
            true => Err(io::Error::last_os_error()),
            false => Ok(Self(at)),
        }
    }

    fn word(&self) -> u64 {
        // SAFETY: the mapping is a block long and lives as long as this; others change it at any time.
        unsafe { std::ptr::read_volatile(self.0.cast()) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `of`, and used by nobody any more.
        unsafe { libc::munmap(self.0, BLOCK) };
    }
}

impl Place {
    /// To do steps in it.
    ///
    /// # Errors
    /// Where there is no memory.
    pub(crate) fn doing<'a>(&'a self, control: &'a Control) -> io::Result<Doing<'a>> {
        Ok(Doing {
            place: self,
            control,
            open: None,
            map: None,
            holder: None,
            buffers: Buffers::new(1, BLOCK as u32, None)?,
        })
    }
}

impl Doing<'_> {
    /// Does them in order, until one is not possible.
    pub(crate) fn all(&mut self, steps: &[Step]) -> Vec<Seen> {
        let mut seen: Vec<Seen> = Vec::new();
        for step in steps {
            // After one that was not possible the others are not done, and say why.
            let failed = seen.last().filter(|s| s.error.is_some()).cloned();
            let one = failed.unwrap_or_else(|| self.one(step));
            seen.push(one);
        }
        seen
    }

    fn one(&mut self, step: &Step) -> Seen {
        let began = monotonic().0;
        let mut seen = Seen {
            began,
            so: true,
            ..Seen::default()
        };
        let did = match step {
            Step::Until(look, limit) => self.until(look, *limit, &mut seen),
            Step::Hold(name, kind) => open::for_writing(&self.path(name), 0)
                .and_then(|file| Holder::start(file, *kind))
                .map(|(holder, given)| {
                    self.holder = Some(holder);
                    seen.so = given;
                }),
            other => self.act(other),
        };
        seen.ended = monotonic().0;
        if let Err(e) = did {
            (seen.so, seen.error) = (false, Some(e.to_string()));
        }
        seen
    }

    fn path(&self, name: &str) -> PathBuf {
        // What another machine says leads nowhere else.
        let plain = |n: &&str| !n.is_empty() && !n.starts_with('.');
        let name = name.rsplit('/').next().filter(plain);
        self.place.path.join(name.unwrap_or("unnamed"))
    }

    fn act(&mut self, step: &Step) -> io::Result<()> {
        match step {
            Step::Create(name) => {
                let path = self.path(name);
                create::file(&path)?;
                self.place.made_by_steps.borrow_mut().insert(path);
                Ok(())
            }
            Step::Open(name, access) => {
                (self.map, self.open) = (None, None);
                let path = self.path(name);
                let file = match access {
                    Access::Buffered | Access::Mapped => open::for_reading(&path, libc::O_NOFOLLOW),
                    Access::Direct => open::for_reading(&path, libc::O_NOFOLLOW | libc::O_DIRECT),
                    Access::Write => open::for_writing(&path, 0),
                    Access::Append => open::for_writing(&path, libc::O_APPEND),
                }?;
                if *access == Access::Mapped {
                    self.map = Some(Map::of(&file)?);
                }
                self.open = Some((file, *access));
                Ok(())
            }
            Step::Close => {
                (self.map, self.open) = (None, None);
                Ok(())
            }
            Step::Write(word) => {
                let file = self.file()?;
                file.write_all_at(&word.to_ne_bytes().repeat(BLOCK / 8), 0)?;
                file.sync_all()
            }
            Step::Append(writer, records) => {
                let mut file = self.file()?;
                for i in 0..*records {
                    let pair = [writer.to_ne_bytes(), i.to_ne_bytes()].concat();
                    file.write_all(&pair.repeat(RECORD / 16))?;
                }
                file.sync_all()
            }
            Step::Touch(name, seconds) => {
                let file = open::for_writing(&self.path(name), 0)?;
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(*seconds))?;
                file.sync_all()
            }
            Step::Rename(from, to) => {
                let (from, to) = (self.path(from), self.path(to));
                fs::rename(&from, &to)?;
                let mut made = self.place.made_by_steps.borrow_mut();
                made.remove(&from);
                made.insert(to);
                Ok(())
            }
            Step::Remove(name) => {
                let path = self.path(name);
                self.place.made_by_steps.borrow_mut().remove(&path);
                fs::remove_file(path)
            }
            Step::Kill => {
                self.holder = None;
                Ok(())
            }
            Step::Pause(time) => {
                let end = monotonic() + *time;
                while monotonic() < end && !self.control.interrupted() {
                    let left = end.since(monotonic()).min(Nanos::from_millis(20));
                    std::thread::sleep(left.into());
                }
                Ok(())
            }
            Step::Until(..) | Step::Hold(..) => Ok(()),
        }
    }

    fn file(&self) -> io::Result<&File> {
        let none = || io::Error::other("no file is open");
        self.open.as_ref().map(|o| &o.0).ok_or_else(none)
    }

    /// Looks until it is so; the last look's times are those that count.
    fn until(&mut self, look: &Look, limit: Nanos, seen: &mut Seen) -> io::Result<()> {
        let first = monotonic();
        loop {
            let began = monotonic();
            (seen.began, seen.so) = (began.0, false);
            seen.looks += 1;
            seen.so = self.look(look, &mut seen.counted)?;
            if seen.so {
                return Ok(());
            }
            seen.last_no = Some(began.0);
            let waited = monotonic().since(first);
            if waited >= limit || self.control.interrupted() {
                return Ok(());
            }
            let pause = Nanos(waited.0 / 50).clamp(EVERY.0, EVERY.1);
            std::thread::sleep(pause.min(Nanos(limit.0 - waited.0)).into());
        }
    }

    fn look(&mut self, look: &Look, counted: &mut u64) -> io::Result<bool> {
        Ok(match look {
            Look::Word(word) => self.word()? == *word,
            Look::Reopened(name, word) => {
                let file = missing(open::for_reading(&self.path(name), libc::O_NOFOLLOW))?;
                let mut first = [0; 8];
                match file {
                    Some(file) => {
                        file.read_at(&mut first, 0)? == 8 && u64::from_ne_bytes(first) == *word
                    }
                    None => false,
                }
            }
            Look::Size(bytes) => self.file()?.metadata()?.len() == *bytes,
            Look::SizeOf(name, bytes) => {
                missing(fs::symlink_metadata(self.path(name)))?.is_some_and(|m| m.len() == *bytes)
            }
            Look::Modified(name, seconds) => missing(fs::symlink_metadata(self.path(name)))?
                .is_some_and(|m| m.mtime() == *seconds as i64),
            Look::There(name) => missing(fs::symlink_metadata(self.path(name)))?.is_some(),
            Look::Gone(name) => missing(fs::symlink_metadata(self.path(name)))?.is_none(),
            Look::Listed(name) => {
                let mut listed = false;
                for entry in fs::read_dir(&self.place.path)? {
                    listed |= entry?.file_name().to_str() == Some(name);
                }
                listed
            }
            Look::Renamed(from, to) => {
                missing(fs::symlink_metadata(self.path(from)))?.is_none()
                    && missing(fs::symlink_metadata(self.path(to)))?.is_some()
            }
            Look::Records(name, records) => {
                *counted = count(&self.path(name))?;
                counted == records
            }
            Look::Locked(kind) => lock(self.file()?, *kind)?,
        })
    }

    /// The first word of the open file.
    fn word(&mut self) -> io::Result<u64> {
        if let Some(map) = &self.map {
            return Ok(map.word());
        }
        let Some((file, access)) = &self.open else {
            return Err(io::Error::other("no file is open"));
        };
        // Direct reads take whole blocks into aligned memory.
        let bytes = if *access == Access::Direct { BLOCK } else { 8 };
        let buffer = self.buffers.bytes(0, bytes as u32);
        if file.read_at(buffer, 0)? < 8 {
            return Ok(0);
        }
        let mut first = [0; 8];
        first.copy_from_slice(&buffer[..8]);
        Ok(u64::from_ne_bytes(first))
    }
}

/// `None` of what is not there.
fn missing<T>(asked: io::Result<T>) -> io::Result<Option<T>> {
    match asked {
        Ok(there) => Ok(Some(there)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Different whole records of a file, those of [`Step::Append`].
fn count(path: &std::path::Path) -> io::Result<u64> {
    let mut all = Vec::new();
    open::for_reading(path, libc::O_NOFOLLOW)?.read_to_end(&mut all)?;
    // The file began with a block.
    let records = all.get(BLOCK..).unwrap_or_default().chunks_exact(RECORD);
    let whole = records.filter(|r| r.chunks_exact(16).all(|pair| *pair == r[..16]));
    Ok(whole.collect::<BTreeSet<_>>().len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fathom_io::files::LockKind;

    fn steps(place: &Place, steps: &[Step]) -> Vec<Seen> {
        place.doing(&Control::new()).unwrap().all(steps)
    }

    fn made(name: &str) -> Vec<Step> {
        vec![
            Step::Create(name.into()),
            Step::Open(name.into(), Access::Write),
            Step::Write(7),
            Step::Close,
        ]
    }

    #[test]
    fn looks_say_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), None).unwrap();
        let invitation = place.invitation().unwrap();
        let other = Place::new(dir.path(), Some(&invitation)).unwrap();
        assert!(steps(&place, &made("f")).iter().all(|s| s.so));
        let once = |look| Step::Until(look, Nanos::ZERO);
        let name = || "f".to_owned();
        let asked = [
            (Look::Reopened(name(), 7), true),
            (Look::Reopened(name(), 8), false),
            (Look::Reopened("g".into(), 7), false),
            (Look::SizeOf(name(), 4096), true),
            (Look::There(name()), true),
            (Look::There("g".into()), false),
            (Look::Gone("g".into()), true),
            (Look::Listed(name()), true),
            (Look::Listed("g".into()), false),
            (Look::Renamed("g".into(), name()), true),
        ];
        for (look, so) in asked {
            let seen = steps(&other, &[once(look.clone())]);
            assert_eq!(
                (seen[0].so, seen[0].error.as_deref()),
                (so, None),
                "{look:?}"
            );
        }
        let seen = steps(
            &other,
            &[
                Step::Open(name(), Access::Mapped),
                once(Look::Word(7)),
                Step::Open(name(), Access::Append),
                Step::Append(1, 5),
                Step::Append(2, 5),
                once(Look::Records(name(), 10)),
                Step::Touch(name(), 1_000_000_007),
                once(Look::Modified(name(), 1_000_000_007)),
                Step::Open("not there".into(), Access::Buffered),
                Step::Close,
            ],
        );
        assert!(seen[..8].iter().all(|s| s.so), "{seen:?}");
        assert!(
            seen[8].error.is_some() && seen[9].error.is_some(),
            "{seen:?}"
        );
        drop(place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Place::new(dir.path(), Some(&invitation)).is_err());
    }

    #[test]
    fn locks_are_given_to_one_until_it_closes_or_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), None).unwrap();
        steps(&place, &made("f"));
        let asks = |kind| {
            let open = Step::Open("f".into(), Access::Write);
            let ask = Step::Until(Look::Locked(kind), Nanos::ZERO);
            steps(&place, &[open, ask])[1].so
        };
        for kind in [LockKind::Flock, LockKind::Posix, LockKind::Ofd] {
            let control = Control::new();
            let mut holds = place.doing(&control).unwrap();
            let held = holds.all(&[Step::Hold("f".into(), kind)]);
            assert!(held[0].so && !asks(kind), "{kind:?}: {held:?}");
            holds.all(&[Step::Kill]);
            assert!(asks(kind), "{kind:?} is held by nobody any more");
        }
    }

    #[test]
    fn names_lead_nowhere_else() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::new(dir.path(), None).unwrap();
        let doing = Control::new();
        let doing = place.doing(&doing).unwrap();
        for name in ["../f", "/etc/f", "..", "a/../../f", ".", ""] {
            let path = doing.path(name);
            assert_eq!(path.parent(), Some(place.path.as_path()), "{name}");
        }
    }
}
