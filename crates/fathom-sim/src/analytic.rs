//! Models that need no simulation: a cache's hits, the best page size, an array's expected throughput, the ceiling
//! of a key-value store.

use crate::raid::Level;

/// Mean access time through a cache (Zhang et al., eq. 1): hits at `memory_us`, misses at `storage_us` on top.
pub fn cached_access_us(hit_share: f64, memory_us: f64, storage_us: f64) -> f64 {
    memory_us + (1.0 - hit_share.clamp(0.0, 1.0)) * storage_us
}

/// What a page of `bytes` costs per access: application and stack per I/O, seek, and transfer.
/// Times in µs, `gb_per_s` in GB/s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageCosts {
    /// Application, per I/O.
    pub app_us: f64,
    /// Software stack, per I/O.
    pub stack_us: f64,
    /// Device before the first byte.
    pub seek_us: f64,
    /// Transfer rate.
    pub gb_per_s: f64,
}

impl PageCosts {
    /// Time of one page, µs.
    pub fn page_us(&self, bytes: f64) -> f64 {
        self.app_us + self.stack_us + self.seek_us + bytes / (self.gb_per_s * 1e3)
    }

    /// The size at which moving costs as much as everything else (the balance of Zhang et al., eqs. 2-10): smaller pages
    /// waste accesses, larger ones waste transfer.
    pub fn balanced_bytes(&self) -> f64 {
        (self.app_us + self.stack_us + self.seek_us) * self.gb_per_s * 1e3
    }

    /// Of `candidates`, the size with the least time per useful byte, where a page of `b` bytes serves
    /// `bᵏ` of them; `locality` k from 0 (one record per page) to 1 (all of it).
    pub fn best_bytes(&self, candidates: &[u32], locality: f64) -> Option<u32> {
        let cost = |b: u32| self.page_us(f64::from(b)) / f64::from(b).powf(locality);
        candidates
            .iter()
            .copied()
            .min_by(|a, b| cost(*a).total_cmp(&cost(*b)))
    }
}

/// What is expected of an array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expectation {
    /// As Han et al. 4.1 state it.
    Paper,
    /// What md does with small writes: the cheaper of read-modify-write and reconstruct-write.
    SmallWrite,
    /// What md does with full stripes.
    FullStripe,
}

/// Expected read and write throughput of `n` members in multiples of one.
pub fn raid_factors(level: Level, n: u32, by: Expectation) -> (f64, f64) {
    let m = f64::from(n);
    match level {
        Level::Raid0 => (m, m),
        Level::Raid1 => (m, 1.0),
        Level::Raid10 => (m, m / 2.0),
        Level::Raid5 => match by {
            Expectation::Paper => (m - 1.0, (m - 1.0) / 4.0),
            Expectation::SmallWrite => (m, m / m.min(4.0)),
            Expectation::FullStripe => (m, m - 1.0),
        },
        Level::Raid6 => match by {
            Expectation::Paper => (m - 2.0, (m - 2.0) / 6.0),
            Expectation::SmallWrite => (m, m / m.min(6.0)),
            Expectation::FullStripe => (m, m - 2.0),
        },
    }
}

/// Inserts per second that a device of `iops` allows where each reads and writes so many pages (O'Neill).
pub fn insert_ceiling(iops: f64, reads: f64, writes: f64) -> f64 {
    iops / (reads + writes).max(f64::MIN_POSITIVE)
}

/// Inserts per second over a growing data set: pages that memory holds cost no read and no write-back.
/// `data_bytes` may exceed `memory_bytes`; `cpu_rate` bounds what memory alone allows.
pub fn insert_rate(iops: f64, memory_bytes: f64, data_bytes: f64, cpu_rate: f64) -> f64 {
    let miss = (1.0 - memory_bytes / data_bytes.max(1.0)).max(0.0);
    if miss == 0.0 {
        return cpu_rate;
    }
    cpu_rate.min(insert_ceiling(iops, miss, miss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_always_hits_costs_only_memory() {
        assert_eq!(cached_access_us(1.0, 0.1, 13.5), 0.1);
        assert_eq!(cached_access_us(0.0, 0.1, 13.5), 13.6);
    }

    #[test]
    fn fast_seeks_want_smaller_pages_than_slow_ones_at_the_same_rate() {
        let fast = PageCosts {
            app_us: 5.0,
            stack_us: 5.6,
            seek_us: 6.2,
            gb_per_s: 0.557,
        };
        let slow = PageCosts {
            seek_us: 97.3,
            ..fast
        };
        assert!(fast.balanced_bytes() < slow.balanced_bytes());
        let sizes = [4096, 8192, 16384, 32768, 65536];
        assert!(fast.best_bytes(&sizes, 0.5) < slow.best_bytes(&sizes, 0.5));
        assert_eq!(fast.best_bytes(&sizes, 0.0), Some(4096));
        assert_eq!(fast.best_bytes(&sizes, 1.0), Some(65536));
    }

    #[test]
    fn expectations_differ_for_parity_only() {
        assert_eq!(
            raid_factors(Level::Raid10, 8, Expectation::Paper),
            (8.0, 4.0)
        );
        assert_eq!(
            raid_factors(Level::Raid5, 8, Expectation::Paper),
            (7.0, 1.75)
        );
        assert_eq!(
            raid_factors(Level::Raid5, 8, Expectation::SmallWrite),
            (8.0, 2.0)
        );
        assert_eq!(
            raid_factors(Level::Raid6, 8, Expectation::FullStripe),
            (8.0, 6.0)
        );
    }

    #[test]
    fn inserts_decline_once_memory_is_exhausted() {
        assert_eq!(insert_ceiling(550e3, 1.0, 1.0), 275e3);
        let rate = |gb: f64| insert_rate(550e3, 16e9, gb * 1e9, 1e6);
        assert_eq!(rate(10.0), 1e6);
        assert!(rate(30.0) > rate(100.0) && rate(100.0) > 275e3);
    }
}
