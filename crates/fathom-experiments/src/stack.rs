//! Latency by layer: each case runs untraced and traced in turns, so that the observer's own cost is
//! known, and is then split by `fathom-stack`.
//!
//! Where the kernel may not be traced the lowest rung is used, and said.

mod bars;
pub mod host;
mod in_survey;
mod model;
mod notes;
mod options;
mod output;
mod text;
mod what_if;

use fathom_bench::bench::{Bench, BenchError, RealBench};
use fathom_bench::cost::RunCost;
use fathom_bench::cpu::{CpuBench, CpuSetting};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::schedule;
use fathom_io::JobSpec;
use fathom_io::driver::{Destination, Observer, PlannedJob, Progress, thread_prefix};
use fathom_io::job::Engine;
use fathom_stack::device::begins_at;
use fathom_stack::reduced::{SchedWatch, reduced};
use fathom_stack::{
    Backend, Devices, Layer, Manner, Naming, Session, StackAnalysis, StackResult, TraceConfig,
    TraceError, settings,
};
use fathom_stats::Estimate;
use fathom_stats::compare::relative_of_log;
use fathom_telemetry::iolog::{MemoryLog, ThreadRecords};
use fathom_telemetry::{Bytes, FlagCode, Nanos};
use serde::{Deserialize, Serialize};

pub(crate) use in_survey::{in_survey, run_cost as in_survey_cost};
pub use model::{model_cost, on_model};
pub use options::{Choice, Rung, StackOptions};
pub use output::document;
pub use text::text;
pub use what_if::{VARIANTS, WhatIf, what_if, what_if_cpu};

/// I/Os of one pass, at most: their events fit the kernel's buffers.
const PASS_IOS: u64 = 20_000;
/// I/Os of a pass without privileges, where the disk's counters need many.
const REDUCED_IOS: u64 = 25_000;
/// Pairs of an untraced and a traced pass; which one comes first alternates, so that a drift favours none.
pub const PAIRS: u32 = 10;

/// What to measure.
#[derive(Debug, Clone)]
pub struct StackPlan {
    /// The jobs, in order; the first one stands at the top of the result.
    pub cases: Vec<JobSpec>,
    /// Which evidence.
    pub rung: Rung,
    /// Keep every I/O with its boundaries.
    pub rows: bool,
    /// How the processors are kept during the passes.
    pub cpu: CpuSetting,
}

/// Time and bytes of cases. Each runs in pairs of passes, traced and not; `variants` more pairs test what would help.
pub fn run_cost(cases: &[JobSpec], variants: u32, fills: Bytes) -> RunCost {
    let mut cost = RunCost::filling(fills);
    // Switching the events on and off takes about as long as setting a job up.
    const SWITCH: Nanos = Nanos::from_millis(50);
    let mut add = |phase: &str, spec: &JobSpec, passes: u32| {
        let pass = spec.time.unwrap_or(Nanos::ZERO) + SWITCH;
        let written = match spec.rw.modifies() {
            true => u64::from(passes) * PASS_IOS * spec.bs.max().0,
            false => 0,
        };
        cost.phase(phase)
            .work(passes, Nanos(pass.0 * u64::from(passes)), Bytes(written));
    };
    for spec in cases {
        add(&spec.name, spec, 2 * PAIRS);
    }
    if let Some(first) = cases.first().filter(|_| variants > 0) {
        add("what if", first, variants * 2 * PAIRS);
    }
    cost
}

/// The result of one case.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StackCase {
    /// Its name: `randread-qd1-direct-uring`.
    pub name: String,
    /// `full`, `perf-events` or `unprivileged`; `model` where a model says it.
    pub rung: String,
    /// Why it is not a higher rung, and what would enable that.
    pub why: Option<String>,
    /// Layers; their means add up to the application's mean.
    pub layers: Vec<Layer>,
    /// Mean from submission to completion as the application saw it, ns.
    pub application_mean_ns: Option<f64>,
    /// The same without tracing, with its interval over passes.
    pub untraced: Option<Estimate>,
    /// The same as a number, ns.
    pub untraced_mean_ns: Option<f64>,
    /// Traced minus untraced, ns: mean over pairs of passes, each without its slowest 5 %, with its interval. Without
    /// the first pair, whose traced pass fills fresh buffers.
    pub observer_cost: Option<Estimate>,
    /// The same as a part of the untraced pass of its pair, which lacks its slowest 5 % too.
    pub observer_cost_share: Option<Estimate>,
    /// The same as a number, ns.
    pub observer_cost_ns: Option<f64>,
    /// The same per kernel event, ns.
    pub observer_cost_per_event_ns: Option<f64>,
    /// Joined part of the I/Os; absent on the lowest rung, which joins nothing.
    pub coverage: Option<f64>,
    /// Application's mean minus the layers' sum, ns.
    pub residual_ns: Option<f64>,
    /// Events that the kernel dropped.
    pub lost: u64,
    /// Processor time per I/O, ns (lowest rung).
    pub cpu_per_io_ns: Option<f64>,
    /// What must be known to read the layers.
    pub notes: Vec<String>,
    /// Everything that tracing told.
    pub details: Option<StackResult>,
    /// Indices into the run's jobs.
    pub jobs: Vec<usize>,
}

/// Every case, and what ran.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct StackReport {
    /// In the order of the plan; the first is the headline.
    pub cases: Vec<StackCase>,
    /// Cases left out, and why.
    pub skipped: Vec<String>,
    /// Settings put back that a killed run had left changed.
    pub restored: Vec<String>,
    /// Rows of each case, where they were asked for; they are kept in files of their own.
    #[serde(skip)]
    pub rows: Vec<(String, Vec<fathom_stack::Joined>)>,
    /// Tested variants.
    pub what_if: Vec<WhatIf>,
}

impl StackReport {
    /// Whether it is a model's.
    pub fn is_simulated(&self) -> bool {
        self.cases.iter().any(|c| c.rung == model::RUNG)
    }
}

/// What a run of passes tells while it runs.
pub type Watch<'a> = &'a mut dyn FnMut(&str, &Progress);

/// One pass: the job and its records.
pub(crate) struct Pass {
    pub(crate) records: Vec<ThreadRecords>,
    pub(crate) job: fathom_telemetry::schema::Job,
}

/// Part of a pass's I/Os that comparisons of passes leave out: a few that waited milliseconds for something
/// else would decide the difference of two means. Tracing makes every I/O longer, and so do most settings.
const SLOWEST_LEFT_OUT: f64 = 0.05;

impl Pass {
    /// Service latencies without the warm-up, ns: the same part as the traced passes leave out.
    fn services(&self) -> impl Iterator<Item = u64> {
        self.records
            .iter()
            .flat_map(|t| t.records.iter().skip(t.records.len() / 50))
            .map(|r| r.service().0)
    }

    /// Their mean, ns.
    pub(crate) fn mean(&self) -> Option<f64> {
        let (n, sum) = self
            .services()
            .fold((0u64, 0u128), |(n, sum), ns| (n + 1, sum + u128::from(ns)));
        (n > 0).then(|| sum as f64 / n as f64)
    }

    /// The same without the slowest.
    pub(crate) fn usual_mean(&self) -> Option<f64> {
        let mut all: Vec<u64> = self.services().collect();
        all.sort_unstable();
        all.truncate(all.len() - (all.len() as f64 * SLOWEST_LEFT_OUT) as usize);
        (!all.is_empty()).then(|| all.iter().sum::<u64>() as f64 / all.len() as f64)
    }
}

struct Watching<'a, 'b> {
    name: &'a str,
    watch: Watch<'b>,
    sched: Option<&'a mut SchedWatch>,
}

impl Observer for Watching<'_, '_> {
    fn progress(&mut self, p: &Progress) {
        if let Some(s) = &mut self.sched {
            s.read(p.ios);
        }
        (self.watch)(self.name, p);
    }
}

/// Runs one pass with its records kept in memory.
pub(crate) fn pass(
    bench: &mut RealBench,
    cpu: CpuSetting,
    spec: &JobSpec,
    ios: u64,
    repeat: u32,
    sched: Option<&mut SchedWatch>,
    watch: Watch<'_>,
) -> Result<Pass, BenchError> {
    let mut spec = spec.clone();
    spec.ios = Some(ios);
    spec.record = true;
    let job = spec.validate(&bench.limits())?;
    let planned = [PlannedJob {
        experiment: "stack".into(),
        repeat,
        ..PlannedJob::new(job)
    }];
    let (seats, _) = planned[0].seats();
    let log = MemoryLog::new();
    let room = (ios / u64::from(seats.max(1)) + 64) as usize;
    let make = |job: usize, thread: u32| log.handle(job as u16, thread as u16, room);
    let name = spec.name.clone();
    let mut observer = Watching {
        name: &name,
        watch,
        sched,
    };
    let mut bench = CpuBench::new(bench, cpu);
    let mut jobs = bench.run(&planned, Some(&make), &mut observer)?;
    let mut job = jobs
        .pop()
        .ok_or_else(|| BenchError::Prepare("no job came back".into()))?;
    if !spec.direct {
        // The page cache is what a buffered case is about.
        job.flags
            .iter_mut()
            .filter(|f| f.code == FlagCode::PageCacheAnswered)
            .for_each(|f| f.void = false);
    }
    Ok(Pass {
        records: log.take(),
        job,
    })
}

/// Runs every case and keeps it in the notebook.
pub fn run(
    bench: &mut RealBench,
    plan: &StackPlan,
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<StackReport, NotebookError> {
    let mut report = StackReport::default();
    let devices = devices_of(bench);
    report.restored = settings::restore_leftovers();
    // Asked once: a run does not change rungs midway.
    let refusal = match plan.rung {
        Rung::Unprivileged => Some("asked for with --rung unprivileged".to_owned()),
        Rung::Best | Rung::Perf => plan
            .cases
            .first()
            .and_then(|spec| refusal(&devices, spec, plan.rung)),
    };
    for spec in &plan.cases {
        if bench.interrupted() {
            break;
        }
        if let Some(why) = impossible(bench, spec) {
            report.skipped.push(format!("{}: {why}", spec.name));
            continue;
        }
        let case = match &refusal {
            Some(why) => lowest(bench, spec, (why, plan.cpu), book, watch)?,
            None => {
                let (case, rows) = full(bench, spec, &devices, plan, book, watch)?;
                if plan.rows {
                    report.rows.push((spec.name.clone(), rows));
                }
                case
            }
        };
        let failed = case
            .jobs
            .iter()
            .filter_map(|j| book.run().jobs.get(*j))
            .any(|j| !j.errors.is_empty());
        report.cases.push(case);
        if failed {
            break;
        }
    }
    Ok(report)
}

/// The disks below a target.
pub(crate) fn devices_of(bench: &RealBench) -> Devices {
    bench
        .target()
        .path()
        .map_or_else(Devices::default, Devices::below)
}

/// Why the kernel cannot be traced here, with what would enable it.
pub(crate) fn refusal(devices: &Devices, spec: &JobSpec, rung: Rung) -> Option<String> {
    Session::start(&config(devices, spec, 1, rung))
        .err()
        .map(|e| e.to_string())
}

/// Why a case cannot run here.
fn impossible(bench: &RealBench, spec: &JobSpec) -> Option<String> {
    let Destination::File {
        direct,
        buffered,
        commands,
        ..
    } = bench.target().destination()
    else {
        return Some("null: makes no I/O, so there is nothing to split".into());
    };
    if spec.engine == Engine::UringCmd && commands.is_none() {
        return Some("it was not opened for NVMe commands".into());
    }
    match (spec.direct, direct, buffered) {
        (true, None, _) => Some("this file system has no direct I/O".into()),
        (false, _, None) => Some("it cannot be opened for buffered I/O".into()),
        _ => spec.validate(&bench.limits()).err().map(|e| e.to_string()),
    }
}

fn seats_and_depth(spec: &JobSpec) -> (bool, bool) {
    let uring = matches!(spec.engine, Engine::Uring | Engine::UringCmd);
    (uring, !uring || spec.qd == 1)
}

fn config(devices: &Devices, spec: &JobSpec, ios: u64, rung: Rung) -> TraceConfig {
    let (uring, single) = seats_and_depth(spec);
    TraceConfig {
        devices: devices.clone(),
        threads: Some(thread_prefix()),
        backend: match rung {
            Rung::Perf => Backend::Perf,
            _ => Backend::Best,
        },
        live: false,
        ios,
        software: true,
        uring,
        single,
    }
}

/// How a case's I/Os are told apart, and what its layers are called.
fn reading(bench: &RealBench, spec: &JobSpec, devices: &Devices) -> (Manner, Naming) {
    let (uring, single) = seats_and_depth(spec);
    let begins_at = bench.target().path().and_then(begins_at);
    let commands = spec.engine == Engine::UringCmd;
    let manner = Manner {
        uring,
        commands,
        single,
        must_reach_device: spec.direct && !devices.top.is_empty(),
        begins_at,
    };
    let naming = Naming {
        guest: fathom_stack::device::is_guest(),
        bio_based: devices.top.iter().any(|d| !d.has_requests),
        loop_file: devices.top.iter().any(|d| d.loop_file.is_some()),
        direct: spec.direct,
        in_memory: devices.top.is_empty(),
        deep: !single,
        polled: spec.iopoll,
        raw: begins_at.is_some(),
        commands,
        host: false,
    };
    (manner, naming)
}

/// Runs a case in pairs of passes, traced and not.
fn full(
    bench: &mut RealBench,
    spec: &JobSpec,
    devices: &Devices,
    plan: &StackPlan,
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<(StackCase, Vec<fathom_stack::Joined>), NotebookError> {
    let (manner, naming) = reading(bench, spec, devices);
    let mut passes = Passes {
        analysis: StackAnalysis::new(devices.clone(), manner, naming),
        untraced: Vec::new(),
        ratios: Vec::new(),
        jobs: Vec::new(),
        session: None,
        broken: None,
        used: "full",
        why: None,
    };
    passes.run(bench, spec, devices, plan, book, watch)?;
    let result = passes.analysis.result();
    let mut remarks = notes::of_case(spec, passes.used, &result, devices, naming);
    remarks.extend(processors(plan.cpu));
    let ios = passes.analysis.ios().to_vec();
    Ok((passes.case(spec, result, remarks), ios))
}

/// What the passes of a case gave.
struct Passes {
    analysis: StackAnalysis,
    /// Means of those without tracing, ns.
    untraced: Vec<f64>,
    /// Of each pair, traced over untraced: logarithms.
    ratios: Vec<f64>,
    /// Indices of all.
    jobs: Vec<usize>,
    session: Option<Session>,
    /// Why one could not be traced.
    broken: Option<TraceError>,
    /// The rung, and why it is not a higher one.
    used: &'static str,
    why: Option<String>,
}

impl Passes {
    /// Runs them, or until an interruption or a pass that cannot be traced.
    fn run(
        &mut self,
        bench: &mut RealBench,
        spec: &JobSpec,
        devices: &Devices,
        plan: &StackPlan,
        book: &mut Notebook,
        watch: Watch<'_>,
    ) -> Result<(), NotebookError> {
        let mut means = [None; 2];
        for turn in 0..2 * PAIRS {
            let traced = [false, true, true, false][turn as usize % 4];
            if bench.interrupted() {
                break;
            }
            let word = if traced { "traced" } else { "plain" };
            let spec = JobSpec {
                name: format!("{}.{word}{}", spec.name, turn / 2 + 1),
                seed: schedule::seed(spec.seed, "stack", &spec.name, turn),
                ..spec.clone()
            };
            if traced
                && let Err(e) = trace_on(
                    &mut self.session,
                    &config(devices, &spec, PASS_IOS, plan.rung),
                )
            {
                self.broken = Some(e);
                break;
            }
            let done = pass(bench, plan.cpu, &spec, PASS_IOS, turn / 2, None, watch)?;
            means[usize::from(traced)] = done.usual_mean();
            match traced {
                true => self.join(&done),
                false => self.untraced.extend(done.mean()),
            }
            if let (1, [Some(plain), Some(traced)]) = (turn % 2, means) {
                // The first traced pass fills buffers that nobody has touched: no pass after it pays for that.
                if turn > 1 {
                    self.ratios.push((traced / plain).ln());
                }
                means = [None; 2];
            }
            self.jobs.push(book.run().jobs.len());
            book.keep(done.job);
        }
        Ok(())
    }

    /// Joins a traced pass with its events.
    fn join(&mut self, done: &Pass) {
        let Some(session) = &mut self.session else {
            return;
        };
        (self.used, self.why) = (session.rung(), session.why().map(str::to_owned));
        match session.stop() {
            Ok(trace) => self.analysis.add(&done.records, &trace),
            Err(e) => self.broken = Some(e),
        }
    }

    /// What they say together.
    fn case(self, spec: &JobSpec, result: StackResult, mut notes: Vec<String>) -> StackCase {
        let plain = Estimate::mean_of(&self.untraced);
        // A few pairs, one of which met something else: the share lies above -100 % and is not larger than what it is of.
        let share = Estimate::mean_of(&self.ratios).map(relative_of_log);
        let observer = share.zip(plain).map(|(s, p)| s.scale(p.value));
        let cost = observer.map(|o| o.value);
        let events = Some(result.events_per_io).filter(|n| *n > 0.0);
        notes.extend(notes::dear(share));
        StackCase {
            name: spec.name.clone(),
            rung: self.used.to_owned(),
            why: self.broken.map(|e| e.to_string()).or(self.why),
            layers: result.layers.clone(),
            application_mean_ns: (result.submitted > 0).then_some(result.application_mean_ns),
            untraced_mean_ns: plain.map(|p| p.value),
            untraced: plain,
            observer_cost: observer,
            observer_cost_share: share,
            observer_cost_ns: cost,
            observer_cost_per_event_ns: cost.zip(events).map(|(cost, n)| cost / n),
            coverage: Some(result.coverage),
            residual_ns: Some(result.residual_ns),
            lost: result.lost,
            cpu_per_io_ns: None,
            notes,
            details: Some(result),
            jobs: self.jobs,
        }
    }
}

/// Switches the events on for a pass: again, where the pass before left its buffers.
fn trace_on(session: &mut Option<Session>, config: &TraceConfig) -> Result<(), TraceError> {
    if let Some(kept) = session
        && kept.resume()?
    {
        return Ok(());
    }
    // Never two at once.
    *session = None;
    *session = Some(Session::start(config)?);
    Ok(())
}

/// A setting of the processors belongs to the conditions.
fn processors(cpu: CpuSetting) -> Option<String> {
    (cpu != CpuSetting::AsIs).then(|| format!("measured with {}", cpu.words()))
}

fn lowest(
    bench: &mut RealBench,
    spec: &JobSpec,
    (why, cpu): (&str, CpuSetting),
    book: &mut Notebook,
    watch: Watch<'_>,
) -> Result<StackCase, NotebookError> {
    let (_, single) = seats_and_depth(spec);
    let mut spec = spec.clone();
    spec.time = spec.time.map(|t| Nanos(t.0 * u64::from(2 * PAIRS)));
    let mut sched = SchedWatch::new(thread_prefix());
    let done = pass(bench, cpu, &spec, REDUCED_IOS, 0, Some(&mut sched), watch)?;
    // All I/Os, as the disk counts them: nothing is left out here.
    let mean = [&done.job.read, &done.job.write]
        .into_iter()
        .flatten()
        .find_map(|d| d.service_ns.mean);
    let mut case = StackCase {
        name: spec.name.clone(),
        rung: "unprivileged".into(),
        why: Some(why.to_owned()),
        application_mean_ns: mean,
        untraced: mean.map(Estimate::single),
        untraced_mean_ns: mean,
        observer_cost_ns: Some(0.0),
        jobs: vec![book.run().jobs.len()],
        ..StackCase::default()
    };
    if let Some(mean) = mean {
        let r = reduced(&done.job, mean, &sched, single);
        let sum: f64 = r.layers.iter().map(|l| l.mean_ns).sum();
        case.residual_ns = Some(mean - sum);
        case.layers = r.layers;
        case.cpu_per_io_ns = r.cpu_per_io_ns;
        case.notes = r.withheld;
    }
    case.notes.extend(processors(cpu));
    book.keep(done.job);
    Ok(case)
}
