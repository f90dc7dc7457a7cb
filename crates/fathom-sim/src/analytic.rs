//! Models that need no simulation: a cache's hits, the best page size, an array's expected throughput, the ceiling
//! of a key-value store.

use crate::raid::Level;

/// Mean latency of a read through a cache (Zhang et al. 2018, eq. 1): t_io·(1 − H) + t_load·H, in the unit of the times.
pub fn cached_latency(hit_share: f64, io: f64, load: f64) -> f64 {
    let h = hit_share.clamp(0.0, 1.0);
    io * (1.0 - h) + load * h
}

/// Costs of a page (Zhang et al. 2018, eqs. 2-6). Times in µs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageCosts {
    /// t_app: a page in the application.
    pub app_us: f64,
    /// t_stk: a page of the software stack below it.
    pub stack_us: f64,
    /// t_seek: random minus sequential latency of the device.
    pub seek_us: f64,
    /// b: bandwidth of the device, GB/s.
    pub gb_per_s: f64,
    /// d_s: page of the software stack, bytes.
    pub stack_page: f64,
}

/// Requests that pages serve (eq. 7): point requests touch one page, range requests many.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PageLoad {
    /// m: point requests.
    pub points: f64,
    /// n: range requests.
    pub ranges: f64,
    /// d̄: mean bytes of a range request.
    pub range_bytes: f64,
}

impl PageCosts {
    /// Time of one application page of `bytes`, µs (eq. 6).
    pub fn page_us(&self, bytes: f64) -> f64 {
        self.app_us
            + self.stack_us * bytes / self.stack_page
            + self.seek_us
            + bytes / (self.gb_per_s * 1e3)
    }

    /// Time of a whole load with pages of `bytes`, µs (eq. 8).
    pub fn load_us(&self, load: &PageLoad, bytes: f64) -> f64 {
        self.page_us(bytes) * (load.points + load.ranges * load.range_bytes / bytes)
    }

    /// The ideal page, bytes (eq. 10): where the derivative of eq. 8 is zero. `None` without point requests, where larger
    /// is always better, and without range requests, where smaller is.
    pub fn ideal_bytes(&self, load: &PageLoad) -> Option<f64> {
        if load.points <= 0.0 || load.ranges <= 0.0 {
            return None;
        }
        let per_byte = self.stack_us / self.stack_page + 1.0 / (self.gb_per_s * 1e3);
        let per_page = (self.app_us + self.seek_us) * load.range_bytes;
        Some((load.ranges * per_page / (load.points * per_byte)).sqrt())
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

/// A store whose tree outgrows memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreLoad {
    /// What the device serves, per second.
    pub iops: f64,
    /// Memory for pages, bytes.
    pub memory_bytes: f64,
    /// Bytes of a record, its share of a page included.
    pub record_bytes: f64,
    /// I/Os of an operation whose page is not in memory.
    pub ios_per_op: f64,
    /// Operations per second where all pages are in memory.
    pub in_memory_per_s: f64,
    /// Records that are there at the start.
    pub records: f64,
    /// Each operation adds one (an insert, not an update).
    pub grows: bool,
}

/// Operations per second over `seconds`, in `steps` equal steps: (time in s, rate).
pub fn rates_over_time(load: &StoreLoad, seconds: f64, steps: u32) -> Vec<(f64, f64)> {
    let step = seconds / f64::from(steps.max(1));
    let mut records = load.records;
    (0..=steps)
        .map(|i| {
            let data = (records * load.record_bytes).max(1.0);
            let half = load.ios_per_op / 2.0;
            let rate = insert_rate(
                load.iops / half.max(f64::MIN_POSITIVE),
                load.memory_bytes,
                data,
                load.in_memory_per_s,
            );
            if load.grows {
                records += rate * step;
            }
            (f64::from(i) * step, rate)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cache_that_always_hits_costs_only_memory() {
        assert_eq!(cached_latency(1.0, 13.5, 0.1), 0.1);
        assert_eq!(cached_latency(0.0, 13.5, 0.1), 13.5);
        // The faster the device, the less a cache is worth: 90 % of hits.
        let gain = |io: f64| io / cached_latency(0.9, io, 1.0);
        assert!(gain(13.5) < 0.8 * gain(124.5));
    }

    #[test]
    fn the_ideal_page_is_where_the_load_takes_least_time() {
        let costs = PageCosts {
            app_us: 5.0,
            stack_us: 5.6,
            seek_us: 5.8,
            gb_per_s: 2.557,
            stack_page: 4096.0,
        };
        let load = PageLoad {
            points: 100.0,
            ranges: 10.0,
            range_bytes: 65_536.0,
        };
        let best = costs.ideal_bytes(&load).unwrap();
        let time = |bytes| costs.load_us(&load, bytes);
        assert!(time(best) < time(best * 1.05) && time(best) < time(best / 1.05));
        // A slower seek wants larger pages.
        let slow = PageCosts {
            seek_us: 97.3,
            ..costs
        };
        assert!(slow.ideal_bytes(&load).unwrap() > best);
        let points_only = PageLoad {
            ranges: 0.0,
            ..load
        };
        assert_eq!(costs.ideal_bytes(&points_only), None);
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
