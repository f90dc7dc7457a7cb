//! The tree on each of several hosts at the same time: what an agent is asked for, what it says, and what all of that is
//! together.

use fathom_bench::bench::LogMaker;
use fathom_bench::schedule::seed;
use fathom_bench::{Bench, BenchError, NotebookError};
use fathom_io::clock::Clock;
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob, Progress};
use fathom_io::job::Limits;
use fathom_io::{Control, JobSpec};
use fathom_kv::Stats;
use fathom_stats::Estimate;
use fathom_telemetry::Nanos;
use fathom_telemetry::schema::{Job, Target};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::tree::Setup;
use super::{Cell, Counted, KvOptions, Lab, Repeat, file};
use crate::LabError;
use crate::clients::WIDTH;
use crate::loads::{About, Course};

/// As jobs name it.
const ENGINE: &str = "fathom-kv";

/// What an agent is asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Asked {
    options: KvOptions,
    cell: Cell,
    repeat: u32,
    /// Bytes of the range; the tree has the first half of it.
    size: u64,
    direct: bool,
    ramp: Nanos,
    time: Nanos,
}

/// What it says beside its job.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Said {
    operations: u64,
    stats: Stats,
    kernel_cpu: f64,
    leaves: u64,
    cached: u64,
    depth: Option<u32>,
}

/// Fills a tree on the open target, says that it is ready, and loads it from the moment that `control` names.
///
/// # Errors
/// What is no such load; the first failure of an operation.
pub(crate) fn serve(
    asked: &Value,
    bench: &mut dyn Bench,
    control: &Control,
    observer: &mut dyn Observer,
) -> Result<(Job, Value), LabError> {
    let asked: Asked = serde_json::from_value(asked.clone())
        .map_err(|e| LabError::Failed(format!("what it was asked for is no load of kv: {e}")))?;
    let file = file(bench, asked.direct && !asked.options.buffered)?;
    let source = super::load::counters(bench);
    let setup = Setup {
        options: &asked.options,
        size: asked.size,
        length: (asked.ramp, asked.time),
        together: true,
        device: source.as_ref(),
    };
    let mut ios = 0.0;
    let (clock, shown) = (Clock::new(), std::cell::RefCell::new(observer));
    let (outcome, leaves, cached) = setup.tree(
        (&asked.cell, asked.repeat),
        &file,
        &|| control.interrupted(),
        &mut || {
            shown.borrow_mut().ready();
            control.start(&clock, Nanos::ZERO);
        },
        &mut |rate| {
            ios += rate * WIDTH.as_secs_f64();
            shown.borrow_mut().progress(&Progress {
                elapsed: clock.now().since(control.began()),
                ios: ios as u64,
                ..Progress::default()
            });
        },
    )?;
    let observer = shown.into_inner();
    for window in &outcome.load.windows {
        observer.window(&ClosedWindow {
            job: 0,
            start_ns: (window.index * WIDTH.0) as i64,
            origin: outcome.load.origin,
            width: WIDTH,
            window,
        });
    }
    let said = Said {
        operations: outcome.operations,
        stats: outcome.stats,
        kernel_cpu: outcome.kernel_cpu,
        leaves,
        cached,
        depth: outcome.depth(),
    };
    let job = outcome.load.job(About {
        experiment: "kv",
        name: &format!("kv-{}", asked.cell.label()),
        repeat: asked.repeat,
        engine: ENGINE,
        spec: Value::Null,
        device: outcome.device,
        ours: true,
    });
    let said = serde_json::to_value(said).map_err(|e| LabError::Failed(e.to_string()))?;
    Ok((job, said))
}

/// What hosts said beside their jobs, added up, and the depth of each.
fn together(said: Vec<Value>) -> serde_json::Result<(Said, Vec<f64>)> {
    let mut all = Said::default();
    let mut depths = Vec::new();
    for one in said {
        let one: Said = serde_json::from_value(one)?;
        all.operations += one.operations;
        all.stats = all.stats.and(&one.stats);
        all.kernel_cpu += one.kernel_cpu;
        all.leaves += one.leaves;
        all.cached += one.cached;
        depths.extend(one.depth.map(f64::from));
    }
    Ok((all, depths))
}

/// A bench on which a job is the tree's load.
struct Trees<'a> {
    bench: &'a mut dyn Bench,
    asked: &'a dyn Fn(u32) -> Value,
    /// What the job keeps of what was asked for.
    spec: Value,
    /// What hosts said beside it.
    said: Vec<Value>,
}

impl Bench for Trees<'_> {
    fn limits(&self) -> Limits {
        self.bench.limits()
    }
    fn describe(&self) -> Target {
        self.bench.describe()
    }
    fn simulated(&self) -> bool {
        self.bench.simulated()
    }
    fn control(&self) -> Control {
        self.bench.control()
    }
    fn prepare(&mut self, observer: &mut dyn Observer) -> Result<Option<Job>, BenchError> {
        self.bench.prepare(observer)
    }
    fn run(
        &mut self,
        jobs: &[PlannedJob],
        _log: LogMaker<'_>,
        observer: &mut dyn Observer,
    ) -> Result<Vec<Job>, BenchError> {
        let mut all = Vec::new();
        for planned in jobs {
            let (mut job, said) = self.bench.load("kv", self.asked, planned, observer)?;
            (job.spec, job.engine) = (self.spec.clone(), ENGINE.into());
            self.said = said;
            all.push(job);
        }
        Ok(all)
    }
}

impl Lab<'_> {
    /// A tree on every host, loaded from one moment on.
    pub(super) fn hosted(
        &mut self,
        cell: &Cell,
        repeat: u32,
    ) -> Result<Result<Repeat, LabError>, NotebookError> {
        let limits = self.bench.limits();
        let (ramp, time) = super::time(self.plan, self.options);
        let spec = JobSpec {
            name: format!("kv-{}.{}", cell.label(), repeat + 1),
            time: Some(time),
            window: WIDTH,
            qd: self.options.threads,
            ..JobSpec::default()
        };
        let planned = PlannedJob {
            experiment: "kv".into(),
            repeat,
            ..PlannedJob::new(spec.validate(&limits).map_err(BenchError::from)?)
        };
        let (plan, options) = (self.plan, self.options);
        let asked = |host: u32| {
            let mut options = options.clone();
            // No two hosts draw the same keys.
            options.seed = seed(options.seed, "fleet", "kv", host);
            options.rate = options.rate.map(|r| r / f64::from(limits.hosts));
            let asked = Asked {
                options,
                cell: cell.clone(),
                repeat,
                size: plan.limits.size,
                direct: plan.direct,
                ramp,
                time,
            };
            serde_json::to_value(asked).unwrap_or_default()
        };
        let mut trees = Trees {
            bench: &mut *self.bench,
            asked: &asked,
            spec: options.spec(cell, repeat),
            said: Vec::new(),
        };
        let sink = &mut *self.sink;
        let jobs = self
            .book
            .measure(&mut trees, &[planned], &mut |p| sink.progress(p))?;
        let (all, depths) = match together(trees.said) {
            Ok(all) => all,
            Err(e) => {
                let why = format!("a host's answer is none of kv: {e}");
                return Ok(Err(LabError::Failed(why)));
            }
        };
        // Every operation counts as many bytes.
        let each = f64::from(8 + cell.value);
        let moved = self.book.courses().first().map_or(&[][..], Vec::as_slice);
        let counts: Vec<u64> = moved.iter().map(|b| (b / each).round() as u64).collect();
        Ok(Ok(Repeat {
            jobs,
            operations: all.operations,
            course: Course::thinned(WIDTH, 0, &counts),
            beside: Counted {
                stats: all.stats,
                kernel_cpu: all.kernel_cpu,
                leaves: all.leaves,
                cached: all.cached,
                // The raw device of each host gets as much.
                depth: Estimate::mean_of(&depths).map(|d| d.value.round() as u32),
                raw: Vec::new(),
            },
        }))
    }
}
