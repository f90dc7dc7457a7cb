//! What the full-screen view shows: the past of a run over all its groups of jobs, and what the last one does now, from the
//! windows that threads close.

use std::collections::{BTreeMap, VecDeque};

use fathom_io::driver::live::{Judged, LiveWindow};
use fathom_telemetry::schema::Headline;
use fathom_telemetry::{FlagCode, Nanos, SparseHistogram};

/// Columns of the past that are kept.
const SLICES_MAX: usize = 400;
/// Least length of a column: windows shorter than this share one.
const SLICE: Nanos = Nanos::from_millis(200);
/// Percentiles are of so long: slow devices have some I/Os in it, too.
pub(crate) const RECENT: Nanos = Nanos::from_secs(2);

/// Loads that are over, as many as are listed at most.
const DONE_MAX: usize = 64;

/// A load that is over, its repeats together: what it did so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct Done {
    /// Name without the number of the repeat.
    pub(crate) name: String,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    /// Of all its groups.
    pub(crate) time: Nanos,
    pub(crate) latency: SparseHistogram,
}

/// What a run is of, where that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Target {
    /// Not said: disks may be of anything.
    #[default]
    Unknown,
    /// A model, or other hosts: no disk of this machine does anything for it.
    Elsewhere,
    /// These disks first.
    Disks(Vec<String>),
}

/// One column of the past.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slice {
    /// Its number since the view began; groups follow each other.
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
    /// The host, where each of a fleet is what a thread is elsewhere.
    pub(crate) host: Option<String>,
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

/// What stands against a load.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Verdict {
    /// Kinds of flags, each once.
    pub(crate) flags: Vec<FlagCode>,
    /// One of its jobs may not be used.
    pub(crate) void: bool,
}

impl Verdict {
    fn add(&mut self, flags: &[FlagCode], void: bool) {
        self.void |= void;
        for flag in flags {
            if !self.flags.contains(flag) {
                self.flags.push(*flag);
            }
        }
    }
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
    /// Index of the first column of the group that is shown.
    pub(crate) first: u64,
    /// What the group did so far.
    pub(crate) total: Done,
    /// Loads that are over, the last one last.
    pub(crate) done: VecDeque<Done>,
    /// What stands against the repeats of a load so far, by its name.
    pub(crate) judged: BTreeMap<String, Verdict>,
    /// Numbers of the run so far, where it says them before its end.
    pub(crate) headlines: Vec<Headline>,
    /// Since the view began.
    pub(crate) since: Nanos,
    /// How long all of it takes as announced; 0 where that was not.
    pub(crate) expected: Nanos,
    pub(crate) target: Target,
    /// By job and thread, or host.
    pub(crate) threads: BTreeMap<(usize, u32), ThreadNow>,
    pub(crate) disks: Vec<DiskNow>,
    pub(crate) paused: bool,
    pub(crate) ending: bool,
}

impl Model {
    /// Takes a window. Another group goes on where the one before ended, behind an empty column.
    pub(crate) fn take(&mut self, w: LiveWindow) {
        if self.group != Some(w.group) {
            self.end_group();
            self.group = Some(w.group);
            self.first = self.slices.back().map_or(0, |s| s.index + 2);
        }
        let width = w.width.max(Nanos(1));
        let column = Nanos(width.0 * SLICE.0.div_ceil(width.0).max(1));
        if column > self.slice {
            self.widen(column);
        }
        self.elapsed = self.elapsed.max(w.start + width);
        self.total.ios += w.ios;
        self.total.bytes += w.bytes;
        self.total.latency.merge(&w.latency);
        self.jobs.entry(w.index).or_insert_with(|| JobNow {
            name: w.job.clone(),
            threads: w.threads,
            open_loop: w.open_loop,
        });
        let index = self.first + w.start.0 / self.slice.0;
        let slice = self.slice_at(index);
        slice.ios += w.ios;
        slice.reads += w.reads;
        slice.bytes += w.bytes;
        slice.errors += w.errors;
        slice.latency.merge(&w.latency);
        let seconds = width.as_secs_f64();
        let thread = self.threads.entry((w.index, w.thread)).or_default();
        thread.host = w.host;
        thread.iops = w.ios as f64 / seconds;
        thread.bytes_per_second = w.bytes as f64 / seconds;
        thread.recent.push_back((w.start, w.latency));
        while thread.recent.len() > 1 && thread.recent[0].0 + RECENT < w.start + width {
            thread.recent.pop_front();
        }
    }

    /// Takes what stands against a job that is over.
    pub(crate) fn judge(&mut self, judged: &Judged) {
        let load = self.judged.entry(stem(&judged.job).to_owned());
        load.or_default().add(&judged.flags, judged.void);
    }

    /// What stands against a load that is over: no number of it is better than that.
    pub(crate) fn verdict(&self, done: &Done) -> Verdict {
        let mut all = Verdict::default();
        for v in done.name.split(", ").filter_map(|n| self.judged.get(n)) {
            all.add(&v.flags, v.void);
        }
        all
    }

    /// What the group did is kept with the other repeats of its load.
    fn end_group(&mut self) {
        let names: Vec<&str> = self.jobs.values().map(|j| stem(&j.name)).collect();
        let name = names.join(", ");
        let total = std::mem::take(&mut self.total);
        let time = std::mem::take(&mut self.elapsed);
        self.jobs.clear();
        self.threads.clear();
        if total.ios == 0 {
            return;
        }
        // The order of repeats may be drawn: a load stands where it was last.
        let before = self.done.iter().position(|d| d.name == name);
        let mut done = before
            .and_then(|at| self.done.remove(at))
            .unwrap_or_default();
        done.name = name;
        done.ios += total.ios;
        done.bytes += total.bytes;
        done.time += time;
        done.latency.merge(&total.latency);
        self.done.push_back(done);
        if self.done.len() > DONE_MAX {
            self.done.pop_front();
        }
    }

    /// A job with wider windows than those before: its columns are everybody's, and those of the past are put together.
    fn widen(&mut self, column: Nanos) {
        let factor = column.0.div_ceil(self.slice.0.max(1)).max(1);
        let old = std::mem::take(&mut self.slices);
        if self.slice > Nanos::ZERO {
            for s in old {
                let index = s.index / factor;
                match self.slices.back_mut().filter(|last| last.index == index) {
                    Some(last) => {
                        last.ios += s.ios;
                        last.reads += s.reads;
                        last.bytes += s.bytes;
                        last.errors += s.errors;
                        last.latency.merge(&s.latency);
                    }
                    None => self.slices.push_back(Slice { index, ..s }),
                }
            }
            self.first = self.first.div_ceil(factor);
        }
        self.slice = column;
    }

    /// Columns of the group that is shown.
    pub(crate) fn current(&self) -> impl DoubleEndedIterator<Item = &Slice> {
        self.slices.iter().filter(|s| s.index >= self.first)
    }

    /// How long the rest takes: by the share that is done, before there is one by what was announced.
    pub(crate) fn left(&self) -> Option<Nanos> {
        const SHARE_MIN: f64 = 0.05;
        let (at, of) = self.position;
        let share = if of > 0 {
            at.min(of) as f64 / of as f64
        } else {
            0.0
        };
        if share >= SHARE_MIN {
            return Some(Nanos((self.since.0 as f64 * (1.0 - share) / share) as u64));
        }
        (self.expected > Nanos::ZERO).then(|| self.expected.since(self.since))
    }

    /// The disks that are shown: those of the target first, none of a model.
    pub(crate) fn shown_disks(&self) -> Vec<&DiskNow> {
        let own: &[String] = match &self.target {
            Target::Elsewhere => return Vec::new(),
            Target::Unknown => &[],
            Target::Disks(own) => own,
        };
        let mut all: Vec<&DiskNow> = self.disks.iter().collect();
        all.sort_by_key(|d| !own.contains(&d.name));
        all
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
        let mut last = self.current().rev();
        let newest = last.next();
        last.next().or(newest)
    }
}

/// A job's name without the number of its repeat.
fn stem(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, n)) if n.parse::<u32>().is_ok() => stem,
        _ => name,
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
