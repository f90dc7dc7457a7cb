//! Settings of the machine that a comparison changes for a moment. Each is put back when its guard is
//! dropped: at the end, on an error, on a panic, and on the signals that end a run early.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::TraceError;

/// A file of sysfs with another value for a while.
#[derive(Debug)]
pub struct Changed {
    path: PathBuf,
    old: String,
}

impl Changed {
    /// Sets a disk's scheduler; the old one comes back when the guard is dropped.
    pub fn scheduler(disk: &str, name: &str) -> Result<Self, TraceError> {
        let path = Path::new("/sys/block").join(disk).join("queue/scheduler");
        let text = crate::tracefs::read(&path)?;
        let old = text
            .split(['[', ']'])
            .nth(1)
            .ok_or_else(|| TraceError::Format {
                path: path.clone(),
                what: format!("expected one name in brackets, found {:?}", text.trim()),
            })?
            .to_owned();
        let changed = Self { path, old };
        crate::tracefs::write(&changed.path, name)?;
        Ok(changed)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        if let Err(e) = crate::tracefs::write(&self.path, &self.old) {
            eprintln!(
                "fathom: {} could not be set back to {}: {e}",
                self.path.display(),
                self.old
            );
        }
    }
}

/// Keeps every processor out of idle states as long as it is held; the kernel ends it with the file.
#[derive(Debug)]
pub struct NoIdle(File);

impl NoIdle {
    /// Asks for a wake-up latency of 0 µs through `/dev/cpu_dma_latency`.
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
