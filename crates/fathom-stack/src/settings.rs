//! Settings of the machine that a comparison changes for a moment. Each is put back when its guard is
//! dropped: at the end, on an error, on a panic, and on the signals that end a run early. A killed
//! process cannot put anything back: it leaves a note of the old value, which the next run follows.

pub mod mount;

use std::fs::File;
use std::io::Write;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fathom_files::{create, open};
use fathom_telemetry::say;

use crate::error::TraceError;
use crate::tracefs::instance::{has_ended, start_time};

/// Where notes are kept: only root may write it.
const NOTES: &str = "/run";
const NOTE_PREFIX: &str = "fathom-setting-";
/// Only settings below these are changed, or put back from a note.
const SETTINGS: [&str; 2] = ["/sys/", "/proc/sys/vm/"];
/// What a note begins with that is about a mount.
const MOUNT: &str = "mount ";

/// Which boot a note is of: settings do not outlive it.
const BOOT: &str = "boot";

fn boot_id() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// What a setting is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum What {
    /// A file of sysfs or of the kernel's parameters.
    File(PathBuf),
    /// The options of what is mounted at a directory.
    Mount(PathBuf),
}

impl What {
    fn read(&self) -> Result<String, TraceError> {
        match self {
            Self::File(path) => Ok(chosen(&crate::tracefs::read(path)?).to_owned()),
            Self::Mount(at) => mount::options(at),
        }
    }

    fn write(&self, value: &str) -> Result<(), TraceError> {
        match self {
            Self::File(path) => crate::tracefs::write(path, value),
            Self::Mount(at) => mount::remount(at, value),
        }
    }

    /// As a note names it.
    fn name(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Mount(at) => format!("{MOUNT}{}", at.display()),
        }
    }

    fn named(text: &str) -> Self {
        match text.strip_prefix(MOUNT) {
            Some(at) => Self::Mount(at.into()),
            None => Self::File(text.into()),
        }
    }

    /// Whether it may be changed at all.
    fn is_allowed(&self, settings: &[&Path]) -> bool {
        match self {
            Self::File(path) => {
                settings.iter().any(|s| path.starts_with(s))
                    && !path.components().any(|c| c == Component::ParentDir)
            }
            Self::Mount(at) => mount::is_fathoms(at),
        }
    }
}

/// A setting with another value for a while.
#[derive(Debug)]
pub struct Changed {
    what: What,
    old: String,
    /// As the kernel shows what was set: any other value is somebody else's choice.
    new: String,
    /// Settings that the change disturbs.
    beside: Vec<Beside>,
    note: PathBuf,
    keeps: bool,
}

/// A setting that the change of another one disturbs.
#[derive(Debug)]
struct Beside {
    path: PathBuf,
    /// Before the change.
    old: String,
    /// Right after it; `None` where it was gone.
    new: Option<String>,
}

impl Changed {
    /// Sets a disk's scheduler; the old one comes back when the guard is dropped.
    ///
    /// # Errors
    /// The disk has no schedulers, or the user may not change them.
    pub fn scheduler(disk: &str, name: &str) -> Result<Self, TraceError> {
        Self::file(
            &Path::new("/sys/block").join(disk).join("queue/scheduler"),
            name,
        )
    }

    /// Writes a file of sysfs or of `/proc/sys/vm`; the old value comes back when the guard is dropped.
    ///
    /// # Errors
    /// The user may not, or the kernel did not take the value.
    pub fn file(path: &Path, value: &str) -> Result<Self, TraceError> {
        let what = What::File(path.to_owned());
        if !what.is_allowed(&SETTINGS.map(Path::new)) {
            return Err(refused(path, "only settings of the kernel are changed"));
        }
        let beside = disturbed_by(path);
        Self::set(what, value, beside, Path::new(NOTES))
    }

    /// Mounts a loop file system of fathom's own with other options, as [`mount::options`] names them.
    ///
    /// # Errors
    /// It is somebody else's, or the kernel refuses.
    pub fn mount(at: &Path, options: &str) -> Result<Self, TraceError> {
        mount::check(at)?;
        let what = What::Mount(at.to_owned());
        Self::set(what, options, Vec::new(), Path::new(NOTES))
    }

    fn set(
        what: What,
        new: &str,
        beside: Vec<(PathBuf, String)>,
        notes: &Path,
    ) -> Result<Self, TraceError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let old = what.read()?;
        let pid = std::process::id();
        let note = notes.join(format!(
            "{NOTE_PREFIX}{pid}-{}-{}",
            start_time(pid).unwrap_or(0),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        let boot = boot_id();
        let mut text = format!("{}\n{old}\n{new}\n{BOOT}\t{boot}\n", what.name());
        for (path, value) in &beside {
            text.push_str(&format!("{}\t{value}\n", path.display()));
        }
        // First the note, then the change: a process killed between them has changed nothing.
        write_durably(&note, &text).map_err(|e| TraceError::file(&note, e))?;
        let beside = beside.into_iter().map(|(path, old)| Beside {
            path,
            old,
            new: None,
        });
        let mut changed = Self {
            what,
            old,
            new: new.to_owned(),
            beside: beside.collect(),
            note,
            keeps: false,
        };
        changed.what.write(new)?;
        // Whatever the kernel made of it is undone with it.
        changed.new = changed.what.read()?;
        for b in &mut changed.beside {
            b.new = whole(&b.path);
        }
        if changed.new != new {
            return Err(TraceError::Setting {
                name: changed.what.name(),
                what: format!("the kernel made '{}' of '{new}'", changed.new),
            });
        }
        Ok(changed)
    }

    /// Leaves the new value in force.
    pub fn keep(mut self) {
        self.keeps = true;
        drop(std::fs::remove_file(&self.note));
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if self.keeps {
            return;
        }
        // Somebody else has chosen meanwhile, or it is gone: there is nothing of ours to undo.
        if self.what.read().is_ok_and(|now| now == self.new) {
            let beside: Vec<(PathBuf, String)> = self.beside.iter().map(Beside::wanted).collect();
            if let Err(e) = self.what.write(&self.old) {
                say!(
                    "fathom: {} could not be set back to {}: {e}",
                    self.what.name(),
                    self.old
                );
                return;
            }
            put_beside(&beside);
        }
        drop(std::fs::remove_file(&self.note));
    }
}

impl Beside {
    /// What it is to be once the change is undone: as before it, unless somebody has chosen since.
    fn wanted(&self) -> (PathBuf, String) {
        let now = whole(&self.path);
        let value = now.filter(|n| self.new.as_ref().is_some_and(|new| new != n));
        (self.path.clone(), value.unwrap_or_else(|| self.old.clone()))
    }
}

fn refused(path: &Path, why: &str) -> TraceError {
    TraceError::Setting {
        name: path.display().to_string(),
        what: why.into(),
    }
}

fn write_durably(note: &Path, text: &str) -> std::io::Result<()> {
    create::whole(note, 0o600, text.as_bytes())?.sync_all()?;
    // The name has to last as well.
    note.parent()
        .map_or(Ok(()), |dir| File::open(dir)?.sync_all())
}

/// Whether a change of this setting brings others of its disk to their defaults.
pub fn disturbs(path: &Path) -> bool {
    path.ends_with("queue/scheduler")
}

/// Settings that a change of this one brings to their defaults, with their values: another scheduler has another number
/// of requests, and parameters of its own.
fn disturbed_by(path: &Path) -> Vec<(PathBuf, String)> {
    let Some(queue) = path.parent().filter(|_| disturbs(path)) else {
        return Vec::new();
    };
    ["nr_requests", "wbt_lat_usec", "read_ahead_kb"]
        .map(|n| queue.join(n))
        .into_iter()
        .chain(scheduler_parameters(queue))
        .filter_map(|p| {
            let value = whole(&p)?;
            Some((p, value))
        })
        .collect()
}

/// Files of the parameters that the scheduler in use has of its own; `queue` is the disk's directory of that name.
pub fn scheduler_parameters(queue: &Path) -> Vec<PathBuf> {
    let own = std::fs::read_dir(queue.join("iosched"));
    let mut own: Vec<PathBuf> = own
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path())
        .collect();
    own.sort();
    own
}

/// The whole text of a file; `None` where it cannot be read.
fn whole(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned())
}

fn put_beside(beside: &[(PathBuf, String)]) {
    for (path, value) in beside {
        if whole(path).is_none_or(|now| now != *value) {
            // What cannot be written (some parameters are read-only) was not changed by us either.
            let _ = crate::tracefs::write(path, value);
        }
    }
}

/// The value in brackets where there is a choice, otherwise the whole text.
fn chosen(text: &str) -> &str {
    text.split(['[', ']']).nth(1).unwrap_or(text.trim())
}

/// The value of a setting now; `None` where there is none, or it cannot be read.
pub fn value(path: &Path) -> Option<String> {
    What::File(path.to_owned()).read().ok()
}

/// What killed runs left changed, in words; nothing is put back.
pub fn leftovers() -> Vec<String> {
    let found = notes_of_the_dead(Path::new(NOTES), &SETTINGS.map(Path::new));
    found
        .into_iter()
        .filter(|n| !n.is_over())
        .map(|n| format!("{} from {} to {}", n.what.name(), n.new, n.old))
        .collect()
}

/// Puts back what killed runs left changed; says what was done.
pub fn restore_leftovers() -> Vec<String> {
    restore(Path::new(NOTES), &SETTINGS.map(Path::new))
}

/// Whether a process still has changes to put back.
pub fn has_notes(pid: u32) -> bool {
    let prefix = format!("{NOTE_PREFIX}{pid}-");
    std::fs::read_dir(NOTES)
        .into_iter()
        .flatten()
        .flatten()
        .any(|e| e.file_name().to_string_lossy().starts_with(&prefix))
}

/// A note whose process has ended.
struct Note {
    file: PathBuf,
    what: What,
    old: String,
    new: String,
    beside: Vec<(PathBuf, String)>,
    /// Whether it is of this boot, and about a setting that may be changed.
    counts: bool,
}

impl Note {
    /// Whether the value is still the one that the process chose: otherwise somebody has chosen since, and it is theirs.
    fn is_ours(&self) -> bool {
        self.counts && self.new != self.old && self.what.read().is_ok_and(|now| now == self.new)
    }

    /// Whether nothing is left to be undone: what cannot be read just now may be still as the process left it.
    fn is_over(&self) -> bool {
        let there = match &self.what {
            What::File(path) | What::Mount(path) => path.exists(),
        };
        !self.counts
            || !there
            || self.what.read().is_ok_and(|now| now != self.new)
            || self.new == self.old
    }
}

/// What a note says; only root's regular files are notes.
fn note(dir: &Path, name: &str) -> Option<String> {
    let dir = fathom_files::remove::open_dir(dir).ok()?;
    let file = fathom_files::remove::open_regular(&dir, name).ok()?;
    std::io::read_to_string(file).ok()
}

fn notes_of_the_dead(notes: &Path, settings: &[&Path]) -> Vec<Note> {
    let mut found: Vec<(u32, Note)> = std::fs::read_dir(notes)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            let mut parts = name.strip_prefix(NOTE_PREFIX)?.split('-');
            let pid: u32 = parts.next()?.parse().ok()?;
            let started: u64 = parts.next()?.parse().ok()?;
            let number: u32 = parts.next()?.parse().ok()?;
            if start_time(pid) == Some(started) && !has_ended(pid) {
                return None;
            }
            let text = note(notes, &name)?;
            let mut lines = text.lines();
            let what = What::named(lines.next()?);
            let (old, new) = (lines.next()?.to_owned(), lines.next()?.to_owned());
            let further: Vec<(&str, &str)> = lines.filter_map(|l| l.split_once('\t')).collect();
            let boot = boot_id();
            let this_boot = further.iter().all(|(k, v)| *k != BOOT || *v == boot);
            let counts = this_boot && what.is_allowed(settings);
            let beside = further
                .into_iter()
                .map(|(p, v)| (PathBuf::from(p), v.to_owned()))
                .filter(|(p, _)| What::File(p.clone()).is_allowed(settings))
                .collect();
            let file = entry.path();
            Some((
                number,
                Note {
                    file,
                    what,
                    old,
                    new,
                    beside,
                    counts,
                },
            ))
        })
        .collect();
    // The last change is undone first.
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|f| f.1).collect()
}

fn restore(notes: &Path, settings: &[&Path]) -> Vec<String> {
    let mut said = Vec::new();
    for note in notes_of_the_dead(notes, settings) {
        // Asked anew for each: an earlier change of the same setting is in force again once a later one was undone.
        let ours = note.is_ours();
        let back = ours && note.what.write(&note.old).is_ok();
        if back {
            put_beside(&note.beside);
            said.push(format!(
                "{} is {} again: a run that was killed had left it at {}",
                note.what.name(),
                note.old,
                note.new
            ));
        }
        if back || (!ours && note.is_over()) {
            drop(std::fs::remove_file(&note.file));
        }
    }
    said
}

/// Keeps every processor out of idle states as long as it is held; the kernel ends it with the file.
#[derive(Debug)]
pub struct NoIdle {
    /// Held open: what was asked for ends with it.
    _file: File,
}

impl NoIdle {
    /// Asks for a wake-up latency of 0 µs through `/dev/cpu_dma_latency`.
    ///
    /// # Errors
    /// The user may not.
    pub fn hold() -> Result<Self, TraceError> {
        let path = Path::new("/dev/cpu_dma_latency");
        let mut file = open::control(path).map_err(|e| TraceError::file(path, e))?;
        file.write_all(&0i32.to_ne_bytes())
            .map_err(|e| TraceError::file(path, e))?;
        Ok(Self { _file: file })
    }
}

/// Whether this machine has idle states to leave out (a guest often has none of its own).
pub fn has_idle_states() -> bool {
    std::fs::read_dir("/sys/devices/system/cpu/cpu0/cpuidle").is_ok_and(|d| d.count() > 1)
}

/// Schedulers that a disk offers, the current one first.
pub fn schedulers(disk: &str) -> Vec<String> {
    let path = Path::new("/sys/block").join(disk).join("queue/scheduler");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    names.sort_by_key(|n| !n.starts_with('['));
    names
        .iter()
        .map(|n| n.trim_matches(['[', ']']).to_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Place {
        dir: tempfile::TempDir,
        file: PathBuf,
    }

    fn place() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("setting");
        std::fs::write(&file, "old\n").unwrap();
        Place { dir, file }
    }

    fn notes(p: &Place) -> usize {
        let is_note = |e: std::io::Result<std::fs::DirEntry>| {
            let name = e.unwrap().file_name();
            name.to_str().unwrap().starts_with(NOTE_PREFIX)
        };
        let dir = std::fs::read_dir(p.dir.path()).unwrap();
        dir.map(is_note).filter(|n| *n).count()
    }

    #[test]
    fn a_setting_comes_back_at_the_end_and_on_a_panic() {
        let p = place();
        let now = || std::fs::read_to_string(&p.file).unwrap();
        let held =
            Changed::set(What::File(p.file.clone()), "new", Vec::new(), p.dir.path()).unwrap();
        assert_eq!((now().as_str(), notes(&p)), ("new", 1));
        drop(held);
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
        let panicked = std::panic::catch_unwind(|| {
            let _held =
                Changed::set(What::File(p.file.clone()), "new", Vec::new(), p.dir.path()).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
    }

    #[test]
    fn what_somebody_else_has_chosen_meanwhile_is_left_alone() {
        let p = place();
        let other = p.dir.path().join("beside");
        std::fs::write(&other, "1\n").unwrap();
        let now = |file: &Path| std::fs::read_to_string(file).unwrap().trim().to_owned();
        let set = || {
            let beside = vec![(other.clone(), now(&other))];
            Changed::set(What::File(p.file.clone()), "new", beside, p.dir.path()).unwrap()
        };
        let held = set();
        std::fs::write(&p.file, "third").unwrap();
        drop(held);
        assert_eq!((now(&p.file).as_str(), notes(&p)), ("third", 0));
        // A setting beside it: what the change did to it is undone, what somebody did is not.
        std::fs::write(&p.file, "old").unwrap();
        let mut held = set();
        std::fs::write(&other, "2").unwrap();
        held.beside[0].new = Some("2".into());
        drop(held);
        assert_eq!((now(&p.file), now(&other)), ("old".into(), "1".into()));
        let held = set();
        std::fs::write(&other, "3").unwrap();
        drop(held);
        assert_eq!((now(&p.file), now(&other)), ("old".into(), "3".into()));
        // Gone: nothing to put back, and no note of it.
        let held = set();
        std::fs::remove_file(&p.file).unwrap();
        drop(held);
        assert_eq!((p.file.exists(), notes(&p)), (false, 0));
    }

    #[test]
    fn what_a_killed_run_changed_is_put_back_once_and_only_if_nobody_chose_since() {
        let p = place();
        // Process 1 is alive, but did not start at tick 0 + 123456789.
        let leave = |value: &str| {
            std::fs::write(
                p.dir.path().join(format!("{NOTE_PREFIX}1-123456789-0")),
                format!("{}\nold\nnew\n", p.file.display()),
            )
            .unwrap();
            std::fs::write(&p.file, value).unwrap();
        };
        let now = || std::fs::read_to_string(&p.file).unwrap();
        leave("new");
        assert_eq!(restore(p.dir.path(), &[p.dir.path()]).len(), 1);
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
        leave("third");
        assert_eq!(
            restore(p.dir.path(), &[p.dir.path()]),
            Vec::<String>::default()
        );
        assert_eq!((now().as_str(), notes(&p)), ("third", 0));
        // Never a file outside of where settings are.
        leave("new");
        restore(p.dir.path(), &[Path::new("/sys")]);
        assert_eq!(now(), "new");
        // One's own is kept as long as the process lives.
        let held =
            Changed::set(What::File(p.file.clone()), "new2", Vec::new(), p.dir.path()).unwrap();
        restore(p.dir.path(), &[p.dir.path()]);
        assert_eq!(now(), "new2");
        drop(held);
    }
}
