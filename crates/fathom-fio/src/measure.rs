//! What one task yields, in the terms that fio's output needs; complete at any moment of a run.

use std::sync::Arc;
use std::time::Duration;

use fathom_io::load::Batches;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Histogram, Nanos, Window};

use crate::feed::classes::{self, ByPriority};
use crate::feed::lifetimes::Lifetimes;
use crate::feed::phases::Phases;
use crate::translate::Errors;

/// Mean, deviation and extremes of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stat {
    /// Samples.
    pub n: u64,
    /// Mean.
    pub mean: f64,
    squares: f64,
    /// Smallest.
    pub min: f64,
    /// Largest.
    pub max: f64,
}

impl Default for Stat {
    fn default() -> Self {
        Self {
            n: 0,
            mean: 0.0,
            squares: 0.0,
            min: f64::INFINITY,
            max: 0.0,
        }
    }
}

impl Stat {
    fn add(&mut self, v: f64) {
        self.n += 1;
        let d = v - self.mean;
        self.mean += d / self.n as f64;
        self.squares += d * (v - self.mean);
        self.min = self.min.min(v);
        self.max = self.max.max(v);
    }
    /// Sample standard deviation; 0 below two samples.
    pub fn deviation(&self) -> f64 {
        if self.n > 1 {
            (self.squares / (self.n - 1) as f64).sqrt()
        } else {
            0.0
        }
    }
    /// Rates of jobs that ran side by side add up, the extremes too, as in fio.
    fn join(&mut self, other: &Self) {
        if other.n == 0 {
            return;
        }
        if self.n == 0 {
            *self = *other;
            return;
        }
        self.mean += other.mean;
        self.squares += other.squares;
        self.min += other.min;
        self.max += other.max;
        self.n += other.n;
    }
}

/// One direction.
#[derive(Debug, Clone, Default)]
pub struct Totals {
    /// Completed.
    pub ios: u64,
    /// Transferred.
    pub bytes: u64,
    /// Less than asked for.
    pub short: u64,
    /// Failed.
    pub errors: u64,
    /// Hand-over.
    pub submit: Histogram,
    /// Hand-over to completion.
    pub service: Histogram,
    /// Intended start to completion.
    pub response: Histogram,
    /// Samples of KiB/s.
    pub bandwidth: Stat,
    /// Samples of I/Os per second.
    pub rate: Stat,
    /// Latencies by priority, where single I/Os have one of their own.
    pub by_priority: ByPriority,
    part: [Part; 2],
}

/// A sample that is not complete.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    time: Nanos,
    amount: u64,
}

impl Part {
    /// Adds, and gives back amount per second when `width` is reached.
    fn add(&mut self, amount: u64, time: Nanos, width: Nanos) -> Option<f64> {
        self.amount += amount;
        self.time += time;
        if self.time < width {
            return None;
        }
        let value = self.amount as f64 / self.time.as_secs_f64();
        *self = Self::default();
        Some(value)
    }
}

/// What the kernel counted for the task's threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rusage {
    /// CPU time in user mode, µs.
    pub user_us: u64,
    /// CPU time in the kernel, µs.
    pub system_us: u64,
    /// Context switches.
    pub switches: u64,
    /// Page faults with I/O.
    pub major_faults: u64,
    /// Page faults without.
    pub minor_faults: u64,
}

/// What one task yields.
#[derive(Debug, Clone, Default)]
pub struct Measure {
    /// Whether the task has begun.
    pub started: bool,
    /// Start of the task, ms since 1970.
    pub start_ms: u64,
    /// From which its random numbers came.
    pub seed: u64,
    /// Length of the measured part.
    pub wall: Nanos,
    /// Seconds since the script began.
    pub elapsed_s: u64,
    /// Reads, writes, trims, syncs.
    pub totals: [Option<Box<Totals>>; 4],
    /// CPU and faults.
    pub usage: Rusage,
    /// How many I/Os were handed over and taken back at once.
    pub batches: Batches,
    /// errno of the first error, 0 without.
    pub error: i32,
    /// An error that is not ignored: the run fails.
    pub failed: bool,
    /// Errors in all.
    pub errors: u64,
    /// An open loop: submission and response count from the intended start.
    pub open_loop: bool,
    /// Steady state, where it is asked for.
    pub steady: Option<crate::Steady>,
    /// The model that answered in a device's place.
    pub simulated: Option<String>,
    /// Times of the load and of reading back, where a job does both.
    pub(crate) phases: Option<Arc<Phases>>,
    /// Runtimes of reads, writes and trims of tasks that became one, ms.
    pub(crate) runtimes: Option<[u64; 3]>,
    /// The load itself reads, or reads back while it goes on.
    pub(crate) reads: bool,
    /// Zones that were emptied to be written again.
    pub zone_resets: u64,
    /// Bytes that were done before measuring began (`ramp_size`); [`Measure::jobs`] hold them.
    pub ramp_bytes: u64,
    /// Datagrams that never came.
    pub dropped: u64,
    /// Trims that blocks lived through, where that is asked for.
    pub lifetimes: Option<Lifetimes>,
    /// Latencies hour by hour, where `--profile=act` judges them.
    pub slices: Option<crate::Slices>,
    /// Depth that a latency target led to; 0 without one.
    pub latency_depth: u64,
    /// fathom's own results of the jobs behind this measure.
    pub jobs: Vec<Job>,
}

impl Measure {
    /// Of a job whose latencies are judged for so long.
    pub fn for_test_of(length: Option<Duration>) -> Self {
        Self {
            slices: length.map(crate::Slices::new),
            ..Self::default()
        }
    }

    /// Takes a closed window of the measured part. `sample` are the widths of bandwidth and rate samples.
    pub fn window(&mut self, width: Nanos, window: &Window, sample: [Nanos; 2]) {
        self.wall += width;
        if let Some(s) = &mut self.slices {
            s.window(width, window);
        }
        for (mine, theirs) in self.totals.iter_mut().zip(&window.directions) {
            if theirs.is_none() && mine.is_none() {
                continue;
            }
            let t = mine.get_or_insert_with(Box::default);
            let (mut ios, mut bytes) = (0, 0);
            if let Some(d) = theirs {
                (ios, bytes) = (d.ios, d.bytes);
                t.ios += d.ios;
                t.bytes += d.bytes;
                t.short += d.short;
                t.errors += d.errors;
                t.submit.merge_sparse(&d.submit);
                t.service.merge_sparse(&d.service);
                t.response.merge_sparse(&d.response);
            }
            if let Some(v) = t.part[0].add(bytes, width, sample[0]) {
                t.bandwidth.add(v / 1024.0);
            }
            if let Some(v) = t.part[1].add(ios, width, sample[1]) {
                t.rate.add(v);
            }
        }
    }

    /// Takes the end of a run: exact length and errors. Those that are ignored are counted, as in fio, and fail nothing.
    pub fn ended(&mut self, before: Nanos, job: Job, errors: &Errors) {
        self.wall = before + Nanos(job.wall_ns);
        self.open_loop |= job.open_loop.is_some();
        for e in &job.errors {
            self.failed |= !errors.ignores(e.op, e.errno);
            if self.error == 0 {
                self.error = if e.errno == 0 { 5 } else { e.errno };
            }
            self.errors += e.count;
        }
        self.jobs.push(job);
    }

    /// Its I/Os were none: for each a processor was kept busy, or a program was looked after, which fio counts without
    /// bytes and runtime; `timed` keeps the time of each.
    pub fn computed(&mut self, timed: bool) {
        self.runtimes = Some([0; 3]);
        for t in self.totals.iter_mut().flatten() {
            let own = std::mem::take(&mut **t);
            **t = Totals {
                ios: own.ios,
                ..Totals::default()
            };
            if timed {
                (t.submit, t.service, t.response) = (own.submit, own.service, own.response);
            }
        }
    }

    /// It fails with this error, unless another came before.
    pub fn fail(&mut self, errno: i32) {
        self.failed = true;
        if self.error == 0 {
            self.error = errno;
        }
    }

    /// I/Os of a direction that were issued, failed or not. That the other end of a socket closed is no failure.
    pub(crate) fn issued(&self, direction: usize) -> u64 {
        let totals = self.totals[direction].as_deref();
        totals.map_or(0, |t| t.ios + t.errors.min(self.errors))
    }

    /// Runtime in ms, at least 1 once anything ran.
    pub fn runtime_ms(&self) -> u64 {
        ms(self.wall)
    }

    /// Reads, writes and trims become one that took `ms`.
    pub(crate) fn all_take(&mut self, ms: u64) {
        self.runtimes = Some([ms; 3]);
    }

    /// Runtime of reads (0), writes (1) or trims (2): reading back what was written is no time of the writes, and the
    /// other way round. 0 where nothing was done.
    pub fn runtime_of(&self, direction: usize) -> u64 {
        if self.totals[direction].as_ref().is_none_or(|t| t.ios == 0) {
            return 0;
        }
        if let Some(all) = self.runtimes {
            return all[direction];
        }
        let Some(phases) = &self.phases else {
            return self.runtime_ms();
        };
        let [load, back] = phases.of(self.wall);
        ms(match direction {
            // Reads that belong to the load take its time too.
            0 if back == Nanos::ZERO || self.reads => load + back,
            0 => back,
            _ => load,
        })
    }
}

/// At least 1 once anything ran.
fn ms(time: Nanos) -> u64 {
    match time.0 {
        0 => 0,
        n => (n / 1_000_000).max(1),
    }
}

/// Several tasks as one, as fio's group_reporting shows them.
pub fn merge(measures: &[&Measure]) -> Measure {
    let mut all = Measure::default();
    for m in measures {
        all.started |= m.started;
        all.start_ms = if all.start_ms == 0 {
            m.start_ms
        } else {
            all.start_ms.min(m.start_ms.max(1))
        };
        all.wall = all.wall.max(m.wall);
        all.elapsed_s = all.elapsed_s.max(m.elapsed_s);
        all.open_loop |= m.open_loop;
        all.errors += m.errors;
        if all.error == 0 {
            all.error = m.error;
        }
        all.failed |= m.failed;
        all.usage.user_us += m.usage.user_us;
        all.usage.system_us += m.usage.system_us;
        all.usage.switches += m.usage.switches;
        all.usage.major_faults += m.usage.major_faults;
        all.usage.minor_faults += m.usage.minor_faults;
        all.batches.add(&m.batches);
        let longest = all.runtimes.get_or_insert_default();
        for (d, slot) in longest.iter_mut().enumerate() {
            *slot = (*slot).max(m.runtime_of(d));
        }
        for (mine, theirs) in all.totals.iter_mut().zip(&m.totals) {
            let Some(t) = theirs else { continue };
            let a = mine.get_or_insert_with(Box::default);
            a.ios += t.ios;
            a.bytes += t.bytes;
            a.short += t.short;
            a.errors += t.errors;
            a.submit.merge(&t.submit);
            a.service.merge(&t.service);
            a.response.merge(&t.response);
            a.bandwidth.join(&t.bandwidth);
            a.rate.join(&t.rate);
            classes::join(&mut a.by_priority, &t.by_priority);
        }
        if all.steady.is_none() {
            all.steady.clone_from(&m.steady);
        }
        if all.simulated.is_none() {
            all.simulated.clone_from(&m.simulated);
        }
        all.zone_resets += m.zone_resets;
        all.dropped += m.dropped;
        // As in fio those of the last job stand for the group.
        if m.lifetimes.is_some() {
            all.lifetimes.clone_from(&m.lifetimes);
        }
        match (&mut all.slices, &m.slices) {
            (Some(mine), Some(theirs)) => mine.join(theirs),
            (mine, theirs) => mine.clone_from(theirs),
        }
        all.latency_depth = all.latency_depth.max(m.latency_depth);
        all.jobs.extend(m.jobs.iter().cloned());
    }
    all
}
