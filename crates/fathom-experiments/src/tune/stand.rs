//! Where passes run: on a model or on this machine, with changes in force for the length of one pass.

use std::sync::Arc;

use fathom_bench::bench::{Bench, BenchError};
use fathom_bench::notebook::{Notebook, NotebookError};
use fathom_bench::progress::ProgressSink;
use fathom_bench::schedule;
use fathom_bench::sim_bench::SimBench;
use fathom_io::JobSpec;
use fathom_io::driver::{Destination, DriveError, PlannedJob, Progress};
use fathom_sim::SimTarget;
use fathom_stack::settings::{Changed, NoIdle};
use fathom_telemetry::Bytes;
use fathom_telemetry::schema::Job;

use super::load::Load;
use super::suspect::{Change, in_order};

/// What jobs of this experiment are called in a run.
pub(super) const EXPERIMENT: &str = "tune";

/// A job that ran, and where it stands in the run.
pub struct Measured {
    /// Index into the run's jobs.
    pub index: usize,
    /// The job.
    pub job: Job,
}

/// What became of a pass.
pub enum Passed {
    /// It ran.
    Measured(Box<Measured>),
    /// A change could not be made here, and why.
    Impossible(String),
}

/// Where measures are kept.
pub trait Keeping {
    /// Runs one job on `bench` and keeps it.
    ///
    /// # Errors
    /// It could not run, or not be kept.
    fn measure(
        &mut self,
        bench: &mut dyn Bench,
        job: PlannedJob,
    ) -> Result<Measured, NotebookError>;
}

/// In a run's notebook.
pub struct InBook<'a> {
    /// The notebook.
    pub book: &'a mut Notebook,
    /// Is told what runs.
    pub sink: &'a mut dyn ProgressSink,
    /// Passes so far, and how many there will be at most.
    pub done: u32,
    /// See `done`.
    pub total: u32,
}

impl Keeping for InBook<'_> {
    fn measure(
        &mut self,
        bench: &mut dyn Bench,
        job: PlannedJob,
    ) -> Result<Measured, NotebookError> {
        let total = self.total.max(self.done + 1);
        self.sink.job(self.done, total, &job.job.spec.name);
        self.done += 1;
        let sink = &mut *self.sink;
        let mut show = |p: &Progress| sink.progress(p);
        let index = self.book.measure(bench, &[job], &mut show)?;
        let index = index.first().copied().unwrap_or_default();
        match self.book.run().jobs.get(index) {
            Some(job) => Ok(Measured {
                index,
                job: job.clone(),
            }),
            None => Err(NotebookError::Beside("no job came back".into())),
        }
    }
}

/// Nowhere: for tests that run thousands of jobs.
#[derive(Default)]
pub struct Counted(usize);

impl Keeping for Counted {
    fn measure(
        &mut self,
        bench: &mut dyn Bench,
        job: PlannedJob,
    ) -> Result<Measured, NotebookError> {
        let index = self.0;
        self.0 += 1;
        match bench.run(&[job], None, &mut ())?.pop() {
            Some(job) => Ok(Measured { index, job }),
            None => Err(NotebookError::Beside("no job came back".into())),
        }
    }
}

/// A target whose settings can be changed for a pass.
pub trait Stand {
    /// Runs one pass with changes in force.
    ///
    /// # Errors
    /// It could not run, or not be kept.
    fn pass(
        &mut self,
        changes: &[&Change],
        load: &Load,
        spec: &JobSpec,
    ) -> Result<Passed, NotebookError>;

    /// Runs a job `n` times without a pause, on one and the same state; with the temperature at the end, °C.
    ///
    /// # Errors
    /// It could not run, or not be kept.
    fn row(
        &mut self,
        spec: &JobSpec,
        n: u32,
        seed: u64,
    ) -> Result<(Vec<Measured>, [Option<f64>; 2]), NotebookError>;

    /// Whether someone asked to end.
    fn interrupted(&self) -> bool;
}

fn planned(bench: &dyn Bench, spec: &JobSpec) -> Result<PlannedJob, BenchError> {
    Ok(PlannedJob {
        experiment: EXPERIMENT.into(),
        ..PlannedJob::new(spec.validate(&bench.limits())?)
    })
}

/// A model: each pass has a fresh one, so that none inherits another's heat, wear or cached pages.
pub struct ModelStand<'a> {
    /// As it is.
    pub target: SimTarget,
    /// Keeps the measures.
    pub keeping: &'a mut dyn Keeping,
    /// What may end it early.
    pub control: fathom_io::Control,
}

impl Stand for ModelStand<'_> {
    fn pass(
        &mut self,
        changes: &[&Change],
        load: &Load,
        spec: &JobSpec,
    ) -> Result<Passed, NotebookError> {
        let mut target = self.target.clone();
        for change in changes {
            match change {
                Change::Model(f) => f(&mut target),
                _ => return Ok(Passed::Impossible("a model has no such setting".into())),
            }
        }
        let mut bench = SimBench::new(target, self.control.clone());
        if let Some(warm) = &load.warm {
            let mut warm = warm.clone();
            // The first job's seed is the model's.
            warm.seed = spec.seed;
            warm.size = warm.size.map(|s| s.min(Bytes(bench.limits().size)));
            let warm = planned(&bench, &warm)?;
            bench.run(&[warm], None, &mut ())?;
        }
        // Another array of the same members may be smaller.
        let mut spec = spec.clone();
        spec.size = spec.size.map(|s| s.min(Bytes(bench.limits().size)));
        let job = planned(&bench, &spec)?;
        let measured = self.keeping.measure(&mut bench, job)?;
        Ok(Passed::Measured(Box::new(measured)))
    }

    fn row(
        &mut self,
        spec: &JobSpec,
        n: u32,
        seed: u64,
    ) -> Result<(Vec<Measured>, [Option<f64>; 2]), NotebookError> {
        let mut bench = SimBench::new(self.target.clone(), self.control.clone());
        row(&mut bench, self.keeping, spec, n, seed)
    }

    fn interrupted(&self) -> bool {
        self.control.interrupted()
    }
}

/// A target on this machine. Settings are changed for the length of a pass and put back after it.
pub struct RealStand<'a> {
    /// Runs the jobs.
    pub bench: &'a mut dyn Bench,
    /// Keeps the measures.
    pub keeping: &'a mut dyn Keeping,
}

impl RealStand<'_> {
    fn file(&mut self) -> Option<Arc<std::fs::File>> {
        match self.bench.real()?.target().destination() {
            Destination::File { buffered, .. } => buffered.clone(),
            Destination::Null => None,
        }
    }
}

/// What holds a change until it is dropped.
#[derive(Default)]
struct Held {
    /// Dropped, and so put back, in the opposite order.
    changed: Vec<Changed>,
    awake: Option<NoIdle>,
}

impl Held {
    fn take(&mut self, change: &Change, spec: &mut JobSpec) -> Result<(), String> {
        let said = |e: fathom_stack::TraceError| e.to_string();
        if let Some(made) = change.make() {
            self.changed.push(made.map_err(said)?);
            return Ok(());
        }
        match change {
            Change::Awake if self.awake.is_none() => {
                self.awake = Some(NoIdle::hold().map_err(said)?);
            }
            // Through the page cache there is no completion to poll for.
            Change::Polled => spec.iopoll = spec.direct,
            Change::Model(_) => return Err("it is an option of models".into()),
            _ => {}
        }
        Ok(())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        while let Some(last) = self.changed.pop() {
            drop(last);
        }
    }
}

impl Stand for RealStand<'_> {
    fn pass(
        &mut self,
        changes: &[&Change],
        load: &Load,
        spec: &JobSpec,
    ) -> Result<Passed, NotebookError> {
        let file = self.file();
        // What an earlier pass wrote is not this one's burden.
        if let Some(f) = file.as_ref().filter(|_| !spec.direct) {
            let _ = f.sync_data();
        }
        let mut spec = spec.clone();
        let mut held = Held::default();
        for change in in_order(changes.to_vec(), |c| c) {
            if let Err(why) = held.take(change, &mut spec) {
                return Ok(Passed::Impossible(why));
            }
        }
        if let Some(f) = &file {
            use rustix::fs::{Advice, fadvise};
            if load.cold {
                let _ = fadvise(f, 0, None, Advice::DontNeed);
            }
            // An open file has the read-ahead of when it was opened: this makes it look again.
            let _ = fadvise(f, 0, None, Advice::Normal);
        }
        let job = match planned(&*self.bench, &spec) {
            Ok(job) => job,
            Err(e) => return Ok(Passed::Impossible(e.to_string())),
        };
        match self.keeping.measure(self.bench, job) {
            Ok(m) => Ok(Passed::Measured(Box::new(m))),
            Err(NotebookError::Bench(BenchError::Drive(e @ DriveError::Start { .. }))) => {
                Ok(Passed::Impossible(e.to_string()))
            }
            Err(e) => Err(e),
        }
    }

    fn row(
        &mut self,
        spec: &JobSpec,
        n: u32,
        seed: u64,
    ) -> Result<(Vec<Measured>, [Option<f64>; 2]), NotebookError> {
        row(self.bench, self.keeping, spec, n, seed)
    }

    fn interrupted(&self) -> bool {
        self.bench.interrupted()
    }
}

fn row(
    bench: &mut dyn Bench,
    keeping: &mut dyn Keeping,
    spec: &JobSpec,
    n: u32,
    seed: u64,
) -> Result<(Vec<Measured>, [Option<f64>; 2]), NotebookError> {
    let mut all = Vec::new();
    let mut celsius = [None, None];
    for i in 0..n {
        if bench.interrupted() {
            break;
        }
        let mut spec = spec.clone();
        spec.seed = schedule::seed(seed, EXPERIMENT, &spec.name, i);
        spec.name = format!("{}.{}", spec.name, i + 1);
        let job = planned(bench, &spec)?;
        all.push(keeping.measure(bench, job)?);
        // Asking a disk for its health sends it commands: only at the ends.
        if i == 0 || i + 1 == n {
            celsius[usize::from(i > 0)] = bench.health().and_then(|h| h.celsius);
        }
    }
    Ok((all, celsius))
}
