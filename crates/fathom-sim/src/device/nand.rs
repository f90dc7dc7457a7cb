//! Garbage collection as a fluid: valid data, free space and fragmentation decide what a write costs.
//!
//! Fresh: free space is left, a write costs itself. Transition: it is used up, and
//! collection costs more the more scattered the old writes were. Steady: the write
//! amplification of uniform random writes at this share of valid data.

use super::Start;
use crate::math::{alpha_for, write_amplification};
use crate::model::{Nand, SlcCache as SlcModel};

/// How the life of the media begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// No random writes yet.
    Fresh,
    /// After long random writing over the filled range.
    Steady,
}

/// Bytes whose validity is tracked together.
const GRANULE: u64 = 4 << 20;

#[derive(Debug, Clone)]
pub(super) struct Collector {
    capacity: f64,
    physical: f64,
    /// Physical over valid space of the full drive, as its data sheet's rates imply.
    alpha_full: f64,
    background_per_ns: f64,
    valid: f64,
    free: f64,
    /// 0: everything was written in sequence; 1: all at random.
    fragmentation: f64,
    /// Valid bytes of each granule.
    granules: Vec<f32>,
    /// Steady write amplification at `steady_at` valid bytes.
    steady: f64,
    steady_at: f64,
}

impl Collector {
    pub(super) fn new(nand: &Nand, drain_gb_per_s: f64, capacity: u64, start: &Start) -> Self {
        let size = capacity as f64;
        let wa = drain_gb_per_s * 1e9 / (nand.steady_random_write_iops * 4096.0);
        let n = capacity.div_ceil(GRANULE) as usize;
        let full = ((n as f64 * start.fill) as usize).min(n);
        let mut granules = vec![0.0; n];
        granules[..full].fill(GRANULE as f32);
        let valid = full as f64 * GRANULE as f64;
        let physical = size * (1.0 + nand.spare_factor);
        let steady = start.state == State::Steady;
        Self {
            capacity: size,
            physical,
            alpha_full: alpha_for(wa.max(1.0)),
            background_per_ns: nand.background_gb_per_s,
            valid,
            free: if steady {
                0.0
            } else {
                (physical - valid).max(0.0)
            },
            fragmentation: if steady { 1.0 } else { 0.0 },
            granules,
            steady: 0.0,
            steady_at: f64::NEG_INFINITY,
        }
    }

    /// Bytes are written at `offset` (`bytes` of them by the slow clock); returns the amplification.
    pub(super) fn write(&mut self, offset: u64, len: u32, bytes: f64, sequential: bool) -> f64 {
        if let Some(g) = self.granules.get_mut((offset / GRANULE) as usize) {
            // A random page of the granule is new with the probability that it is not valid yet.
            let whole = GRANULE as f32;
            let added = if sequential || u64::from(len) >= GRANULE {
                (bytes as f32).min(whole - *g)
            } else {
                (bytes as f32).min(whole) * (1.0 - *g / whole)
            };
            *g += added;
            self.valid += f64::from(added);
        }
        let scattered = if sequential { 0.0 } else { 1.0 };
        let (amplification, mixing) = if self.free > 0.0 {
            self.free -= bytes;
            (1.0, bytes / self.capacity)
        } else {
            let steady = self.steady();
            let wa = 1.0 + (steady - 1.0) * self.fragmentation;
            (wa, bytes * wa / self.capacity)
        };
        self.fragmentation += (scattered - self.fragmentation) * mixing.min(1.0);
        amplification
    }

    /// Amplification of endless random writes with the present valid data.
    fn steady(&mut self) -> f64 {
        if (self.valid - self.steady_at).abs() > self.capacity * 1e-3 {
            self.steady_at = self.valid;
            let share = (self.valid / self.capacity).clamp(0.01, 1.0);
            self.steady = write_amplification(self.alpha_full / share);
        }
        self.steady
    }

    /// Nothing was written for so many ns of the slow clock: free space comes back.
    pub(super) fn rest(&mut self, idle_ns: u64) {
        // Pauses between writes are no rest.
        if idle_ns < 10_000_000 {
            return;
        }
        let room = (self.physical - self.valid).max(0.0) - self.free.max(0.0);
        let back = (idle_ns as f64 * self.background_per_ns).min(room).max(0.0);
        self.free = self.free.max(0.0) + back;
        self.fragmentation *= 1.0 - (back / self.physical).min(1.0);
    }

    /// The range holds no data any more.
    pub(super) fn trim(&mut self, offset: u64, len: u64, lapse: f64) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let index = at / GRANULE;
            let stop = end.min((index + 1) * GRANULE);
            if let Some(g) = self.granules.get_mut(index as usize) {
                let share = ((stop - at) as f64 * lapse / GRANULE as f64).min(1.0) as f32;
                let gone = *g * share;
                *g -= gone;
                self.valid -= f64::from(gone);
            }
            at = stop;
        }
    }
}

/// Fast cells that fill up.
#[derive(Debug, Clone)]
pub(super) struct SlcCache {
    bytes: f64,
    folded_per_byte: f64,
    flush_per_ns: f64,
    used: f64,
}

impl SlcCache {
    pub(super) fn new(m: &SlcModel) -> Self {
        Self {
            bytes: m.bytes as f64,
            folded_per_byte: 1.0 / m.folded_gb_per_s,
            flush_per_ns: m.flush_gb_per_s,
            used: 0.0,
        }
    }

    /// ns per byte of this write; `fast` while there is room.
    pub(super) fn write(&mut self, bytes: f64, idle_ns: u64, fast: f64) -> f64 {
        if idle_ns > 10_000_000 {
            self.used = (self.used - idle_ns as f64 * self.flush_per_ns).max(0.0);
        }
        if self.used >= self.bytes {
            return self.folded_per_byte;
        }
        self.used += bytes;
        fast
    }
}
