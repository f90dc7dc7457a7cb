//! The survey: the standard set of experiments on one target.

mod bandwidth;
mod depth_sweep;
mod iops;
mod latency;
mod mix;

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Experiment, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_bench::schedule;
use fathom_io::{JobError, JobSpec};
use fathom_telemetry::Bytes;
use serde::{Deserialize, Serialize};

use crate::block_layer;

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

/// Loads of which is measured what the block layer costs: the path of one I/O, and of many.
fn both_ways(plan: &Plan) -> Result<[JobSpec; 2], JobError> {
    let load = |qd: &str| {
        let name = format!("randread-4k-qd{qd}");
        plan.job(&name, &[("rw", "randread"), ("bs", "4k"), ("qd", qd)])
    };
    Ok([load("1")?, load("32")?])
}

/// Time and bytes of a survey. `fills` is the size of the scratch file that is to be filled; a model has no kernel below
/// it whose latency could be split.
pub fn run_cost(plan: &Plan, fills: Bytes, simulated: bool) -> Result<RunCost, JobError> {
    let mut out = RunCost::filling(fills);
    for p in plans(plan)? {
        out.phase(p.experiment.id());
        for job in &p.jobs {
            out.add(job, plan.profile.repeats);
        }
    }
    out.join(block_layer::run_cost(plan, &both_ways(plan)?));
    // Where tracing is not allowed it is left out: at most.
    if !simulated {
        out.join(crate::stack::in_survey_cost(plan)?);
    }
    Ok(out)
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
    sink: &mut dyn ProgressSink,
) -> Result<(), NotebookError> {
    let planned = plans(plan).map_err(BenchError::from)?;
    let experiments: Vec<Measured> = planned
        .into_iter()
        .map(|p| Measured {
            experiment: p.experiment.id().to_owned(),
            points: p.jobs.into_iter().map(Point::new).collect(),
        })
        .collect();
    let all: Vec<(usize, usize)> = experiments
        .iter()
        .enumerate()
        .flat_map(|(e, measured)| (0..measured.points.len()).map(move |p| (e, p)))
        .collect();
    let mut result = SurveyResult { experiments };
    let total = all.len() as u32 * plan.profile.repeats;
    let mut runner = Runner::begin(bench, book, sink, "survey", seed, total)?;
    'repeats: for repeat in 0..plan.profile.repeats {
        for k in schedule::turns(all.len(), repeat) {
            let measured = &mut result.experiments[all[k].0];
            runner.of(&measured.experiment);
            if !runner.repeat(&mut measured.points[all[k].1])? {
                break 'repeats;
            }
        }
        runner.so_far(&result);
    }
    runner.end();
    book.found(&result)?;
    let loads = both_ways(plan).map_err(BenchError::from)?;
    block_layer::run(bench, plan, &loads, book, sink)?;
    crate::stack::in_survey(bench, plan, seed, book, sink)
}
