//! What the full-screen view shows: the last minute of one job, from the windows that its threads close.

use std::collections::{BTreeMap, VecDeque};

use fathom_io::driver::live::LiveWindow;
use fathom_telemetry::{Nanos, SparseHistogram};

/// Columns of the past that are kept.
const SLICES_MAX: usize = 400;
/// Least length of a column: windows shorter than this share one.
const SLICE: Nanos = Nanos::from_millis(200);

/// One column of the past.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slice {
    /// Its number since the job's start.
    pub(crate) index: u64,
    /// Completed, reads and all.
    pub(crate) reads: u64,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) errors: u64,
    /// Threads' windows in it, for knowing whether it is whole.
    pub(crate) windows: u32,
    /// Latency of all operations.
    pub(crate) latency: SparseHistogram,
}

/// A thread's last whole window.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadNow {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) p50: Option<u64>,
    pub(crate) p99: Option<u64>,
}

/// A disk's counters over the last moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DiskNow {
    pub(crate) name: String,
    pub(crate) reads_per_second: f64,
    pub(crate) writes_per_second: f64,
    pub(crate) bytes_per_second: f64,
    pub(crate) in_flight: u64,
    /// Share of the time with something in flight.
    pub(crate) busy: f64,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// What is done, for people: `12/80 randread-4k`.
    pub(crate) name: String,
    /// How far, of how much; 0 where that is not known.
    pub(crate) position: (u64, u64),
    pub(crate) job: String,
    pub(crate) open_loop: bool,
    pub(crate) elapsed: Nanos,
    pub(crate) slice: Nanos,
    pub(crate) slices: VecDeque<Slice>,
    pub(crate) threads: BTreeMap<u32, ThreadNow>,
    pub(crate) thread_count: u32,
    pub(crate) disks: Vec<DiskNow>,
    pub(crate) paused: bool,
    pub(crate) ending: bool,
}

impl Model {
    /// Takes a window. Another job begins with an empty screen.
    pub(crate) fn take(&mut self, w: &LiveWindow) {
        let again = w.start + Nanos::from_secs(2) < self.elapsed;
        if w.job != self.job || again {
            self.job.clone_from(&w.job);
            self.slices.clear();
            self.threads.clear();
            self.elapsed = Nanos::ZERO;
        }
        let width = w.width.max(Nanos(1));
        self.slice = Nanos(width.0 * SLICE.0.div_ceil(width.0).max(1));
        self.open_loop = w.open_loop;
        self.thread_count = w.threads;
        self.elapsed = self.elapsed.max(w.start + width);
        let index = w.start.0 / self.slice.0;
        let slice = self.slice_at(index);
        let mut of_thread = SparseHistogram::default();
        let (mut ios, mut bytes) = (0, 0);
        slice.windows += 1;
        for (op, d) in w.window.directions.iter().enumerate() {
            let Some(d) = d else { continue };
            let latency = if w.open_loop { &d.response } else { &d.service };
            slice.ios += d.ios;
            slice.bytes += d.bytes;
            slice.errors += d.errors;
            if op == 0 {
                slice.reads += d.ios;
            }
            slice.latency.merge(latency);
            of_thread.merge(latency);
            ios += d.ios;
            bytes += d.bytes;
        }
        let seconds = width.as_secs_f64();
        self.threads.insert(
            w.thread,
            ThreadNow {
                iops: ios as f64 / seconds,
                bytes_per_second: bytes as f64 / seconds,
                p50: of_thread.quantile(0.5),
                p99: of_thread.quantile(0.99),
            },
        );
    }

    fn slice_at(&mut self, index: u64) -> &mut Slice {
        let at = self.slices.partition_point(|s| s.index < index);
        if self.slices.get(at).is_none_or(|s| s.index != index) {
            self.slices.insert(
                at,
                Slice {
                    index,
                    ..Slice::default()
                },
            );
        }
        if self.slices.len() > SLICES_MAX && at > 0 {
            self.slices.pop_front();
            return &mut self.slices[at - 1];
        }
        &mut self.slices[at]
    }

    /// The last column that every thread has finished, else the last one.
    pub(crate) fn now(&self) -> Option<&Slice> {
        let whole = (self.slices.len() >= 2).then(|| &self.slices[self.slices.len() - 2]);
        whole.or(self.slices.back())
    }
}

/// Counters of disks from the text of `/proc/diskstats`: name, reads, writes, sectors of both, in flight,
/// ms with something in flight. Partitions and disks that never did anything are left out.
pub(crate) fn disk_counters(text: &str) -> BTreeMap<String, [u64; 6]> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let f: Vec<&str> = line.split_ascii_whitespace().collect();
        let (Some(name), true) = (f.get(2), f.len() >= 14) else {
            continue;
        };
        let n = |i: usize| f[i].parse::<u64>().unwrap_or(0);
        let counters = [n(3), n(7), n(5), n(9), n(11), n(12)];
        if counters[0] + counters[1] > 0 {
            all.insert((*name).to_owned(), counters);
        }
    }
    all
}

/// What disks did between two readings, those that did most first.
pub(crate) fn disks_between(
    before: &BTreeMap<String, [u64; 6]>,
    after: &BTreeMap<String, [u64; 6]>,
    seconds: f64,
) -> Vec<DiskNow> {
    const SECTOR: f64 = 512.0;
    if seconds <= 0.0 {
        return Vec::new();
    }
    let mut disks: Vec<DiskNow> = after
        .iter()
        .filter_map(|(name, now)| {
            let then = before.get(name)?;
            let per_second = |i: usize| now[i].saturating_sub(then[i]) as f64 / seconds;
            Some(DiskNow {
                name: name.clone(),
                reads_per_second: per_second(0),
                writes_per_second: per_second(1),
                bytes_per_second: (per_second(2) + per_second(3)) * SECTOR,
                in_flight: now[4],
                busy: (per_second(5) / 1e3).min(1.0),
            })
        })
        .filter(|d| d.reads_per_second + d.writes_per_second > 0.0)
        .collect();
    disks.sort_by(|a, b| {
        let rate = |d: &DiskNow| d.reads_per_second + d.writes_per_second;
        rate(b).total_cmp(&rate(a))
    });
    disks
}
