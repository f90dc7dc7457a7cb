//! Keeps files out of the page cache, which would be a second, larger cache beside an engine's own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keeps files out of the page cache while it lives, so that only the engine's own cache counts.
pub(super) struct Evictor {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Evictor {
    /// Time between passes. A pass drops what is clean, and starts writing what is not.
    const PERIOD: Duration = Duration::from_millis(100);

    /// Of files, and of all that lie in directories.
    pub(super) fn of(places: Vec<PathBuf>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("kv-evictor".into())
            .spawn(move || {
                while !told.load(Ordering::Relaxed) {
                    places.iter().for_each(|p| evict(p));
                    std::thread::sleep(Self::PERIOD);
                }
            })
            .ok();
        Self { stop, thread }
    }
}

impl Drop for Evictor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}

fn evict(place: &Path) {
    if let Ok(entries) = std::fs::read_dir(place) {
        entries.flatten().for_each(|e| evict(&e.path()));
    } else if let Ok(file) = File::open(place) {
        // SAFETY: advice about an open file; no memory is involved.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}
