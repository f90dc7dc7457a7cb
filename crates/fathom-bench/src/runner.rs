//! Runs jobs one after another, for experiments that choose the next job by what the last one showed as for those whose
//! jobs are known before.
//!
//! It names repeats, derives seeds ([`crate::schedule`]), keeps the notebook, shows progress, and ends early on an
//! interruption or an I/O error, so that the experiments only speak of points and their repeats.

use fathom_io::JobSpec;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::target::purge::{Compared, Method, PurgeError, Purged, Samples};
use fathom_telemetry::schema::Job;
use fathom_telemetry::{Bytes, Flag, FlagCode};

use crate::bench::{Bench, BenchError};
use crate::cells::Cell;
use crate::notebook::{Notebook, NotebookError};
use crate::present;
use crate::progress::{self, ProgressSink};
use crate::results::ExperimentResult;
pub use crate::results::Point;
use crate::schedule;

/// A schedule under way.
pub struct Runner<'a> {
    /// Runs the jobs.
    pub bench: &'a mut dyn Bench,
    /// Keeps them.
    pub book: &'a mut Notebook,
    sink: &'a mut dyn ProgressSink,
    experiment: String,
    seed: u64,
    done: u32,
    total: u32,
    ended: bool,
}

impl<'a> Runner<'a> {
    /// Prepares the target; `total` is the expected number of jobs, for the progress display.
    ///
    /// # Errors
    /// Where the target cannot be filled.
    pub fn begin(
        bench: &'a mut dyn Bench,
        book: &'a mut Notebook,
        sink: &'a mut dyn ProgressSink,
        experiment: &str,
        seed: u64,
        total: u32,
    ) -> Result<Self, NotebookError> {
        progress::prepare(bench, sink)?;
        Ok(Self::unprepared(bench, book, sink, experiment, seed, total))
    }

    /// The same on a target that needs no preparation: nothing is read that was not written before.
    pub fn unprepared(
        bench: &'a mut dyn Bench,
        book: &'a mut Notebook,
        sink: &'a mut dyn ProgressSink,
        experiment: &str,
        seed: u64,
        total: u32,
    ) -> Self {
        Self {
            bench,
            book,
            sink,
            experiment: experiment.to_owned(),
            seed,
            done: 0,
            total,
            ended: false,
        }
    }

    /// The jobs that follow belong to this experiment.
    pub fn of(&mut self, experiment: &str) {
        experiment.clone_into(&mut self.experiment);
    }

    /// Runs one more repeat of a point; `false` where the experiment has to end.
    ///
    /// # Errors
    /// Where the bench or the run directory fails; so everywhere below.
    pub fn repeat(&mut self, point: &mut Point) -> Result<bool, NotebookError> {
        let index = point.jobs.len();
        let Some(jobs) = self.group(std::slice::from_ref(&point.spec), index as u32)? else {
            return Ok(false);
        };
        point.jobs.extend(jobs);
        Ok(!self.ended)
    }

    /// Brings every point to `repeats`, in alternating order (ABBA), so that a drift of the device does
    /// not favour a point; `false` where the experiment has to end.
    pub fn fill_up(&mut self, points: &mut [Point], repeats: u32) -> Result<bool, NotebookError> {
        for round in 0..repeats {
            for k in schedule::turns(points.len(), round) {
                if points[k].jobs.len() as u32 > round {
                    continue;
                }
                if !self.repeat(&mut points[k])? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Runs jobs at the same time; `None` where the experiment has to end.
    pub fn group(
        &mut self,
        specs: &[JobSpec],
        repeat: u32,
    ) -> Result<Option<Vec<usize>>, NotebookError> {
        let planned = specs.iter().map(|spec| {
            let mut numbered = spec.clone();
            numbered.name = format!("{}.{}", spec.name, repeat + 1);
            (numbered, spec.name.as_str())
        });
        let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        let jobs = self.run(planned.collect(), repeat, &names.join(" beside "))?;
        let first = jobs.iter().flatten().find_map(|j| self.failure(*j));
        if let Some(failed) = first {
            self.fail(&failed);
        }
        Ok(jobs)
    }

    /// Runs one job under its own name; `None` where the experiment has to end. Jobs of one `stream` and repeat have the
    /// same offsets.
    pub fn one(
        &mut self,
        spec: JobSpec,
        stream: &str,
        repeat: u32,
    ) -> Result<Option<usize>, NotebookError> {
        let job = self.attempt(spec, stream, repeat)?;
        if let Some(failed) = job.and_then(|j| self.failure(j)) {
            self.fail(&failed);
        }
        Ok(job)
    }

    /// The same, where an I/O error is not the end of the experiment.
    pub fn attempt(
        &mut self,
        spec: JobSpec,
        stream: &str,
        repeat: u32,
    ) -> Result<Option<usize>, NotebookError> {
        let name = spec.name.clone();
        let jobs = self.run(vec![(spec, stream)], repeat, &name)?;
        Ok(jobs.and_then(|j| j.first().copied()))
    }

    fn run(
        &mut self,
        specs: Vec<(JobSpec, &str)>,
        repeat: u32,
        label: &str,
    ) -> Result<Option<Vec<usize>>, NotebookError> {
        if self.ended || self.bench.interrupted() {
            self.ended = true;
            return Ok(None);
        }
        let limits = self.bench.limits();
        self.sink
            .job(self.done, self.total.max(self.done + 1), label);
        let mut planned = Vec::new();
        for (mut spec, stream) in specs {
            spec.seed = schedule::seed(self.seed, &self.experiment, stream, repeat);
            planned.push(PlannedJob {
                job: spec.validate(&limits).map_err(BenchError::from)?,
                experiment: self.experiment.clone(),
                repeat,
                guide: None,
                files: None,
            });
        }
        let sink = &mut *self.sink;
        let mut show = |p: &Progress| sink.progress(p);
        let jobs = self.book.measure(self.bench, &planned, &mut show)?;
        self.done += 1;
        Ok(Some(jobs))
    }

    /// Empties the first `range` bytes of the target by a way that is no job, and shows how far it is.
    ///
    /// # Errors
    /// Where the target is no block device of this machine, and as [`fathom_io::Target::purge`].
    pub fn purge(&mut self, method: Method, range: Bytes) -> Result<Purged, PurgeError> {
        let control = self.bench.control();
        let Some(real) = self.bench.real() else {
            let target = self.bench.describe().name;
            return Err(PurgeError::NoDevice { target, method });
        };
        let sink = &mut *self.sink;
        let mut show = |percent| sink.purging(method.name(), percent);
        real.target().purge(method, range, &control, &mut show)
    }

    /// Samples of the target, where it is a block device of this machine that may be written.
    pub fn samples(&mut self, range: Bytes) -> Option<Samples> {
        Samples::of(self.bench.real()?.target(), range)
    }

    /// The same samples as they read now.
    pub fn compare(&mut self, samples: &Samples) -> Option<Compared> {
        Some(samples.compare(self.bench.real()?.target()))
    }

    /// A job of the run.
    pub fn job(&self, index: usize) -> &Job {
        &self.book.run().jobs[index]
    }

    /// Why a job failed, where it did.
    pub fn failure(&self, job: usize) -> Option<String> {
        let e = self.job(job).errors.first()?;
        Some(format!("{} failed: {}", e.op.name(), e.message))
    }

    /// Ends the experiment because of an I/O error.
    pub fn fail(&mut self, failed: &str) {
        self.ended = true;
        self.book.run_mut().flags.push(Flag::new(
            FlagCode::IoErrors,
            format!("{} ended early: {failed}", self.experiment),
            "look at the kernel log; what was measured until then is kept",
        ));
    }

    /// Whether an interruption or an error ended it.
    pub fn ended(&self) -> bool {
        self.ended
    }

    /// Shows work of the experiment that is no job of the bench, and counts it as one; `false` where the experiment has
    /// to end.
    pub fn beside(&mut self, name: &str) -> bool {
        self.ended |= self.bench.interrupted();
        if !self.ended {
            let total = self.total.max(self.done + 1);
            self.sink.job(self.done, total, name);
            self.done += 1;
        }
        !self.ended
    }

    /// The point's repeats, gathered for analysis.
    pub fn cell(&self, point: &Point) -> Cell {
        self.book.evidence().cell(point)
    }

    /// Shows what the experiment would say if it ended now.
    pub fn so_far<T: ExperimentResult>(&mut self, result: &T) {
        let evidence = self.book.evidence();
        self.sink.so_far(&|| present::so_far(&evidence, result));
    }

    /// Goes on counting where another runner of the same experiment ended.
    pub fn after(mut self, done: u32) -> Self {
        self.done = done;
        self
    }

    /// Jobs run so far, those of the runners before included.
    pub fn done(&self) -> u32 {
        self.done
    }

    /// Says where the experiment ended early.
    pub fn end(&mut self) {
        if self.bench.interrupted() {
            let flag = schedule::cut_short(self.done, self.total);
            self.book.run_mut().flags.push(flag);
        }
    }
}
