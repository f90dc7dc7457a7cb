//! Keeps files out of the page cache, which would be a second, larger cache beside an engine's own.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Keeps files out of the page cache while it lives, so that only the engine's own cache counts; or so many bytes of them in
/// it, where that is the engine's cache.
pub(super) struct Evictor {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Evictor {
    /// Time between passes. A pass drops what is clean, and starts writing what is not.
    const PERIOD: Duration = Duration::from_millis(100);
    /// Of a cache that is held: it grows meanwhile by what is read.
    const HOLDING: Duration = Duration::from_millis(20);

    /// Of files, and of all that lie in directories.
    pub(super) fn of(places: Vec<PathBuf>) -> Self {
        Self::every(Self::PERIOD, move || places.iter().for_each(|p| evict(p)))
    }

    /// Of a file that is mapped at `map` as long as this lives: `bytes` of it stay.
    #[cfg(feature = "lmdb")]
    pub(super) fn mapped(map: usize, file: PathBuf, bytes: u64) -> Self {
        let mut random = fathom_stats::rng::SplitMix64::new(bytes);
        let mut there = Vec::new();
        Self::every(Self::HOLDING, move || {
            let size = std::fs::metadata(&file).map_or(0, |m| m.len());
            there.resize(size.div_ceil(PAGE) as usize, 0);
            if !there.is_empty() {
                hold(map, bytes, &mut there, random.next_u64());
            }
        })
    }

    fn every(period: Duration, mut pass: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("kv-evictor".into())
            .spawn(move || {
                while !told.load(Ordering::Relaxed) {
                    pass();
                    std::thread::sleep(period);
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

/// Bytes of a page of memory.
#[cfg(feature = "lmdb")]
const PAGE: u64 = 4096;

/// Drops pages of a mapping, from one drawn at random on, until no more than `bytes` of them are in memory. Those that are not
/// yet written stay until they are.
#[cfg(feature = "lmdb")]
fn hold(map: usize, bytes: u64, there: &mut [u8], random: u64) {
    /// Dropped together.
    const PAGES: usize = 16;
    let size = there.len() * PAGE as usize;
    // SAFETY: the mapping is larger than its file and lives as long as the evictor; one byte is written for each page.
    if unsafe { libc::mincore(map as *mut libc::c_void, size, there.as_mut_ptr()) } != 0 {
        return;
    }
    let count = |pages: &[u8]| pages.iter().filter(|p| **p & 1 == 1).count();
    let mut excess = count(there).saturating_sub((bytes / PAGE) as usize);
    let pieces = there.len().div_ceil(PAGES);
    let first = random as usize % pieces;
    for piece in (first..pieces).chain(0..first) {
        if excess == 0 {
            return;
        }
        let pages = &there[piece * PAGES..there.len().min((piece + 1) * PAGES)];
        let dropped = count(pages);
        if dropped > 0 {
            let at = map + piece * PAGES * PAGE as usize;
            // SAFETY: advice about pages of a shared file mapping: they are read again where they are needed.
            unsafe {
                libc::madvise(
                    at as *mut libc::c_void,
                    pages.len() * PAGE as usize,
                    libc::MADV_PAGEOUT,
                )
            };
            excess = excess.saturating_sub(dropped);
        }
    }
}

#[cfg(feature = "lmdb")]
#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn so_much_of_a_mapped_file_stays_in_memory() {
        const PAGES: usize = 1024;
        let mut file = tempfile::tempfile().unwrap();
        // Page by page, as LMDB writes: of a large folio no part is dropped.
        for _ in 0..PAGES {
            file.write_all(&[1; PAGE as usize]).unwrap();
        }
        file.sync_all().unwrap();
        // SAFETY: a mapping of a file that lives as long as this test.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                PAGES * PAGE as usize,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED);
        let touch = || {
            // SAFETY: within the mapping.
            (0..PAGES)
                .map(|p| u64::from(unsafe { *map.cast::<u8>().add(p * PAGE as usize) }))
                .sum::<u64>()
        };
        assert_eq!(touch(), PAGES as u64);
        let mut there = vec![0; PAGES];
        let mut resident = |bytes: u64| {
            hold(map as usize, bytes, &mut there, 7);
            // Held to everything nothing is dropped: it counts.
            hold(map as usize, u64::MAX, &mut there, 0);
            there.iter().filter(|p| **p & 1 == 1).count()
        };
        let (before, after) = (resident(u64::MAX), resident(256 * PAGE));
        if after == before {
            // A file system in memory has nowhere to drop them to.
            println!(
                "SKIP so_much_of_a_mapped_file_stays_in_memory: nothing of a file is dropped here"
            );
        } else {
            assert!((240..=256).contains(&after), "{before} {after}");
            assert_eq!(touch(), PAGES as u64, "they are read again");
        }
        // SAFETY: nobody uses it any more.
        unsafe { libc::munmap(map, PAGES * PAGE as usize) };
    }
}
