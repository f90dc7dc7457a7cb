//! The tree on each of several hosts at the same time: what an agent is asked for, what it says, and what all of that is
//! together.

use std::collections::BTreeMap;

use fathom_bench::schedule::seed;
use fathom_bench::{Bench, BenchError};
use fathom_io::clock::Clock;
use fathom_io::driver::{ClosedWindow, Observer, PlannedJob, Progress};
use fathom_io::{Control, JobSpec};
use fathom_kv::Stats;
use fathom_stats::Estimate;
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Nanos, Window};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::load::Outcome;
use super::{Cell, KvOptions, Lab, Setup, file};
use crate::LabError;
use crate::clients::WIDTH;
use crate::loads::{self, About, Course, OfHosts};

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
        device: source.as_ref(),
    };
    let (mut ios, mut began) = (0.0, Nanos::ZERO);
    let (clock, shown) = (Clock::new(), std::cell::RefCell::new(observer));
    let (outcome, leaves, cached) = setup.tree(
        (&asked.cell, asked.repeat),
        &file,
        &|| control.interrupted(),
        &mut || {
            shown.borrow_mut().ready();
            began = control.start(&clock, Nanos::ZERO);
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
        engine: "fathom-kv",
        spec: Value::Null,
        device: outcome.device,
        ours: true,
    });
    let said = serde_json::to_value(said).map_err(|e| LabError::Failed(e.to_string()))?;
    Ok((job, said))
}

/// Keeps the windows of a job.
struct Kept<'a> {
    windows: BTreeMap<u64, Window>,
    sink: &'a mut dyn fathom_bench::progress::ProgressSink,
}

impl Observer for Kept<'_> {
    fn window(&mut self, w: &ClosedWindow<'_>) {
        if w.start_ns >= 0 {
            self.windows.insert(w.window.index, w.window.clone());
        }
    }
    fn progress(&mut self, p: &Progress) {
        self.sink.progress(p);
    }
}

impl Lab<'_> {
    /// As [`Lab::tree`], on every host beginning together.
    pub(super) fn hosted(
        &mut self,
        cell: &Cell,
        repeat: u32,
    ) -> Result<(Outcome, u64, u64), LabError> {
        let limits = self.bench.limits();
        let (ramp, time) = super::time(self.plan, self.options);
        let spec = JobSpec {
            name: format!("kv-{}", cell.label()),
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
        let asked = |host: u32| {
            let mut options = self.options.clone();
            // No two hosts draw the same keys.
            options.seed = seed(options.seed, "fleet", "kv", host);
            options.rate = options.rate.map(|r| r / f64::from(limits.hosts));
            serde_json::to_value(Asked {
                options,
                cell: cell.clone(),
                repeat,
                size: self.plan.limits.size,
                direct: self.plan.direct,
                ramp,
                time,
            })
            .unwrap_or_default()
        };
        let mut kept = Kept {
            windows: BTreeMap::new(),
            sink: &mut *self.sink,
        };
        let (job, said) = self.bench.load("kv", &asked, &planned, &mut kept)?;
        let mut all = Said::default();
        let mut depths = Vec::new();
        for one in said {
            let one: Said = serde_json::from_value(one)
                .map_err(|e| LabError::Failed(format!("a host's answer is none of kv: {e}")))?;
            all.operations += one.operations;
            all.stats = all.stats.and(&one.stats);
            all.kernel_cpu += one.kernel_cpu;
            all.leaves += one.leaves;
            all.cached += one.cached;
            depths.extend(one.depth.map(f64::from));
        }
        // The raw device of each host gets the same.
        let depth = Estimate::mean_of(&depths).map(|d| d.value.round() as u32);
        let windows = kept.windows;
        let course = Course::of(WIDTH, 0, &windows);
        let wall = Nanos(job.wall_ns);
        let load = loads::Load {
            clients: self.options.threads * limits.hosts,
            windows: windows.into_values().collect(),
            rate: self.options.rate,
            of_hosts: Some(Box::new(OfHosts { job, depth })),
            ..loads::Load::whole(Window::default(), 0, wall, course)
        };
        let outcome = Outcome {
            load: loads::Load {
                width: WIDTH,
                ..load
            },
            operations: all.operations,
            stats: all.stats,
            kernel_cpu: all.kernel_cpu,
            device: None,
        };
        Ok((outcome, all.leaves, all.cached))
    }
}
