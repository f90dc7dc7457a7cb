//! The tree on a model (`played`), and what that takes here.

use std::sync::Arc;

use fathom_bench::cost::RunCost;
use fathom_bench::progress::ProgressSink;
use fathom_bench::schedule::seed;
use fathom_bench::sim_bench::SimBench;
use fathom_bench::{Bench, BenchError, Plan};
use fathom_io::driver::{Observer, PlannedJob, Progress};
use fathom_io::job::BlockSizes;
use fathom_io::{Control, clock};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Nanos};

use super::load::{Load, Outcome};
use super::{Cell, KvOptions, Lab, cells, load_of, raw_job, time};
use crate::LabError;
use crate::played::{self, MemoryStore, Played};

/// Memory that a tree may take, bytes: nobody expects gigabytes of a simulation.
pub(super) const RANGE_MAX: u64 = 1 << 30;
/// Of keys and values, where their number is not given.
pub(super) const DATA_MAX: u64 = 64 << 20;

impl Lab<'_> {
    /// As [`Lab::tree`], in memory and on the model.
    pub(super) fn played(
        &mut self,
        cell: &Cell,
        repeat: u32,
    ) -> Result<(Outcome, u64, u64), LabError> {
        let load = load_of(
            time(self.plan, self.options),
            cell,
            self.options,
            repeat,
            None,
        );
        let half = self.options.half(self.plan.limits.size);
        let tree = Tree::fill(self.options, cell, half, load, &self.bench.control())?;
        let (outcome, cached) = tree.play(self.bench, self.plan, &mut Shown(self.sink))?;
        Ok((outcome, tree.leaves, cached))
    }
}

/// Shows how a job goes on.
struct Shown<'a>(&'a mut dyn ProgressSink);

impl Observer for Shown<'_> {
    fn progress(&mut self, p: &Progress) {
        self.0.progress(p);
    }
}

/// A filled tree in memory.
struct Tree<'a> {
    options: &'a KvOptions,
    cell: &'a Cell,
    store: Arc<MemoryStore>,
    load: Load<'static>,
    leaves: u64,
}

impl<'a> Tree<'a> {
    fn fill(
        options: &'a KvOptions,
        cell: &'a Cell,
        half: u64,
        load: Load<'static>,
        control: &Control,
    ) -> Result<Self, LabError> {
        let store = Arc::new(MemoryStore::new(half));
        let control = control.clone();
        let keys = load.first_keys();
        let filling = options.filling(half, cell);
        let stop = move || control.interrupted();
        let leaves = played::fill(&store, &filling, keys, cell.value, stop)?;
        Ok(Self {
            options,
            cell,
            store,
            load,
            leaves,
        })
    }

    /// What came of the load, and the bytes of the cache.
    fn play(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        observer: &mut dyn Observer,
    ) -> Result<(Outcome, u64), LabError> {
        let (cell, options) = (self.cell, self.options);
        let half = fathom_kv::Store::len(&*self.store);
        let tree = Played::open(&self.store, &options.measuring(half, cell, self.leaves))?;
        let cached = tree.engine().frames() * cell.page;
        let mut spec = plan
            .job(&format!("kv-{}", cell.label()), &[("rw", "randread")])
            .map_err(BenchError::from)?;
        spec.bs = BlockSizes::one(cell.page);
        spec.seed = seed(self.load.seed, "kv", "model", 0);
        tree.terms(&mut spec, &self.load);
        let job = spec.validate(&bench.limits()).map_err(BenchError::from)?;
        let each = options.model.unwrap_or(Nanos::ZERO);
        let run = |guide| -> Result<Job, LabError> {
            let planned = [PlannedJob {
                experiment: "kv".into(),
                guide: Some(guide),
                ..PlannedJob::new(job)
            }];
            let job = bench.run(&planned, None, observer)?.pop();
            job.ok_or_else(|| LabError::Failed("the model gave no job back".into()))
        };
        let (job, counted) = tree.load(self.load, each, run)?;
        Ok((counted.outcome(&job), cached))
    }
}

/// Keys of a sampled tree, at most.
const KEYS: u64 = 100_000;
/// The model's time of a first sample; each that follows is twice as long, until one takes long enough here to be believed.
const FIRST: Nanos = Nanos::from_millis(20);
const ENOUGH: f64 = 0.4;

/// [`super::run_cost`] on a model: what a run takes here is found with samples of it.
///
/// # Errors
/// Where the name stands for no model, or a sample fails.
pub fn run_cost_on_model(
    plan: &Plan,
    options: &KvOptions,
    target: &str,
) -> Result<RunCost, LabError> {
    let mut bench = SimBench::open(target, Control::new()).map_err(BenchError::from)?;
    let repeats = plan.profile.repeats;
    let (ramp, measured) = time(plan, options);
    let all = cells(plan, options);
    let (mut here, n) = (0.0, all.len() as u32 * repeats);
    for cell in &all {
        here += f64::from(repeats) * seconds_here(plan, options, cell, &mut bench)?;
    }
    let mut cost = RunCost::default();
    cost.phase("the tree")
        .work(n, Nanos((ramp + measured).0 * u64::from(n)), Bytes(0))
        .simulated_in(Nanos::from_secs_f64(here));
    cost.phase("the raw target beside it");
    for cell in &all {
        // After each measurement, and before all but the first.
        let raw = raw_job(plan, cell, options.threads, true).map_err(BenchError::from)?;
        cost.add(&raw, 2 * repeats - 1);
    }
    Ok(cost)
}

/// What a short measurement of a small tree took here, in one of so many parts of the range.
struct Sample {
    /// Model's time.
    of: Nanos,
    /// Filling the tree, and all that follows, s.
    filling: f64,
    playing: f64,
    operations: f64,
}

fn sample(
    (plan, options): (&Plan, &KvOptions),
    cell: &Cell,
    parts: u64,
    of: Nanos,
    bench: &mut SimBench,
) -> Result<Sample, LabError> {
    let load = Load {
        ramp: Nanos::ZERO,
        time: of,
        ..load_of(time(plan, options), cell, options, 0, None)
    };
    // Of the processor: what else the machine does now says nothing of later.
    let now = || {
        let (user, system) = clock::process_cpu();
        (user + system).as_secs_f64()
    };
    let (began, control) = (now(), bench.control());
    let half = options.half(plan.limits.size) / parts / 65536 * 65536;
    let tree = Tree::fill(options, cell, half, load, &control)?;
    let filled = now();
    let (outcome, _) = tree.play(bench, plan, &mut ())?;
    Ok(Sample {
        of,
        filling: filled - began,
        playing: now() - filled,
        operations: outcome.load.operations() as f64,
    })
}

/// Samples of a small tree, and what they say.
struct Sampled {
    last: Sample,
    /// Of an operation, s.
    each: f64,
    /// Opening and closing, s.
    beside: f64,
}

/// Longer and longer ones, until one can be believed.
fn sampled(
    of: (&Plan, &KvOptions),
    cell: &Cell,
    bench: &mut SimBench,
) -> Result<Sampled, LabError> {
    let (ramp, measured) = time(of.0, of.1);
    let mut before = sample(of, cell, 1, FIRST, bench)?;
    let last = loop {
        let next = sample(of, cell, 1, Nanos(2 * before.of.0), bench)?;
        if next.playing >= ENOUGH || next.of >= ramp + measured {
            break next;
        }
        before = next;
    };
    // What the longer one took more is its operations'.
    let more = (last.playing - before.playing).max(0.0);
    let each = more / (last.operations - before.operations).max(1.0);
    Ok(Sampled {
        each,
        beside: (last.playing - each * last.operations).max(0.0),
        last,
    })
}

/// Of one measurement: the tree is filled, opened, and played.
fn seconds_here(
    plan: &Plan,
    options: &KvOptions,
    cell: &Cell,
    bench: &mut SimBench,
) -> Result<f64, LabError> {
    let of = (plan, options);
    let (ramp, measured) = time(plan, options);
    if cell.keys == 0 {
        return growing(of, cell, bench);
    }
    let small = Cell {
        keys: cell.keys.min(KEYS),
        ..cell.clone()
    };
    let s = sampled(of, &small, bench)?;
    let rate = s.last.operations / s.last.of.as_secs_f64();
    let filling = s.last.filling * cell.keys as f64 / small.keys as f64;
    Ok(filling + s.beside + s.each * rate * (ramp + measured).as_secs_f64())
}

/// Of a tree that begins empty, outgrows its cache and goes on: one with a part of the range, and of the cache, grows as far in
/// that part of the time.
fn growing(of: (&Plan, &KvOptions), cell: &Cell, bench: &mut SimBench) -> Result<f64, LabError> {
    const PARTS: u64 = 16;
    let (_, measured) = time(of.0, of.1);
    let part = Nanos((measured.0 / PARTS).max(1));
    let opened = sample(of, cell, PARTS, Nanos((part.0 / PARTS).max(1)), bench)?;
    let grown = sample(of, cell, PARTS, part, bench)?;
    let beside = opened.playing * (1.0 - 1.0 / PARTS as f64);
    Ok(beside + (grown.playing - beside).max(0.0) * PARTS as f64)
}

#[cfg(test)]
mod tests;
