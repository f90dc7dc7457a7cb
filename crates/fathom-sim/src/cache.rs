//! The page cache: what of the range is in memory, and how much of it is dirty.

use crate::host::PageCache as Costs;
use crate::processor::ns;

/// At most so many granules are tracked.
const GRANULES: u64 = 1 << 17;

#[derive(Debug, Clone)]
pub(crate) struct Cache {
    /// ns of processor per call and per byte.
    cpu: u64,
    cpu_per_byte: f64,
    /// ns per byte over all cores.
    total_per_byte: f64,
    pub(crate) tokens: usize,
    pub(crate) read_ahead: u64,
    pub(crate) flusher: f64,
    granule: u64,
    /// Bytes of each granule in memory, before `scale`.
    cached: Vec<f32>,
    sum: f64,
    scale: f64,
    limit: f64,
    dirty: f64,
    dirty_limit: f64,
    /// Slow clock of the last look at `dirty`, ns.
    seen: u64,
    total: u64,
}

impl Cache {
    /// `flusher` is what write-back reaches, 10⁹ bytes/s.
    pub(crate) fn new(c: &Costs, memory: u64, size: u64, flusher: f64) -> Self {
        let granule = (size / GRANULES).next_power_of_two().max(1 << 20);
        Self {
            cpu: ns(c.cpu_us),
            cpu_per_byte: 1.0 / c.core_gb_per_s,
            total_per_byte: 1.0 / c.total_gb_per_s,
            tokens: c.read_tokens,
            read_ahead: c.read_ahead_bytes,
            flusher,
            granule,
            cached: vec![0.0; size.div_ceil(granule) as usize],
            sum: 0.0,
            scale: 1.0,
            limit: c.bytes as f64,
            dirty: 0.0,
            dirty_limit: memory as f64 * c.dirty_share,
            seen: 0,
            total: 0,
        }
    }

    /// ns of processor that a call spends on `len` bytes.
    pub(crate) fn cpu(&self, len: u32) -> u64 {
        self.cpu + (f64::from(len) * self.cpu_per_byte) as u64
    }

    /// ns of processor that a call spends before it waits.
    pub(crate) fn call(&self) -> u64 {
        self.cpu
    }

    /// Whether a read of this offset hits, by 16 random bits.
    pub(crate) fn hits(&self, offset: u64, bits: u64) -> bool {
        let share = self
            .cached
            .get((offset / self.granule) as usize)
            .map_or(0.0, |c| f64::from(*c) * self.scale / self.granule as f64);
        (bits & 0xffff) as f64 <= share * 65536.0 - 1.0
    }

    /// Bytes are in memory now (`count` of them by the slow clock).
    pub(crate) fn fill(&mut self, offset: u64, len: u32, sequential: bool, lapse: u64) {
        let whole = self.granule as f64;
        let Some(c) = self.cached.get_mut((offset / self.granule) as usize) else {
            return;
        };
        let had = f64::from(*c) * self.scale;
        let bytes = f64::from(len) * lapse as f64;
        let added = if sequential {
            bytes.min(whole - had)
        } else {
            bytes.min(whole) * (1.0 - had / whole)
        }
        .max(0.0);
        *c += (added / self.scale) as f32;
        self.sum += added;
        if self.sum > self.limit {
            // Old and new are evicted alike: a little of everything.
            self.scale *= self.limit / self.sum;
            self.sum = self.limit;
            if self.scale < 1e-6 {
                let scale = self.scale as f32;
                self.cached.iter_mut().for_each(|c| *c *= scale);
                self.scale = 1.0;
            }
        }
    }

    /// Bytes pass the memory bus that all cores share; returns when.
    pub(crate) fn copy(&mut self, at: u64, len: u32) -> u64 {
        self.total = at.max(self.total) + (f64::from(len) * self.total_per_byte).round() as u64;
        self.total
    }

    /// Bytes become dirty at `slow`; returns how long the writer is held back, ns of the fast clock.
    pub(crate) fn dirty(&mut self, slow: u64, len: u32, lapse: u64) -> u64 {
        self.clean(slow);
        self.dirty += f64::from(len) * lapse as f64;
        let over = self.dirty - self.dirty_limit;
        if over <= 0.0 {
            return 0;
        }
        (over / self.flusher / lapse as f64) as u64
    }

    /// Write-back until `slow`.
    fn clean(&mut self, slow: u64) {
        let done = slow.saturating_sub(self.seen) as f64 * self.flusher;
        self.dirty = (self.dirty - done).max(0.0);
        self.seen = self.seen.max(slow);
    }

    /// Everything is written back; returns how long that takes from `slow`, ns.
    pub(crate) fn sync(&mut self, slow: u64, lapse: u64) -> u64 {
        self.clean(slow);
        let ns = self.dirty / self.flusher / lapse as f64;
        self.dirty = 0.0;
        ns as u64
    }
}
