//! The page cache of a host: which pages it holds, and how many bytes still wait to be written.
//!
//! Pages go out in the order in which they came, which for random access is as good as least recently used.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use fathom_io::load::rng::mix;

/// Copy between page cache and program, bytes/ns (one core; typical).
const COPY: f64 = 10.0;
/// Share of memory that may be dirty before writers wait (`vm.dirty_ratio`).
const DIRTY_SHARE: f64 = 0.2;
const PAGE: u64 = 4096;

/// Page numbers are mixed well by one multiplication chain; the library's hash would cost more than the lookup.
#[derive(Debug, Default, Clone)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|b| self.0 = mix(self.0 ^ u64::from(*b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = mix(n);
    }
}

/// A host's page cache.
#[derive(Debug, Clone)]
pub struct PageCache {
    pages_max: usize,
    dirty_max: f64,
    held: HashSet<u64, BuildHasherDefault<Mixer>>,
    order: VecDeque<u64>,
    /// Bytes that wait, and when they were counted.
    dirty: f64,
    since: u64,
    /// Rate at which they are written back, bytes/ns.
    rate: f64,
}

impl PageCache {
    /// Empty, of `bytes`, above a device that takes `gb_per_s`.
    pub fn new(bytes: u64, gb_per_s: f64) -> Self {
        Self {
            pages_max: (bytes / PAGE).max(1) as usize,
            dirty_max: bytes as f64 * DIRTY_SHARE,
            held: HashSet::default(),
            order: VecDeque::new(),
            dirty: 0.0,
            since: 0,
            rate: gb_per_s,
        }
    }

    fn take(&mut self, page: u64) {
        if self.held.insert(page) {
            self.order.push_back(page);
            if self.order.len() > self.pages_max
                && let Some(old) = self.order.pop_front()
            {
                self.held.remove(&old);
            }
        }
    }

    fn drain(&mut self, at: u64, times: u64) {
        let gone = at.saturating_sub(self.since) as f64 * self.rate * times as f64;
        self.dirty = (self.dirty - gone).max(0.0);
        self.since = self.since.max(at);
    }

    /// A write at `at` that stands for `times` of them; returns its end. It waits where too much is dirty.
    pub fn write(&mut self, at: u64, offset: u64, bytes: u32, times: u64) -> u64 {
        self.pages(offset, bytes).for_each(|p| self.take(p));
        self.drain(at, times);
        self.dirty += f64::from(bytes) * times as f64;
        let over = (self.dirty - self.dirty_max).max(0.0);
        at + (f64::from(bytes) / COPY + over / (self.rate * times as f64)) as u64
    }

    /// A read at `at`: its end where all of it is held; else `None`, and the pages are held from now on.
    pub fn read(&mut self, at: u64, offset: u64, bytes: u32) -> Option<u64> {
        let hit = self.pages(offset, bytes).all(|p| self.held.contains(&p));
        if hit {
            return Some(at + (f64::from(bytes) / COPY) as u64);
        }
        self.pages(offset, bytes).for_each(|p| self.take(p));
        None
    }

    /// When everything that is dirty at `at` has been written.
    pub fn sync(&mut self, at: u64, times: u64) -> u64 {
        self.drain(at, times);
        let end = at + (self.dirty / (self.rate * times as f64)) as u64;
        self.dirty = 0.0;
        self.since = self.since.max(end);
        end
    }

    fn pages(&self, offset: u64, bytes: u32) -> impl Iterator<Item = u64> + use<> {
        offset / PAGE..(offset + u64::from(bytes)).div_ceil(PAGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_or_written_is_held_until_newer_pages_take_its_place() {
        let mut c = PageCache::new(8 * PAGE, 1.0);
        assert_eq!(c.read(0, 0, 4096), None);
        assert_eq!(c.read(0, 0, 4096), Some(409));
        c.write(0, 4096, 8192, 1);
        assert!(c.read(0, 4096, 8192).is_some());
        (10..17).for_each(|p| assert_eq!(c.read(0, p * PAGE, 4096), None));
        assert_eq!(c.read(0, 0, 4096), None, "it had to go");
    }

    #[test]
    fn writers_wait_once_a_fifth_of_memory_is_dirty_and_a_sync_for_all_of_it() {
        let mut c = PageCache::new(100 << 20, 1.0);
        let mut at = 0;
        let mut last = 0;
        for i in 0..100u64 {
            let end = c.write(at, i << 20, 1 << 20, 1);
            last = end - at;
            at = end;
        }
        assert!((last as f64 / 1_048_576.0 - 1.0).abs() < 0.02, "{last}");
        let wait = c.sync(at, 1) - at;
        assert!(
            (wait as f64 / (20 << 20) as f64 - 1.0).abs() < 0.1,
            "{wait}"
        );
        assert_eq!(c.sync(at + wait, 1), at + wait);
    }
}
