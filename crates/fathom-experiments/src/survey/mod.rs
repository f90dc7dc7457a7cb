//! The survey: the standard set of experiments on one target.

mod bandwidth;
mod depth_sweep;
mod iops;
mod latency;
mod mix;

use std::path::PathBuf;

use clap::Args;
use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::cells::{Experiment, Plan};
use fathom_bench::cost::RunCost;
use fathom_bench::measurement::{Measurement, Typed};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::results::{Evidence, ExperimentResult, Point, Shown};
use fathom_bench::runner::Runner;
use fathom_bench::schedule;
use fathom_io::{JobError, JobSpec};
use fathom_sim::SimTarget;
use fathom_telemetry::Bytes;
use fathom_telemetry::rundir::RunDir;
use fathom_telemetry::schema::Run;
use serde::{Deserialize, Serialize};

use crate::applications::{self, Application, ApplicationsResult};
use crate::block_layer;
use crate::endurance::{EnduranceResult, Stated};

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

/// What is surveyed.
#[derive(Debug, Clone, Args)]
#[command(
    mut_arg("profile", |a| a.help("quick (under 3 minutes), standard (about 10) or full (about an hour)")),
    after_help = "Examples:\n  fathom survey                          a scratch file in the current directory, removed afterwards\n  fathom survey /mnt/data --dry-run      say time and bytes to be written, and stop\n  fathom survey /dev/sdx --destroy SERIAL --profile full\n                                         a whole disk; its data is lost (serial: see fathom devices)"
)]
pub struct SurveyOptions {
    /// What the user knows better than the drive.
    #[command(flatten)]
    pub stated: Stated,
    /// Put what applications got beside it: a run of fathom kv, db or app on the same device; may be given several times
    #[arg(long, value_name = "RUN")]
    pub with: Vec<PathBuf>,
    /// These runs, and where each is kept.
    #[arg(skip)]
    pub labs: Vec<(Run, RunDir)>,
    /// Whether the target is a model, which has no kernel below it whose latency could be split.
    #[arg(skip)]
    pub simulated: bool,
}

impl Measurement for SurveyOptions {
    const NAME: &'static str = "survey";
    const KEEPS_CPU: bool = true;
    const KEEPS_CPU_OF: Option<&'static str> = Some("latency");
    const WEIGHTED: bool = true;
    const ON_HOSTS: bool = true;

    fn settle(&mut self, typed: &mut Typed) -> Result<(), String> {
        self.simulated = SimTarget::is_simulated(&typed.target);
        for path in &self.with {
            let (dir, run) = RunDir::open(path).map_err(|e| e.to_string())?;
            self.labs.push((run, dir));
        }
        Ok(())
    }

    fn fits(&self, bench: &dyn Bench) -> Result<(), String> {
        let about = bench.describe();
        self.labs
            .iter()
            .zip(&self.with)
            .try_for_each(|((lab, _), path)| {
                applications::belongs(lab, &about, bench.simulated())
                    .map_err(|why| format!("--with {}: {why}", path.display()))
            })
    }

    fn modifies(&self) -> bool {
        true
    }

    fn run_cost(&self, plan: &Plan, fills: Bytes) -> Result<RunCost, JobError> {
        let mut out = RunCost::filling(fills);
        for p in plans(plan)? {
            out.phase(p.experiment.id());
            for job in &p.jobs {
                out.add(job, plan.profile.repeats);
            }
        }
        out.join(block_layer::run_cost(plan, &both_ways(plan)?));
        // Where tracing is not allowed it is left out: at most.
        if !self.simulated {
            out.join(crate::stack::in_survey_cost(plan)?);
        }
        Ok(out)
    }

    fn run(
        &self,
        bench: &mut dyn Bench,
        plan: &Plan,
        book: &mut Notebook,
        sink: &mut dyn ProgressSink,
    ) -> Result<(), NotebookError> {
        let before = bench.health();
        let result = experiments(bench, plan, book, sink);
        let after = bench.health();
        // Of a survey that ends early, too: what it has measured is worth its report.
        let worn = EnduranceResult::of(book.run(), before.as_ref(), after.as_ref(), self.stated);
        if let Some(worn) = worn {
            book.found(&worn)?;
        }
        if !self.labs.is_empty() {
            let of = |(lab, dir): &(Run, RunDir)| Application::of(lab, dir.path());
            book.found(&ApplicationsResult {
                labs: self.labs.iter().map(of).collect(),
            })?;
        }
        result
    }
}

/// Runs every one with interleaved repeats and puts the results into the notebook.
///
/// Repeats run in alternating order (ABBA), so that a drift of the device does not favour a job. An
/// interruption ends it early; experiments are then analysed with the repeats that there are.
fn experiments(
    bench: &mut dyn Bench,
    plan: &Plan,
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
    let mut runner = Runner::begin(bench, book, sink, "survey", plan.seed, total)?;
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
    crate::stack::in_survey(bench, plan, book, sink)
}
