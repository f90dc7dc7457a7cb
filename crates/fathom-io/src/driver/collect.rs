//! Merges the windows of a job's threads into its series and its totals.

use std::collections::BTreeMap;

use fathom_telemetry::schema::{DeviceDelta, IoError, Job, OpenLoop};
use fathom_telemetry::summary::SAMPLES_BEYOND;
use fathom_telemetry::{DirectionTotal, Flag, FlagCode, Nanos, Op, SparseHistogram, Window};

use super::{ClosedWindow, Observer, PlannedJob, errors, live};
use crate::load::{ErrorCount, Outcome};

/// An I/O that takes longer is no slow I/O: drives repeat a read for seconds, but not for so long.
const STALL: Nanos = Nanos::from_secs(10);

/// Windows that wait for slower threads before they are passed on anyway.
const PENDING_MAX: usize = 512;
/// What moves or discards data.
const DATA: [Op; 3] = [Op::Read, Op::Write, Op::Trim];

/// One job's results while it runs.
pub(super) struct Collector {
    planned: PlannedJob,
    group: u64,
    index: usize,
    depth: u32,
    ramp_windows: u64,
    /// When the measured part begins.
    measured_from: Nanos,
    /// Last window that each thread has closed; `u64::MAX` once it has ended.
    closed: Vec<u64>,
    pending: BTreeMap<u64, Window>,
    /// Windows that may wait for slower threads.
    pending_max: usize,
    totals: [Option<Box<DirectionTotal>>; 4],
    outcomes: Vec<Outcome>,
    /// Response latency since the last p99 that enough samples stood behind, and that p99.
    recent: SparseHistogram,
    last_p99: Option<Nanos>,
}

impl Collector {
    /// Of a job by its number in its group, with `seats` threads of `depth` each.
    pub(super) fn new(
        planned: &PlannedJob,
        (group, index): (u64, usize),
        seats: u32,
        depth: u32,
    ) -> Self {
        let mut totals = [None, None, None, None];
        for op in planned.ops() {
            totals[op as usize] = Some(Box::default());
        }
        Self {
            planned: planned.clone(),
            group,
            index,
            depth,
            ramp_windows: planned.ramp().0 / planned.job.spec.window.0,
            measured_from: Nanos::ZERO,
            closed: vec![0; seats as usize],
            pending: BTreeMap::new(),
            pending_max: PENDING_MAX,
            totals,
            outcomes: Vec::new(),
            recent: SparseHistogram::default(),
            last_p99: None,
        }
    }

    /// Its run begins at `origin`.
    pub(super) fn begin(&mut self, origin: Nanos) {
        self.measured_from = origin + self.planned.ramp();
    }

    pub(super) fn last_p99(&self) -> Option<Nanos> {
        self.last_p99
    }

    /// Passes on only what every thread has closed: in virtual time a thread may rest for long.
    pub(super) fn wait_for_all(&mut self) {
        self.pending_max = usize::MAX;
    }

    /// Takes a thread's closed window.
    pub(super) fn take(&mut self, thread: u32, window: Window, observer: &mut dyn Observer) {
        let number = (self.group, self.index);
        let who = (thread, self.closed.len());
        live::tell(&self.planned, number, who, None, &window);
        if window.index >= self.ramp_windows {
            for (total, dir) in self.totals.iter_mut().zip(&window.directions) {
                if let (Some(t), Some(d)) = (total, dir) {
                    t.add(d);
                }
            }
        }
        // The thread has closed everything before this window, and this one itself.
        self.closed[thread as usize] = window.index + 1;
        match self.pending.get_mut(&window.index) {
            Some(w) => w.merge(&window),
            None => {
                self.pending.insert(window.index, window);
            }
        }
        self.pass_on(observer);
    }

    /// Takes what a thread leaves behind.
    pub(super) fn ended(&mut self, thread: u32, outcome: &Outcome, observer: &mut dyn Observer) {
        self.closed[thread as usize] = u64::MAX;
        self.outcomes.push(outcome.clone());
        self.pass_on(observer);
    }

    /// The device answers no more: for threads that were not heard of since `until`, what their closed windows say is kept.
    pub(super) fn give_up(&mut self, measured_from: Nanos, until: Nanos) {
        let missing = self.closed.iter().filter(|c| **c != u64::MAX).count();
        let outcome = Outcome {
            measured_from,
            last_completion: until,
            ..Outcome::default()
        };
        self.outcomes.extend(std::iter::repeat_n(outcome, missing));
    }

    fn pass_on(&mut self, observer: &mut dyn Observer) {
        let complete = self.closed.iter().copied().min().unwrap_or(u64::MAX);
        while let Some(entry) = self.pending.first_entry() {
            if *entry.key() >= complete && self.pending.len() <= self.pending_max {
                return;
            }
            let Some((number, mut window)) = self.pending.pop_first() else {
                return;
            };
            // Series count from the measured part on, as the log does.
            window.index = number.saturating_sub(self.ramp_windows);
            let width = self.planned.job.spec.window;
            for d in window.directions.iter().take(3).flatten() {
                self.recent.merge(&d.response);
            }
            if let Some(p99) = self.recent.quantile_supported(0.99, SAMPLES_BEYOND) {
                self.last_p99 = Some(Nanos(p99));
                self.recent = SparseHistogram::default();
            }
            observer.window(&ClosedWindow {
                job: self.index,
                start_ns: (number as i64 - self.ramp_windows as i64) * width.0 as i64,
                origin: self.measured_from,
                width,
                window: &window,
            });
        }
    }

    /// The job's result. `origin` is the start of its run's clock.
    pub(super) fn job(
        mut self,
        origin: Nanos,
        engine: &str,
        notes: Vec<String>,
        cpu: (Nanos, Nanos),
        device: Option<DeviceDelta>,
        observer: &mut dyn Observer,
    ) -> Job {
        self.closed.fill(u64::MAX);
        self.pass_on(observer);
        let spec = &self.planned.job.spec;
        let from = self
            .outcomes
            .iter()
            .map(|o| o.measured_from)
            .min()
            .unwrap_or(origin);
        let last = self
            .outcomes
            .iter()
            .map(|o| o.last_completion)
            .max()
            .unwrap_or(from);
        let wall = last.since(from);
        let direction = |t: &Option<Box<DirectionTotal>>| t.as_ref().map(|t| t.over(wall));
        let [read, write, trim, sync] = &self.totals;
        let [read, write, trim, sync] = [read, write, trim, sync].map(direction);
        let data = [&read, &write, &trim];
        let rate_achieved = data.into_iter().flatten().map(|d| d.iops).sum();
        let (distribution, outstanding_ns) = depths(&self.outcomes, self.depth);
        let (seats, depth) = self.planned.seats();
        let open_loop = spec.rate.map(|asked| OpenLoop {
            rate_asked: asked,
            rate_achieved,
            late: self.outcomes.iter().map(|o| o.late).sum(),
            unissued: self.outcomes.iter().map(|o| o.unissued).sum(),
            lateness_max_ns: self
                .outcomes
                .iter()
                .map(|o| o.lateness_max)
                .max()
                .unwrap_or(0),
        });
        let mut job = Job {
            name: spec.name.clone(),
            experiment: self.planned.experiment.clone(),
            repeat: self.planned.repeat,
            spec: serde_json::to_value(spec).unwrap_or_default(),
            engine: engine.to_owned(),
            engine_notes: notes,
            start_ns: from.since(origin).0,
            wall_ns: wall.0,
            cpu_ns: (cpu.0 + cpu.1).0,
            cpu_user_ns: cpu.0.0,
            qd_requested: seats * depth,
            // Over the job's whole time: a thread that ends early leaves its depth unused.
            qd_achieved: outstanding_ns / wall.0.max(1) as f64,
            qd_distribution: distribution,
            read,
            write,
            trim,
            sync,
            open_loop,
            device,
            write_back: None,
            held_up: None,
            hosts: Vec::new(),
            errors: merge_errors(&self.outcomes),
            flags: Vec::new(),
        };
        job.flags = intrinsic_flags(&job, spec, self.planned.job.feed.is_some());
        job.flags.extend(self.inline_flag(&job));
        job
    }
}

impl Collector {
    /// I/Os that complete inside their submission run one after another, whatever the depth asked for.
    fn inline_flag(&self, job: &Job) -> Option<Flag> {
        let sum =
            |f: fn(&(u64, u64)) -> u64| -> u64 { self.outcomes.iter().map(|o| f(&o.inline)).sum() };
        let (sampled, inline) = (sum(|s| s.0), sum(|s| s.1));
        let share = inline as f64 / sampled.max(1) as f64;
        if self.depth < 2 || sampled < 100 || share < 0.5 {
            return None;
        }
        Some(Flag::new(
            FlagCode::DepthNotReached,
            format!(
                "{:.0} % of I/Os completed inside their submission, one after another: the depth of {} was never outstanding",
                100.0 * share,
                job.qd_requested
            ),
            "the page cache (or a device without a queue) answered at once: use direct I/O, or more threads",
        ))
    }
}

/// Share of thread time at each depth, and the sum of time × depth, ns.
fn depths(outcomes: &[Outcome], depth: u32) -> (Vec<(u32, f64)>, f64) {
    let mut ns = vec![0u64; depth as usize + 1];
    for o in outcomes {
        for (sum, n) in ns.iter_mut().zip(&o.depth_ns) {
            *sum += n;
        }
    }
    let total = ns.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<(u32, f64)> = (0u32..)
        .zip(&ns)
        .filter(|(_, n)| **n > 0)
        .map(|(d, n)| (d, *n as f64 / total))
        .collect();
    let weighted = (0u32..).zip(&ns).map(|(d, n)| f64::from(d) * *n as f64);
    (shares, weighted.sum())
}

fn merge_errors(outcomes: &[Outcome]) -> Vec<IoError> {
    let mut merged: BTreeMap<(Op, i32), ErrorCount> = BTreeMap::new();
    for e in outcomes.iter().flat_map(|o| &o.errors) {
        merged
            .entry((e.op, e.errno))
            .and_modify(|m| m.count += e.count)
            .or_insert(*e);
    }
    merged
        .into_values()
        .map(|e| IoError {
            op: e.op,
            errno: errors::number(e.errno),
            message: errors::message(e.errno),
            first_offset: e.first_offset,
            count: e.count,
        })
        .collect()
}

/// An I/O that took so long that the device, or what lies above it, stood still.
fn stalled(job: &Job) -> Option<Flag> {
    let longest = Op::ALL
        .iter()
        .filter_map(|op| job.direction(*op)?.service_ns.max)
        .max()
        .map(Nanos)?;
    (longest >= STALL).then(|| {
        Flag::new(
            FlagCode::Stalled,
            format!("one I/O took {longest}: the device, or what lies above it, stood still"),
            "look at the kernel log for timeouts and resets, and at the device's health (fathom devices)",
        )
    })
}

/// Flags that follow from the job alone; those that need the machine are added by `validity`.
fn intrinsic_flags(job: &Job, spec: &crate::JobSpec, played: bool) -> Vec<Flag> {
    let paced = played || spec.rate.is_some() || spec.think.0 > 0 || spec.burst.is_some();
    let mut flags: Vec<Flag> = stalled(job).into_iter().collect();
    flags.extend(job.errors.iter().map(failed));
    flags.extend(shallow(job, spec.direct).filter(|_| !paced));
    flags.extend(late(job));
    flags.extend(thin(job));
    flags
}

/// I/Os of one kind that ended with one error.
fn failed(e: &IoError) -> Flag {
    let (n, op) = (e.count, e.op.name());
    let (code, what) = match e.errno {
        0 => (
            FlagCode::ShortIo,
            format!("{n} {op} transferred less than asked for"),
        ),
        _ => (
            FlagCode::IoErrors,
            format!("{n} {op} failed: {}", e.message),
        ),
    };
    Flag::new(
        code,
        format!("{what}, the first at byte {}", e.first_offset),
        "look at the kernel log; use --on-error continue to measure a failing device",
    )
}

/// Fewer outstanding I/Os than a closed loop was asked for.
fn shallow(job: &Job, direct: bool) -> Option<Flag> {
    let asked = f64::from(job.qd_requested);
    let measured = job.sync.is_none() && job.qd_requested > 1 && job.wall_ns > 0;
    (measured && job.qd_achieved < 0.9 * asked).then(|| {
        Flag::new(
            FlagCode::DepthNotReached,
            format!(
                "{:.1} of {} requested I/Os were outstanding on average",
                job.qd_achieved, job.qd_requested
            ),
            if direct {
                "the submission path is slower than the device: add threads, or ask for less depth"
            } else {
                "buffered I/O completes inside the submission: use direct I/O, or more threads"
            },
        )
    })
}

/// An open loop that did not keep its schedule.
fn late(job: &Job) -> Option<Flag> {
    let o = job.open_loop.as_ref()?;
    let directions = DATA.iter().filter_map(|op| job.direction(*op));
    let total: u64 = directions.map(|d| d.ios).sum();
    ((o.late + o.unissued) * 100 > total + o.unissued).then(|| {
        Flag::new(
            FlagCode::MissedSchedule,
            format!(
                "{} of {total} I/Os started late (by up to {}) and {} never started",
                o.late,
                Nanos(o.lateness_max_ns),
                o.unissued
            ),
            "response latency includes the wait; raise --qd or --threads, or ask for a lower rate",
        )
    })
}

/// Too few I/Os for a percentile that is shown.
fn thin(job: &Job) -> Option<Flag> {
    let is_thin = |op: &&Op| {
        let d = job.direction(**op);
        d.is_some_and(|d| d.ios > 0 && d.service_ns.p99.is_none())
    };
    let names = DATA.iter().filter(is_thin).map(|op| op.name());
    let names: Vec<&str> = names.collect();
    (!names.is_empty()).then(|| {
        Flag::new(
            FlagCode::TooFewSamples,
            format!(
                "too few I/Os for the 99th percentile of {}",
                names.join(" and ")
            ),
            "run longer: a percentile is shown with 10 samples beyond it",
        )
    })
}
