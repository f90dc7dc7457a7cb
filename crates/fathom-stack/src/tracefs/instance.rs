//! A private trace instance: buffers and events of its own, so that other tracers are not disturbed.
//!
//! It is removed when dropped, which covers errors, panics and the signals that end a job early. A
//! killed process leaves its instance behind: the name tells process and start time, and the lock on its directory,
//! which the kernel drops with the process, that nobody has it; the next run finds and removes it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use fathom_files::open;

use super::page::PageLayout;
use super::{TraceFs, read, write};
use crate::error::TraceError;

const PREFIX: &str = "fathom-";

/// A trace instance of fathom's own.
#[derive(Debug)]
pub struct Instance {
    dir: PathBuf,
    layout: PageLayout,
    /// Its directory, locked: in another container this process seems to be gone.
    _lock: File,
    /// Keeps a detached mount alive until the instance is removed.
    _tracefs: TraceFs,
}

impl Instance {
    /// Makes one, after removing those of processes that are gone.
    pub fn create(tracefs: TraceFs) -> Result<Self, TraceError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        remove_leftovers(&tracefs);
        let header = tracefs.root().join("events/header_page");
        let text = read(&header)?;
        let layout = PageLayout::parse(&text).ok_or_else(|| TraceError::Format {
            path: header,
            what: "expected the fields timestamp, commit and data".into(),
        })?;
        let pid = std::process::id();
        let name = format!(
            "{PREFIX}{pid}-{}-{}",
            start_time(pid).unwrap_or(0),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let dir = tracefs.root().join("instances").join(name);
        fathom_files::create::dir_for(&dir, 0o700).map_err(|e| TraceError::file(&dir, e))?;
        let lock = unused(&dir).map_err(|e| {
            let _ = std::fs::remove_dir(&dir);
            TraceError::file(&dir, e)
        })?;
        let instance = Self {
            dir,
            layout,
            _lock: lock,
            _tracefs: tracefs,
        };
        instance.set("tracing_on", "0")?;
        Ok(instance)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Layout of its pages.
    pub fn layout(&self) -> &PageLayout {
        &self.layout
    }

    /// Writes one of its files.
    pub fn set(&self, file: &str, text: &str) -> Result<(), TraceError> {
        write(&self.dir.join(file), text)
    }

    /// Writes one that older kernels lack; whether it worked.
    pub fn try_set(&self, file: &str, text: &str) -> bool {
        self.set(file, text).is_ok()
    }

    /// Switches an event on, with a filter where one is given.
    pub fn enable(&self, event: &str, filter: Option<&str>) -> Result<(), TraceError> {
        let dir = Path::new("events").join(event);
        if let Some(filter) = filter {
            write(&self.dir.join(&dir).join("filter"), filter)?;
        }
        write(&self.dir.join(dir).join("enable"), "1")
    }

    /// Numbers of the processors that have a buffer.
    pub fn cpus(&self) -> Vec<u32> {
        let mut cpus: Vec<u32> = std::fs::read_dir(self.dir.join("per_cpu"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|e| e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        cpus.sort_unstable();
        cpus
    }

    /// Opens a processor's pages for reading without waiting.
    pub fn pages(&self, cpu: u32) -> Result<File, TraceError> {
        let path = self.dir.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
        open::for_reading(&path, 0).map_err(|e| TraceError::file(path, e))
    }

    /// Events that found no room in a processor's buffer.
    pub fn lost(&self, cpu: u32) -> Result<u64, TraceError> {
        let path = self.dir.join(format!("per_cpu/cpu{cpu}/stats"));
        let text = read(&path)?;
        let count = |key: &str| -> u64 {
            text.lines()
                .find_map(|l| l.strip_prefix(key)?.trim().parse().ok())
                .unwrap_or(0)
        };
        // "overrun" counts overwritten ones; with overwrite=0 new ones are dropped instead.
        Ok(count("dropped events:") + count("overrun:"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What stays is found by the next run, and by fathom clean.
        let _ = remove(&self.dir);
    }
}

/// The directory with its lock, which nobody else has.
fn unused(dir: &Path) -> std::io::Result<File> {
    let lock = fathom_files::remove::open_dir(dir)?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)?;
    Ok(lock)
}

/// Switches an instance off and removes it.
fn remove(dir: &Path) -> std::io::Result<()> {
    let _ = write(&dir.join("tracing_on"), "0");
    let _ = write(&dir.join("events/enable"), "0");
    // A reader elsewhere may hold it for a moment.
    let mut left = Ok(());
    for _ in 0..50 {
        left = std::fs::remove_dir(dir);
        match &left {
            Ok(()) => break,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => std::thread::sleep(std::time::Duration::from_millis(10)),
        }
    }
    left
}

/// Whether a name is that of an instance whose process is gone.
fn is_of_the_dead(name: &str) -> bool {
    let mut parts = name
        .strip_prefix(PREFIX)
        .into_iter()
        .flat_map(|n| n.split('-'));
    let (Some(Ok(pid)), Some(Ok(started)), Some(Ok(_)), None) = (
        parts.next().map(str::parse::<u32>),
        parts.next().map(str::parse::<u64>),
        parts.next().map(str::parse::<u32>),
        parts.next(),
    ) else {
        return false;
    };
    start_time(pid) != Some(started) || has_ended(pid)
}

/// Names of the instances of processes that are gone.
pub fn leftovers(tracefs: &TraceFs) -> Vec<String> {
    let all = tracefs.root().join("instances");
    let mut names: Vec<String> = std::fs::read_dir(&all)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| is_of_the_dead(name) && unused(&all.join(name)).is_ok())
        .collect();
    names.sort();
    names
}

/// Removes one that [`leftovers`] found, after checking once more.
///
/// # Errors
/// Where somebody has it, or reads from it.
pub fn remove_leftover(tracefs: &TraceFs, name: &str) -> std::io::Result<()> {
    if !is_of_the_dead(name) {
        return Err(std::io::ErrorKind::ResourceBusy.into());
    }
    let dir = tracefs.root().join("instances").join(name);
    match unused(&dir) {
        Ok(_lock) => remove(&dir),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Removes the instances of processes that are gone; returns their names.
pub fn remove_leftovers(tracefs: &TraceFs) -> Vec<String> {
    let mut names = leftovers(tracefs);
    names.retain(|name| remove_leftover(tracefs, name).is_ok());
    names
}

/// Whether a process has ended and only waits to be asked for its exit code.
pub fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, None | Some("Z" | "X"))
}

/// When a process started, in clock ticks since boot: with its number it names a process for good.
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and brackets; what follows the last bracket is plain.
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()
}
