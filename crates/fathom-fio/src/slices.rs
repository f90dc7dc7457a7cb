//! What `--profile=act` holds latencies against, hour by hour (Aerospike's certification test).

use std::time::Duration;

use fathom_telemetry::histogram::{SparseHistogram, lower_bound};
use fathom_telemetry::{Nanos, Window};

/// Limits of latency in ms, and the share of I/Os in percent that must stay below.
pub(crate) const CRITERIA: [(u64, f64); 3] = [(1, 5.0), (8, 1.0), (64, 0.1)];

const HOUR: Nanos = Nanos(3_600_000_000_000);

/// One hour.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Slice {
    /// Reads and writes.
    pub(crate) ios: u64,
    /// Those that took longer than each limit. fio counts one of 100 ms for the last limit alone, here it counts for all.
    pub(crate) over: [u64; 3],
}

impl Slice {
    /// Shares above the limits, percent.
    pub(crate) fn percent(&self) -> [f64; 3] {
        self.over.map(|n| 100.0 * n as f64 / self.ios.max(1) as f64)
    }
    fn passes(&self) -> bool {
        let mut both = self.percent().into_iter().zip(CRITERIA);
        both.all(|(percent, (_, most))| percent < most)
    }
    fn add(&mut self, other: &Self) {
        self.ios += other.ios;
        for (mine, theirs) in self.over.iter_mut().zip(other.over) {
            *mine += theirs;
        }
    }
}

/// The hours of a test.
#[derive(Debug, Clone, Default)]
pub struct Slices {
    hours: Vec<Slice>,
    passed: Nanos,
}

impl Slices {
    /// A test of this length.
    pub(crate) fn new(length: Duration) -> Self {
        let hours = length.as_nanos().div_ceil(u128::from(HOUR.0)).max(1);
        Self {
            hours: vec![Slice::default(); hours as usize],
            passed: Nanos::ZERO,
        }
    }

    /// Takes a window.
    pub(crate) fn window(&mut self, width: Nanos, window: &Window) {
        let last = self.hours.len() - 1;
        let hour = &mut self.hours[((self.passed.0 / HOUR.0) as usize).min(last)];
        for d in window.directions.iter().take(2).flatten() {
            hour.add(&Slice {
                ios: d.ios,
                over: CRITERIA.map(|(ms, _)| above(&d.service, ms * 1_000_000)),
            });
        }
        self.passed += width;
    }

    /// Adds those of another job.
    pub(crate) fn join(&mut self, other: &Self) {
        for (mine, theirs) in self.hours.iter_mut().zip(&other.hours) {
            mine.add(theirs);
        }
    }

    /// Its hours.
    pub(crate) fn hours(&self) -> &[Slice] {
        &self.hours
    }

    /// Whether no hour has more slow I/Os than allowed.
    pub(crate) fn pass(&self) -> bool {
        self.hours.iter().all(Slice::passes)
    }

    /// Whether an hour that is over has more: a job ends then, as in fio.
    pub fn has_failed(&self) -> bool {
        let over = (self.passed.0 / HOUR.0) as usize;
        !self.hours.iter().take(over).all(Slice::passes)
    }
}

/// Values above a limit, as well as buckets tell them.
fn above(h: &SparseHistogram, limit: u64) -> u64 {
    let over = |b: &&(u32, u64)| lower_bound(b.0 as usize) > limit;
    h.buckets.iter().filter(over).map(|b| b.1).sum()
}

#[cfg(test)]
mod tests {
    use fathom_telemetry::DirectionWindow;
    use fathom_telemetry::histogram::Histogram;

    use super::*;

    fn window(values_us: &[u64]) -> Window {
        let mut h = Histogram::new();
        values_us.iter().for_each(|us| h.record(us * 1000));
        let reads = DirectionWindow {
            ios: values_us.len() as u64,
            service: h.to_sparse(),
            ..DirectionWindow::default()
        };
        Window {
            index: 0,
            directions: [Some(Box::new(reads)), None, None, None],
        }
    }

    #[test]
    fn each_hour_is_judged_by_itself() {
        let mut s = Slices::new(Duration::from_secs(2 * 3600));
        assert_eq!(s.hours().len(), 2);
        let mut good = vec![100; 960];
        good.extend([2000; 40]);
        s.window(HOUR, &window(&good));
        assert!(s.pass() && !s.has_failed());
        assert_eq!(
            s.hours()[0],
            Slice {
                ios: 1000,
                over: [40, 0, 0]
            }
        );
        let mut bad = vec![100; 999];
        bad.push(90_000);
        s.window(Nanos(HOUR.0 / 2), &window(&bad));
        assert!(!s.pass(), "0.1 % above 64 ms is too much");
        assert!(!s.has_failed(), "its hour is not over");
        s.window(Nanos(HOUR.0 / 2), &window(&[]));
        assert!(s.has_failed());
        let mut all = Slices::new(Duration::from_secs(7200));
        all.join(&s);
        all.join(&s);
        assert_eq!(
            all.hours()[1],
            Slice {
                ios: 2000,
                over: [2, 2, 2]
            }
        );
    }
}
