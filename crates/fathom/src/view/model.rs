//! What the full-screen view shows: the last minute of one group of jobs, from the windows that their
//! threads close.

use std::collections::{BTreeMap, VecDeque};

use fathom_io::driver::live::LiveWindow;
use fathom_telemetry::{Nanos, SparseHistogram};

/// Columns of the past that are kept.
const SLICES_MAX: usize = 400;
/// Least length of a column: windows shorter than this share one.
const SLICE: Nanos = Nanos::from_millis(200);
/// Percentiles are of so long: slow devices have some I/Os in it, too.
pub(crate) const RECENT: Nanos = Nanos::from_secs(2);

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
    /// Latency of all operations.
    pub(crate) latency: SparseHistogram,
}

/// What a thread does now.
#[derive(Debug, Clone, Default)]
pub(crate) struct ThreadNow {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    /// Latency of its last windows, each with its start.
    recent: VecDeque<(Nanos, SparseHistogram)>,
}

impl ThreadNow {
    /// Latency of the last two seconds.
    pub(crate) fn latency(&self) -> SparseHistogram {
        let mut all = SparseHistogram::default();
        self.recent.iter().for_each(|(_, h)| all.merge(h));
        all
    }
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

/// A job of the group.
#[derive(Debug, Clone, Default)]
pub(crate) struct JobNow {
    pub(crate) name: String,
    pub(crate) threads: u32,
    pub(crate) open_loop: bool,
}

/// All of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    /// What is done, for people: `12/80 randread-4k`.
    pub(crate) name: String,
    /// How far, of how much; 0 where that is not known.
    pub(crate) position: (u64, u64),
    /// The group that is shown: its jobs run at the same time.
    pub(crate) group: Option<u64>,
    /// Its jobs, by their place in it.
    pub(crate) jobs: BTreeMap<usize, JobNow>,
    pub(crate) elapsed: Nanos,
    pub(crate) slice: Nanos,
    pub(crate) slices: VecDeque<Slice>,
    /// By job and thread.
    pub(crate) threads: BTreeMap<(usize, u32), ThreadNow>,
    pub(crate) disks: Vec<DiskNow>,
    pub(crate) paused: bool,
    pub(crate) ending: bool,
}

impl Model {
    /// Takes a window. Another group begins with an empty screen.
    pub(crate) fn take(&mut self, w: LiveWindow) {
        if self.group != Some(w.group) {
            self.group = Some(w.group);
            self.jobs.clear();
            self.slices.clear();
            self.threads.clear();
            self.elapsed = Nanos::ZERO;
            self.slice = Nanos::ZERO;
        }
        let width = w.width.max(Nanos(1));
        let column = Nanos(width.0 * SLICE.0.div_ceil(width.0).max(1));
        if column > self.slice {
            // A job with wider windows than those before: its columns are everybody's.
            self.slices.clear();
            self.slice = column;
        }
        self.elapsed = self.elapsed.max(w.start + width);
        self.jobs.entry(w.index).or_insert_with(|| JobNow {
            name: w.job.clone(),
            threads: w.threads,
            open_loop: w.open_loop,
        });
        let index = w.start.0 / self.slice.0;
        let slice = self.slice_at(index);
        slice.ios += w.ios;
        slice.reads += w.reads;
        slice.bytes += w.bytes;
        slice.errors += w.errors;
        slice.latency.merge(&w.latency);
        let seconds = width.as_secs_f64();
        let thread = self.threads.entry((w.index, w.thread)).or_default();
        thread.iops = w.ios as f64 / seconds;
        thread.bytes_per_second = w.bytes as f64 / seconds;
        thread.recent.push_back((w.start, w.latency));
        while thread.recent.len() > 1 && thread.recent[0].0 + RECENT < w.start + width {
            thread.recent.pop_front();
        }
    }

    /// What the latencies shown count from.
    pub(crate) fn kind(&self) -> &'static str {
        let open = self.jobs.values().filter(|j| j.open_loop).count();
        match open {
            0 => "service",
            n if n == self.jobs.len() => "response",
            _ => "latency",
        }
    }

    /// Threads of all jobs of the group.
    pub(crate) fn thread_count(&self) -> usize {
        self.jobs.values().map(|j| j.threads as usize).sum()
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
