//! The survey: the standard set of experiments on one target.

mod bandwidth;
mod depth_sweep;
mod iops;
mod latency;
mod mix;
pub mod profile;

use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::load::rng::mix as mix_bits;
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::{Bytes, Flag, FlagCode};
use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::cells::{Experiment, Plan};
use crate::notebook::{Notebook, NotebookError};
pub use crate::outlook::Outlook;
use crate::results::{Evidence, ExperimentResult, Point, Shown};

/// Every experiment, in reading order. A new one is a file and a line here.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &latency::Latency,
    &bandwidth::Bandwidth,
    &iops::Iops,
    &depth_sweep::DepthSweep,
    &mix::Mix,
];

/// The points of a survey: where each stands in the run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SurveyResult {
    /// In reading order.
    pub experiments: Vec<Measured>,
}

/// The points of one experiment, in the order of [`Experiment::jobs`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// Its stable name.
    pub experiment: String,
    /// Its jobs.
    pub points: Vec<Point>,
}

impl ExperimentResult for SurveyResult {
    const EXPERIMENT: &'static str = "survey";

    fn present(&self, evidence: &Evidence<'_>, shown: &mut Shown) {
        for measured in &self.experiments {
            let known = EXPERIMENTS.iter().find(|e| e.id() == measured.experiment);
            if let Some(experiment) = known {
                shown.add(experiment.analyse(&evidence.cells(&measured.points)));
            }
        }
    }
}

/// One experiment's jobs.
struct Planned {
    experiment: &'static dyn Experiment,
    jobs: Vec<JobSpec>,
}

fn plans(plan: &Plan) -> Result<Vec<Planned>, JobError> {
    EXPERIMENTS
        .iter()
        .map(|e| {
            Ok(Planned {
                experiment: *e,
                jobs: e.jobs(plan)?,
            })
        })
        .collect()
}

/// Time and bytes of a survey. `fills` is the size of the scratch file that is to be filled.
pub fn outlook(plan: &Plan, fills: Bytes) -> Result<Outlook, JobError> {
    let mut out = Outlook::filling(fills);
    for job in plans(plan)?.iter().flat_map(|p| &p.jobs) {
        out.add(job, plan.profile.repeats);
    }
    // Where tracing is not allowed it is left out: at most.
    out.join(crate::stack::outlook(plan)?);
    Ok(out)
}

/// What a survey tells while it runs.
pub trait Watcher {
    /// The scratch file is being filled.
    fn filling(&mut self, _progress: &Progress) {}
    /// A job begins.
    fn job(&mut self, _done: u32, _of: u32, _name: &str) {}
    /// While it runs.
    fn progress(&mut self, _progress: &Progress) {}
}

/// Runs every experiment with interleaved repeats and puts the results into the notebook.
///
/// Repeats run in alternating order (ABBA), so that a drift of the device does not favour a job. An
/// interruption ends it early; experiments are then analysed with the repeats that there are.
pub fn run(
    bench: &mut dyn Bench,
    plan: &Plan,
    seed: u64,
    book: &mut Notebook,
    watcher: &mut dyn Watcher,
) -> Result<(), NotebookError> {
    let planned = plans(plan).map_err(crate::bench::BenchError::from)?;
    prepare(bench, watcher)?;
    let order: Vec<(usize, usize)> = planned
        .iter()
        .enumerate()
        .flat_map(|(e, p)| (0..p.jobs.len()).map(move |j| (e, j)))
        .collect();
    let total = order.len() as u32 * plan.profile.repeats;
    let mut cells: Vec<Vec<Vec<usize>>> = planned
        .iter()
        .map(|p| vec![Vec::new(); p.jobs.len()])
        .collect();
    let limits = bench.limits();
    let mut done = 0;
    'repeats: for repeat in 0..plan.profile.repeats {
        let forward = repeat % 2 == 0;
        for k in 0..order.len() {
            let (e, j) = order[if forward { k } else { order.len() - 1 - k }];
            if bench.interrupted() {
                break 'repeats;
            }
            let mut spec = planned[e].jobs[j].clone();
            spec.seed =
                mix_bits(seed ^ mix_bits((u64::from(repeat) << 32) | (e as u64) << 16 | j as u64))
                    >> 1;
            watcher.job(done, total, &spec.name);
            spec.name = format!("{}.{}", spec.name, repeat + 1);
            let job = PlannedJob {
                job: spec
                    .validate(&limits)
                    .map_err(crate::bench::BenchError::from)?,
                experiment: planned[e].experiment.id().to_owned(),
                repeat,
                guide: None,
            };
            let index = book.measure(bench, &[job], &mut |p| watcher.progress(p))?;
            cells[e][j].extend(index);
            done += 1;
            if let Some(failed) = book.run().jobs.last().and_then(|j| j.errors.first()) {
                let detail = format!(
                    "the survey ended early: {} failed: {}",
                    failed.op.name(),
                    failed.message
                );
                book.run_mut().flags.push(Flag::new(
                    FlagCode::IoErrors,
                    detail,
                    "look at the kernel log; what was measured until then is kept",
                ));
                break 'repeats;
            }
        }
    }
    if bench.interrupted() {
        book.run_mut().flags.push(Flag::new(
            FlagCode::Interrupted,
            format!("{done} of {total} jobs were run"),
            "run again for the rest",
        ));
    }
    let experiments = planned.into_iter().zip(cells).map(|(p, indices)| Measured {
        experiment: p.experiment.id().to_owned(),
        points: p
            .jobs
            .into_iter()
            .zip(indices)
            .map(|(spec, jobs)| Point { spec, jobs })
            .collect(),
    });
    book.found(&SurveyResult {
        experiments: experiments.collect(),
    })?;
    crate::stack::in_survey(bench, plan, seed, book, watcher)
}

/// Fills what is to be filled, and shows it.
pub(crate) fn prepare(
    bench: &mut dyn Bench,
    watcher: &mut dyn Watcher,
) -> Result<(), crate::bench::BenchError> {
    struct Filling<'a>(&'a mut dyn Watcher);
    impl fathom_io::Observer for Filling<'_> {
        fn progress(&mut self, p: &Progress) {
            self.0.filling(p);
        }
    }
    bench.prepare(&mut Filling(watcher)).map(|_| ())
}
