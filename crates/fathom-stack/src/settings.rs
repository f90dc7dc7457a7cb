//! Settings of the machine that a comparison changes for a moment. Each is put back when its guard is
//! dropped: at the end, on an error, on a panic, and on the signals that end a run early. A killed
//! process cannot put anything back: it leaves a note of the old value, which the next run follows.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::TraceError;
use crate::tracefs::instance::start_time;

/// Where notes are kept: like the settings, it is new after a boot, and only root may write it.
const NOTES: &str = "/run";
const NOTE_PREFIX: &str = "fathom-setting-";
/// Only settings below it are put back from a note.
const SETTINGS: &str = "/sys/";

/// A file of sysfs with another value for a while.
#[derive(Debug)]
pub struct Changed {
    path: PathBuf,
    old: String,
    note: PathBuf,
}

impl Changed {
    /// Sets a disk's scheduler; the old one comes back when the guard is dropped.
    ///
    /// # Errors
    /// The disk has no schedulers, or the user may not change them.
    pub fn scheduler(disk: &str, name: &str) -> Result<Self, TraceError> {
        let path = Path::new("/sys/block").join(disk).join("queue/scheduler");
        Self::set(path, name, Path::new(NOTES))
    }

    fn set(path: PathBuf, new: &str, notes: &Path) -> Result<Self, TraceError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let text = crate::tracefs::read(&path)?;
        let old = chosen(&text).to_owned();
        let pid = std::process::id();
        let note = notes.join(format!(
            "{NOTE_PREFIX}{pid}-{}-{}",
            start_time(pid).unwrap_or(0),
            NEXT.fetch_add(1, Ordering::Relaxed)
        ));
        // First the note, then the change: a process killed between them has changed nothing.
        std::fs::write(&note, format!("{}\n{old}\n{new}\n", path.display()))
            .map_err(|e| TraceError::file(&note, e))?;
        let changed = Self { path, old, note };
        crate::tracefs::write(&changed.path, new)?;
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        match crate::tracefs::write(&self.path, &self.old) {
            Ok(()) => drop(std::fs::remove_file(&self.note)),
            Err(e) => eprintln!(
                "fathom: {} could not be set back to {}: {e}",
                self.path.display(),
                self.old
            ),
        }
    }
}

/// The value in brackets where there is a choice, otherwise the whole text.
fn chosen(text: &str) -> &str {
    text.split(['[', ']']).nth(1).unwrap_or(text.trim())
}

/// Puts back what killed runs left changed; says what was done.
pub fn restore_leftovers() -> Vec<String> {
    restore(Path::new(NOTES), Path::new(SETTINGS))
}

fn restore(notes: &Path, settings: &Path) -> Vec<String> {
    std::fs::read_dir(notes)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().to_str()?.to_owned();
            let mut parts = name.strip_prefix(NOTE_PREFIX)?.split('-');
            let pid: u32 = parts.next()?.parse().ok()?;
            let started: u64 = parts.next()?.parse().ok()?;
            if start_time(pid) == Some(started) {
                return None;
            }
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let mut lines = text.lines();
            let (path, old, new) = (Path::new(lines.next()?), lines.next()?, lines.next()?);
            let inside = path.starts_with(settings)
                && !path
                    .components()
                    .any(|c| c == std::path::Component::ParentDir);
            // Where somebody has chosen something else since, it is theirs.
            let ours = inside
                && crate::tracefs::read(path).is_ok_and(|now| chosen(&now) == new && new != old);
            let back = ours && crate::tracefs::write(path, old).is_ok();
            if back || !ours {
                std::fs::remove_file(entry.path()).ok()?;
            }
            back.then(|| {
                format!(
                    "{} is {old} again: a run that was killed had left it at {new}",
                    path.display()
                )
            })
        })
        .collect()
}

/// Keeps every processor out of idle states as long as it is held; the kernel ends it with the file.
#[derive(Debug)]
pub struct NoIdle(File);

impl NoIdle {
    /// Asks for a wake-up latency of 0 µs through `/dev/cpu_dma_latency`.
    ///
    /// # Errors
    /// The user may not.
    pub fn hold() -> Result<Self, TraceError> {
        let path = Path::new("/dev/cpu_dma_latency");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(|e| TraceError::file(path, e))?;
        file.write_all(&0i32.to_ne_bytes())
            .map_err(|e| TraceError::file(path, e))?;
        Ok(Self(file))
    }

    /// Whether the request is still held (it is, until dropped).
    pub fn is_held(&self) -> bool {
        self.0.metadata().is_ok()
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
        let held = Changed::set(p.file.clone(), "new", p.dir.path()).unwrap();
        assert_eq!((now().as_str(), notes(&p)), ("new", 1));
        drop(held);
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
        let panicked = std::panic::catch_unwind(|| {
            let _held = Changed::set(p.file.clone(), "new", p.dir.path()).unwrap();
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
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
        assert_eq!(restore(p.dir.path(), p.dir.path()).len(), 1);
        assert_eq!((now().as_str(), notes(&p)), ("old", 0));
        leave("third");
        assert_eq!(
            restore(p.dir.path(), p.dir.path()),
            Vec::<String>::default()
        );
        assert_eq!((now().as_str(), notes(&p)), ("third", 0));
        // Never a file outside of where settings are.
        leave("new");
        restore(p.dir.path(), Path::new("/sys"));
        assert_eq!(now(), "new");
        // One's own is kept as long as the process lives.
        let held = Changed::set(p.file.clone(), "new2", p.dir.path()).unwrap();
        restore(p.dir.path(), p.dir.path());
        assert_eq!(now(), "new2");
        drop(held);
    }
}
