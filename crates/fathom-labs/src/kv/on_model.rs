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
        let load = load_of(self.plan, cell, self.options, repeat, None);
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

/// What a short measurement of a small tree took here.
struct Sample {
    /// Model's time.
    of: Nanos,
    /// Filling the tree, and all that follows, s.
    filling: f64,
    playing: f64,
    operations: f64,
    misses: f64,
}

fn sample(
    (plan, options): (&Plan, &KvOptions),
    cell: &Cell,
    of: Nanos,
    bench: &mut SimBench,
) -> Result<Sample, LabError> {
    let load = Load {
        ramp: Nanos::ZERO,
        time: of,
        ..load_of(plan, cell, options, 0, None)
    };
    // Of the processor: what else the machine does now says nothing of later.
    let now = || {
        let (user, system) = clock::process_cpu();
        (user + system).as_secs_f64()
    };
    let (began, control) = (now(), bench.control());
    let half = options.half(plan.limits.size);
    let tree = Tree::fill(options, cell, half, load, &control)?;
    let filled = now();
    let (outcome, _) = tree.play(bench, plan, &mut ())?;
    Ok(Sample {
        of,
        filling: filled - began,
        playing: now() - filled,
        operations: outcome.load.operations() as f64,
        misses: outcome.stats.misses as f64,
    })
}

/// Of one measurement: the tree is filled, opened, and played.
fn seconds_here(
    plan: &Plan,
    options: &KvOptions,
    cell: &Cell,
    bench: &mut SimBench,
) -> Result<f64, LabError> {
    let (ramp, measured) = time(plan, options);
    let small = match cell.keys {
        // An empty tree outgrows its cache and goes on: one of which two thirds are cached stands for that.
        0 => Cell {
            keys: KEYS,
            cache: 65.0,
            ..cell.clone()
        },
        keys => Cell {
            keys: keys.min(KEYS),
            ..cell.clone()
        },
    };
    let mut before = sample((plan, options), &small, FIRST, bench)?;
    let last = loop {
        let next = sample((plan, options), &small, Nanos(2 * before.of.0), bench)?;
        if next.playing >= ENOUGH || next.of >= ramp + measured {
            break next;
        }
        before = next;
    };
    // What the longer one took more is its operations'; the rest is opening and closing.
    let more = (last.playing - before.playing).max(0.0);
    let each = more / (last.operations - before.operations).max(1.0);
    let beside = (last.playing - each * last.operations).max(0.0);
    let seconds = last.of.as_secs_f64();
    if cell.keys > 0 {
        let rate = last.operations / seconds;
        let filling = last.filling * cell.keys as f64 / small.keys as f64;
        return Ok(filling + beside + each * rate * (ramp + measured).as_secs_f64());
    }
    let half = options.half(plan.limits.size);
    let cache = options.measuring(half, cell, 0).pool_bytes as f64;
    let most = f64::from(options.threads) / options.model.unwrap_or_default().0.max(1) as f64;
    let grown = grown(
        // Leaves that were split are full to ln 2.
        cache * std::f64::consts::LN_2 / (12.0 + f64::from(cell.value)),
        last.misses / seconds * measured.as_secs_f64(),
        most * measured.0 as f64,
    );
    Ok(beside + each * grown)
}

/// Keys in a tree that began empty, after as many misses, where `cached` keys fit the cache and `most` could have been put
/// without a miss. A key is missed as the part of the tree is that is not cached: dm = (1 - cached / n) dn.
fn grown(cached: f64, misses: f64, most: f64) -> f64 {
    if most <= cached {
        return most;
    }
    let missed = |n: f64| n - cached - cached * (n / cached).ln();
    let (mut low, mut high) = (cached, most);
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if missed(middle) < misses {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests;
