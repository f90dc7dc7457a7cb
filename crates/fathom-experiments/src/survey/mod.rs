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
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode, Op};

use crate::bench::Bench;
use crate::cells::{Cell, Experiment, Plan};
use crate::notebook::{Notebook, NotebookError};
pub use crate::outlook::Outlook;

/// Every experiment, in reading order. A new one is a file and a line here.
pub const EXPERIMENTS: &[&dyn Experiment] = &[
    &latency::Latency,
    &bandwidth::Bandwidth,
    &iops::Iops,
    &depth_sweep::DepthSweep,
    &mix::Mix,
];

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
    for (p, indices) in planned.iter().zip(&cells) {
        let cells: Vec<Cell> = p
            .jobs
            .iter()
            .zip(indices)
            .map(|(spec, indices)| cell(book, spec, indices))
            .collect();
        let analysis = p.experiment.analyse(&cells);
        let run = book.run_mut();
        run.results.push(analysis.section);
        run.headlines.extend(analysis.headlines);
        run.findings.extend(analysis.findings);
    }
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

/// Gathers the repeats of one job from the notebook.
pub fn cell(book: &Notebook, spec: &JobSpec, indices: &[usize]) -> Cell {
    let repeats: Vec<(usize, Job)> = indices
        .iter()
        .filter_map(|i| Some((*i, book.run().jobs.get(*i)?.clone())))
        .collect();
    let mut merged: [Option<Box<fathom_telemetry::Histogram>>; 4] = Default::default();
    for (i, job) in &repeats {
        if job.is_void() {
            continue;
        }
        let Some(m) = book.merged(*i) else { continue };
        for op in Op::ALL {
            if let Some(h) = &m[op as usize] {
                merged[op as usize]
                    .get_or_insert_with(Box::default)
                    .merge(h);
            }
        }
    }
    Cell {
        stem: spec.name.clone(),
        spec: spec.clone(),
        repeats,
        merged,
    }
}
