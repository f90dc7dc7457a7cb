//! Runs jobs one after another for experiments that choose the next job by what the last one showed.
//!
//! It names repeats, derives seeds, keeps the notebook, and ends early on an interruption or an I/O
//! error, so that the experiments only speak of points and their repeats.

use fathom_io::JobSpec;
use fathom_io::driver::{PlannedJob, Progress};
use fathom_io::load::rng::mix as mix_bits;
use fathom_telemetry::{Flag, FlagCode};

use crate::bench::{Bench, BenchError};
use crate::cells::Cell;
use crate::notebook::{Notebook, NotebookError};
pub use crate::results::Point;
use crate::survey::{self, Watcher};

/// See the module.
pub struct Runner<'a> {
    /// Runs the jobs.
    pub bench: &'a mut dyn Bench,
    /// Keeps them.
    pub book: &'a mut Notebook,
    watcher: &'a mut dyn Watcher,
    experiment: &'static str,
    seed: u64,
    done: u32,
    total: u32,
    ended: bool,
}

impl<'a> Runner<'a> {
    /// Prepares the target; `total` is the expected number of jobs, for the progress display.
    pub fn begin(
        bench: &'a mut dyn Bench,
        book: &'a mut Notebook,
        watcher: &'a mut dyn Watcher,
        experiment: &'static str,
        seed: u64,
        total: u32,
    ) -> Result<Self, NotebookError> {
        survey::prepare(bench, watcher)?;
        Ok(Self {
            bench,
            book,
            watcher,
            experiment,
            seed,
            done: 0,
            total,
            ended: false,
        })
    }

    /// Runs one more repeat of a point; `false` where the experiment has to end.
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
            let n = points.len();
            for k in 0..n {
                let k = if round % 2 == 0 { n - 1 - k } else { k };
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
        if self.ended || self.bench.interrupted() {
            self.ended = true;
            return Ok(None);
        }
        let limits = self.bench.limits();
        let names: Vec<&str> = specs.iter().map(|s| s.name.as_str()).collect();
        self.watcher.job(
            self.done,
            self.total.max(self.done + 1),
            &names.join(" beside "),
        );
        let mut planned = Vec::new();
        for (i, spec) in specs.iter().enumerate() {
            let mut spec = spec.clone();
            let number = u64::from(self.done) << 8 | i as u64;
            spec.seed = mix_bits(self.seed ^ mix_bits(number)) >> 1;
            spec.name = format!("{}.{}", spec.name, repeat + 1);
            planned.push(PlannedJob {
                job: spec.validate(&limits).map_err(BenchError::from)?,
                experiment: self.experiment.to_owned(),
                repeat,
                guide: None,
            });
        }
        let watcher = &mut *self.watcher;
        let mut show = |p: &Progress| watcher.progress(p);
        let jobs = self.book.measure(self.bench, &planned, &mut show)?;
        self.done += 1;
        let failed = jobs
            .iter()
            .filter_map(|j| self.book.run().jobs.get(*j)?.errors.first())
            .map(|e| format!("{} failed: {}", e.op.name(), e.message))
            .next();
        if let Some(failed) = failed {
            self.ended = true;
            self.book.run_mut().flags.push(Flag::new(
                FlagCode::IoErrors,
                format!("{} ended early: {failed}", self.experiment),
                "look at the kernel log; what was measured until then is kept",
            ));
        }
        Ok(Some(jobs))
    }

    /// Shows work of the experiment that is no job of the bench, and counts it as one; `false` where the experiment has
    /// to end.
    pub fn beside(&mut self, name: &str) -> bool {
        self.ended |= self.bench.interrupted();
        if !self.ended {
            let total = self.total.max(self.done + 1);
            self.watcher.job(self.done, total, name);
            self.done += 1;
        }
        !self.ended
    }

    /// The point's repeats, gathered for analysis.
    pub fn cell(&self, point: &Point) -> Cell {
        self.book.evidence().cell(point)
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
            self.book.run_mut().flags.push(Flag::new(
                FlagCode::Interrupted,
                format!("{} of about {} jobs were run", self.done, self.total),
                "run again for the rest",
            ));
        }
    }
}
